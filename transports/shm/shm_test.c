/*
 * shm, beside the conformance suite: what only this transport promises. Memory of the
 * transport is read where it lies; taken back in the middle it is refused; a peer that
 * writes nonsense into the ring breaks its link and nothing else; all without a service
 * thread.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "tests/holdings.h"
#include "tests/plain.h"
#include "transport/transport_shared.h"
#include "transports/shm/link.h"
#include "transports/shm/segment.h"
#include "transports/shm/service.h"
#include "transports/shm/shm.h"
#include "transports/shm/wire.h"

static const uint64_t job_key[2] = {3, 4};

struct bench {
	const struct coll_transport *t;
	void *inst[2], *link[2], *tx, *rx;
	bool served; /* at every turn, not seldom: what waits for a second must not take a minute on a busy machine */
	int downs;
	coll_status why;
	char cause[128];
};

/* Every way that a transport has is to be gone. */
static const char *setting(void *ctx, const char *name)
{
	return strcmp(name, "COLL_SHM_COPY") == 0 ? "cma" : "";
}

static void no_log(void *ctx, int level, const char *format, ...)
{
}

static void count_down(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause)
{
	struct bench *b = ctx;

	b->downs++;
	b->why = why;
	snprintf(b->cause, sizeof(b->cause), "%s", cause);
}

static void progress(struct bench *b)
{
	for (int i = 0; i < 2; i++) {
		b->t->progress(b->inst[i]);
		if (b->served)
			coll_shm_service_step(b->inst[i], true);
	}
	sched_yield();
}

#define AWAIT(b, cond)                                                    \
	({                                                                \
		const uint64_t until_ = coll_clock_ns() + 20000000000ull; \
		bool met_;                                                \
                                                                          \
		while (!(met_ = (cond)) && coll_clock_ns() < until_)      \
			progress(b);                                      \
		met_;                                                     \
	})

enum { SLOT = 65536 };

static void bench_open(struct bench *b)
{
	const struct coll_channel_key key = {.comm = 1};
	struct coll_transport_env env[2];
	char address[2][256];
	size_t len[2];
	void *p;

	memset(b, 0, sizeof(*b));
	b->t = &coll_transport_shm;
	for (int i = 0; i < 2; i++) {
		env[i] = (struct coll_transport_env){.size = sizeof(env[i]),
		                                     .self = {{coll_clock_ns(), (uint64_t)i}},
		                                     .job_key = job_key,
		                                     .host_id = "h",
		                                     .wake_fd = -1,
		                                     .ctx = b,
		                                     .setting = setting,
		                                     .log = no_log,
		                                     .link_down = count_down};
		REQUIRE(b->t->open(&env[i], &b->inst[i]) == COLL_OK);
		REQUIRE(b->t->address(b->inst[i], address[i], sizeof(address[i]), &len[i]) == COLL_OK);
	}
	for (int i = 0; i < 2; i++)
		REQUIRE(b->t->link_open(b->inst[i], &env[!i].self, address[!i], len[!i], &b->link[i]) == COLL_OK);
	REQUIRE(b->t->channel_open(b->link[0], &key, COLL_DIR_SEND, SLOT, 2, &b->tx) == COLL_OK);
	REQUIRE(b->t->channel_open(b->link[1], &key, COLL_DIR_RECV, SLOT, 2, &b->rx) == COLL_OK);
	CHECK(AWAIT(b, b->t->slot(b->tx, 8, &p) == COLL_OK));
}

static void bench_close(struct bench *b)
{
	if (b->tx)
		b->t->channel_close(b->tx);
	if (b->rx)
		b->t->channel_close(b->rx);
	for (int i = 0; i < 2; i++)
		b->t->link_close(b->link[i]);
	for (int i = 0; i < 2; i++)
		b->t->fini(b->inst[i]);
}

static struct coll_frame frame_of(size_t len)
{
	return (struct coll_frame){.sequence = 1, .signature = 2, .len_bytes = (uint32_t)len};
}

#define BENCH_TEST(suite, name) TEST_WITH(suite, name, struct bench, b, bench_open(&b), bench_close(&b))

BENCH_TEST(shm, memory_of_the_transport_is_read_in_place)
{
	struct coll_memory mem = {.size = sizeof(mem)};
	struct coll_completion completion = {0};
	struct coll_frame f = frame_of(8192), got;
	const char *p;

	REQUIRE(b->t->mem_alloc(b->inst[0], 4 << 20, &mem) == COLL_OK);
	/* Too short to be pulled: accepted only because it can be mapped. */
	CHECK(b->t->post_ref(b->tx, no_log, NULL, &f, &completion) == COLL_ERR_UNSUPPORTED);
	for (int i = 0; i < 3; i++) {
		memset(mem.base + 100000, 'a' + i, f.len_bytes);
		/* With its handle or found by its address. */
		CHECK(b->t->post_ref(b->tx, mem.base + 100000, i == 1 ? NULL : &mem, &f, &completion) == COLL_OK);
		if (i == 0) /* the descriptor is on its way */
			CHECK(AWAIT(b,
			            atomic_load(&((struct shm_link *)b->link[1])
			                                 ->mapped[((struct shm_region *)mem.keys)->id % SHM_PLACES]) !=
			                    NULL));
		CHECK(b->t->view(b->rx, (const void **)&p, &got) == COLL_OK);
		CHECK(p[0] == 'a' + i && p[8191] == 'a' + i);
		mem.base[100000] = 'Z'; /* no copy: it shows */
		CHECK(*(const volatile char *)p == 'Z');
		CHECK(coll_completion_pending(&completion));
		CHECK(b->t->done(b->rx) == COLL_OK);
		CHECK(AWAIT(b, !coll_completion_pending(&completion)));
		CHECK(completion.status == COLL_OK);
	}
	b->t->mem_free(b->inst[0], &mem);
}

/* The owner closes while the reader looks: the reader is told that it must discard. */
TEST(shm, memory_taken_back_is_refused)
{
	for (int mapped = 0; mapped < 2; mapped++) {
		struct bench b;
		struct coll_memory mem = {.size = sizeof(mem)};
		struct coll_completion completion = {0};
		struct coll_frame f = frame_of(SLOT), got;
		const void *p;

		bench_open(&b);
		REQUIRE(b.t->mem_alloc(b.inst[0], SLOT, &mem) == COLL_OK);
		CHECK(b.t->post_ref(b.tx, mem.base, &mem, &f, &completion) == COLL_OK);
		if (mapped) { /* else the view would pull: the mapping is on its way */
			CHECK(AWAIT(&b,
			            atomic_load(&((struct shm_link *)b.link[1])
			                                 ->mapped[((struct shm_region *)mem.keys)->id % SHM_PLACES]) !=
			                    NULL));
			CHECK(b.t->view(b.rx, &p, &got) == COLL_OK);
		}
		b.t->channel_close(b.tx);
		b.tx = NULL;
		CHECK(!coll_completion_pending(&completion) && completion.status == COLL_ERR_ABORTED);
		CHECK((mapped ? b.t->done(b.rx) : b.t->view(b.rx, &p, &got)) == COLL_ERR_ABORTED);
		b.t->mem_free(b.inst[0], &mem);
		bench_close(&b);
	}
}

/* Freed while a view lies in it: the view stays readable. */
BENCH_TEST(shm, a_region_freed_under_a_view)
{
	struct coll_memory mem = {.size = sizeof(mem)};
	struct coll_completion completion = {0};
	struct coll_frame f = frame_of(SLOT), got;
	struct shm_mapping *m;
	const char *p;

	REQUIRE(b->t->mem_alloc(b->inst[0], SLOT, &mem) == COLL_OK);
	memset(mem.base, 'x', SLOT);
	CHECK(b->t->post_ref(b->tx, mem.base, &mem, &f, &completion) == COLL_OK);
	CHECK(AWAIT(b, (m = atomic_load(&((struct shm_link *)b->link[1])
	                                         ->mapped[((struct shm_region *)mem.keys)->id % SHM_PLACES])) != NULL));
	CHECK(b->t->view(b->rx, (const void **)&p, &got) == COLL_OK);
	b->t->channel_close(b->tx);
	b->tx = NULL;
	b->t->mem_free(b->inst[0], &mem);
	CHECK(AWAIT(b, atomic_load(&m->users) > SHM_GONE));
	for (int i = 0; i < SLOT; i++)
		REQUIRE(p[i] == 'x');
	CHECK(atomic_load(&m->base) != NULL);
	CHECK(b->t->done(b->rx) == COLL_ERR_ABORTED);
	CHECK(atomic_load(&m->base) == NULL);
}

/* What a broken peer may write into the ring. */
static void nonsense(void (*spoil)(struct shm_head *head))
{
	struct bench b;
	struct coll_frame f = frame_of(8), got;
	const void *p;
	void *slot;

	bench_open(&b);
	CHECK(b.t->slot(b.tx, 8, &slot) == COLL_OK);
	CHECK(b.t->post(b.tx, &f) == COLL_OK);
	spoil(&((struct shm_channel *)b.tx)->heads[0]);
	CHECK(b.t->view(b.rx, &p, &got) == COLL_ERR_CORRUPT);
	CHECK(b.t->link_status(b.link[1]) == COLL_ERR_CORRUPT);
	CHECK(AWAIT(&b, b.downs > 0));
	CHECK(b.why == COLL_ERR_CORRUPT || b.why == COLL_ERR_PEER_DEAD);
	bench_close(&b);
}

static void too_long(struct shm_head *head)
{
	head->len_bytes = SLOT + 1;
}

static void no_such_kind(struct shm_head *head)
{
	atomic_store(&head->word, atomic_load(&head->word) | 3);
}

TEST(shm, nonsense_breaks_the_link)
{
	nonsense(too_long);
	nonsense(no_such_kind);
}

/* A record of another process, or of memory outside its region, gives nobody's bytes. */
BENCH_TEST(shm, a_false_record_is_refused)
{
	static struct coll_completion loaned, completion; /* the bench is closed after this block */
	struct coll_frame f = frame_of(SLOT);
	static char memory[SLOT], to[SLOT];

	/* Plain memory is loaned only to an announced place. */
	CHECK(b->t->post_ref(b->tx, memory, NULL, &f, &loaned) == COLL_ERR_UNSUPPORTED);
	CHECK(b->t->recv_into(b->rx, to, NULL, &f, &completion) == COLL_OK);
	if (b->t->post_ref(b->tx, memory, NULL, &f, &loaned) == COLL_ERR_UNSUPPORTED) {
		bench_close(b);
		SKIP("processes may not read each other here");
	}
	((struct shm_channel *)b->tx)->heads[0].record.pid++;
	CHECK(AWAIT(b, !coll_completion_pending(&completion)));
	CHECK(completion.status > COLL_AGAIN);
}

/* Any memory of the peer: all of it, or a refusal; nothing of a process that is not the peer. */
BENCH_TEST(shm, memory_is_pulled_by_its_address)
{
	enum { BYTES = (2 << 20) + 13 };
	struct shm_link *l;
	char *from = malloc(BYTES), *to = calloc(1, BYTES);

	l = b->link[1];
	if (b->t->shared->pull(l, 0, NULL, 0) == COLL_ERR_UNSUPPORTED) {
		bench_close(b);
		SKIP("processes may not read each other here");
	}
	for (size_t i = 0; i < BYTES; i++)
		from[i] = (char)(i * 7 + i / 4096);
	CHECK(b->t->shared->pull(l, (uintptr_t)from + 1, to + 3, BYTES - 4) == COLL_OK);
	CHECK(memcmp(to + 3, from + 1, BYTES - 4) == 0 && to[2] == 0 && to[BYTES - 1] == 0);
	CHECK(b->t->shared->pull(l, 4096, to, 64) == COLL_ERR_UNSUPPORTED);
	l->probe_value++;
	CHECK(b->t->shared->pull(l, (uintptr_t)from, to, 64) == COLL_ERR_PEER_DEAD);
	l->probe_value--;
	l->probe_address = 4096;
	CHECK(b->t->shared->pull(l, (uintptr_t)from, to, 64) == COLL_ERR_PEER_DEAD);
	free(from);
	free(to);
}

/* One copy, from one user's memory to the other's. */
BENCH_TEST(shm, plain_memory_is_pulled_to_an_announced_place)
{
	static struct coll_completion loaned, completion; /* the bench is closed after this block */
	struct coll_frame f = frame_of(SLOT);
	static char memory[SLOT], to[SLOT];

	for (int i = 0; i < 5; i++) {
		memset(memory, 'a' + i, SLOT);
		CHECK(b->t->recv_into(b->rx, to, NULL, &f, &completion) == COLL_OK);
		if (b->t->post_ref(b->tx, memory, NULL, &f, &loaned) == COLL_ERR_UNSUPPORTED) {
			bench_close(b);
			SKIP("processes may not read each other here");
		}
		CHECK(AWAIT(b, !coll_completion_pending(&completion) && !coll_completion_pending(&loaned)));
		CHECK(completion.status == COLL_OK && loaned.status == COLL_OK);
		CHECK(memcmp(memory, to, SLOT) == 0);
	}
}

/* Credits: what the ring claims is believed only as far as it can be true. */
BENCH_TEST(shm, a_false_credit_is_not_believed)
{
	struct coll_frame f = frame_of(8);
	void *slot;

	for (int i = 0; i < 2; i++) {
		CHECK(b->t->slot(b->tx, 8, &slot) == COLL_OK);
		CHECK(b->t->post(b->tx, &f) == COLL_OK);
	}
	atomic_store(&atomic_load(&((struct shm_channel *)b->tx)->ring)->freed, 77);
	CHECK(b->t->slot(b->tx, 8, &slot) == COLL_AGAIN);
	atomic_store(&((struct shm_channel *)b->tx)->pair->heard, 3);
	CHECK(b->t->slot(b->tx, 8, &slot) == COLL_AGAIN);
}

static struct coll_proof guessed(const struct shm_inst *in, const uint64_t guess[2], const struct coll_process_id *me,
                                 const uint64_t mine[2], const uint64_t theirs[2])
{
	const struct shm_inst other = {.env.job_key = guess};
	const uint64_t nonce[2][2] = {{mine[0], mine[1]}, {theirs[0], theirs[1]}};

	return coll_shm_proof(&other, 'c', me, &in->self.id, nonce);
}

/* A stranger that speaks the protocol but does not know the key. It can say HELLO and hear
 * the answer; its own proof, or one played back from that answer, gets it thrown out. */
static void stranger(bool play_back, const uint64_t guess[2])
{
	struct bench b;
	struct shm_inst *in;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct shm_message m = coll_shm_message(SHM_HELLO);
	const struct coll_process_id me = {{1, 99}};
	const int none[2] = {-1, -1};
	int fds[2], got = 0, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct coll_proof proof;

	bench_open(&b);
	in = b.inst[0];
	memcpy(at.sun_path + 1, in->self.name, SHM_NAME_BYTES);
	REQUIRE(connect(fd, (struct sockaddr *)&at, offsetof(struct sockaddr_un, sun_path) + 1 + SHM_NAME_BYTES) == 0);
	m.hello.self = me;
	m.hello.peer = in->self.id;
	m.hello.nonce[0] = 5;
	CHECK(coll_shm_transmit(fd, &m, none) == 1);
	CHECK(AWAIT(&b, (got = coll_shm_receive(fd, &m, fds, false)) != 0));
	CHECK(got == 1 && m.type == SHM_CHALLENGE);
	proof = play_back ? m.hello.proof : guessed(in, guess, &me, (const uint64_t[]){5, 0}, m.hello.nonce);
	m = coll_shm_message(SHM_AUTH);
	m.intro.proof = proof;
	fds[0] = in->page_fd;
	fds[1] = in->page_fd;
	CHECK(coll_shm_transmit(fd, &m, fds) == 1);
	CHECK(AWAIT(&b, (got = coll_shm_receive(fd, &m, fds, false)) != 0));
	CHECK(got == -1, "the stranger was let in: message %u", m.type);
	for (const struct shm_link *l = in->links; l; l = l->next)
		CHECK(!coll_same_process(&l->peer, &me));
	CHECK(b.t->link_status(b.link[0]) == COLL_OK);
	close(fd);
	bench_close(&b);
}

TEST(shm, a_stranger_without_the_key_gets_no_link)
{
	static const uint64_t zero[2], near[2] = {3, 5};

	stranger(false, zero);
	stranger(false, near);
	stranger(true, zero);
}

/* ---- Out of descriptors ---- */

static void no_more_descriptors(struct rlimit *was)
{
	struct rlimit none;

	REQUIRE(getrlimit(RLIMIT_NOFILE, was) == 0);
	none = *was;
	none.rlim_cur = 1; /* poll() takes as many */
	REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
}

/* Neither nonsense nor a frame that is waited for until the deadline. */
BENCH_TEST(shm, a_descriptor_that_cannot_be_taken_is_the_cause)
{
	const struct shm_message m = coll_shm_message(SHM_REGION);
	const struct shm_link *l;
	struct rlimit was;
	bool sent, told;

	l = b->link[0];
	no_more_descriptors(&was);
	sent = coll_shm_transmit(l->conn->source.fd, &m, (const int[2]){l->inst->page_fd, -1}) == 1;
	told = AWAIT(b, b->t->link_status(b->link[1]) > COLL_AGAIN && b->downs > 0);
	REQUIRE(setrlimit(RLIMIT_NOFILE, &was) == 0);
	CHECK(sent && told);
	CHECK(b->t->link_status(b->link[1]) == COLL_ERR_SYSTEM);
	CHECK(strstr(b->cause, "Too many open files"), "%s", b->cause);
}

/* One that nobody can accept does not keep the service thread awake, and is let in later. */
BENCH_TEST(shm, who_connects_without_a_descriptor_left_waits)
{
	struct shm_inst *in;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct shm_message m = coll_shm_message(SHM_HELLO);
	struct rlimit was;
	bool connected, asleep;
	int fds[2], fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	in = b->inst[0];
	memcpy(at.sun_path + 1, in->self.name, SHM_NAME_BYTES);
	no_more_descriptors(&was);
	connected =
	        connect(fd, (struct sockaddr *)&at, offsetof(struct sockaddr_un, sun_path) + 1 + SHM_NAME_BYTES) == 0;
	asleep = AWAIT(b, poll(&(struct pollfd){in->epoll_fd, POLLIN, 0}, 1, 0) == 0);
	REQUIRE(setrlimit(RLIMIT_NOFILE, &was) == 0);
	CHECK(connected && asleep);
	m.hello.self.word[0] = 1;
	m.hello.peer = in->self.id;
	CHECK(coll_shm_transmit(fd, &m, (const int[2]){-1, -1}) == 1);
	CHECK(AWAIT(b, coll_shm_receive(fd, &m, fds, false) == 1) && m.type == SHM_CHALLENGE);
	close(fd);
}

/* Neither who is to connect nor who is to be connected to waits until the deadline of a call. */
BENCH_TEST(shm, a_link_that_gets_no_descriptor_ends)
{
	struct shm_inst *in;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const struct coll_process_id others[] = {{{0, 1}}, {{UINT64_MAX, 1}}};
	void *link[2];
	struct rlimit was;
	bool connected, ended;
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	b->served = true;
	in = b->inst[0];
	memcpy(at.sun_path + 1, in->self.name, SHM_NAME_BYTES);
	for (int i = 0; i < 2; i++) {
		struct shm_address address = ((struct shm_inst *)b->inst[1])->self;

		address.id = others[i];
		REQUIRE(b->t->link_open(in, &others[i], &address, sizeof(address), &link[i]) == COLL_OK);
	}
	CHECK(coll_shm_we_connect(link[0]) != coll_shm_we_connect(link[1]));
	no_more_descriptors(&was);
	connected =
	        connect(fd, (struct sockaddr *)&at, offsetof(struct sockaddr_un, sun_path) + 1 + SHM_NAME_BYTES) == 0;
	ended = AWAIT(b, b->t->link_status(link[0]) > COLL_AGAIN && b->t->link_status(link[1]) > COLL_AGAIN);
	REQUIRE(setrlimit(RLIMIT_NOFILE, &was) == 0);
	CHECK(connected && ended);
	CHECK(b->t->link_status(b->link[0]) == COLL_OK, "one that is connected goes on");
	CHECK(AWAIT(b, b->downs == 2) && strstr(b->cause, "Too many open files"), "%d: %s", b->downs, b->cause);
	for (int i = 0; i < 2; i++)
		b->t->link_close(link[i]);
	close(fd);
}

/* However slow the test is, no handshake takes too long. */
static bool have_come(struct shm_inst *in, uint32_t wanted)
{
	pthread_mutex_lock(&in->lock);
	for (struct shm_conn *c = in->conns; c; c = c->next)
		c->since_ns = coll_clock_ns();
	pthread_mutex_unlock(&in->lock);
	return in->strangers == wanted;
}

/* Rank 0 of many ranks is connected to by most of them at once. */
BENCH_TEST(shm, peers_that_are_expected_do_not_oust_each_other)
{
	enum { PEERS = SHM_CONNS_MAX + 20 };
	struct shm_inst *in = b->inst[0];
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct shm_message m = coll_shm_message(SHM_HELLO);
	static void *link[PEERS];
	static int fd[PEERS];

	memcpy(at.sun_path + 1, in->self.name, SHM_NAME_BYTES);
	for (int i = 0; i < PEERS; i++) {
		const struct coll_process_id me = {{0, 1 + (uint64_t)i}};
		struct shm_address address = ((struct shm_inst *)b->inst[1])->self;

		address.id = me;
		REQUIRE(b->t->link_open(in, &me, &address, sizeof(address), &link[i]) == COLL_OK);
	}
	for (int i = 0; i < PEERS; i++) {
		fd[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		REQUIRE(connect(fd[i], (struct sockaddr *)&at,
		                offsetof(struct sockaddr_un, sun_path) + 1 + SHM_NAME_BYTES) == 0);
		m.hello.self = (struct coll_process_id){{0, 1 + (uint64_t)i}};
		m.hello.peer = in->self.id;
		CHECK(coll_shm_transmit(fd[i], &m, (const int[2]){-1, -1}) == 1);
	}
	CHECK(AWAIT(b, have_come(in, PEERS)), "%u of %d", in->strangers, PEERS);
	for (int i = 0; i < PEERS; i++) {
		close(fd[i]);
		b->t->link_close(link[i]);
	}
}

/* One that connects: HELLO and AUTH as a member of the job says them, which knows the key. */
static bool joins_by(struct bench *b, int fd, const struct coll_process_id *me)
{
	struct shm_inst *in = b->inst[0];
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct shm_message m = coll_shm_message(SHM_HELLO);
	int fds[2];
	uint64_t nonce[2][2] = {{5, 0}};

	memcpy(at.sun_path + 1, in->self.name, SHM_NAME_BYTES);
	if (connect(fd, (struct sockaddr *)&at, offsetof(struct sockaddr_un, sun_path) + 1 + SHM_NAME_BYTES) != 0)
		return false;
	m.hello.self = *me;
	m.hello.peer = in->self.id;
	memcpy(m.hello.nonce, nonce[0], sizeof(nonce[0]));
	if (coll_shm_transmit(fd, &m, (const int[2]){-1, -1}) != 1 ||
	    !AWAIT(b, coll_shm_receive(fd, &m, fds, false) == 1) || m.type != SHM_CHALLENGE)
		return false;
	memcpy(nonce[1], m.hello.nonce, sizeof(nonce[1]));
	m = coll_shm_message(SHM_AUTH);
	m.intro.proof = coll_shm_proof(in, 'c', me, &in->self.id, (const uint64_t(*)[2])nonce);
	return coll_shm_transmit(fd, &m, (const int[2]){in->page_fd, in->page_fd}) == 1;
}

/* Who is connected to has a descriptor for the connection, but none for what comes over it: each attempt of the peer
 * begins well. */
BENCH_TEST(shm, a_link_whose_peer_cannot_be_taken_in_ends)
{
	enum { ATTEMPTS = 60 };
	const struct coll_process_id me = {{0, 1}};
	struct shm_address address;
	struct rlimit was, one;
	int fd[ATTEMPTS], next = 0;
	bool spoke = true;
	void *link;

	b->served = true;
	address = ((struct shm_inst *)b->inst[1])->self;
	address.id = me;
	REQUIRE(b->t->link_open(b->inst[0], &me, &address, sizeof(address), &link) == COLL_OK);
	for (int i = 0; i < ATTEMPTS; i++)
		fd[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	REQUIRE(getrlimit(RLIMIT_NOFILE, &was) == 0);
	one = was;
	one.rlim_cur = (rlim_t)fd[ATTEMPTS - 1] + 2;
	REQUIRE(setrlimit(RLIMIT_NOFILE, &one) == 0);
	while (spoke && next < ATTEMPTS && b->t->link_status(link) == COLL_AGAIN) {
		const uint64_t again = coll_clock_ns() + 30 * COLL_NS_PER_MS;

		spoke = joins_by(b, fd[next++], &me);
		while (coll_clock_ns() < again)
			progress(b);
	}
	REQUIRE(setrlimit(RLIMIT_NOFILE, &was) == 0);
	CHECK(spoke && next > 1);
	CHECK(b->t->link_status(link) == COLL_ERR_SYSTEM, "%d after %d attempts", b->t->link_status(link), next);
	CHECK(AWAIT(b, b->downs == 1) && strstr(b->cause, "Too many open files"), "%d: %s", b->downs, b->cause);
	b->t->link_close(link);
	for (int i = 0; i < ATTEMPTS; i++)
		close(fd[i]);
}

/* Where files may not be that long, ftruncate() would end the program by SIGXFSZ. */
TEST(shm, memory_beyond_the_limit_of_files_is_refused)
{
	const int least = coll_shm_memfd(8192);
	struct rlimit was, short_files;
	int within, beyond, why;

	REQUIRE(getrlimit(RLIMIT_FSIZE, &was) == 0);
	short_files = was;
	short_files.rlim_cur = 8192;
	REQUIRE(setrlimit(RLIMIT_FSIZE, &short_files) == 0);
	within = coll_shm_memfd(8192);
	beyond = coll_shm_memfd(8193);
	why = errno;
	REQUIRE(setrlimit(RLIMIT_FSIZE, &was) == 0);
	CHECK(least >= 0 && within >= 0 && beyond < 0 && why == EFBIG, "%d %d %d", within, beyond, why);
	close(least);
	close(within);
}

static coll_status offer_between(struct bench *b, const struct coll_channel_key *key, const struct coll_memory *mem,
                                 struct coll_offer *offer)
{
	coll_status st = b->t->shared->offer(b->link[0], key, mem);

	CHECK(AWAIT(b, b->t->shared->offered(b->link[1], key, offer) != COLL_AGAIN));
	return st;
}

/* Settled memory costs neither a descriptor nor a place, so there may be more of it than there are places. */
BENCH_TEST(shm, settled_memory_holds_no_descriptor)
{
	const int count = SHM_PLACES + 50;
	struct coll_memory mem[SHM_PLACES + 50], other;
	struct coll_offer offer[SHM_PLACES + 50], refused;
	struct coll_piece piece;
	int before, made = 0;

	before = holdings_descriptors();
	for (int i = 0; i < count; i++) {
		const struct coll_channel_key key = {.comm = 10, .lane = (uint16_t)i};

		REQUIRE(b->t->mem_alloc(b->inst[0], SLOT, &mem[i]) == COLL_OK, "%d", i);
		REQUIRE(offer_between(b, &key, &mem[i], &offer[i]) == COLL_OK, "%d", i);
		b->t->shared->settle(b->inst[0], &mem[i]);
		mem[i].base[i] = 'x';
	}
	CHECK(holdings_descriptors() == before, "%d, %d before", holdings_descriptors(), before);
	for (int i = 0; i < count; i++)
		made += offer[i].base && offer[i].base[i] == 'x';
	CHECK(made == count, "%d of %d are mapped", made, count);
	/* Nobody gets to map it any more. */
	CHECK(b->t->shared->share(b->link[0], mem[0].base, 8, &piece) == COLL_ERR_UNSUPPORTED);
	CHECK(offer_between(b, &(struct coll_channel_key){.comm = 11}, &mem[0], &refused) == COLL_OK);
	CHECK(b->t->shared->offered(b->link[1], &(struct coll_channel_key){.comm = 11}, &refused) ==
	      COLL_ERR_UNSUPPORTED);
	/* Memory that a peer has by its place keeps it. */
	REQUIRE(b->t->mem_alloc(b->inst[0], SLOT, &other) == COLL_OK);
	CHECK(b->t->shared->share(b->link[0], other.base, 8, &piece) == COLL_OK);
	b->t->shared->settle(b->inst[0], &other);
	CHECK(b->t->shared->share(b->link[0], other.base, 8, &piece) == COLL_OK);
	CHECK(holdings_descriptors() >= before + 1);
	b->t->mem_free(b->inst[0], &other);
	for (int i = 0; i < count; i++) {
		b->t->shared->give_back(b->link[1], &offer[i]);
		b->t->mem_free(b->inst[0], &mem[i]);
	}
	CHECK(AWAIT(b, holdings_descriptors() == before), "%d, %d before", holdings_descriptors(), before);
}
