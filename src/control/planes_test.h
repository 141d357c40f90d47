/*
 * Test helper: control planes of several ranks in one process, each served by hand, so that a test stops where it
 * wants.
 */
#ifndef COLL_CONTROL_PLANES_TEST_H
#define COLL_CONTROL_PLANES_TEST_H

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/connect.h"
#include "control/state.h"

enum { RANKS = 3, TURNS = 2000 };

static const uint64_t COMM = 0x77, key[2] = {3, 4};

struct job {
	struct coll_settings settings;
	struct coll_logger logger;
	struct coll_peer_info peer_infos[RANKS];
	struct coll_control *c[RANKS];
	atomic_uint alarm[RANKS];
	int wake_fd[RANKS];
};

static inline bool no_answer(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a)
{
	return false;
}
static inline void no_alert(void *ctx, uint64_t comm)
{
}
static inline bool needs_all(void *ctx, uint64_t comm)
{
	return true;
}

/* What the planes ask of the library above them. */
struct above {
	bool (*answer)(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a);
	bool (*needs)(void *ctx, uint64_t comm);
};

static const struct above NOTHING_ABOVE = {no_answer, needs_all};

/* The listeners are there, and who connects waits. Settings of *j are those of the caller. */
static inline bool open_below(struct job *j, const struct above *above)
{
	struct coll_error_box err;
	bool good = true;

	for (int r = 0; r < RANKS; r++) {
		struct coll_control_env env = {.settings = &j->settings,
		                               .logger = &j->logger,
		                               .job_key = key,
		                               .self = {{(uint64_t)getpid() << 8 | (uint64_t)r, coll_clock_ns()}},
		                               .alarm = &j->alarm[r],
		                               .host_id = "here",
		                               .answer = above->answer,
		                               .alert = no_alert,
		                               .needs = above->needs};

		j->wake_fd[r] = env.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		j->peer_infos[r].id = env.self;
		strcpy(j->peer_infos[r].host_id, env.host_id);
		good = good && coll_control_open(&env, &j->peer_infos[r], &j->c[r], &err) == COLL_OK;
	}
	return good;
}

static inline bool open_all(struct job *j)
{
	memset(j, 0, sizeof(*j));
	return open_below(j, &NOTHING_ABOVE);
}

static inline bool join_all(struct job *j)
{
	bool good = true;

	for (int r = 0; r < RANKS && good; r++)
		good = coll_control_join(j->c[r], j->peer_infos, r, RANKS) == COLL_OK;
	return good;
}

static inline bool begin(struct job *j)
{
	return open_all(j) && join_all(j);
}

static inline void end(struct job *j)
{
	for (int r = 0; r < RANKS; r++) {
		/* Nobody is served any more who could be told. */
		for (int k = 0; j->c[r] && k < RANKS; k++)
			j->c[r]->peers[k].refused = true;
		while (j->c[r] && j->c[r]->nlinks > 0)
			coll_control_drop_link(j->c[r], j->c[r]->links[0]);
		coll_control_close(&j->c[r], 0);
		close(j->wake_fd[r]);
	}
}

/* However slow this machine is. */
static inline void serve(struct job *j, int rank)
{
	for (int i = 0; i < j->c[rank]->nlinks; i++)
		j->c[rank]->links[i]->deadline_ns = UINT64_MAX;
	coll_control_service(j->c[rank]);
}

#endif
