/*
 * The conformance suite's harness: what a context would lend to a transport, and
 * worlds of two or three nodes (stand-ins for processes, or real ones).
 *
 * A world is either whole (one thread drives all of its nodes) or one side's view of
 * it (one node; the others are driven by other threads or other processes). The
 * cases say only what the interface promises, so that one suite judges every
 * transport.
 */
#ifndef COLL_TESTS_CONFORM_H
#define COLL_TESTS_CONFORM_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#define PLAIN_OWN_MAIN
#include "base/clock.h"
#include "base/hash.h"
#include "tests/plain.h"
#include "transports/registry.h"

#define REQUIRE_TRUE(cond)            \
	do {                          \
		if (!(cond)) {        \
			CHECK(cond);  \
			return false; \
		}                     \
	} while (0)

enum { NODES_MAX = 3, ADDRESS_MAX = 512, WAIT_S = 20 };

/* What is under test, from the command line. */
extern const char *conform_name;
extern const struct coll_transport *conform_table; /* complete */

struct node {
	struct coll_transport_env env;
	uint64_t key[2];
	int index;
	void *inst;
	int wake_fd;
	char address[ADDRESS_MAX];
	size_t address_len;
	/* Service pump. */
	pthread_t pump;
	bool pumping;
	int stop_fd;
	/* link_down calls. */
	atomic_int downs;
	_Atomic uint64_t down_at_ns;
	_Atomic int down_why;
	_Atomic uint64_t down_peer;
};

struct world {
	const struct coll_transport *t;
	int n;
	int me;                       /* -1: this thread drives every node */
	struct node *node[NODES_MAX]; /* in another process: only env.self and address are filled */
	void *link[NODES_MAX][NODES_MAX];
	struct coll_loop_group *group;
	pthread_barrier_t *barrier; /* sides are threads */
	int pipe_fd;                /* sides are processes, -1 if not */
	pid_t child;
};

/* A whole world of n nodes in this process, links opened between all pairs when
 * linked. False: a check has failed already. */
bool world_open(struct world *w, int n, bool linked);
void world_link(struct world *w, int i, int j);
void world_close(struct world *w);

/* A test with such a world, w, which it leaves open. */
#define TEST_IN_WORLD(suite, name, n, linked)             \
	static void suite##_##name##_in(struct world *w); \
	TEST(suite, name)                                 \
	{                                                 \
		struct world w;                           \
                                                          \
		if (!world_open(&w, n, linked))           \
			return;                           \
		suite##_##name##_in(&w);                  \
		world_close(&w);                          \
	}                                                 \
	static void suite##_##name##_in(struct world *w)

/* Run body once per node of a fresh world: each in a thread of its own, or node 0
 * here and node 1 in a forked process. */
typedef void (*side_fn)(struct world *w, void *arg);
void world_threads(int n, side_fn body, void *arg);
void world_processes(side_fn body, void *arg);
/* A forked peer that is not expected to end well: body runs in the child, which
 * never returns from it. The caller owns the parent's side. False: the test is over; skipped
 * where a transport stays in one process. */
bool world_fork(struct world *w, side_fn child_body, void *arg);
void world_reap(struct world *w, int signal_no);

/* All sides come here before one goes on. */
void world_barrier(struct world *w);
int world_progress(struct world *w); /* > 0: something happened */

/* One node: open with this job key, and its pump. */
struct node *node_open(int index, uint64_t job_key, struct coll_loop_group *group);
void node_close(struct node *node);

/* Wait for a condition, making progress. False after WAIT_S seconds. */
#define AWAIT(w, cond) AWAIT_S(w, cond, WAIT_S)
#define AWAIT_S(w, cond, seconds)                                                  \
	({                                                                         \
		const uint64_t until_ = coll_clock_ns() + (seconds)*1000000000ull; \
		bool met_;                                                         \
                                                                                   \
		while (!(met_ = (cond)) && coll_clock_ns() < until_) {             \
			world_progress(w);                                         \
			sched_yield();                                             \
		}                                                                  \
		met_;                                                              \
	})

void *channel(struct world *w, int i, int j, enum coll_direction dir, struct coll_channel_key key, size_t slot_bytes,
              uint32_t slots);
struct coll_channel_key key_of(uint64_t comm, unsigned lane, unsigned window);

/* Frame number i of a stream: bytes, check and head are functions of (stream, i). */
void fill(void *p, uint64_t stream, uint64_t i, size_t len);
bool intact(const void *p, uint64_t stream, uint64_t i, size_t len);
struct coll_frame head_of(uint64_t stream, uint64_t i, size_t len);
bool same_frame(const struct coll_frame *a, const struct coll_frame *b);

/* Send or receive one frame by value, waiting. */
bool send_one(struct world *w, void *ch, uint64_t stream, uint64_t i, size_t len);
bool recv_one(struct world *w, void *ch, uint64_t stream, uint64_t i, size_t len);

/* Sleep on node's descriptors until woken. OK: slept or told AGAIN by arm; false:
 * nothing woke us within WAIT_S seconds. */
bool node_sleep(struct world *w, struct node *node);

#endif
