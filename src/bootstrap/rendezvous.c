/*
 * The state of a rendezvous: pending connections, children, and the loop
 * that serves them. A new connection is pending until it has proved the key. There are
 * at most PENDING_MAX of them, each has a deadline, and the oldest one
 * gives way to a new one. So silent, chatty or endless foreign connections
 * cost a bounded amount of memory and descriptors, and never delay a rank.
 */
#include "bootstrap/rendezvous.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/interrupt.h"
#include "base/retransmit.h"
#include "base/round_trip.h"
#include "bootstrap/rendezvous_state.h"
#include "bootstrap/rendezvous_tries.h"

/* Besides children. */
enum { POLLS_MIN = COLL_RENDEZVOUS_LISTENERS + 1 + RENDEZVOUS_TRIES_MAX + PENDING_MAX };

coll_status rendezvous_open(struct rendezvous *r, const struct coll_rendezvous_point *how, struct coll_error_box *err)
{
	memset(r, 0, sizeof(*r));
	r->how = how;
	r->err = err;
	r->status = COLL_AGAIN;
	r->culprit = -1;
	r->listeners = how->listeners;
	r->pending = calloc(PENDING_MAX, sizeof(*r->pending));
	r->poll_cap = POLLS_MIN + FAN_OUT;
	r->polls = calloc((size_t)r->poll_cap, sizeof(*r->polls));
	r->spare = how->absent ? NULL : malloc(SPARE_BYTES);
	if (r->pending && r->polls && (r->spare || how->absent))
		return COLL_OK;
	return coll_error_set(err, COLL_ERR_MEMORY, "no memory for the rendezvous");
}

void rendezvous_close(struct rendezvous *r)
{
	for (int i = 0; i < r->pending_count; i++)
		coll_wire_close(&r->pending[i]);
	for (int i = 0; i < r->child_count; i++)
		coll_wire_close(&r->children[i].wire);
	free(r->pending);
	free(r->children);
	free(r->polls);
	free(r->spare);
	memset(r, 0, sizeof(*r));
}

void rendezvous_fail(struct rendezvous *r, coll_status status, int culprit, const char *format, ...)
{
	va_list ap;

	if (r->status != COLL_AGAIN)
		return;
	va_start(ap, format);
	vsnprintf(r->text, sizeof(r->text), format, ap);
	va_end(ap);
	r->status = coll_error_set(r->err, status, "%s", r->text);
	r->culprit = culprit;
	if (r->err)
		r->err->rank = culprit;
	if (status == COLL_ERR_MEMORY) {
		free(r->spare);
		r->spare = NULL;
	}
}

bool rendezvous_failed(struct rendezvous *r, const struct coll_wire_frame *f)
{
	char text[TEXT_BYTES];
	coll_status status;
	int culprit;

	if (!unpack_failure(f, &status, &culprit, text, sizeof(text)))
		return false;
	if (r->status == COLL_OK)
		r->status = COLL_AGAIN;
	rendezvous_fail(r, status, culprit, "%s", text);
	return true;
}

void rendezvous_out_of_memory(struct rendezvous *r)
{
	char name[32];

	if (r->status == COLL_OK)
		r->status = COLL_AGAIN;
	rendezvous_fail(r, COLL_ERR_MEMORY, r->how->rank, "%s has no memory for the rendezvous",
	                rank_name(name, r->how->rank));
}

void rendezvous_interrupted(struct rendezvous *r)
{
	rendezvous_fail(r, COLL_ERR_ABORTED, r->how->rank, "[COLL-3301] rank %d was interrupted", r->how->rank);
}

void rendezvous_altered(struct rendezvous *r, const struct coll_wire *w, int rank, const char *stage)
{
	char self[32], other[32], at[80] = "an unknown address";

	coll_wire_from(w, at);
	snprintf(other, sizeof(other), rank < 0 ? "a process" : "rank %d", rank);
	if (r->status == COLL_OK) /* while the table is delivered, too */
		r->status = COLL_AGAIN;
	rendezvous_fail(r, COLL_ERR_CORRUPT, rank,
	                "[COLL-4206] a message from %s at %s to %s was altered on its way (%s), or these processes "
	                "have different versions of this library",
	                other, at, rank_name(self, r->how->rank), stage);
}

/* ---- Newcomers --------------------------------------------------------- */

static uint64_t pending_deadline(const struct coll_wire *w)
{
	return w->born_ns +
	       (w->state == COLL_WIRE_OPEN ? COLL_DELAY_NS(RENDEZVOUS_REGISTER) : COLL_DELAY_NS(RENDEZVOUS_PROOF));
}

static void drop_pending(struct rendezvous *r, int i)
{
	coll_wire_close(&r->pending[i]);
	r->pending[i] = r->pending[--r->pending_count];
}

/* Make room by dropping the oldest one that has proved nothing, first among
 * those that have not even greeted. */
static bool evict(struct rendezvous *r)
{
	int best = -1;

	for (int i = 0; i < r->pending_count; i++) {
		const struct coll_wire *w = &r->pending[i], *b = best < 0 ? NULL : &r->pending[best];

		if (w->state == COLL_WIRE_OPEN)
			continue;
		if (!b || w->state < b->state || (w->state == b->state && w->born_ns < b->born_ns))
			best = i;
	}
	if (best < 0)
		return false;
	drop_pending(r, best);
	return true;
}

static void accept_some(struct rendezvous *r, int listener)
{
	for (int turns = 0; turns < PENDING_MAX; turns++) {
		int fd;

		if (r->pending_count == PENDING_MAX && !evict(r))
			return; /* all have proved themselves: they will be done soon */
		fd = COLL_FD(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
			r->lacking = errno;
			if (!evict(r))
				r->accept_again_ns = coll_clock_ns() + COLL_DELAY_NS(RENDEZVOUS_LISTEN_AGAIN);
			return;
		}
		if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (fd >= 0)
			r->lacking = 0;
		if (fd >= 0 && coll_unix_foreign(fd, r->how->keyed))
			coll_fd_close(fd);
		else if (fd >= 0) {
			rendezvous_tune(r->how, fd);
			coll_wire_accept(&r->pending[r->pending_count++], fd, r->how->key);
		}
	}
}

static void serve_pending(struct rendezvous *r, int i, short revents)
{
	struct coll_wire *w = &r->pending[i];
	const size_t most = sizeof(struct introduction) + COLL_PLACES_BYTES + r->how->len_bytes;
	struct coll_wire_frame f;

	coll_wire_pump(w, revents);
	/* A frame of another length than ours must be read to say what is wrong. */
	while (w->fd >= 0 && coll_wire_peek(w, most + (1 << 20), &f)) {
		if (!r->newcomer(r->role, w, &f)) {
			drop_pending(r, i);
			return;
		}
		if (w->fd >= 0) {
			coll_wire_take(w, &f);
			coll_wire_pump(w, 0);
		}
	}
	if (w->altered) {
		rendezvous_altered(r, w, -1, r->arrival);
		rendezvous_refuse(r, w);
		drop_pending(r, i);
		return;
	}
	if (w->memory) {
		rendezvous_out_of_memory(r);
		rendezvous_refuse(r, w);
		drop_pending(r, i);
		return;
	}
	if (w->state == COLL_WIRE_OPEN && coll_clock_ns() > pending_deadline(w))
		coll_wire_from(w, r->mute);
	if (w->fd < 0 || w->state == COLL_WIRE_CLOSED || coll_clock_ns() > pending_deadline(w))
		drop_pending(r, i);
}

struct child *rendezvous_find_child(struct rendezvous *r, int rank)
{
	for (int i = 0; i < r->child_count; i++)
		if (r->children[i].rank == rank)
			return &r->children[i];
	return NULL;
}

struct child *rendezvous_adopt(struct rendezvous *r, struct coll_wire *w, int rank)
{
	struct child *k = rendezvous_find_child(r, rank);

	if (k) {
		coll_wire_close(&k->wire);
	} else {
		if (r->child_count == r->child_cap) {
			const int cap = r->child_cap ? 2 * r->child_cap : FAN_OUT;
			struct child *p = realloc(r->children, (size_t)cap * sizeof(*p));

			if (!p)
				return NULL;
			r->children = p;
			r->child_cap = cap;
		}
		k = &r->children[r->child_count++];
	}
	k->rank = rank;
	k->wire = *w;
	memset(w, 0, sizeof(*w));
	w->fd = -1;
	w->state = COLL_WIRE_CLOSED;
	return k;
}

/* While the table is delivered: it has not been read, or nobody knows. */
static void out_of_reach(struct rendezvous *r, const struct child *k)
{
	r->status = COLL_AGAIN;
	rendezvous_fail(r, COLL_ERR_PEER_DEAD, k->rank,
	                "[COLL-2101] rank %d is dead or unreachable: it has not read the addresses of the job (%s)",
	                k->rank, k->wire.cause);
}

static void serve_child(struct rendezvous *r, int i, short revents)
{
	struct coll_wire_frame f;

	coll_wire_pump(&r->children[i].wire, revents);
	while (r->status == COLL_OK && coll_wire_peek(&r->children[i].wire, sizeof(struct failure) + TEXT_BYTES, &f)) {
		if (f.type == FRAME_FAILED)
			rendezvous_failed(r, &f);
		coll_wire_take(&r->children[i].wire, &f);
	}
	while (r->status == COLL_AGAIN &&
	       coll_wire_peek(&r->children[i].wire, sizeof(struct failure) + TEXT_BYTES, &f)) {
		r->from_child(r->role, &r->children[i], &f);
		coll_wire_take(&r->children[i].wire, &f);
	}
	if (r->children[i].wire.memory)
		rendezvous_out_of_memory(r);
	if (r->children[i].wire.altered)
		rendezvous_altered(r, &r->children[i].wire, r->children[i].rank, "reports of the ranks below");
	if (r->children[i].wire.state == COLL_WIRE_CLOSED) {
		struct child gone = r->children[i];

		r->children[i] = r->children[--r->child_count];
		if (r->status == COLL_AGAIN)
			r->child_lost(r->role, &gone);
		else if (r->status == COLL_OK && gone.wire.unreached)
			out_of_reach(r, &gone);
		coll_wire_close(&gone.wire);
	}
}

/* ---- The loop ---------------------------------------------------------- */

static bool make_polls(struct rendezvous *r)
{
	const int need = POLLS_MIN + r->child_cap;
	struct pollfd *p;

	if (need <= r->poll_cap)
		return true;
	p = realloc(r->polls, (size_t)need * sizeof(*p));
	if (!p)
		return false;
	r->polls = p;
	r->poll_cap = need;
	return true;
}

static int timeout_ms(uint64_t until_ns)
{
	const uint64_t now = coll_clock_ns();

	if (until_ns <= now)
		return 0;
	return until_ns - now > 60000000000u ? 60000 : (int)((until_ns - now + 999999) / 1000000);
}

static struct pollfd poll_of(const struct coll_wire *w)
{
	const short events = coll_wire_events(w);

	return (struct pollfd){.fd = events ? w->fd : -1, .events = events};
}

/* EINVAL: more descriptors than a new limit allows. While the table is delivered, too. */
static void cannot_wait(struct rendezvous *r, int error)
{
	char name[32];

	if (r->status == COLL_OK)
		r->status = COLL_AGAIN;
	rendezvous_fail(r, COLL_ERR_SYSTEM, r->how->rank, "[COLL-4104] %s cannot wait for other ranks: poll: %s",
	                rank_name(name, r->how->rank), coll_errno_text(error == EINVAL ? EMFILE : error).text);
}

void rendezvous_step(struct rendezvous *r, struct coll_wire *extra, uint64_t until_ns)
{
	const bool deaf = r->closed || r->accept_again_ns > coll_clock_ns();
	int n = 0, first_try, first_pending, first_child;
	const int pending = r->pending_count, children = r->child_count, tries = r->tries ? r->tries->count : 0;
	bool signalled;

	if (!make_polls(r)) {
		rendezvous_out_of_memory(r);
		return;
	}
	for (int i = 0; i < r->listeners.count; i++)
		r->polls[n++] = (struct pollfd){.fd = deaf ? -1 : r->listeners.fd[i], .events = POLLIN};
	r->polls[n++] = extra ? poll_of(extra) : (struct pollfd){.fd = -1};
	first_try = n;
	for (int i = 0; i < tries; i++)
		r->polls[n++] = poll_of(&r->tries->wire[i]);
	first_pending = n;
	for (int i = 0; i < pending; i++) {
		r->polls[n++] = poll_of(&r->pending[i]);
		if (pending_deadline(&r->pending[i]) < until_ns)
			until_ns = pending_deadline(&r->pending[i]);
	}
	first_child = n;
	for (int i = 0; i < children; i++)
		r->polls[n++] = poll_of(&r->children[i].wire);
	if (r->accept_again_ns > coll_clock_ns() && r->accept_again_ns < until_ns)
		until_ns = r->accept_again_ns;
	signalled = poll(r->polls, (nfds_t)n, coll_interrupt_limit_ms(timeout_ms(until_ns))) < 0;
	if (signalled && errno != EINTR) {
		cannot_wait(r, errno);
		return;
	}
	if (signalled) /* the events are not valid */
		memset(r->polls, 0, (size_t)n * sizeof(*r->polls));
	if (coll_interrupt_here(signalled))
		rendezvous_interrupted(r);
	/* Backwards: serving one may remove it and put the last in its place. New children
	 * come from newcomers, so children go first and listeners last. */
	for (int i = children - 1; i >= 0; i--)
		serve_child(r, i, r->polls[first_child + i].revents);
	if (extra)
		coll_wire_pump(extra, r->polls[r->listeners.count].revents);
	for (int i = 0; i < tries; i++) {
		coll_wire_pump(&r->tries->wire[i], r->polls[first_try + i].revents);
		if (r->tries->wire[i].memory)
			rendezvous_out_of_memory(r);
	}
	for (int i = pending - 1; i >= 0; i--)
		serve_pending(r, i, r->polls[first_pending + i].revents);
	for (int i = 0; i < r->listeners.count; i++)
		if (r->polls[i].fd >= 0 && r->polls[i].revents)
			accept_some(r, r->listeners.fd[i]);
}

void rendezvous_send_all(struct rendezvous *r, uint32_t type, const void *body, size_t len_bytes, const void *tail,
                         size_t tail_bytes)
{
	for (int i = 0; i < r->child_count; i++) {
		coll_wire_send(&r->children[i].wire, type, body, len_bytes, tail, tail_bytes);
		coll_wire_pump(&r->children[i].wire, 0);
	}
}

void rendezvous_tune(const struct coll_rendezvous_point *how, int fd)
{
	const int on = 1, idle = COLL_DELAY_CONTROL_IDLE_PROBE_MS / 1000;
	int ms, again_ms;

	if (!how->settings) /* the host of an id, which knows none */
		return;
	ms = coll_settings_unreachable_ms(how->settings);
	again_ms = coll_retransmit_ms(ms);
	/* Refused on Unix sockets, which need none of it. */
	if (setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)) == 0 &&
	    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) == 0 &&
	    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle)) == 0)
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, COLL_TCP_RTO_MAX, &again_ms, sizeof(again_ms));
}

void rendezvous_shut(struct rendezvous *r)
{
	r->closed = true;
	while (r->pending_count > 0)
		drop_pending(r, 0);
}

void rendezvous_say(struct rendezvous *r, uint32_t type, coll_status status, int rank, const char *text)
{
	unsigned char buf[sizeof(struct failure) + TEXT_BYTES];

	rendezvous_send_all(r, type, buf, pack_failure(buf, sizeof(buf), status, rank, text), NULL, 0);
}

void rendezvous_send_failure(struct rendezvous *r)
{
	rendezvous_say(r, FRAME_FAILED, r->status, r->culprit, r->text);
}

void rendezvous_refuse(const struct rendezvous *r, struct coll_wire *w)
{
	unsigned char buf[sizeof(struct failure) + TEXT_BYTES];

	coll_wire_send(w, FRAME_FAILED, buf, pack_failure(buf, sizeof(buf), r->status, r->culprit, r->text), NULL, 0);
	coll_wire_pump(w, 0);
}

void rendezvous_met(const struct coll_rendezvous_point *how, int fd, void *mine)
{
	struct coll_address own = {.len = sizeof(own.at)};
	struct coll_ip ip;

	if (how->met && getsockname(fd, (struct sockaddr *)&own.at, &own.len) == 0 &&
	    coll_ip_from(&ip, (const struct sockaddr *)&own.at) && !ip.loopback)
		how->met(mine, &ip, how->rank == 0 && !how->hosted ? 0 : coll_round_trip_us(fd));
}
