/*
 * Private to the control plane: its state, and what its files say to each other.
 *
 * control.c runs it and owns the interface; connect.c owns the links to other
 * processes; gossip.c what is known of deaths and failures; ping.c whom
 * callers wait for, and what those answer; socket.c the bytes of one link. All
 * functions here want the lock held.
 */
#ifndef COLL_CONTROL_STATE_H
#define COLL_CONTROL_STATE_H

#include <pthread.h>

#include "control/socket.h"

enum { CONTROL_LINKS_MAX = 512, FAILURE_BUCKETS = 256, ASKS_MAX = 32 };
enum { PING_MS = 250 };

#define NS_PER_MS ((uint64_t)1000000)

struct ask {
	int peer; /* -1: free */
	uint64_t until_ns;
	uint64_t next_ns;
	uint64_t answered_ns; /* 0: no answer yet */
	bool about_this;      /* the answer is to this question */
	struct coll_mismatch_msg question;
	struct coll_answer answer;
};

struct peer {
	struct coll_peer_life life;
	uint64_t asked_until_ns, pinged_ns;
	bool dead;
	bool met;          /* a link to it has been proved: what it tells is read there */
	bool refused;      /* nobody listened at its door, and no link was proved since */
	bool door_opened;  /* somebody accepted and hung up during this round of addresses */
	unsigned hello_ms; /* wait limit with the next handshake, 0: the shortest */
	/* Whether it lives: liveness.c. */
	uint64_t suspect_until_ns; /* 0: no suspicion */
	uint64_t knock_ns;         /* when to knock again */
	uint64_t suspect;          /* number of the suspicion, repeated by the answer that settles it */
	bool link_lost;            /* a data link to it broke */
	bool unreached;            /* because its host does not acknowledge */
	bool presumed;             /* life.left is what its absence looks like */
	char cause[160];
};

/* A line for the log, written when the lock is free: the callback is the user's. */
struct said {
	struct said *next;
	int level;
	char text[480];
};

/* A note, in the order of arrival. */
struct coll_held_note {
	struct coll_held_note *next;
	struct coll_held_note *chain; /* of facts, or of failures in one bucket */
	int from;                     /* process whose link brought it, -1: found here */
	struct coll_note note;
};

/* What events of the listeners carry; links have serial numbers above. */
enum { LISTENER_UNIX, LISTENER_TCP, SERIAL_FIRST };

struct coll_control {
	struct coll_control_env env;
	pthread_mutex_t lock;
	int epoll;
	int listen_unix;
	int listen_tcp;
	int rank, size; /* size 0 until joined */
	const struct coll_peer_info *peer_infos;
	struct peer *peers;
	struct coll_control_link *links[CONTROL_LINKS_MAX];
	int nlinks;
	uint64_t serial; /* given last */
	struct coll_held_note *notes, *last_note;
	struct coll_held_note *spare; /* for the first one that there is no memory for */
	struct coll_held_note *facts, *last_fact;
	struct coll_held_note *failures[FAILURE_BUCKETS];
	int nfailures;
	int nsuspects;
	uint64_t suspects_; /* so far */
	struct ask asks[ASKS_MAX];
	uint64_t keep_ns;   /* when to look after our own links again */
	uint64_t listen_ns; /* when to listen again; 0: we do */
	uint64_t alive_ns;  /* when to say again that we live */
	bool watches;       /* there is a link over TCP to say it on */
	struct said *said, **said_end;
	bool closing;
};

/* ---- control.c ---- */

/* Release the lock, then write what was said under it. */
void coll_control_unlock(struct coll_control *c);
/* A line for the log. */
void coll_control_say(struct coll_control *c, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- gossip.c ---- */

/* Keep a new note, set off the alarm and pass it on to all but the process it came from.
 * False: it is not new. */
bool coll_control_spread(struct coll_control *c, const struct coll_note *n, int from);
/* A process was found dead by this one. */
void coll_control_death(struct coll_control *c, int peer, const char *cause);
/* Write what is queued and the notes the link has not been given yet, as far as it takes
 * them. False: it is broken. */
bool coll_control_write(struct coll_control *c, struct coll_control_link *l);
bool coll_control_untold(const struct coll_control *c, const struct coll_control_link *l);
void coll_control_forget_all(struct coll_control *c);

/* ---- keepalive.c ---- */

/* Keep links over TCP from being idle. */
void coll_control_say_alive(struct coll_control *c, uint64_t now);
/* How long the service may sleep at most, if ms otherwise. */
int coll_control_alive_ms(const struct coll_control *c, int ms);

/* ---- liveness.c ---- */

enum coll_suspect_why {
	COLL_SUSPECT_CONTROL,  /* a control link ended without a goodbye */
	COLL_SUSPECT_TIMEOUT,  /* the same, as the host does not acknowledge */
	COLL_SUSPECT_LINK,     /* a link of the data path broke */
	COLL_SUSPECT_UNREACHED /* the same, as the host does not acknowledge */
};
void coll_control_suspect(struct coll_control *c, int peer, const char *cause, enum coll_suspect_why why);
/* Nobody listens at its door. */
void coll_control_gone(struct coll_control *c, int peer, const char *cause);
/* Its host has answered. */
void coll_control_reached(struct coll_control *c, int peer);
/* If it is suspected, ask over this link, which is proved. */
void coll_control_ask_for_life(struct coll_control *c, struct coll_control_link *l);
/* It has answered. */
void coll_control_alive(struct coll_control *c, int peer, uint64_t suspect);
void coll_control_settle_suspects(struct coll_control *c, uint64_t now);
enum { COLL_NEIGHBOURS = 5 };
int coll_control_neighbour(const struct coll_control *c, int peer, int i);
/* It is not there any more. Whoever would have heard its goodbye tells its death; to others it has left. */
void coll_control_missing(struct coll_control *c, int peer, const char *cause);

/* ---- connect.c ---- */

/* What is left to write is written when the link can take it. */
void coll_control_watch(struct coll_control *c, struct coll_control_link *l);
struct coll_control_link *coll_control_find_link(const struct coll_control *c, int peer);
void coll_control_open_link(struct coll_control *c, int peer, bool asked);
void coll_control_drop_link(struct coll_control *c, struct coll_control_link *l);
/* Connect anew, whatever links there are. */
void coll_control_probe(struct coll_control *c, int peer);
/* The link has ended. error: of the system call that said so, 0 none. */
void coll_control_broken(struct coll_control *c, struct coll_control_link *l, const char *cause, int error);
void coll_control_accept(struct coll_control *c, int listener);
void coll_control_listen(struct coll_control *c, bool on);
uint64_t coll_control_hello_deadline(struct peer *p);
/* Handshakes; false: nonsense, drop the link. */
bool coll_control_on_challenge(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h);
bool coll_control_on_hello(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h);
bool coll_control_on_welcome(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h);
/* Timers. */
void coll_control_keep_links(struct coll_control *c, uint64_t now);
/* Whether one of the links that must always be there is not. */
bool coll_control_lacks_links(const struct coll_control *c);
void coll_control_expire(struct coll_control *c, uint64_t now);

/* ---- ping.c ---- */

void coll_control_on_ping(struct coll_control *c, struct coll_control_link *l, const struct coll_mismatch_msg *q);
void coll_control_on_pong(struct coll_control *c, struct coll_control_link *l, const struct coll_answer *answer);
void coll_control_send_pings(struct coll_control *c, uint64_t now);
/* A link has come up: whoever is asked over it is asked now. */
void coll_control_ask_again(struct coll_control *c, int peer);

#endif
