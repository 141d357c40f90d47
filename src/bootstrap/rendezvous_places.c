/*
 * Where the root of a rendezvous may be: places that were given, that its name leads to, or that files of a meeting
 * name. Invariant: what is known stays while nobody can say better.
 */
#include "bootstrap/rendezvous_places.h"

#include <sys/socket.h>

#include "base/clock.h"
#include "base/delay.h"
#include "bootstrap/meeting_file.h"
#include "bootstrap/resolve.h"

void rendezvous_places_init(struct rendezvous_places *p, const struct coll_rendezvous_point *how)
{
	*p = (struct rendezvous_places){.at = how->root, .looked_up_ns = how->meeting ? coll_clock_ns() : 0};
}

/* A name may lead elsewhere by now: the host of rank 0 was replaced while the job starts. What is known stays if the
 * name servers do not answer soon. */
void rendezvous_places_resolve(struct rendezvous_places *p, const struct coll_rendezvous_point *how)
{
	const uint64_t now = coll_clock_ns();
	struct coll_places found;
	char why[200];

	if (!how->root_host || now < p->looked_up_ns + COLL_DELAY_NS(RESOLVE_AGAIN))
		return;
	if (coll_resolve(how->root_host, how->ports[0], now + COLL_DELAY_NS(ROOT_TRY), &found, why, sizeof(why)))
		p->at = found;
	p->looked_up_ns = coll_clock_ns();
}

/* Somebody else may have had the usual name, and be gone, or no folder is that of rank 0: now and then the folders are
 * read, and the names are tried that the key gives. */
void rendezvous_places_find(struct rendezvous_places *p, const struct coll_rendezvous_point *how)
{
	const struct coll_meeting_words w = {how->meeting, how->key};
	const bool thorough = coll_clock_ns() >= p->looked_up_ns + COLL_DELAY_NS(RESOLVE_AGAIN);
	struct coll_address a;

	p->at.count = 0;
	p->shortage = coll_meeting_find(&w, thorough, &p->at);
	p->from_files = p->at.count;
	for (int i = 0; thorough && how->keyed && i < COLL_MEETING_NAMES; i++) {
		coll_meeting_named(&w, i, &a);
		coll_places_add(&p->at, &a);
	}
	if (thorough)
		p->looked_up_ns = coll_clock_ns();
}

void rendezvous_places_own(const struct coll_rendezvous_point *how, int root_fd, uint16_t port, struct coll_places *p)
{
	struct coll_address route = {.len = sizeof(route.at)};

	if (!how->settings->interface[0] && getsockname(root_fd, (struct sockaddr *)&route.at, &route.len) == 0 &&
	    route.at.ss_family != AF_UNIX && !coll_address_is_loopback(&route)) {
		coll_address_set_port(&route, 0);
		coll_places_add(p, &route);
	}
	coll_places_local(how->settings, true, p);
	for (int i = 0; i < p->count; i++)
		coll_address_set_port(&p->place[i], port);
}
