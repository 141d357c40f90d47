/*
 * One short-lived connection of the rendezvous: a handshake in which both ends
 * prove the job's key, then small frames. Non-blocking, limited in bytes until
 * the other end is authenticated, and by a deadline until the handshake is done.
 * Head and body of each frame have a seal of their direction, so that nobody on the path can alter,
 * add, leave out or repeat one.
 *
 *   client                          server
 *   HELLO  magic, nonce c      ->
 *                              <-   ANSWER magic, nonce s, H(key, 'S' c s)
 *   PROOF  H(key, 'C' c s)     ->
 *   frames {type, len, seals, body}  <->   frames
 *
 * The handshake carries no version, so that it never changes: versions are
 * compared in the first frame, when the other end is authenticated.
 */
#ifndef COLL_BOOTSTRAP_WIRE_H
#define COLL_BOOTSTRAP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/seal.h"
#include "bootstrap/address.h"

enum coll_wire_state {
	COLL_WIRE_CONNECTING, /* client: connect() has not finished */
	COLL_WIRE_GREETING,   /* client: waits for ANSWER; server: for HELLO */
	COLL_WIRE_PROVING,    /* server: waits for PROOF */
	COLL_WIRE_OPEN,       /* frames */
	COLL_WIRE_CLOSED      /* the other end is gone, or broke the rules: see cause */
};

/* Of one direction. */
struct coll_wire_seals {
	struct coll_seal head, body;
};

struct coll_wire {
	int fd; /* -1 when there is none */
	enum coll_wire_state state;
	bool server;
	bool proved; /* the other end, its key */
	uint64_t key[2];
	uint64_t born_ns;
	unsigned char client_nonce[16];
	unsigned char server_nonce[16];
	unsigned char *in; /* received, not yet taken */
	size_t in_len, in_cap, in_max;
	unsigned char *out; /* to be sent, first out_at bytes already gone */
	size_t out_len, out_cap, out_at;
	const unsigned char *tail; /* borrowed bytes that follow out */
	size_t tail_len;
	char from[80];  /* the other end; "" before OPEN: a connection that was reset has none */
	char cause[96]; /* why CLOSED */
	bool stranger;  /* because another job, program or user answers there */
	bool unreached; /* because its host cannot be reached any more */
	bool altered;   /* a frame came whose seal is wrong: it is no frame, and none is read any more */
	int shortage;   /* errno: because this process has no descriptor for it */
	bool memory;    /* because this process has no memory for it: the other end did nothing wrong */
	struct coll_wire_seals sends, receives;
	enum { COLL_WIRE_NOTHING, COLL_WIRE_HEAD, COLL_WIRE_ALL } checked; /* of the frame that is read */
};

struct coll_wire_frame {
	uint32_t type;
	uint32_t len_bytes;
	const unsigned char *body; /* valid until coll_wire_take() */
};

/* Start connecting; false (with cause) when that fails at once. */
bool coll_wire_connect(struct coll_wire *w, const struct coll_address *to, const uint64_t key[2]);
/* Take over an accepted, non-blocking socket. */
void coll_wire_accept(struct coll_wire *w, int fd, const uint64_t key[2]);
/* Frees everything; zeroed and closed wires are accepted. */
void coll_wire_close(struct coll_wire *w);

/* poll() events this wire waits for; 0 for a closed one. */
short coll_wire_events(const struct coll_wire *w);
/* Move bytes as far as they go. Afterwards look at state and frames. */
void coll_wire_pump(struct coll_wire *w, short revents);
/* How far one that this end began has come, for messages, if it has no answer. */
const char *coll_wire_stage(const struct coll_wire *w);
/* The address of the other end; text stays as it is where that is unknown. */
void coll_wire_from(const struct coll_wire *w, char text[80]);
/* Bytes not handed to the kernel yet. */
size_t coll_wire_unsent(const struct coll_wire *w);

/* Queue a frame. tail follows body; without a body it is borrowed until it is sent, one at a time. False: not OPEN, or
 * out of memory, which closes the wire. */
bool coll_wire_send(struct coll_wire *w, uint32_t type, const void *body, size_t len_bytes, const void *tail,
                    size_t tail_bytes);
/* The next complete frame; false when there is none yet, or one was altered. A frame longer than
 * max_bytes closes the wire. */
bool coll_wire_peek(struct coll_wire *w, size_t max_bytes, struct coll_wire_frame *f);
void coll_wire_take(struct coll_wire *w, const struct coll_wire_frame *f);

#endif
