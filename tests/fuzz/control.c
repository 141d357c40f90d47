/*
 * Target: messages of the control plane after the handshake, from a member that sends what it likes. Three control
 * planes in one process; rank 2 sends the input to rank 0, over the link that it has proved.
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/connect.h"
#include "control/gossip.h"
#include "control/ping.h"
#include "control/state.h"
#include "tests/fuzz/fuzz.h"

void fuzz_control(const uint8_t *data, size_t len_bytes);

enum { RANKS = 3, TURNS = 200 };

static const uint64_t COMM = 0x77, session_key[2] = {3, 4};

struct job {
	struct coll_settings settings;
	struct coll_logger logger;
	struct coll_peer_info peer_infos[RANKS];
	struct coll_control *c[RANKS];
	atomic_uint alarm[RANKS];
	int wake_fd[RANKS];
};

static bool answer(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a)
{
	FUZZ_HOLDS(process >= 0 && process < RANKS);
	memset(a, 0, sizeof(*a));
	a->record = q->record;
	return true;
}

static void alert(void *ctx, uint64_t comm)
{
}

static bool needs(void *ctx, uint64_t comm)
{
	return comm % 2;
}

static void begin(struct job *j)
{
	static uint64_t serial;
	struct coll_error_box err;

	memset(j, 0, sizeof(*j));
	FUZZ_HOLDS(coll_settings_load(&j->settings, NULL, NULL, NULL) == COLL_OK);
	serial++;
	for (int r = 0; r < RANKS; r++) {
		struct coll_control_env env = {.settings = &j->settings,
		                               .logger = &j->logger,
		                               .job_key = session_key,
		                               .self = {{(uint64_t)getpid() << 8 | (uint64_t)r, serial}},
		                               .alarm = &j->alarm[r],
		                               .host_id = "here",
		                               .answer = answer,
		                               .alert = alert,
		                               .needs = needs};

		j->wake_fd[r] = env.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		j->peer_infos[r].id = env.self;
		strcpy(j->peer_infos[r].host_id, env.host_id);
		FUZZ_HOLDS(coll_control_open(&env, &j->peer_infos[r], &j->c[r], &err) == COLL_OK);
	}
	for (int r = 0; r < RANKS; r++)
		FUZZ_HOLDS(coll_control_join(j->c[r], j->peer_infos, r, RANKS) == COLL_OK);
}

static void serve(struct job *j, int rank)
{
	for (int i = 0; i < j->c[rank]->nlinks; i++)
		j->c[rank]->links[i]->deadline_ns = UINT64_MAX;
	coll_control_service(j->c[rank]);
}

static void end(struct job *j)
{
	for (int r = 0; r < RANKS; r++) {
		for (int k = 0; k < RANKS; k++)
			j->c[r]->peers[k].refused = true;
		while (j->c[r]->nlinks > 0)
			coll_control_drop_link(j->c[r], j->c[r]->links[0]);
		coll_control_close(&j->c[r], 0);
		close(j->wake_fd[r]);
	}
}

/* Of rank 2 to rank 0, proved. */
static struct coll_control_link *meet(struct job *j)
{
	struct coll_control_link *l;

	for (int i = 0; i < TURNS; i++) {
		for (int r = 0; r < RANKS; r++)
			serve(j, r);
		l = coll_control_find_link(j->c[2], 0);
		if (l && l->ready)
			return l;
	}
	return NULL;
}

/* What rank 0's callers ask meanwhile. */
static void look(struct job *j)
{
	const struct coll_mismatch_msg q = {.record = {.comm = COMM}};
	const struct coll_held_note *at = NULL;
	struct coll_peer_state state;
	struct coll_note note;

	coll_control_ask(j->c[0], 2, &q);
	coll_control_peer(j->c[0], 2, COMM, -1, &state);
	coll_control_failure(j->c[0], COMM, &note);
	for (int i = 0; i < 50 && coll_control_fact(j->c[0], &at, &note); i++)
		FUZZ_HOLDS(memchr(note.text, 0, sizeof(note.text)));
}

void fuzz_control(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	struct job *j = malloc(sizeof(*j));
	struct coll_control_link *l;

	begin(j);
	l = meet(j);
	FUZZ_HOLDS(l != NULL);
	for (int i = 0; i < 40 && in.left > 0; i++) {
		struct coll_message m = {0};

		m.type = fuzz_byte(&in) % 12;
		fuzz_bytes(&in, &m.u, fuzz_byte(&in));
		l = coll_control_find_link(j->c[2], 0);
		if (!l || !l->ready || !coll_link_queue(l, &m) || !coll_link_flush(l))
			break;
		if (i % 4 == 3) {
			serve(j, 0);
			look(j);
		}
	}
	serve(j, 0);
	look(j);
	serve(j, 1);
	end(j);
	free(j);
}
