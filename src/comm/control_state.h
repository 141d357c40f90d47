/*
 * Private to the control plane: its state, and what its files say to each other.
 *
 * control.c runs it and owns the interface; control_peers.c owns the links to other
 * processes; control_notes.c what is known of deaths and failures; control_asks.c whom
 * callers wait for, and what those answer; control_link.c the bytes of one link. All
 * functions here want the lock held.
 */
#ifndef COLL_COMM_CONTROL_STATE_H
#define COLL_COMM_CONTROL_STATE_H

#include <pthread.h>

#include "comm/control_link.h"

enum { LINKS_MAX = 512, NOTES_MAX = 64, ASKS_MAX = 32 };
enum { PING_MS = 250 };

#define MS ((uint64_t)1000000)

struct ask {
	int peer; /* -1: free */
	uint64_t until_ns;
	uint64_t next_ns;
	uint64_t answered_ns; /* 0: no answer yet */
	bool about_this;      /* the answer is to this question */
	struct coll_question question;
	struct coll_answer answer;
};

struct peer {
	struct coll_peer_life life;
	uint64_t asked_until_ns, pinged_ns;
	bool dead;
	bool door_opened;  /* somebody accepted and hung up during this round of addresses */
	unsigned hello_ms; /* patience with the next handshake, 0: the shortest */
};

/* A line for the log, written when the lock is free: the callback is the user's. */
struct said {
	struct said *next;
	int level;
	char text[480];
};

struct coll_control {
	struct coll_control_env env;
	pthread_mutex_t lock;
	int epoll;
	int listen_unix;
	int listen_tcp;
	int rank, size; /* size 0 until joined */
	const struct coll_card *cards;
	struct peer *peers;
	struct coll_control_link *links[LINKS_MAX];
	int nlinks;
	struct coll_note notes[NOTES_MAX];
	int nnotes;
	struct ask asks[ASKS_MAX];
	uint64_t keep_ns; /* when to look after our own links again */
	struct said *said, **said_end;
	bool closing;
};

/* ---- control.c ---- */

/* Release the lock, then write what was said under it. */
void coll_control_unlock(struct coll_control *c);

/* ---- control_notes.c ---- */

/* Keep a new note, set off the alarm and pass it on to all but the link it came from. */
void coll_control_spread(struct coll_control *c, const struct coll_note *n, const struct coll_control_link *from);
/* A process was found dead by this one. */
void coll_control_death(struct coll_control *c, int peer, const char *cause);
/* All notes, for a link that has come up. */
void coll_control_queue_notes(struct coll_control *c, struct coll_control_link *l);

/* ---- control_peers.c ---- */

/* What is left to write is written when the link can take it. */
void coll_control_watch(struct coll_control *c, struct coll_control_link *l);
struct coll_control_link *coll_control_find_link(struct coll_control *c, int peer);
void coll_control_open_link(struct coll_control *c, int peer, bool asked);
void coll_control_drop_link(struct coll_control *c, struct coll_control_link *l);
void coll_control_broken(struct coll_control *c, struct coll_control_link *l, const char *cause);
void coll_control_accept(struct coll_control *c, int listener);
uint64_t coll_control_hello_deadline(struct peer *p);
/* Handshakes; false: nonsense, drop the link. */
bool coll_control_on_challenge(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h);
bool coll_control_on_hello(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h);
bool coll_control_on_welcome(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h);
/* Timers. */
void coll_control_keep_links(struct coll_control *c, uint64_t now);
void coll_control_expire(struct coll_control *c, uint64_t now);

/* ---- control_asks.c ---- */

void coll_control_on_ping(struct coll_control *c, struct coll_control_link *l, const struct coll_question *q);
void coll_control_on_pong(struct coll_control *c, struct coll_control_link *l, const struct coll_answer *answer);
void coll_control_send_pings(struct coll_control *c, uint64_t now);
/* A link has come up: whoever is asked over it is asked now. */
void coll_control_ask_again(struct coll_control *c, int peer);

#endif
