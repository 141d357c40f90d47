/*
 * The end of a rendezvous: children take what they were sent, the table or why it failed, and hang up. A child that
 * does is one that has everything. Who reads nothing is silent, but not while its host acknowledges nothing: that is an
 * outage, which the kernel ends in time (rendezvous_tune). Owns nothing; connections are rendezvous.c's.
 */
#include <limits.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/interrupt.h"
#include "base/messages.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/rendezvous_state.h"

/* Changes whenever a child takes something or leaves. */
static size_t undelivered(struct rendezvous *r)
{
	size_t left = (size_t)r->child_count;

	for (int i = 0; i < r->child_count; i++) {
		left += coll_wire_unsent(&r->children[i].wire);
		if (coll_wire_unsent(&r->children[i].wire) == 0)
			shutdown(r->children[i].wire.fd, SHUT_WR);
	}
	return left;
}

static int silence_ms(const struct coll_rendezvous_point *how)
{
	return how->settings ? how->settings->timeout_ms : INT_MAX;
}

/* The host of a child has not acknowledged what it was sent, and says nothing: one that is stopped answers probes. */
static bool is_owed(const struct rendezvous *r)
{
	for (int i = 0; i < r->child_count; i++) {
		struct tcp_info info = {0};
		socklen_t len = sizeof(info);

		if (getsockopt(r->children[i].wire.fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
		    (info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0) &&
		    info.tcpi_last_ack_recv >= COLL_DELAY_HOST_SILENT_MS)
			return true;
	}
	return false;
}

static bool not_read(struct rendezvous *r, uint64_t quiet_ns)
{
	const int rank = r->children[0].rank;

	r->status = COLL_AGAIN;
	if (coll_interrupt_here(false))
		rendezvous_interrupted(r);
	rendezvous_fail(r, COLL_ERR_PEER_SILENT, rank,
	                "[COLL-2201] rank %d is silent: it has not read the addresses of the job for %llu ms", rank,
	                (unsigned long long)((coll_clock_ns() - quiet_ns) / COLL_NS_PER_MS));
	return false;
}

bool rendezvous_complete(struct rendezvous *r)
{
	const struct coll_rendezvous_point *how = r->how;
	const coll_status st = how->complete ? how->complete(how->complete_arg) : COLL_OK;
	struct coll_message_text m;
	char text[TEXT_BYTES];
	int culprit;

	if (st == COLL_OK)
		return true;
	culprit = r->err ? r->err->rank : -1;
	if (culprit < 0 && (st == COLL_ERR_MEMORY || st == COLL_ERR_SYSTEM))
		culprit = how->rank;
	m = coll_message_split(st, r->err ? r->err->message : coll_status_string(st));
	snprintf(text, sizeof(text), "%s%srank %d: %.500s", m.tag[0] ? m.tag + 1 : "", m.tag[0] ? " " : "", how->rank,
	         m.text);
	rendezvous_fail(r, st, culprit, "%s", text);
	return false;
}

bool rendezvous_deliver(struct rendezvous *r)
{
	const uint64_t silence_ns = (uint64_t)silence_ms(r->how) * COLL_NS_PER_MS;
	uint64_t quiet_ns = coll_clock_ns();
	size_t left, before = 0;

	rendezvous_shut(r);
	r->status = COLL_OK; /* from here on a child that hangs up is a child that has everything */
	while (r->status == COLL_OK && (left = undelivered(r)) > 0) {
		const uint64_t now = coll_clock_ns();
		const bool owed = is_owed(r);
		uint64_t until_ns;

		if (left != before || owed)
			quiet_ns = now;
		before = left;
		until_ns = quiet_ns + silence_ns < r->how->deadline_ns ? quiet_ns + silence_ns : r->how->deadline_ns;
		if (now >= until_ns || coll_interrupt_here(false))
			return not_read(r, quiet_ns);
		if (owed && until_ns > now + COLL_DELAY_NS(RENDEZVOUS_NOTICE))
			until_ns = now + COLL_DELAY_NS(RENDEZVOUS_NOTICE);
		rendezvous_step(r, NULL, until_ns);
	}
	return r->status == COLL_OK;
}

bool rendezvous_drain(struct rendezvous *r, uint64_t until_ns)
{
	const bool before = coll_interrupt_here(false);

	rendezvous_shut(r);
	if (r->status == COLL_AGAIN)
		r->status = COLL_OK; /* from here on a child that hangs up is a child that has everything */
	for (;;) {
		for (int i = 0; i < r->child_count; i++)
			if (coll_wire_unsent(&r->children[i].wire) == 0)
				shutdown(r->children[i].wire.fd, SHUT_WR);
		if (r->child_count == 0 || coll_clock_ns() >= until_ns || (!before && coll_interrupt_here(false)))
			return r->child_count == 0;
		rendezvous_step(r, NULL, until_ns);
	}
}
