/*
 * The root of a rendezvous, rank 0 or the host of a unique id: receives the payload of every rank,
 * assigns each its place in the tree, and sends the whole table down when all have their places. A host
 * takes size and lengths from the first rank that comes. A new rank that contradicts the job (size, version, a rank
 * that exists already) ends the rendezvous for all, since it has proved the key and so belongs to the job.
 */
#include "bootstrap/rendezvous_root.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/interrupt.h"
#include "bootstrap/id_host.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/rendezvous_state.h"

struct guest {
	bool attached;
	unsigned char incarnation[16];
	int parent;
	int children;
	uint64_t host;
	unsigned char *payload; /* at a host, until all have come */
	size_t places_bytes;
	unsigned char places[];
};

/* Of a hosted meeting: more than the first rank that comes may claim. */
enum { HOSTED_RANKS_MAX = 1 << 17 };

struct root {
	struct rendezvous rendezvous;
	struct coll_rendezvous_point how; /* of the rendezvous; a host completes it */
	void *table;                      /* of a host */
	struct guest **guests;            /* by rank; NULL: it has not come */
	int *parents;                     /* ranks that can be reached, in order of arrival */
	int parent_count;
	int first_open; /* parents before this index are full */
	int own_children;
	int timeout_ms;     /* as messages call the time limit */
	int here, attached; /* rank 0 included */
};

static bool not_here(const void *arg, int rank)
{
	const struct root *o = arg;

	return !o->guests[rank];
}

static bool not_attached(const void *arg, int rank)
{
	const struct root *o = arg;

	return o->guests[rank] && !o->guests[rank]->attached;
}

static void mark_attached(struct root *o, int rank)
{
	if (!o->guests[rank] || o->guests[rank]->attached)
		return;
	o->guests[rank]->attached = true;
	o->attached++;
}

/* Whether a rank on that host can use one of the guest's places. */
static bool reachable(const struct guest *g, uint64_t host)
{
	struct coll_places p;

	if (!coll_places_unpack(&p, g->places, g->places_bytes))
		return false;
	for (int i = 0; i < p.count; i++)
		if (g->host == host || !coll_address_is_loopback(&p.place[i]))
			return true;
	return false;
}

/* The root is always possible. Places behind the first open one are tried too, so that
 * one unreachable parent does not send all ranks to the root. */
static int choose_parent(struct root *o, const struct guest *newcomer)
{
	if (o->own_children < FAN_OUT)
		return o->how.rank;
	while (o->first_open < o->parent_count && o->guests[o->parents[o->first_open]]->children >= FAN_OUT)
		o->first_open++;
	for (int i = o->first_open; i < o->parent_count && i < o->first_open + 4 * FAN_OUT; i++) {
		struct guest *g = o->guests[o->parents[i]];

		if (g != newcomer && g->children < FAN_OUT && reachable(g, newcomer->host))
			return o->parents[i];
	}
	return o->how.rank;
}

/* What is claimed costs a few bytes a rank; what a rank brings is kept when it has come. */
static bool make_places(struct root *o, uint32_t size)
{
	o->guests = calloc(size, sizeof(*o->guests));
	o->parents = calloc(size, sizeof(*o->parents));
	return o->guests && o->parents;
}

static struct guest *make_guest(size_t places_bytes, size_t payload_bytes)
{
	struct guest *g = calloc(1, sizeof(*g) + places_bytes);

	if (g && payload_bytes && !(g->payload = malloc(payload_bytes))) {
		free(g);
		return NULL;
	}
	return g;
}

static void free_guests(struct root *o)
{
	for (int r = 0; o->guests && r < o->how.size; r++) {
		if (o->guests[r])
			free(o->guests[r]->payload);
		free(o->guests[r]);
	}
	free(o->guests);
	free(o->parents);
	free(o->table);
}

/* The host learns from the first rank that comes what the job is. */
static void know_job(struct root *o, const struct introduction *in)
{
	int awaited = COLL_MEETING_AWAITED;

	if (!atomic_compare_exchange_strong(o->how.phase, &awaited, COLL_MEETING_BEGUN)) {
		rendezvous_fail(&o->rendezvous, COLL_ERR_BOOTSTRAP, -1,
		                "the maker of coll_config.id has made %d more ids, and gave up this one",
		                COLL_ID_WAITING_MAX);
	} else if (in->size == 0 || in->size > HOSTED_RANKS_MAX || in->len_bytes > UINT32_MAX / 2 / in->size) {
		rendezvous_fail(&o->rendezvous, COLL_ERR_ARGUMENT, -1,
		                "the first rank that came says %u ranks that exchange %llu bytes each: an id can bring "
		                "together 1 to %d ranks, and at most 2 GiB",
		                in->size, (unsigned long long)in->len_bytes, HOSTED_RANKS_MAX);
	} else if (!make_places(o, in->size)) {
		rendezvous_fail(&o->rendezvous, COLL_ERR_MEMORY, -1,
		                "the maker of the id has no memory for the rendezvous of %u ranks", in->size);
	} else {
		o->how.size = (int)in->size;
		o->how.len_bytes = in->len_bytes;
	}
}

/* The time of a hosted meeting is that of the rank whose own ends first. */
static void limit_time(struct root *o, const struct introduction *in)
{
	const uint64_t until = coll_clock_ns() + in->left_ms * 1000000u;

	if (o->here > 0 && until >= o->how.deadline_ns)
		return;
	o->how.deadline_ns = until;
	o->timeout_ms = (int)in->timeout_ms;
}

/* Contradictions end the meeting. */
static bool acceptable(struct root *o, const struct introduction *in, size_t payload_bytes)
{
	const struct coll_rendezvous_point *how = &o->how;
	const char *first = how->hosted ? "the first that came" : "rank 0";
	const int rank = (int)in->rank;
	const struct guest *g;
	char root[32];

	if (in->version != WIRE_VERSION)
		rendezvous_fail(&o->rendezvous, COLL_ERR_BOOTSTRAP, rank,
		                "[COLL-4204] the ranks run different versions of this library: rank %d %s, %s %s", rank,
		                in->version < NAMES_ITSELF ? "an older one that does not name itself" : in->library,
		                rank_name(root, how->rank), coll_library_version());
	else if (how->size == 0)
		know_job(o, in);
	if (o->rendezvous.status != COLL_AGAIN)
		return false;
	if (in->size != (uint32_t)how->size)
		rendezvous_fail(&o->rendezvous, COLL_ERR_BOOTSTRAP, rank,
		                "rank %d says that the job has %u ranks, %s says %d", rank, in->size, first, how->size);
	else if ((in->rank == 0 && !how->hosted) || in->rank >= in->size)
		rendezvous_fail(&o->rendezvous, COLL_ERR_BOOTSTRAP, rank, "a second process claims rank %d of %u", rank,
		                in->size);
	else if (in->len_bytes != how->len_bytes || payload_bytes != how->len_bytes)
		rendezvous_fail(&o->rendezvous, COLL_ERR_BOOTSTRAP, rank,
		                "[COLL-4204] the ranks run different versions of this library: rank %d %s (%llu "
		                "bytes), %s %s (%zu)",
		                rank, in->library, (unsigned long long)in->len_bytes, first, coll_library_version(),
		                how->len_bytes);
	if (o->rendezvous.status != COLL_AGAIN)
		return false;
	g = o->guests[rank];
	if (g && memcmp(g->incarnation, in->incarnation, sizeof(g->incarnation)) != 0)
		rendezvous_fail(&o->rendezvous, COLL_ERR_BOOTSTRAP, rank, "two processes claim rank %d of %u", rank,
		                in->size);
	return o->rendezvous.status == COLL_AGAIN;
}

static bool no_memory(struct root *o)
{
	char root[32];

	rendezvous_fail(&o->rendezvous, COLL_ERR_MEMORY, o->how.rank, "%s has no memory for the rendezvous",
	                rank_name(root, o->how.rank));
	return false;
}

static bool enter(struct root *o, const struct introduction *in, const unsigned char *places,
                  const unsigned char *payload)
{
	const struct coll_rendezvous_point *how = &o->how;
	struct guest *g = o->guests[in->rank];

	if (g)
		return true;
	g = make_guest(in->places_bytes, how->hosted ? how->len_bytes : 0);
	if (!g)
		return no_memory(o);
	o->guests[in->rank] = g;
	if (how->hosted)
		limit_time(o, in);
	g->host = in->host;
	g->places_bytes = in->places_bytes;
	memcpy(g->incarnation, in->incarnation, sizeof(g->incarnation));
	memcpy(g->places, places, in->places_bytes);
	if (how->len_bytes)
		memcpy(how->hosted ? (char *)g->payload : (char *)how->all + in->rank * how->len_bytes, payload,
		       how->len_bytes);
	o->here++;
	g->parent = choose_parent(o, g);
	if (g->parent == how->rank)
		o->own_children++;
	else
		o->guests[g->parent]->children++;
	if (g->places_bytes > 0)
		o->parents[o->parent_count++] = (int)in->rank;
	return true;
}

static bool keep(struct root *o, struct coll_wire *w, int rank)
{
	struct child *k;

	coll_wire_send(w, FRAME_STAY, NULL, 0, NULL, 0);
	k = rendezvous_adopt(&o->rendezvous, w, rank);
	if (!k)
		return no_memory(o);
	mark_attached(o, rank);
	return true;
}

static bool send_on(struct root *o, struct coll_wire *w, const struct guest *g)
{
	const struct guest *parent = o->guests[g->parent];
	const struct direction d = {(uint32_t)g->parent, 0, parent->host};
	unsigned char buf[sizeof(d) + COLL_PLACES_BYTES];

	memcpy(buf, &d, sizeof(d));
	memcpy(buf + sizeof(d), parent->places, parent->places_bytes);
	return coll_wire_send(w, FRAME_PARENT, buf, sizeof(d) + parent->places_bytes, NULL, 0);
}

/* After the failure "here" counts those who need not be waited for. */
static void note_reported(struct root *o, int rank)
{
	if (!o->guests || rank < 0 || rank >= o->how.size)
		return;
	if (!o->guests[rank]) {
		o->guests[rank] = make_guest(0, 0);
		o->here += o->guests[rank] != NULL;
	}
	mark_attached(o, rank);
}

/* Ranks that have not connected yet, or whose parent has ended, would otherwise look for the root until their
 * own deadline. If the deadline was the failure, there are none to wait for. Deaf: they are told later. */
static void say_why(struct root *o)
{
	const bool deaf = o->how.untold && *o->how.untold;
	uint64_t until = coll_clock_ns() + coll_interrupt_farewell_ns(COLL_DELAY_NS(RENDEZVOUS_LATE));

	if (o->how.size > 0 && until > o->how.deadline_ns)
		until = o->how.deadline_ns;
	rendezvous_send_failure(&o->rendezvous);
	while ((o->here < o->how.size || o->attached < o->how.size || !o->how.size) && !deaf && coll_clock_ns() < until)
		rendezvous_step(&o->rendezvous, NULL, until);
	rendezvous_drain(&o->rendezvous,
	                 coll_clock_ns() + coll_interrupt_farewell_ns(COLL_DELAY_NS(RENDEZVOUS_FAREWELL)));
}

static bool newcomer(void *role, struct coll_wire *w, const struct coll_wire_frame *f)
{
	struct root *o = role;
	struct introduction in = {0};
	size_t head;

	if (f->type == FRAME_FAILED) {
		if (rendezvous_failed(&o->rendezvous, f))
			note_reported(o, o->rendezvous.culprit);
		return false;
	}
	if (f->type != FRAME_REGISTER || f->len_bytes < offsetof(struct introduction, library))
		return false;
	memcpy(&in, f->body, f->len_bytes < sizeof(in) ? f->len_bytes : sizeof(in));
	in.library[sizeof(in.library) - 1] = '\0';
	head = sizeof(in) + in.places_bytes;
	if (in.version == WIRE_VERSION &&
	    (f->len_bytes < sizeof(in) || in.places_bytes > COLL_PLACES_BYTES || head > f->len_bytes))
		return false;
	if (o->rendezvous.status != COLL_AGAIN || !acceptable(o, &in, f->len_bytes - head) ||
	    !enter(o, &in, f->body + sizeof(in), f->body + head)) {
		rendezvous_refuse(&o->rendezvous, w);
		note_reported(o, (int)in.rank);
		return false;
	}
	if (!o->how.hosted)
		rendezvous_met(&o->how, w->fd, o->how.all);
	if (in.adopt || o->guests[in.rank]->parent == o->how.rank) {
		coll_wire_take(w, f);
		return keep(o, w, (int)in.rank);
	}
	return send_on(o, w, o->guests[in.rank]);
}

static void from_child(void *role, struct child *k, const struct coll_wire_frame *f)
{
	struct root *o = role;
	uint32_t rank;

	if (f->type == FRAME_ATTACHED && f->len_bytes == sizeof(rank)) {
		memcpy(&rank, f->body, sizeof(rank));
		if (rank < (uint32_t)o->how.size)
			mark_attached(o, (int)rank);
	} else if (f->type != FRAME_FAILED || !rendezvous_failed(&o->rendezvous, f)) {
		rendezvous_fail(&o->rendezvous, COLL_ERR_BOOTSTRAP, k->rank,
		                "rank %d sent an invalid message (frame %u)", k->rank, f->type);
	}
}

static void child_lost(void *role, const struct child *k)
{
	struct root *o = role;

	rendezvous_fail(&o->rendezvous, COLL_ERR_PEER_DEAD, k->rank, "[COLL-4205] rank %d ended during creation (%s)",
	                k->rank, k->wire.cause);
}

/* The address of a process that proved the key and has not said which rank it is; "": there is none. */
static const char *find_mute(struct rendezvous *r)
{
	for (int i = 0; i < r->pending_count; i++)
		if (r->pending[i].state == COLL_WIRE_OPEN)
			coll_wire_from(&r->pending[i], r->mute);
	return r->mute;
}

/* Write the missing ranks as text; returns the first of them. */
static int missing_text(struct root *o, char *buf, size_t len_bytes)
{
	const int size = o->how.size;
	const bool absent = o->here < size;
	const char *mute = find_mute(&o->rendezvous);
	char names[200];
	int n;

	name_ranks(names, sizeof(names), size, absent ? not_here : not_attached, o);
	n = snprintf(buf, len_bytes,
	             absent ? "%s of %d did not connect" : "%s of %d connected but could not reach other ranks", names,
	             size);
	if (absent && mute[0])
		snprintf(buf + n, len_bytes - (size_t)n,
		         " (a process connected from %s and proved the key, but sent nothing more)", mute);
	for (int r = 0; r < size; r++)
		if (absent ? not_here(o, r) : not_attached(o, r))
			return r;
	return -1;
}

/* The host waits without a limit for the first rank, for which the id is. */
static bool wait_for_first(struct root *o)
{
	while (o->rendezvous.status == COLL_AGAIN && o->here == 0) {
		if (atomic_load(o->how.phase) == COLL_MEETING_GIVEN_UP)
			return false;
		rendezvous_step(&o->rendezvous, NULL, UINT64_MAX);
	}
	return true;
}

/* Before the limit of the others, so that they learn which ranks are missing within theirs. */
static uint64_t verdict_ns(const struct root *o)
{
	const uint64_t tenth = (uint64_t)o->timeout_ms * COLL_NS_PER_MS / 10, most = COLL_DELAY_NS(RENDEZVOUS_FAREWELL);

	return o->how.deadline_ns - (tenth < most ? tenth : most);
}

static void out_of_time(struct root *o)
{
	const struct coll_rendezvous_point *how = &o->how;
	char text[400], root[32];
	const int who = missing_text(o, text, sizeof(text)), lacking = o->rendezvous.lacking;

	if (how->untold) /* with descriptors that are closed by then */
		*how->untold = lacking && o->here < how->size;
	if (lacking && o->here < how->size)
		rendezvous_fail(&o->rendezvous, COLL_ERR_SYSTEM, how->rank,
		                "[COLL-4104] %s cannot accept other ranks: %s; %s", rank_name(root, how->rank),
		                coll_errno_text(lacking).text, text);
	else
		rendezvous_fail(&o->rendezvous, COLL_ERR_BOOTSTRAP, who,
		                "[COLL-4201] %s: rendezvous at %s, time limit %d ms%s", text, how->root_text,
		                o->timeout_ms,
		                how->unix_only && !how->keyed ? " (ranks in containers without such a folder in "
		                                                "common need one COLL_JOB_KEY or COLL_KEY_FILE)"
		                                              : "");
}

static void wait_for_all(struct root *o)
{
	const struct coll_rendezvous_point *how = &o->how;
	uint64_t notice_ns = coll_clock_ns() + COLL_DELAY_NS(RENDEZVOUS_NOTICE);
	char text[400];

	while (o->rendezvous.status == COLL_AGAIN && (o->here < how->size || o->attached < how->size)) {
		const uint64_t now = coll_clock_ns();

		if (now >= verdict_ns(o)) {
			out_of_time(o);
			return;
		}
		if (now >= notice_ns) {
			rendezvous_say(&o->rendezvous, FRAME_WAITING, COLL_ERR_BOOTSTRAP,
			               missing_text(o, text, sizeof(text)), text);
			notice_ns = now + COLL_DELAY_NS(RENDEZVOUS_NOTICE);
		}
		rendezvous_step(&o->rendezvous, NULL, notice_ns < verdict_ns(o) ? notice_ns : verdict_ns(o));
	}
}

/* The table of a host: all have brought their part of it. */
static bool fill_table(struct root *o)
{
	const size_t len_bytes = o->how.len_bytes;

	o->how.all = o->table = malloc((size_t)o->how.size * len_bytes + 1);
	for (int r = 0; o->table && len_bytes && r < o->how.size; r++)
		memcpy((char *)o->table + (size_t)r * len_bytes, o->guests[r]->payload, len_bytes);
	return o->table || no_memory(o);
}

/* The root is a rank itself, which is here. */
static coll_status take_own_place(struct root *o, struct coll_error_box *err)
{
	if (make_places(o, (uint32_t)o->how.size))
		o->guests[0] = make_guest(0, 0);
	if (!o->guests || !o->guests[0])
		return coll_error_set(err, COLL_ERR_MEMORY, "no memory for the rendezvous of %d ranks", o->how.size);
	o->guests[0]->attached = true;
	o->here = o->attached = 1;
	o->timeout_ms = o->how.settings->create_timeout_ms;
	return COLL_OK;
}

coll_status meet_root(const struct coll_rendezvous_point *how, struct coll_error_box *err)
{
	struct root o = {.how = *how};
	coll_status st = rendezvous_open(&o.rendezvous, &o.how, err);

	o.rendezvous.arrival = "registration";
	o.rendezvous.newcomer = newcomer;
	o.rendezvous.from_child = from_child;
	o.rendezvous.child_lost = child_lost;
	o.rendezvous.role = &o;
	if (st == COLL_OK && !how->hosted)
		st = take_own_place(&o, err);
	if (st == COLL_OK && how->untold)
		*how->untold = false;
	if (st == COLL_OK && how->absent)
		rendezvous_fail(&o.rendezvous, how->absent->status, how->absent->rank, "%s", how->absent->text);
	if (st == COLL_OK && (!how->hosted || wait_for_first(&o))) {
		wait_for_all(&o);
		if (o.rendezvous.status == COLL_AGAIN && (!how->hosted || fill_table(&o)) &&
		    rendezvous_complete(&o.rendezvous))
			rendezvous_give_table(&o.rendezvous);
		else
			say_why(&o);
		st = o.rendezvous.status;
	}
	free_guests(&o);
	rendezvous_close(&o.rendezvous);
	return st;
}
