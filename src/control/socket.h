/*
 * Private to the control plane: one connection and its fixed-size messages.
 */
#ifndef COLL_CONTROL_SOCKET_H
#define COLL_CONTROL_SOCKET_H

#include "control/control.h"
#include "control/seal.h"
#include "control/words.h"
#include "net/listen.h"

enum coll_message_type {
	COLL_MSG_CHALLENGE = 1, /* listener -> connector: nonce, proof that it is the one meant */
	COLL_MSG_HELLO,         /* connector -> listener: rank, nonce, proof */
	COLL_MSG_WELCOME,       /* listener -> connector: proof; what follows carries checks */
	COLL_MSG_NOTE,
	COLL_MSG_PING,
	COLL_MSG_PONG,
	COLL_MSG_BYE,     /* this process leaves */
	COLL_MSG_CLOSE,   /* this connection ends, its process lives */
	COLL_MSG_ALIVE,   /* nothing: so that the connection is not idle */
	COLL_MSG_ERROR,   /* the last error of this process: last_error.h */
	COLL_MSG_FIRST,   /* of the notes of a failure, that of this origin was the first: gossip.h */
	COLL_MSG_ALTERED, /* a message on this connection was altered on its way here: it ends, its process lives */
	COLL_MSG_CARRIED, /* for those above: carry.h */
	COLL_MSG_WORDS,   /* the same, on a connection without a handshake: its check is a proof */
};

/* Who the two are, and how large the job, is known to both: it is in the proofs, and does not travel. */
struct coll_hello {
	uint64_t nonce[2];
	struct coll_proof proof;
	int32_t rank;
	int32_t none;
};

struct coll_stated_error {
	struct coll_note note; /* status, process, text */
	uint64_t age_ms;
};

/* Of COLL_MSG_CARRIED, COLL_MSG_WORDS. */
struct coll_carried {
	int32_t writer, none; /* of words */
	uint8_t bytes[COLL_CARRIED_BYTES];
};

/* Everything that travels: one size, so that a reader never allocates. */
struct coll_message {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	union {
		struct coll_hello hello;
		struct coll_note note;
		struct coll_mismatch_msg question;
		struct coll_answer answer;
		struct coll_stated_error error;
		struct coll_carried carried;
		char bytes[320];
	} u;
	struct coll_proof check; /* behind the handshake: over all the above, see seal.h */
};

enum { COLL_LINK_QUEUE = 16 };

struct coll_held_note;

struct coll_control_link {
	int fd;
	uint64_t serial; /* what its events carry: an address may be used again */
	int peer;        /* rank, -1 until proved */
	bool inbound;
	bool connecting;           /* connect() in progress */
	bool ready;                /* proved both ways */
	bool sealed;               /* both nonces are known */
	bool corrupt;              /* a message failed its check */
	bool bye;                  /* the other end said goodbye */
	bool said_bye;             /* our goodbye is queued */
	bool greeted;              /* connector: HELLO is queued, so the listener may take the link for proved */
	bool asked;                /* opened because a caller waits for this peer */
	bool near;                 /* to a process of this network namespace */
	bool probe;                /* opened because its life is suspected */
	int candidate;             /* turn of the address being tried, -1: Unix */
	struct coll_ip ip;         /* that address */
	uint64_t nonce[2];         /* ours */
	struct coll_proof welcome; /* connector: what the listener is to say */
	struct coll_seal seal_out, seal_in;
	uint64_t deadline_ns; /* of the handshake */
	uint64_t heard_ns;    /* the last message */
	size_t in_bytes;
	struct coll_message in;
	struct coll_held_note *told; /* the last note it was given, NULL: none */
	unsigned told_errors;        /* of c->errors */
	uint32_t head, count;        /* ring of outgoing messages */
	size_t out_bytes;            /* of the head message, already sent */
	struct coll_message out[COLL_LINK_QUEUE];
};

/* Non-blocking listeners; -1 or false when not possible. at NULL: every address of this host. */
int coll_link_listen_unix(char *name, size_t len_bytes, const uint64_t random[2]);
bool coll_link_listen_tcp(const char *port_range, const struct coll_ips *at, struct coll_listeners *l);

/* Start connecting to a listener of a peer: at ip, or the Unix one if that is NULL. Returns the
 * socket or -1; *in_progress tells whether to wait for writability. */
int coll_link_connect(const struct coll_peer_info *info, const struct coll_ip *ip, int unreachable_ms,
                      bool *in_progress);
/* A socket over TCP ends when the other host has acknowledged nothing for so long. */
void coll_link_tune(int fd, int unreachable_ms);
/* The address of its other end; false: it has none. */
bool coll_link_peer(int fd, struct coll_ip *ip);

/* Queue a message. False: the queue is full, which only pings and their answers make it;
 * both are repeated. The last place is kept for the goodbye. */
bool coll_link_queue(struct coll_control_link *l, const struct coll_message *m);

/* Write what can be written. False: the link is broken. */
bool coll_link_flush(struct coll_control_link *l);

/* Read until one whole message is in l->in (1), nothing more now (0), or the
 * link is broken or talks nonsense (-1). */
int coll_link_read(struct coll_control_link *l);

/* Of what was written not all is acknowledged, or could not even be sent, and the other end's system has said nothing
 * for so long. TCP only. */
bool coll_link_is_owed(const struct coll_control_link *l, uint32_t silent_ms);

/* Whether the message in l->in is the next one of the other end. */
bool coll_link_genuine(struct coll_control_link *l);

#endif
