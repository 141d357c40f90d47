/*
 * See rendezvous_tell.h. The failure is one frame, in place of a registration: the root takes it as the failure of the
 * job and hangs up. It may not be there yet, and strangers may answer at its ports, so several connections are tried at
 * once. Owns them; keeps nothing.
 */
#include "bootstrap/rendezvous_tell.h"

#include <poll.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/interrupt.h"
#include "bootstrap/rendezvous_places.h"
#include "bootstrap/rendezvous_state.h"

enum { AT_ONCE = 8 };

struct teller {
	const struct coll_rendezvous_point *how;
	struct rendezvous_places root;
	struct coll_wire wire[AT_ONCE];
	bool said[AT_ONCE]; /* the frame is queued */
	int target;         /* next place (and port) to try */
	uint64_t next_ns;
	bool done;
};

static int target_count(const struct teller *t)
{
	return t->root.at.count * (t->how->port_count ? t->how->port_count : 1);
}

/* One more connection, if there is room and its time has come. */
static void try_next(struct teller *t)
{
	struct coll_address a;
	int free = 0;

	while (free < AT_ONCE && t->wire[free].state != COLL_WIRE_CLOSED)
		free++;
	if (free == AT_ONCE || coll_clock_ns() < t->next_ns)
		return;
	if (t->target == 0 && t->how->meeting)
		rendezvous_places_find(&t->root, t->how);
	if (t->target < target_count(t)) {
		a = t->root.at.place[t->target % t->root.at.count];
		if (t->how->port_count)
			coll_address_set_port(&a, t->how->ports[t->target / t->root.at.count]);
		coll_wire_close(&t->wire[free]);
		t->said[free] = false;
		coll_wire_connect(&t->wire[free], &a, t->how->key);
		t->target++;
	}
	t->next_ns = coll_clock_ns() + COLL_DELAY_NS(ROOT_PAUSE_MIN);
	if (t->target < target_count(t))
		return;
	t->target = 0;
	t->next_ns = coll_clock_ns() + COLL_DELAY_NS(ROOT_TRY_NEXT);
}

/* The root hangs up when it has read the frame. */
static void serve(struct teller *t, int i, short revents)
{
	const struct coll_absent *why = t->how->absent;
	unsigned char buf[sizeof(struct failure) + TEXT_BYTES];
	struct coll_wire *w = &t->wire[i];

	coll_wire_pump(w, revents);
	if (w->state == COLL_WIRE_OPEN && !t->said[i]) {
		t->said[i] = coll_wire_send(w, FRAME_FAILED, buf,
		                            pack_failure(buf, sizeof(buf), why->status, why->rank, why->text), NULL, 0);
		coll_wire_pump(w, 0);
	}
	t->done |= t->said[i] && w->state == COLL_WIRE_CLOSED;
	if (w->state != COLL_WIRE_CLOSED && w->state != COLL_WIRE_OPEN &&
	    coll_clock_ns() > w->born_ns + COLL_DELAY_NS(RENDEZVOUS_TELL) / 2)
		coll_wire_close(w);
}

/* A limit of descriptors is one of what poll() takes, too. */
static void wait(struct teller *t)
{
	struct pollfd p[AT_ONCE];
	int of[AT_ONCE], n = 0;
	short revents[AT_ONCE] = {0};

	for (int i = 0; i < AT_ONCE; i++) {
		const short events = coll_wire_events(&t->wire[i]);

		if (events) {
			of[n] = i;
			p[n++] = (struct pollfd){.fd = t->wire[i].fd, .events = events};
		}
	}
	if (poll(p, (nfds_t)n, COLL_DELAY_ROOT_PAUSE_MIN_MS) > 0)
		for (int i = 0; i < n; i++)
			revents[of[i]] = p[i].revents;
	for (int i = 0; i < AT_ONCE; i++)
		serve(t, i, revents[i]);
}

bool rendezvous_tell(const struct coll_rendezvous_point *how)
{
	struct teller t = {.how = how};

	for (int i = 0; i < AT_ONCE; i++)
		coll_wire_close(&t.wire[i]);
	rendezvous_places_init(&t.root, how);
	while (!t.done && coll_clock_ns() < how->deadline_ns && !coll_interrupt_here(false)) {
		try_next(&t);
		wait(&t);
	}
	for (int i = 0; i < AT_ONCE; i++)
		coll_wire_close(&t.wire[i]);
	return t.done;
}
