/*
 * Target: messages of the control plane after the handshake, from a member that sends what it likes. Three control
 * planes in one process; rank 2 sends the input to rank 0, over the link that it has proved.
 */
#include <stdlib.h>

#include "control/gossip.h"
#include "control/ping.h"
#include "control/planes_test.h"
#include "tests/fuzz/fuzz.h"

void fuzz_control(const uint8_t *data, size_t len_bytes);

static bool has_answer(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a)
{
	FUZZ_HOLDS(process >= 0 && process < RANKS);
	memset(a, 0, sizeof(*a));
	a->record = q->record;
	return true;
}

static bool needs_some(void *ctx, uint64_t comm)
{
	return comm % 2;
}

static void start(struct job *j)
{
	const struct above above = {has_answer, needs_some};

	memset(j, 0, sizeof(*j));
	FUZZ_HOLDS(coll_settings_load(&j->settings, NULL, NULL, NULL) == COLL_OK);
	FUZZ_HOLDS(open_below(j, &above) && join_all(j));
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

	start(j);
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
