/*
 * The control plane: which processes are alive, which failures occurred, and what each rank is doing.
 *
 * Each context keeps a few control links, over Unix sockets on one host and TCP between
 * hosts. They lead to the next rank on a ring, to its parent in a binary tree, and to the ranks that
 * chose it in the same way: O(log n) links, and the graph stays connected after the loss of any
 * one process. Every link is authenticated with the job's key. A link that breaks without a goodbye
 * starts a liveness check. Deaths and failures are notes, flooded over the links and kept once
 * per (kind, subject, communicator). A rank whose call has not moved for a while
 * pings the rank it waits for directly: PING carries its call record, PONG the
 * other's (mismatch_msg.h). A stopped process does not answer; a late one does.
 *
 * Everything here runs in the service thread, or in a waiting caller when the
 * service thread is switched off. One lock guards the state; it is never held
 * while the data path runs. The data path looks at one word: the alarm.
 */
#ifndef COLL_CONTROL_CONTROL_H
#define COLL_CONTROL_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/config.h"
#include "base/error.h"
#include "base/log.h"
#include "control/mismatch_msg.h"
#include "control/peer_info.h"

struct coll_control;
struct coll_control_link;
struct coll_held_note;

/* A fact that is passed on to all processes. */
enum coll_gossip_kind {
	COLL_GOSSIP_DEATH =
	        1,        /* `process` is dead, or unreachable (status PEER_SILENT), as seen by origin; text: why */
	COLL_GOSSIP_FAIL, /* communicator `comm` failed at origin: status, culprit `process` */
};

struct coll_note {
	uint32_t kind;
	int32_t status;        /* coll_status */
	int32_t process;       /* subject or culprit, -1 none */
	int32_t origin;        /* process that wrote it */
	int32_t after_status;  /* DEATH only: the error that it ended after, which text then is; 0: none is known */
	int32_t after_process; /* whom that error blames, -1 nobody */
	int32_t exit_status;   /* FAIL by an abort: what the job is to end with; 0: nothing was said */
	int32_t spare;
	uint64_t comm; /* FAIL only; 0: all that have both process and origin as members */
	uint64_t operation;
	char text[256];
};

/* What a context lends to its control plane. */
struct coll_control_env {
	const struct coll_settings *settings;
	const struct coll_logger *logger;
	const uint64_t *job_key; /* of the session, 128 bits; known when the peer infos are: not before it joins */
	struct coll_process_id self;
	int wake_fd;        /* written when the alarm goes off */
	atomic_uint *alarm; /* incremented after each new note */
	const char *host_id;
	bool one_host; /* all ranks are on this host, however COLL_HOST_ID divides it */
	/* Process asks: *a is what this one says. Called with the lock held. */
	bool (*answer)(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a);
	/* There is a new note for a communicator, 0: for all. Called with the lock held. */
	void (*alert)(void *ctx, uint64_t comm);
	/* Whether a communicator lives here and has not looked at its failure. Likewise. */
	bool (*needs)(void *ctx, uint64_t comm);
	/* A message for those above has come from a process; words: left by it, maybe before its end (carry.h). Called
	 * with the lock held. NULL: nobody wants them. */
	void (*carried)(void *ctx, int process, bool words, const uint8_t *bytes);
	/* The links were served: what waits for one may go on. Likewise. */
	void (*served)(void *ctx);
	/* Whether a link of the data path to a process is up: its host answers. NULL: not known. Likewise. */
	bool (*linked)(void *ctx, int process);
	void *ctx;
};

/* Open the listeners and fill the peer info's control members. */
coll_status coll_control_open(const struct coll_control_env *env, struct coll_peer_info *info,
                              struct coll_control **control, struct coll_error_box *err);

/* The peer infos of all size processes are complete (borrowed): start connecting. */
coll_status coll_control_join(struct coll_control *c, const struct coll_peer_info *peer_infos, int rank, int size);

/* Say goodbye on every link and flush (at most flush_ms), then free. */
void coll_control_close(struct coll_control **control, int flush_ms);

/* Run whatever is due: descriptor is readable or timeout passed. Never blocks. */
void coll_control_service(struct coll_control *c);
int coll_control_fd(const struct coll_control *c);
/* Milliseconds until service must be called without any event, at most 1000. */
int coll_control_timeout_ms(struct coll_control *c);

/* Wait at most ms until this process has sent its notes, over the authenticated links and
 * over those that it is opening. Any thread except the service thread. */
void coll_control_flush(struct coll_control *c, int ms);

/* What is known of a process asked before. */
struct coll_peer_life {
	uint64_t last_answer_ns; /* clock of this process, 0 never */
	uint64_t asked_ns;       /* when we began to ask it, this time */
	unsigned unanswered;     /* asks, 250 ms apart, since its last sign of life */
	bool left;               /* said goodbye, at left_ns, or must have: see liveness.c */
	bool presumed;           /* the latter */
	uint64_t left_ns;
};
struct coll_peer_state {
	struct coll_peer_life life;
	/* To the communicator's question. */
	uint64_t answered_ns; /* 0: there is no answer */
	bool about_this;      /* the answer is to the question asked last */
	struct coll_answer answer;
};

/* Release the lock, then write what was said under it. */
void coll_control_unlock(struct coll_control *c);

/* A line for the log. */
void coll_control_say(struct coll_control *c, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
