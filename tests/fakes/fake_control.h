/*
 * A control plane without a network: answers and notes are what the test put there.
 */
#ifndef COLL_FAKES_FAKE_CONTROL_H
#define COLL_FAKES_FAKE_CONTROL_H

#include "base/clock.h"
#include "control/gossip.h"
#include "control/ping.h"

enum { FAKE_PROCESSES = 12, FAKE_NOTES = 4 };

extern struct fake_control {
	struct coll_control *plane; /* for ctx->control */
	/* What coll_control_peer() says of a process, whatever is asked. */
	struct coll_peer_state state[FAKE_PROCESSES];
	/* Answer a question at once: its wait, third, about and sequence are copied into the answer. */
	bool echo;
	struct coll_mismatch_msg question; /* the last one */
	int asked[FAKE_PROCESSES];
	int services;
	bool has_failure;
	struct coll_note failure;
	struct coll_note facts[FAKE_NOTES];
	int nfacts;
	struct coll_uptime age;                       /* of the deaths among them */
	bool read;                                    /* and whether they have settled, but for a last look */
	struct coll_note ended_after[FAKE_PROCESSES]; /* status OK: no error is known */
	struct coll_note told[FAKE_NOTES];
	int ntold;
	bool parted, cut; /* a communicator of this process is lost; a control link is not acknowledged */
} fake_control;

void fake_control_reset(void);

/* Process has answered just now, with this record of what it does. */
struct coll_answer *fake_control_answers(int process, const struct coll_record *doing);

#endif
