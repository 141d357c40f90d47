/*
 * Targets: the rendezvous, its root (rank 0 or the host of an id) and a member, with others that know the key and send
 * what they like; unique ids; the answers of a PMI launcher. One thread: poll() calls the others (fuzz.h).
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "bootstrap/exchange.h"
#include "bootstrap/id.h"
#include "bootstrap/pmi.h"
#include "bootstrap/rendezvous_roles.h"
#include "bootstrap/rendezvous_state.h"
#include "bootstrap/secret.h"
#include "bootstrap/wire.h"
#include "tests/fuzz/fuzz.h"

void fuzz_rendezvous_root(const uint8_t *data, size_t len_bytes);
void fuzz_rendezvous_host(const uint8_t *data, size_t len_bytes);
void fuzz_rendezvous_member(const uint8_t *data, size_t len_bytes);
void fuzz_unique_id(const uint8_t *data, size_t len_bytes);
void fuzz_pmi(const uint8_t *data, size_t len_bytes);
void fuzz_key(const uint8_t *data, size_t len_bytes);

enum { OTHERS = 4, BRINGS = 16, IDLE_TURNS = 6 };

static const uint64_t key[2] = {3, 4};

/* ---- Those who send what the input says ---- */

struct crowd {
	struct fuzz_input in;
	struct coll_address door; /* where they connect to; or */
	int listener;             /* -1, or where they are connected to */
	struct coll_wire wire[OTHERS];
	int count, idle, unheard;
	char unix_name[40];
	atomic_int *phase; /* of a host */
};

static struct coll_settings settings;

static void crowd_begin(struct crowd *c, const uint8_t *data, size_t len_bytes)
{
	static int serial;

	memset(c, 0, sizeof(*c));
	c->in = (struct fuzz_input){data, len_bytes};
	for (int i = 0; i < OTHERS; i++)
		c->wire[i] = (struct coll_wire){.fd = -1, .state = COLL_WIRE_CLOSED};
	snprintf(c->unix_name, sizeof(c->unix_name), "coll-fuzz-%d-%d", (int)getpid(), serial++);
	c->listener = coll_listen_unix(c->unix_name, &c->door);
	FUZZ_HOLDS(c->listener >= 0);
	if (!settings.create_timeout_ms)
		FUZZ_HOLDS(coll_settings_load(&settings, NULL, NULL, NULL) == COLL_OK);
}

static void crowd_end(struct crowd *c)
{
	for (int i = 0; i < OTHERS; i++)
		coll_wire_close(&c->wire[i]);
	close(c->listener);
}

/* One frame of the input: who, type, length, body. Who + 0x80 hangs up instead. */
static void speak(struct crowd *c)
{
	const uint8_t who = fuzz_byte(&c->in), type = fuzz_byte(&c->in);
	struct coll_wire *w = &c->wire[who % OTHERS];
	uint8_t body[2048];
	size_t len_bytes = fuzz_byte(&c->in);

	len_bytes |= (size_t)(fuzz_byte(&c->in) % 8) << 8;
	fuzz_bytes(&c->in, body, len_bytes);
	if (w->state == COLL_WIRE_OPEN && who & 0x80)
		coll_wire_close(w);
	else if (w->state == COLL_WIRE_OPEN)
		coll_wire_send(w, type, body, len_bytes, NULL, 0);
}

/* Move bytes; true while something happens. */
static bool pump(struct crowd *c)
{
	struct coll_wire_frame f;
	bool open = false;

	for (int i = 0; i < c->count; i++) {
		struct coll_wire *w = &c->wire[i];

		if (w->fd < 0)
			continue;
		coll_wire_pump(w, POLLIN | POLLOUT);
		while (coll_wire_peek(w, 1 << 20, &f))
			coll_wire_take(w, &f);
		if (w->state == COLL_WIRE_CLOSED)
			coll_wire_close(w);
		open |= w->state == COLL_WIRE_OPEN;
	}
	return open;
}

/* When the input is at its end all hang up, after a while. */
static void hang_up(struct crowd *c)
{
	int awaited = COLL_MEETING_AWAITED;

	if (c->in.left > 0 || ++c->idle <= IDLE_TURNS)
		return;
	for (int i = 0; i < OTHERS; i++)
		coll_wire_close(&c->wire[i]);
	/* It would wait for its first rank without end. */
	if (c->phase)
		atomic_compare_exchange_strong(c->phase, &awaited, COLL_MEETING_GIVEN_UP);
}

/* Nobody listens to the rest, if all have been turned away. */
static void go_on(struct crowd *c)
{
	if (pump(c) && c->in.left > 0)
		speak(c);
	else if (c->in.left > 0 && ++c->unheard > 10 * OTHERS)
		c->in.left = 0;
	hang_up(c);
}

static void connect_in(void *arg)
{
	struct crowd *c = arg;

	if (c->count < OTHERS && (c->count == 0 || c->in.left > 0))
		coll_wire_connect(&c->wire[c->count++], &c->door, key);
	go_on(c);
}

static void accept_there(void *arg)
{
	struct crowd *c = arg;
	const int fd = c->count < OTHERS ? accept4(c->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;

	if (fd >= 0)
		coll_wire_accept(&c->wire[c->count++], fd, key);
	go_on(c);
}

/* ---- Targets ---- */

static struct coll_rendezvous_point point(struct crowd *c, int rank, int size, uint8_t *mine, uint8_t *all)
{
	struct coll_rendezvous_point how = {
	        .rank = rank,
	        .size = size,
	        .key = {key[0], key[1]},
	        .deadline_ns = coll_clock_ns() + 30 * UINT64_C(1000000000),
	        .settings = &settings,
	        .mine = mine,
	        .all = all,
	        .len_bytes = BRINGS,
	        .listeners = {{c->listener}, rank == 0},
	        .unix_only = true,
	        .root_text = "fuzz",
	};

	coll_places_add(&how.root, &c->door);
	return how;
}

static void meet(const uint8_t *data, size_t len_bytes, bool root)
{
	uint8_t mine[BRINGS] = {1}, all[BRINGS * 20];
	const int size = 2 + (len_bytes ? data[0] % 19 : 0);
	struct coll_rendezvous_point how;
	struct coll_error_box err;
	struct crowd c;

	coll_error_clear(&err);
	crowd_begin(&c, data + (len_bytes > 0), len_bytes - (len_bytes > 0));
	fuzz_time_begin(1000, root ? connect_in : accept_there, &c);
	how = point(&c, root ? 0 : 1, size, mine, all);
	coll_rendezvous(&how, &err);
	fuzz_time_end();
	crowd_end(&c);
}

void fuzz_rendezvous_root(const uint8_t *data, size_t len_bytes)
{
	meet(data, len_bytes, true);
}

void fuzz_rendezvous_member(const uint8_t *data, size_t len_bytes)
{
	meet(data, len_bytes, false);
}

/* It knows neither how many ranks there are nor what they bring. */
void fuzz_rendezvous_host(const uint8_t *data, size_t len_bytes)
{
	atomic_int phase = COLL_MEETING_AWAITED;
	struct coll_rendezvous_point how = {.rank = COLL_RENDEZVOUS_HOST,
	                                    .hosted = true,
	                                    .key = {key[0], key[1]},
	                                    .phase = &phase,
	                                    .root_text = "fuzz"};
	struct crowd c;

	crowd_begin(&c, data, len_bytes);
	coll_rendezvous_add(&how.listeners, c.listener);
	c.phase = &phase;
	fuzz_time_begin(1000, connect_in, &c);
	coll_rendezvous_host(&how);
	fuzz_time_end();
	crowd_end(&c);
}

void fuzz_unique_id(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	struct coll_places places = {0};
	struct coll_error_box err;
	coll_unique_id id;
	uint64_t its_key[2];

	coll_error_clear(&err);
	fuzz_bytes(&in, id.bytes, sizeof(id.bytes));
	coll_id_read(&id, &places, its_key, &err);
	places.count = 0;
	if (coll_places_unpack(&places, data, len_bytes))
		FUZZ_HOLDS(places.count >= 0 && places.count <= COLL_PLACES_MAX);
}

/* The first byte says whether this is rank 0. */
void fuzz_pmi(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	const bool root = fuzz_byte(&in) & 1;
	char text[257] = "0123456789abcdef", number[16];
	struct coll_error_box err;
	int ends[2];

	if (in.left > 60000)
		return;
	coll_error_clear(&err);
	FUZZ_HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	FUZZ_HOLDS(send(ends[1], in.at, in.left, MSG_NOSIGNAL) == (ssize_t)in.left || in.left == 0);
	shutdown(ends[1], SHUT_WR);
	snprintf(number, sizeof(number), "%d", ends[0]);
	setenv("PMI_FD", number, 1);
	coll_pmi_share(root, text, sizeof(text), coll_clock_ns() + 1000000000u, &err);
	FUZZ_HOLDS(memchr(text, 0, sizeof(text)) != NULL);
	close(ends[0]);
	close(ends[1]);
}

/* A launch secret from a descriptor, which is closed once the key is read, and kept by its number. */
void fuzz_key(const uint8_t *data, size_t len_bytes)
{
	static int serial;
	struct coll_settings s = settings;
	struct coll_identity id = {.root_host = "10.0.0.1", .size = 2};
	struct coll_error_box err;
	char path[64];
	const int fd = fuzz_file(data, len_bytes, path);

	coll_error_clear(&err);
	FUZZ_HOLDS(coll_settings_load(&s, NULL, NULL, NULL) == COLL_OK && lseek(fd, 0, SEEK_SET) == 0);
	s.key_fd = fcntl(fd, F_DUPFD, 100 + 50 * (serial++ % 2));
	close(fd);
	if (coll_secret_find(&s, "words", &id, &err) == COLL_OK)
		FUZZ_HOLDS(id.secret != NULL && fcntl(s.key_fd, F_GETFD) < 0);
	else
		FUZZ_HOLDS(close(s.key_fd) == 0);
}
