/*
 * Two instances of the rdma transport over the devices in software (fabric_test.h), driven by one thread: what the
 * tests of connections and of rails share.
 */
#ifndef COLL_TRANSPORTS_RDMA_SIDES_TEST_H
#define COLL_TRANSPORTS_RDMA_SIDES_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/plain.h"
#include "transport/transport.h"
#include "transports/rdma/fabric_test.h"
#include "transports/rdma/rdma.h"

enum { SIDES = 2 };

static const struct coll_transport *t = &coll_transport_rdma;

struct side {
	struct coll_transport_env env;
	struct rdma_inst *in;
	void *link;
	int downs;
	coll_status why;
	char cause[240];
};

static struct side side[SIDES];

static inline void log_line(void *ctx, int level, const char *format, ...)
{
	va_list ap;

	if (!getenv("LIFE_LOG") || level > atoi(getenv("LIFE_LOG")))
		return;
	fprintf(stderr, "side %d: ", (int)((struct side *)ctx - side));
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static inline void down(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause)
{
	struct side *s = ctx;

	s->downs++;
	s->why = why;
	snprintf(s->cause, sizeof(s->cause), "%s", cause);
}

static inline void open_side(struct side *s, const char *(*setting)(void *ctx, const char *name))
{
	static const uint64_t key[2] = {1, 2};
	static uint64_t serial;
	void *inst = NULL;

	*s = (struct side){.env = {.size = sizeof(s->env),
	                           .self = {{++serial, (uint64_t)(s - side)}},
	                           .job_key = key,
	                           .host_id = "fabric",
	                           .wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
	                           .ctx = s,
	                           .setting = setting,
	                           .log = log_line,
	                           .link_down = down}};
	CHECK(t->open(&s->env, &inst) == COLL_OK);
	s->in = inst;
}

static inline void close_side(struct side *s)
{
	t->close(s->in);
	t->fini(s->in);
	close(s->env.wake_fd);
	s->in = NULL;
}

static inline void open_link(struct side *s, struct side *peer)
{
	char address[256];
	coll_status status;
	size_t len = 0;

	CHECK(t->address(peer->in, address, sizeof(address), &len) == COLL_OK);
	status = t->link_open(s->in, &peer->env.self, address, len, &s->link);
	CHECK(status == (atomic_load(&s->in->closed) ? COLL_ERR_ABORTED : COLL_OK), "%s", coll_status_string(status));
}

static inline void close_link(struct side *s)
{
	t->link_close(s->link);
	s->link = NULL;
}

/* Both sides go on until cond holds, or for so long. */
#define AWAIT(cond) AWAIT_MS(cond, 5000)
#define AWAIT_MS(cond, ms)                                                         \
	({                                                                         \
		const uint64_t until_ = coll_clock_ns() + (uint64_t)(ms)*1000000u; \
		bool met_;                                                         \
                                                                                   \
		while (!(met_ = (cond)) && coll_clock_ns() < until_)               \
			for (int i_ = 0; i_ < SIDES; i_++)                         \
				if (side[i_].in)                                   \
					t->service(side[i_].in);                   \
		met_;                                                              \
	})

static inline bool is_up(struct side *s)
{
	return s->link && t->link_status(s->link) == COLL_OK;
}

#endif
