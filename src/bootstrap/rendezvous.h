/*
 * The rendezvous: every rank brings len_bytes, every rank leaves with all of
 * them. See docs/design/bootstrap.md for the protocol.
 */
#ifndef COLL_BOOTSTRAP_RENDEZVOUS_H
#define COLL_BOOTSTRAP_RENDEZVOUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/error.h"
#include "base/ips.h"
#include "bootstrap/address.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/listeners.h"

/* The rank of the process that made a unique id and hosts its meeting; it may have ranks besides. */
enum { COLL_RENDEZVOUS_HOST = -1 };

/* A hosted meeting is awaited until its first rank has come (begun), or until nobody needs it. */
enum coll_meeting_phase { COLL_MEETING_AWAITED, COLL_MEETING_BEGUN, COLL_MEETING_GIVEN_UP };

/* One rank's view of the meeting. */
struct coll_rendezvous_point {
	int rank;
	int size;    /* 0 at the host: what the first rank that comes says */
	bool hosted; /* a host is the root, and rank 0 is a member as all others; else rank 0 is the root */
	uint64_t key[2];
	uint64_t deadline_ns; /* coll_clock_ns() */
	const struct coll_settings *settings;

	void *mine;
	void (*met)(void *mine, const struct coll_ip *own, uint32_t round_trip_us); /* or NULL */
	/* all is complete here, and is passed on next: whoever has it may call this rank from then on. Or NULL. */
	coll_status (*complete)(void *arg);
	void *complete_arg;
	void *all;
	size_t len_bytes;

	/* The root: where the others come to. Not closed here. */
	struct coll_rendezvous_listeners listeners;

	/* The host: changed once, from AWAITED. */
	atomic_int *phase;

	/* The others: where the root may be, tried in turn. ports, if any, replace the
	 * ports of the places: the root is at one of them. */
	struct coll_places root;
	const char *root_host; /* the name that led there, to be looked up again; NULL: none did */
	uint16_t ports[COLL_RENDEZVOUS_PORTS];
	int port_count;
	const char
	        *meeting; /* files of these words lead to the root, and are looked for in each round; NULL: none do */
	char root_text[300];              /* how messages call that place */
	bool unix_only;                   /* all ranks share a host and meet over Unix sockets */
	const struct coll_absent *absent; /* this rank does not come: as the root it tells whoever does; or NULL */
	bool *untold; /* set when this rank fails for a reason of its own that it could tell nobody; or NULL */
	bool keyed;   /* key is a launch secret: it also names sockets at which the root of a meeting is */
};

/* This end of a connection that has met the other side: an address of this rank that works. mine: what it brings. */
void rendezvous_met(const struct coll_rendezvous_point *how, int fd, void *mine);

/* "rank 3"; "the maker of the id" for COLL_RENDEZVOUS_HOST. */
const char *rank_name(char buf[32], int rank);

struct coll_wire;
struct coll_wire_frame;
struct child;
struct rendezvous;

coll_status rendezvous_open(struct rendezvous *r, const struct coll_rendezvous_point *how, struct coll_error_box *err);
void rendezvous_close(struct rendezvous *r);

/* The first failure counts. culprit -1: no rank. */
void rendezvous_fail(struct rendezvous *r, coll_status status, int culprit, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* Another rank has said why it failed, also while the table is delivered. False: not in that form. */
bool rendezvous_failed(struct rendezvous *r, const struct coll_wire_frame *f);

/* The seal of a message is wrong, which a rank sent, or -1 if it has not said which; stage: what the message was for.
 * Strangers have no seals: either somebody is on the path, or the network is faulty. */
void rendezvous_altered(struct rendezvous *r, const struct coll_wire *w, int rank, const char *stage);

/* This process has no memory for a connection, also while the table is delivered. */
void rendezvous_out_of_memory(struct rendezvous *r);

/* The program's hook has ended the creation here. */
void rendezvous_interrupted(struct rendezvous *r);

/* Wait until something happens or until_ns; extra (may be NULL) is polled too.
 * Serves newcomers and children. */
void rendezvous_step(struct rendezvous *r, struct coll_wire *extra, uint64_t until_ns);

/* Make a child of a newcomer's wire (moved, *w is emptied). NULL: no memory. */
struct child *rendezvous_adopt(struct rendezvous *r, struct coll_wire *w, int rank);
struct child *rendezvous_find_child(struct rendezvous *r, int rank);

/* To all children; those that cannot take it are skipped. */
void rendezvous_send_all(struct rendezvous *r, uint32_t type, const void *body, size_t len_bytes, const void *tail,
                         size_t tail_bytes);

/* To all children: a frame that has the form of a failure. */
void rendezvous_say(struct rendezvous *r, uint32_t type, coll_status status, int rank, const char *text);

/* Send to all children why it failed. */
void rendezvous_send_failure(struct rendezvous *r);

/* The same to one newcomer. */
void rendezvous_refuse(const struct rendezvous *r, struct coll_wire *w);

/* No further rank is expected: newcomers are dropped. */
void rendezvous_shut(struct rendezvous *r);

/* This rank has the table, and is to be ready for calls of the others before it passes it on. False: it has failed. */
bool rendezvous_complete(struct rendezvous *r);

/* Wait until every child has read what was sent, the table, and has hung up. A child that reads nothing for as long as
 * silence is borne, or whose host cannot be reached for its time, is a failure that names it, which false returns. */
bool rendezvous_deliver(struct rendezvous *r);
/* A connection over TCP ends when the other host cannot be reached for so long as in calls. */
void rendezvous_tune(const struct coll_rendezvous_point *how, int fd);

/* Send what is queued and wait until every child has hung up, until_ns at most. */
bool rendezvous_drain(struct rendezvous *r, uint64_t until_ns);

/* The table as it is sent; NULL: no memory. */
unsigned char *pack_table(const struct coll_rendezvous_point *how, size_t *packed_bytes);
/* A table that came, into how->all. False: it makes no sense. */
bool unpack_table(const struct coll_rendezvous_point *how, const struct coll_wire_frame *f);

static inline size_t table_bytes_max(const struct coll_rendezvous_point *how)
{
	return (size_t)how->size * (sizeof(uint32_t) + how->len_bytes);
}

size_t pack_failure(unsigned char *buf, size_t cap, coll_status status, int rank, const char *text);
bool unpack_failure(const struct coll_wire_frame *f, coll_status *status, int *rank, char *text, size_t text_bytes);

/* "rank 3" or "ranks 3, 5, 7-9 and 12 more" of those for which missing() is true. */
void name_ranks(char *buf, size_t len_bytes, int size, bool (*missing)(const void *arg, int rank), const void *arg);

#endif
