/*
 * The rendezvous: every rank brings len_bytes, every rank leaves with all of
 * them. See docs/design/bootstrap.md for the protocol.
 */
#ifndef COLL_BOOTSTRAP_MEET_H
#define COLL_BOOTSTRAP_MEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/error.h"
#include "bootstrap/address.h"

enum { COLL_MEET_PORTS = 17, COLL_MEET_LISTENERS = 2 };

/* One rank's view of the meeting. */
struct coll_meeting {
	int rank;
	int size;
	uint64_t key[2];
	uint64_t deadline_ns; /* coll_clock_ns() */
	const struct coll_settings *settings;

	const void *mine;
	void *all;
	size_t len_bytes;

	/* Rank 0: where the others come to; -1 for unused ones. Not closed here. */
	int listener[COLL_MEET_LISTENERS];
	bool close_listeners; /* by who made the meeting, after it */

	/* The others: where rank 0 may be, tried in turn. ports, if any, replace the
	 * ports of the places: rank 0 is at one of them. */
	struct coll_places root;
	uint16_t ports[COLL_MEET_PORTS];
	int port_count;
	char root_text[300]; /* how messages call that place */
	bool unix_only;      /* all ranks share a host and meet over Unix sockets */
};

coll_status coll_meet(const struct coll_meeting *how, struct coll_error_box *err);

#endif
