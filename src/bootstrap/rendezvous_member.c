/*
 * Every rank except the root in a rendezvous: connects to the root (rank 0, which may not listen yet, or
 * the host of a unique id), registers, connects to the parent that the root assigns, serves its own children, and
 * forwards the table of addresses. Failures before it has its place are retried
 * until the deadline; later failures end the rendezvous.
 */
#include "bootstrap/rendezvous_member.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/proof.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/host_id.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/rendezvous_places.h"
#include "bootstrap/rendezvous_state.h"
#include "bootstrap/rendezvous_tries.h"

enum phase { SEEK_ROOT, SEEK_PARENT, IN_PLACE, DONE };

struct member {
	struct rendezvous rendezvous;
	enum phase phase;
	struct coll_wire up;
	bool introduced; /* on the current wire */
	bool adopt;      /* the parent cannot be reached */
	struct rendezvous_places root;
	struct rendezvous_tries tries; /* of the root, without an answer, beside `up` */
	uint64_t heard_ns;             /* the last frame from above */
	int parent;
	struct coll_places parents;
	uint64_t seek_since_ns;
	int target; /* next place (and port) to try */
	uint64_t next_try_ns, pause_ns;
	uint64_t short_ns; /* since when it has no descriptor for a try; 0: it has */
	unsigned char incarnation[16];
	uint64_t host;
	uint16_t port;            /* of the own listeners */
	struct coll_address name; /* of the own listener, Unix */
	struct coll_rendezvous_listeners own;
	struct coll_rng rng;
	int *notices; /* ranks attached below, not yet reported upwards */
	int notice_count;
	char cause[160];    /* why the last try failed */
	char stranger[160]; /* the last try that found somebody else, if any */
	char waiting[400];  /* what the root is waiting for */
	int missing;        /* the first of those, -1: not known */
};

static int root_rank(const struct member *m)
{
	return m->rendezvous.how->hosted ? COLL_RENDEZVOUS_HOST : 0;
}

/* ---- Listener and identity of this rank --------------------------------- */

/* Only ranks that may get children need a listener; without one (no port free)
 * this rank gets no children. */
static void listen_for_children(struct member *m)
{
	const struct coll_rendezvous_point *how = m->rendezvous.how;
	struct coll_places local = {0};
	struct coll_ips at;
	uint16_t first, last;

	if (how->size - !how->hosted <= FAN_OUT)
		return;
	if (how->unix_only)
		coll_rendezvous_add(&m->own, coll_listen_unix(NULL, &m->name));
	else if (coll_port_range(how->settings, &first, &last, NULL) == COLL_OK) {
		coll_places_local(how->settings, true, &local);
		if (coll_rendezvous_addresses(how->settings, &local, &at, NULL) == COLL_OK)
			coll_rendezvous_listen(&m->own, &at, first, last, &m->port);
	}
	m->rendezvous.listeners = m->own;
}

static struct introduction introduction(const struct member *m)
{
	const struct coll_rendezvous_point *how = m->rendezvous.how;
	const uint64_t now = coll_clock_ns();
	struct introduction in = {
	        .version = WIRE_VERSION,
	        .size = (uint32_t)how->size,
	        .rank = (uint32_t)how->rank,
	        .adopt = m->adopt,
	        .len_bytes = how->len_bytes,
	        .host = m->host,
	        .timeout_ms = (uint32_t)how->settings->create_timeout_ms,
	        .left_ms = now < how->deadline_ns ? (how->deadline_ns - now) / 1000000 : 0,
	};

	memcpy(in.incarnation, m->incarnation, sizeof(in.incarnation));
	snprintf(in.library, sizeof(in.library), "%s", coll_library_version());
	return in;
}

static bool introduce(struct member *m)
{
	unsigned char buf[sizeof(struct introduction) + COLL_PLACES_BYTES];
	struct introduction in = introduction(m);
	struct coll_places p = {0};

	m->introduced = true;
	if (m->phase == SEEK_PARENT)
		return coll_wire_send(&m->up, FRAME_ATTACH, &in, sizeof(in), NULL, 0);
	rendezvous_met(m->rendezvous.how, m->up.fd, m->rendezvous.how->mine);
	if (m->own.count > 0 && m->rendezvous.how->unix_only)
		coll_places_add(&p, &m->name);
	else if (m->own.count > 0)
		rendezvous_places_own(m->rendezvous.how, m->up.fd, m->port, &p);
	in.places_bytes = (uint32_t)coll_places_pack(&p, buf + sizeof(in), COLL_PLACES_BYTES);
	memcpy(buf, &in, sizeof(in));
	return coll_wire_send(&m->up, FRAME_REGISTER, buf, sizeof(in) + in.places_bytes, m->rendezvous.how->mine,
	                      m->rendezvous.how->len_bytes);
}

/* ---- Trying ------------------------------------------------------------ */

static int target_count(const struct member *m)
{
	const struct coll_rendezvous_point *how = m->rendezvous.how;

	if (m->phase == SEEK_PARENT)
		return m->parents.count;
	return m->root.at.count * (how->port_count ? how->port_count : 1);
}

static struct coll_address target(const struct member *m, int i)
{
	const struct coll_rendezvous_point *how = m->rendezvous.how;
	struct coll_address a;

	if (m->phase == SEEK_PARENT)
		return m->parents.place[i];
	a = m->root.at.place[i % m->root.at.count];
	if (how->port_count)
		coll_address_set_port(&a, how->ports[i / m->root.at.count]);
	return a;
}

/* The next try: at once at the next place, after a pause once all have failed. */
static void schedule(struct member *m)
{
	const uint64_t now = coll_clock_ns();

	m->introduced = false;
	m->next_try_ns = now;
	if (++m->target < target_count(m))
		return;
	m->target = 0;
	if (m->phase == SEEK_ROOT)
		rendezvous_places_resolve(&m->root, m->rendezvous.how);
	m->next_try_ns = now + m->pause_ns / 2 + coll_rng_next(&m->rng) % (m->pause_ns / 2);
	if (m->pause_ns < COLL_DELAY_NS(ROOT_PAUSE_MAX))
		m->pause_ns += m->pause_ns / 2;
}

static void seek(struct member *m, enum phase phase)
{
	coll_wire_close(&m->up);
	rendezvous_tries_close(&m->tries);
	m->phase = phase;
	m->introduced = false;
	m->stranger[0] = '\0';
	m->target = 0;
	m->pause_ns = COLL_DELAY_NS(ROOT_PAUSE_MIN);
	m->seek_since_ns = m->next_try_ns = coll_clock_ns();
}

/* No file leads to the root, and nobody is at the name of this try. */
static bool no_trace(const struct member *m)
{
	return target_count(m) == 0 || (m->rendezvous.how->meeting && m->phase == SEEK_ROOT &&
	                                m->target >= m->root.from_files && !m->up.stranger);
}

/* At the place of this try; NULL: the cause that the connection names. */
static void note_cause(struct member *m, const char *why)
{
	struct coll_address a;
	char place[120];

	if (!why && no_trace(m)) {
		snprintf(m->cause, sizeof(m->cause), "this user has no such file%s",
		         m->rendezvous.how->keyed ? ", and nobody is at the sockets that the key of the job names"
		                                  : "; without a folder in common, set one COLL_JOB_KEY or "
		                                    "COLL_KEY_FILE on all ranks");
		return;
	}
	a = target(m, m->target);
	coll_address_text(&a, place, sizeof(place));
	snprintf(m->cause, sizeof(m->cause), "%.90s: %.60s", place, why ? why : m->up.cause);
}

/* This process has no memory for a connection, or no descriptor for some time. */
static bool is_short(struct member *m)
{
	const uint64_t now = coll_clock_ns();

	if (m->up.memory)
		rendezvous_out_of_memory(&m->rendezvous);
	if (!m->up.shortage || !m->short_ns)
		m->short_ns = m->up.shortage ? now : 0;
	else if (now > m->short_ns + COLL_DELAY_NS(ROOT_SHORTAGE))
		rendezvous_fail(&m->rendezvous, COLL_ERR_SYSTEM, m->rendezvous.how->rank,
		                "[COLL-4104] rank %d cannot connect to other ranks: %s", m->rendezvous.how->rank,
		                coll_errno_text(m->up.shortage).text);
	return m->rendezvous.status != COLL_AGAIN;
}

/* The try has failed because of `why`; NULL: for the cause that the connection names. */
static void try_again(struct member *m, const char *why)
{
	if (is_short(m))
		return;
	note_cause(m, why);
	if (m->up.stranger)
		memcpy(m->stranger, m->cause, sizeof(m->stranger));
	coll_wire_close(&m->up);
	/* A parent listens before it is one: who refuses at all its places has ended, and the root knows why. */
	if (m->phase == SEEK_PARENT && ((!why && m->target + 1 == target_count(m)) ||
	                                coll_clock_ns() - m->seek_since_ns > COLL_DELAY_NS(RENDEZVOUS_ATTACH))) {
		m->adopt = true;
		seek(m, SEEK_ROOT);
		return;
	}
	schedule(m);
}

static void try_next(struct member *m)
{
	struct coll_address a;

	if (m->rendezvous.how->meeting && m->phase == SEEK_ROOT && m->target == 0)
		rendezvous_places_find(&m->root, m->rendezvous.how);
	if (target_count(m) == 0) {
		m->up.shortage = m->phase == SEEK_ROOT ? m->root.shortage : 0;
		if (is_short(m))
			return;
		note_cause(m, NULL);
		schedule(m);
		return;
	}
	a = target(m, m->target);
	if (rendezvous_tries_has(&m->tries, &a))
		schedule(m);
	else if (!coll_wire_connect(&m->up, &a, m->rendezvous.how->key))
		try_again(m, NULL);
	else if (!m->rendezvous.how->keyed && coll_unix_foreign(m->up.fd, false))
		try_again(m, "a process of a user without a number here answers there");
	else
		rendezvous_tune(m->rendezvous.how, m->up.fd);
}

/* Whether others may be tried beside the try under way, and since when. */
static uint64_t aside_ns(const struct member *m)
{
	const bool may = m->phase == SEEK_ROOT && m->rendezvous.how->port_count > 1 && m->up.state != COLL_WIRE_OPEN &&
	                 m->tries.count < RENDEZVOUS_TRIES_MAX;

	return may ? m->up.born_ns + COLL_DELAY_NS(ROOT_TRY_NEXT) : UINT64_MAX;
}

/* It has not answered, and may still. */
static void put_aside(struct member *m)
{
	const struct coll_address a = target(m, m->target);

	note_cause(m, coll_wire_stage(&m->up));
	rendezvous_tries_add(&m->tries, &m->up, &a, m->target);
	schedule(m);
}

/* The root has answered one of those that were put aside: it is the try under way. */
static void serve_aside(struct member *m)
{
	struct coll_wire w;

	rendezvous_tries_sweep(&m->tries, m->stranger, sizeof(m->stranger));
	if (m->phase != SEEK_ROOT || m->introduced || !rendezvous_tries_proved(&m->tries, &w, &m->target))
		return;
	coll_wire_close(&m->up);
	m->up = w;
	m->up.born_ns = coll_clock_ns();
	m->target %= target_count(m); /* its name may have led to more places then */
}

static uint64_t try_deadline(const struct member *m)
{
	return m->up.born_ns + (m->introduced ? COLL_DELAY_NS(RENDEZVOUS_REGISTER) : COLL_DELAY_NS(ROOT_TRY));
}

/* ---- What comes from above --------------------------------------------- */

static void report_notices(struct member *m)
{
	if (m->phase != IN_PLACE)
		return;
	for (int i = 0; i < m->notice_count; i++) {
		const uint32_t rank = (uint32_t)m->notices[i];

		coll_wire_send(&m->up, FRAME_ATTACHED, &rank, sizeof(rank), NULL, 0);
	}
	m->notice_count = 0;
	coll_wire_pump(&m->up, 0);
}

static void settle(struct member *m, int parent)
{
	rendezvous_tries_close(&m->tries);
	m->phase = IN_PLACE;
	m->parent = parent;
	report_notices(m);
}

static bool go_to_parent(struct member *m, const struct coll_wire_frame *f)
{
	struct coll_places p;
	struct direction d;
	int kept = 0;

	if (f->len_bytes < sizeof(d))
		return false;
	memcpy(&d, f->body, sizeof(d));
	if (!coll_places_unpack(&p, f->body + sizeof(d), f->len_bytes - sizeof(d)))
		return false;
	for (int i = 0; i < p.count; i++)
		if (d.host == m->host || !coll_address_is_loopback(&p.place[i]))
			p.place[kept++] = p.place[i];
	p.count = kept;
	m->parents = p;
	m->parent = (int)d.rank;
	m->adopt = kept == 0;
	seek(m, kept ? SEEK_PARENT : SEEK_ROOT);
	return true;
}

static bool finish(struct member *m, const struct coll_wire_frame *f)
{
	const struct coll_rendezvous_point *how = m->rendezvous.how;

	if (m->phase != IN_PLACE || !unpack_table(how, f))
		return false;
	m->phase = DONE;
	return true;
}

/* False: not a frame for this moment. The wire may be gone afterwards. */
static bool from_above(struct member *m, const struct coll_wire_frame *f)
{
	coll_status status;

	switch (f->type) {
	case FRAME_STAY: return m->phase == SEEK_ROOT ? settle(m, root_rank(m)), true : false;
	case FRAME_WELCOME: return m->phase == SEEK_PARENT ? settle(m, m->parent), true : false;
	case FRAME_PARENT: return m->phase == SEEK_ROOT && go_to_parent(m, f);
	case FRAME_WAITING:
		if (!unpack_failure(f, &status, &m->missing, m->waiting, sizeof(m->waiting)))
			return false;
		rendezvous_send_all(&m->rendezvous, FRAME_WAITING, f->body, f->len_bytes, NULL, 0);
		return true;
	case FRAME_FAILED: return rendezvous_failed(&m->rendezvous, f);
	case FRAME_TABLE: return finish(m, f);
	default: return false;
	}
}

/* What the next frame from above is for. */
static const char *stage_above(const struct member *m)
{
	switch (m->phase) {
	case SEEK_ROOT: return "the answer to a registration";
	case SEEK_PARENT: return "the answer to an attachment";
	default: return "the table of addresses";
	}
}

static void serve_up(struct member *m)
{
	const size_t table = table_bytes_max(m->rendezvous.how);
	const size_t most = table > 1024 ? table : 1024;
	struct coll_wire_frame f;

	while (m->rendezvous.status == COLL_AGAIN && m->phase != DONE && m->introduced &&
	       coll_wire_peek(&m->up, most, &f)) {
		const int fd = m->up.fd;

		m->heard_ns = coll_clock_ns();
		if (!from_above(m, &f)) {
			char parent[32];

			rendezvous_fail(&m->rendezvous, COLL_ERR_BOOTSTRAP, m->parent,
			                "%s sent an invalid message (frame %u)", rank_name(parent, m->parent), f.type);
			return;
		}
		if (m->up.fd != fd || m->up.state == COLL_WIRE_CLOSED)
			return;
		coll_wire_take(&m->up, &f);
	}
	if (m->up.altered)
		rendezvous_altered(&m->rendezvous, &m->up, m->phase == SEEK_ROOT ? root_rank(m) : m->parent,
		                   stage_above(m));
}

static void watch_up(struct member *m)
{
	char parent[32];

	if (m->up.memory && m->phase != DONE)
		rendezvous_out_of_memory(&m->rendezvous);
	if (m->phase == IN_PLACE) {
		if (m->up.state == COLL_WIRE_CLOSED)
			rendezvous_fail(&m->rendezvous, COLL_ERR_PEER_DEAD, m->parent, "lost %s during creation (%s)",
			                rank_name(parent, m->parent), m->up.cause);
		return;
	}
	if (m->phase == DONE || m->up.fd < 0)
		return;
	if (m->up.state == COLL_WIRE_CLOSED) {
		try_again(m, NULL);
	} else if (coll_clock_ns() > aside_ns(m)) {
		put_aside(m);
	} else if (coll_clock_ns() > try_deadline(m)) {
		try_again(m, coll_wire_stage(&m->up));
	} else if (m->up.state == COLL_WIRE_OPEN && !m->introduced) {
		if (!introduce(m))
			try_again(m, NULL);
		coll_wire_pump(&m->up, 0);
	}
}

/* ---- What comes from below --------------------------------------------- */

static void notice(struct member *m, int rank)
{
	if (m->notice_count < m->rendezvous.how->size)
		m->notices[m->notice_count++] = rank;
	report_notices(m);
}

static bool newcomer(void *role, struct coll_wire *w, const struct coll_wire_frame *f)
{
	struct member *m = role;
	struct introduction in;

	if (f->type != FRAME_ATTACH || f->len_bytes != sizeof(in))
		return false;
	memcpy(&in, f->body, sizeof(in));
	if (in.version != WIRE_VERSION || in.size != (uint32_t)m->rendezvous.how->size || in.rank >= in.size)
		return false; /* the root has said so already */
	coll_wire_take(w, f);
	coll_wire_send(w, FRAME_WELCOME, NULL, 0, NULL, 0);
	coll_wire_pump(w, 0);
	if (!rendezvous_adopt(&m->rendezvous, w, (int)in.rank))
		return false;
	notice(m, (int)in.rank);
	return true;
}

static void pass_up(struct member *m, const void *body, size_t len_bytes)
{
	if ((m->phase == IN_PLACE || m->up.altered || m->up.memory) &&
	    coll_wire_send(&m->up, FRAME_FAILED, body, len_bytes, NULL, 0))
		coll_wire_pump(&m->up, 0);
}

static void from_child(void *role, struct child *k, const struct coll_wire_frame *f)
{
	struct member *m = role;
	uint32_t rank;

	if (f->type == FRAME_ATTACHED && f->len_bytes == sizeof(rank)) {
		memcpy(&rank, f->body, sizeof(rank));
		notice(m, (int)rank);
	} else if (f->type == FRAME_FAILED) {
		pass_up(m, f->body, f->len_bytes); /* the root notifies all ranks, including this one */
	}
}

/* Report it to the root, which notifies all ranks. */
static void child_lost(void *role, const struct child *k)
{
	unsigned char buf[sizeof(struct failure) + TEXT_BYTES];
	struct member *m = role;
	char text[200];

	snprintf(text, sizeof(text), "[COLL-4205] rank %d ended during creation (%s)", k->rank, k->wire.cause);
	pass_up(m, buf, pack_failure(buf, sizeof(buf), COLL_ERR_PEER_DEAD, k->rank, text));
}

/* ---- All of it --------------------------------------------------------- */

static void too_late(struct member *m)
{
	const struct coll_rendezvous_point *how = m->rendezvous.how;
	const int ms = how->settings->create_timeout_ms;
	char why[sizeof(m->cause) + sizeof(m->stranger) + 16], parent[32];

	if (m->phase != IN_PLACE && m->up.fd >= 0)
		note_cause(m, coll_wire_stage(&m->up));
	/* A stranger that has gone since is still what most likely explains it. */
	if (m->stranger[0] && strcmp(m->stranger, m->cause) != 0)
		snprintf(why, sizeof(why), "%s; before: %s", m->cause, m->stranger);
	else
		snprintf(why, sizeof(why), "%s", m->cause);
	if (m->phase == IN_PLACE && coll_clock_ns() - m->heard_ns > 3 * COLL_DELAY_NS(RENDEZVOUS_NOTICE))
		rendezvous_fail(&m->rendezvous, COLL_ERR_PEER_SILENT, m->parent,
		                "the job was not complete within %d ms: %s has said nothing for the last %llu ms", ms,
		                rank_name(parent, m->parent),
		                (unsigned long long)((coll_clock_ns() - m->heard_ns) / COLL_NS_PER_MS));
	else if (m->phase == IN_PLACE)
		rendezvous_fail(&m->rendezvous, COLL_ERR_BOOTSTRAP, m->missing,
		                "the job was not complete within %d ms: %s", ms,
		                m->waiting[0] ? m->waiting : "the root did not report which ranks are missing");
	else if (m->phase == SEEK_PARENT)
		rendezvous_fail(&m->rendezvous, COLL_ERR_BOOTSTRAP, m->parent,
		                "rank %d does not answer within %d ms (%s)", m->parent, ms, why);
	else if (how->hosted)
		rendezvous_fail(
		        &m->rendezvous, COLL_ERR_BOOTSTRAP, -1,
		        "the maker of coll_config.id does not answer within %d ms (%s): its process has ended, or the "
		        "id was used before",
		        ms, why);
	else
		rendezvous_fail(&m->rendezvous, COLL_ERR_BOOTSTRAP, 0,
		                "rank 0 does not answer at the rendezvous (%s) within %d ms (%s)", how->root_text, ms,
		                why);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t wake_ns(const struct member *m)
{
	const uint64_t deadline = m->rendezvous.how->deadline_ns;
	uint64_t t = deadline;

	if (m->phase == SEEK_ROOT || m->phase == SEEK_PARENT)
		t = earlier(m->up.fd < 0 ? m->next_try_ns : earlier(try_deadline(m), aside_ns(m)) + 1,
		            rendezvous_tries_end_ns(&m->tries));
	return earlier(t, deadline);
}

static void seek_and_wait(struct member *m)
{
	while (m->rendezvous.status == COLL_AGAIN && m->phase != DONE) {
		const uint64_t now = coll_clock_ns();

		if (now >= m->rendezvous.how->deadline_ns) {
			too_late(m);
			return;
		}
		if (m->phase != IN_PLACE && m->up.fd < 0 && now >= m->next_try_ns)
			try_next(m);
		rendezvous_step(&m->rendezvous, m->up.fd >= 0 ? &m->up : NULL, wake_ns(m));
		serve_up(m);
		serve_aside(m);
		watch_up(m);
	}
}

static void say_failure(struct member *m)
{
	unsigned char buf[sizeof(struct failure) + TEXT_BYTES];

	pass_up(m, buf,
	        pack_failure(buf, sizeof(buf), m->rendezvous.status, m->rendezvous.culprit, m->rendezvous.text));
	coll_wire_close(&m->up);
	rendezvous_send_failure(&m->rendezvous);
	rendezvous_drain(&m->rendezvous,
	                 coll_clock_ns() + coll_interrupt_farewell_ns(COLL_DELAY_NS(RENDEZVOUS_FAREWELL)));
}

/* To hang up says to the parent that all is well. */
static void pass_on(struct member *m)
{
	if (!rendezvous_complete(&m->rendezvous)) {
		m->phase = IN_PLACE;
		say_failure(m);
		return;
	}
	coll_wire_close(&m->up);
	rendezvous_give_table(&m->rendezvous);
}

static coll_status member_init(struct member *m, struct coll_error_box *err)
{
	char host[COLL_TEXT_MAX];

	m->up.fd = -1;
	m->missing = -1;
	m->rendezvous.arrival = "attachment to a parent";
	m->rendezvous.newcomer = newcomer;
	m->rendezvous.from_child = from_child;
	m->rendezvous.child_lost = child_lost;
	m->rendezvous.role = m;
	if (!coll_random(m->incarnation, sizeof(m->incarnation)) || !coll_random(&m->rng, sizeof(m->rng)))
		return coll_error_set(err, COLL_ERR_SYSTEM, "no random bytes to meet the others with: getrandom: %s",
		                      coll_errno_text(errno).text);
	/* The real host: a name given by COLL_HOST_ID says nothing about loopback. */
	coll_bootstrap_host_id(NULL, host, sizeof(host));
	m->host = coll_hash_bytes(0, host, strlen(host));
	snprintf(m->cause, sizeof(m->cause), "not tried");
	m->rendezvous.tries = &m->tries;
	rendezvous_places_init(&m->root, m->rendezvous.how);
	seek(m, SEEK_ROOT);
	listen_for_children(m);
	return COLL_OK;
}

coll_status meet_member(const struct coll_rendezvous_point *how, struct coll_error_box *err)
{
	struct member m = {.own.count = 0};
	coll_status st = rendezvous_open(&m.rendezvous, how, err);

	m.notices = calloc((size_t)how->size, sizeof(*m.notices));
	if (st == COLL_OK && !m.notices)
		st = coll_error_set(err, COLL_ERR_MEMORY, "no memory for the rendezvous of %d ranks", how->size);
	if (st == COLL_OK)
		st = member_init(&m, err);
	if (st == COLL_OK) {
		seek_and_wait(&m);
		if (m.phase == DONE)
			pass_on(&m);
		else
			say_failure(&m);
		st = m.rendezvous.status;
		if (how->untold)
			*how->untold = m.phase != IN_PLACE && st != COLL_OK && m.rendezvous.culprit == how->rank;
	}
	coll_wire_close(&m.up);
	rendezvous_tries_close(&m.tries);
	coll_rendezvous_unlisten(&m.own);
	free(m.notices);
	rendezvous_close(&m.rendezvous);
	return st;
}
