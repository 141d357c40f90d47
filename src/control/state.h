/*
 * Private to the control plane: its state and the functions that its files share.
 *
 * control.c runs it and owns the interface; connect.c owns the links to other
 * processes; gossip.c the notes of deaths and failures; ping.c the ranks that
 * callers wait for and their answers; last_error.c what a process ended after; socket.c the bytes of one link. All
 * functions here are called with the lock held.
 */
#ifndef COLL_CONTROL_STATE_H
#define COLL_CONTROL_STATE_H

#include <pthread.h>

#include "base/clock.h"
#include "control/socket.h"

enum { CONTROL_LINKS_MAX = 512, FAILURE_BUCKETS = 256, ASKS_MAX = 32 };

struct ask {
	int peer; /* -1: free */
	uint64_t until_ns;
	uint64_t next_ns;
	uint64_t answered_ns; /* 0: no answer yet */
	bool about_this;      /* the answer is to this question */
	struct coll_mismatch_msg question;
	struct coll_answer answer;
};

/* The last error that a process has stated: last_error.c. */
struct coll_held_error {
	struct coll_note note;
	uint64_t came_ns;
	bool goes_on; /* of this process: it does not end because of it */
};

struct peer {
	struct coll_peer_life life;
	struct coll_held_error *error; /* NULL: none */
	uint64_t asked_until_ns, pinged_ns;
	bool dead;
	int process_fd;      /* readable when it has ended: process.c; 0: none */
	bool met;            /* a link to it was authenticated: its notes arrive there */
	bool corrupt;        /* a message on a link with it failed its check, here or there, which has been said */
	bool refused;        /* its listener refused a connection, and no link was authenticated since */
	bool door_opened;    /* a listener accepted and closed during this round of addresses */
	unsigned hello_ms;   /* wait limit with the next handshake, 0: the shortest */
	uint64_t opening_ns; /* since when this process opens links to it and none was authenticated; 0: it does not */
	bool ended;          /* its process or its context has, for certain; of this host only */
	bool words_read;     /* and all words that it left here were read after that: carry.c */
	uint64_t looked_ns;  /* carry.c: when to look for its end again */
	uint64_t carry_ns;   /* and when to connect again though it is dead */
	/* Whether it lives: liveness.c. */
	uint64_t suspect_until_ns; /* 0: no suspicion */
	uint64_t reconnect_ns;     /* when to connect again */
	uint64_t suspect;          /* number of the suspicion, repeated by the answer that settles it */
	bool link_lost;            /* a data link to it broke */
	bool answered;             /* it lives, and may say soon why that link broke */
	bool unreached;            /* because its host does not acknowledge */
	/* Ways to it: connect.c. */
	struct coll_ip proved; /* an address of it over which a link was authenticated */
	bool has_proved;
	bool sure;           /* of this round of addresses: one that had worked refused */
	uint64_t trying_ns;  /* since when a connection is being made without success; 0: none is, or one was made */
	uint64_t cut_off_ns; /* since when none could be made; 0: one could */
	unsigned other;      /* which of its other addresses is next */
	char tried[96];      /* the last address, and why it failed */
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
	int first;                    /* of a failure: the process that found it first, -1: not decided */
	uint64_t came_ns;
	struct coll_uptime age; /* of a death, since it came */
	bool read;              /* behind that age what had come over the links was read */
	struct coll_note note;
};

/* What events of the listeners carry; links have serial numbers above. */
enum { LISTENER_UNIX, LISTENER_TCP, SERIAL_FIRST = LISTENER_TCP + COLL_LISTENERS_MAX };
#define EVENT_OF_PROCESS ((uint64_t)1 << 63) /* with its rank: process.c */

struct coll_control {
	struct coll_control_env env;
	pthread_mutex_t lock;
	int epoll;
	int listen_unix;
	struct coll_listeners tcp;
	int rank, size; /* size 0 until joined */
	const struct coll_peer_info *peer_infos;
	struct peer *peers;
	struct coll_control_link *links[CONTROL_LINKS_MAX];
	int nlinks;
	uint64_t serial; /* given last */
	struct coll_nonces nonces;
	struct coll_held_note *notes, *last_note;
	struct coll_held_note *spare; /* for the first one that there is no memory for */
	struct coll_held_note *facts, *last_fact;
	struct coll_held_note *failures[FAILURE_BUCKETS];
	int nfailures;
	struct coll_held_error *error; /* of this process; NULL: none */
	unsigned errors;               /* so far */
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

/* ---- liveness.c ---- */

enum coll_suspect_why {
	COLL_SUSPECT_CONTROL,  /* a control link ended without a goodbye */
	COLL_SUSPECT_TIMEOUT,  /* the same, as the host does not acknowledge */
	COLL_SUSPECT_LINK,     /* a link of the data path broke */
	COLL_SUSPECT_UNREACHED /* the same, as the host does not acknowledge */
};
enum { COLL_NEIGHBOURS = 5 };

#endif
