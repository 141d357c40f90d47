/*
 * Target: a member that shares memory with us and does what it likes with it. Two instances in one process; the second
 * one joins as every peer does, and then sends messages of its own, with descriptors of its own, and writes into the
 * rings, its own and ours.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/fuzz/fuzz.h"
#include "transport/transport_shared.h"
#include "transports/shm/link.h"
#include "transports/shm/offer.h"
#include "transports/shm/segment.h"
#include "transports/shm/shm.h"
#include "transports/shm/wire.h"

void fuzz_shm(const uint8_t *data, size_t len_bytes);

enum { SLOT = 65536, SLOTS = 2, STEPS = 60, USER = 1 << 17 };

static const struct coll_transport *t = &coll_transport_shm;
static const uint64_t session_key[2] = {3, 4};
static void *inst[2];
static struct coll_transport_env env[2];
static char address[2][256];
static size_t address_bytes[2];
static char user[USER];

/* Our ends: of the link, and channels to send and receive; and the ends of the other. */
struct bench {
	void *link[2], *tx, *rx, *their_tx, *their_rx;
	struct coll_completion sent, received;
};

static const char *setting(void *ctx, const char *name)
{
	return strcmp(name, "COLL_SHM_COPY") == 0 ? "cma" : "";
}

static void no_log(void *ctx, int level, const char *format, ...)
{
}

static void down(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause)
{
	FUZZ_HOLDS(cause && why > COLL_AGAIN);
}

static void open_instances(void)
{
	for (int i = 0; i < 2; i++) {
		env[i] = (struct coll_transport_env){.size = sizeof(env[i]),
		                                     .self = {{coll_clock_ns(), (uint64_t)i}},
		                                     .job_key = session_key,
		                                     .host_id = "h",
		                                     .wake_fd = -1,
		                                     .setting = setting,
		                                     .log = no_log,
		                                     .link_down = down};
		FUZZ_HOLDS(t->open(&env[i], &inst[i]) == COLL_OK);
		FUZZ_HOLDS(t->address(inst[i], address[i], sizeof(address[i]), &address_bytes[i]) == COLL_OK);
	}
}

static void progress(void)
{
	t->progress(inst[0]);
	t->progress(inst[1]);
}

static void begin(struct bench *b)
{
	const struct coll_channel_key to = {.comm = 1}, from = {.comm = 2};
	void *p;

	for (int i = 0; i < 2; i++)
		FUZZ_HOLDS(t->link_open(inst[i], &env[!i].self, address[!i], address_bytes[!i], &b->link[i]) ==
		           COLL_OK);
	FUZZ_HOLDS(t->channel_open(b->link[0], &to, COLL_DIR_SEND, SLOT, SLOTS, &b->tx) == COLL_OK);
	FUZZ_HOLDS(t->channel_open(b->link[1], &to, COLL_DIR_RECV, SLOT, SLOTS, &b->their_rx) == COLL_OK);
	FUZZ_HOLDS(t->channel_open(b->link[0], &from, COLL_DIR_RECV, SLOT, SLOTS, &b->rx) == COLL_OK);
	FUZZ_HOLDS(t->channel_open(b->link[1], &from, COLL_DIR_SEND, SLOT, SLOTS, &b->their_tx) == COLL_OK);
	for (int i = 0; i < 100000 && (t->slot(b->tx, 8, &p) != COLL_OK || t->slot(b->their_tx, 8, &p) != COLL_OK); i++)
		progress();
	FUZZ_HOLDS(t->slot(b->tx, 8, &p) == COLL_OK && t->slot(b->their_tx, 8, &p) == COLL_OK);
}

static void end(struct bench *b)
{
	t->channel_close(b->tx);
	t->channel_close(b->rx);
	t->channel_close(b->their_tx);
	t->channel_close(b->their_rx);
	for (int i = 0; i < 2; i++)
		t->link_close(b->link[i]);
	progress();
}

/* ---- The other one ---- */

/* Memory as it should be, or one that can shrink, is short, cannot be written, or is none. */
static int make_fd(uint8_t kind, size_t len_bytes)
{
	int fd;

	if (kind % 8 == 0)
		return -1;
	if (kind % 8 == 1)
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	if (kind % 8 == 2) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		if (fd >= 0 && ftruncate(fd, 4096) != 0)
			abort();
		return fd;
	}
	return coll_shm_memfd(kind % 8 == 3 ? 4096 : len_bytes ? len_bytes : 4096);
}

static void send_message(struct bench *b, struct fuzz_input *in)
{
	const uint8_t type = fuzz_byte(in) % 16, kind = fuzz_byte(in);
	struct shm_link *l = b->link[1];
	struct shm_message m = coll_shm_message(type);
	int fds[2] = {-1, -1};

	fuzz_bytes(in, m.pad, fuzz_byte(in) % (sizeof(m.pad) + 1));
	if (!l->conn || l->conn->state != SHM_JOINED)
		return;
	fds[0] = make_fd(kind, (size_t)(kind >> 3) << 14);
	coll_shm_transmit(l->conn->source.fd, &m, fds);
	if (fds[0] >= 0)
		close(fds[0]);
}

/* Into its own ring, which we receive from, or into that which we send through. */
static void scribble(struct bench *b, struct fuzz_input *in)
{
	const struct shm_channel *c = fuzz_byte(in) & 1 ? b->their_tx : b->their_rx;
	char *ring = (char *)atomic_load(&((struct shm_channel *)(uintptr_t)c)->ring);
	const size_t control = coll_shm_control_bytes(SLOTS), at = fuzz_byte(in) | (size_t)fuzz_byte(in) << 8;
	uint8_t bytes[64];
	const size_t n = 1 + fuzz_byte(in) % sizeof(bytes);

	fuzz_bytes(in, bytes, n);
	if (ring)
		memcpy(ring + at % (control - sizeof(bytes)), bytes, n);
}

/* A head as it should be, but for what the input says. */
static void send_head(struct bench *b, struct fuzz_input *in)
{
	struct shm_channel *c = b->their_tx;
	struct shm_head *head = &c->heads[c->at];
	const uint8_t kind = fuzz_byte(in), turn = fuzz_byte(in);

	head->sequence = 1;
	head->signature = 2;
	head->len_bytes = fuzz_number(in);
	fuzz_bytes(in, head->bytes, fuzz_byte(in) % (SHM_INLINE_MAX + 1));
	atomic_store(&head->word,
	             (uint64_t)fuzz_byte(in) << 32 | (atomic_load(&c->count) + 1 + turn / 128) << 2 | kind % 4);
	atomic_store(&c->count, atomic_load(&c->count) + 1);
	c->at = (c->at + 1) % SLOTS;
}

/* ---- We ---- */

static void receive(struct bench *b, uint8_t how)
{
	const struct coll_frame expect = {1, 2, (uint32_t)(how >> 2) << 10};
	struct coll_frame f;
	const void *p;
	unsigned sum = 0;

	if (how & 1 && !coll_completion_pending(&b->received))
		t->recv_into(b->rx, user, NULL, &expect, &b->received);
	if (!coll_completion_pending(&b->received) && t->view(b->rx, &p, &f) == COLL_OK) {
		FUZZ_HOLDS(f.len_bytes <= SLOT);
		for (uint32_t i = 0; i < f.len_bytes; i += 61)
			sum += ((const volatile unsigned char *)p)[i];
		user[0] = (char)sum;
		t->done(b->rx);
	}
}

static void transmit(struct bench *b, uint8_t how)
{
	const struct coll_frame f = {1, 2, (uint32_t)(how >> 2) << 10};
	void *p;

	if (how & 1 && !coll_completion_pending(&b->sent)) {
		t->post_ref(b->tx, user, NULL, &f, &b->sent);
	} else if (t->slot(b->tx, f.len_bytes, &p) == COLL_OK) {
		memset(p, 1, f.len_bytes);
		t->post(b->tx, &f);
	}
}

static void use_offers(struct bench *b, uint8_t how)
{
	const struct coll_channel_key key = {.comm = how % 4};
	struct coll_offer offer = {.size = sizeof(offer)};
	int fd = -1;

	if (coll_shm_offered(b->link[0], &key, &offer) == COLL_OK) {
		if (offer.len_bytes)
			user[1] = *(const volatile char *)offer.base;
		coll_shm_give_back(b->link[0], &offer);
	} else if (coll_shm_handed(b->link[0], &key, &fd) == COLL_OK) {
		close(fd);
	}
}

static void we_do(struct bench *b, uint8_t what, uint8_t how)
{
	switch (what % 4) {
	case 0: receive(b, how); break;
	case 1: transmit(b, how); break;
	case 2: use_offers(b, how); break;
	default: break;
	}
	t->progress(inst[0]);
}

void fuzz_shm(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	struct bench b = {0};

	if (!inst[0])
		open_instances();
	begin(&b);
	for (int i = 0; i < STEPS && in.left > 0; i++) {
		const uint8_t what = fuzz_byte(&in);

		switch (what % 4) {
		case 0: send_message(&b, &in); break;
		case 1: scribble(&b, &in); break;
		case 2: send_head(&b, &in); break;
		default: we_do(&b, what >> 2, fuzz_byte(&in)); break;
		}
	}
	t->progress(inst[0]);
	receive(&b, 0);
	end(&b);
}
