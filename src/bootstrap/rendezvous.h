/*
 * The rendezvous: every rank brings len_bytes, every rank leaves with all of
 * them. See docs/design/bootstrap.md for the protocol.
 */
#ifndef COLL_BOOTSTRAP_RENDEZVOUS_H
#define COLL_BOOTSTRAP_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/error.h"
#include "bootstrap/address.h"

enum { COLL_RENDEZVOUS_PORTS = 17, COLL_RENDEZVOUS_LISTENERS = 2 };

/* One rank's view of the meeting. */
struct coll_rendezvous_point {
	int rank;
	int size;
	uint64_t key[2];
	uint64_t deadline_ns; /* coll_clock_ns() */
	const struct coll_settings *settings;

	const void *mine;
	void *all;
	size_t len_bytes;

	/* Rank 0: where the others come to; -1 for unused ones. Not closed here. */
	int listener[COLL_RENDEZVOUS_LISTENERS];
	bool close_listeners; /* by who made the meeting, after it */

	/* The others: where rank 0 may be, tried in turn. ports, if any, replace the
	 * ports of the places: rank 0 is at one of them. */
	struct coll_places root;
	uint16_t ports[COLL_RENDEZVOUS_PORTS];
	int port_count;
	char root_text[300]; /* how messages call that place */
	bool unix_only;      /* all ranks share a host and meet over Unix sockets */
};

coll_status coll_rendezvous(const struct coll_rendezvous_point *how, struct coll_error_box *err);

#endif
