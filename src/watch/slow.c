/*
 * Who is slow: see slow.h.
 */
#include "watch/slow.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "context/service.h"
#include "control/ping.h"
#include "core/comm.h"
#include "watch/slow_rule.h"

enum { SAMPLES = COLL_WAITS_SAMPLES, HALF = SAMPLES / 2, NEWEST = SAMPLES - 1 };

/* A link is judged only if it was busy for a tenth of the time: only then anybody waits for it. */
enum { BUSY_PART = 10 };

struct link {
	struct coll_link_counts at[SAMPLES];
	uint64_t warned_ns;
};

struct coll_slow {
	struct coll_context *ctx;
	struct coll_service_client client;
	uint64_t at_ns[SAMPLES];
	uint64_t begun[SAMPLES]; /* operations so far */
	int samples;
	struct link *links; /* by process */
	struct coll_slow_facts facts;
	/* Those who are asked, since asked_ns; 0: nobody is. */
	int peers[COLL_SLOW_PEERS], npeers;
	uint64_t asked_ns, warned_ns;
	struct coll_slow_streak streak;
	pthread_mutex_t lock;
	struct coll_slow_facts told; /* lock: what others are told */
};

static uint32_t to_ms(uint64_t ns)
{
	return (uint32_t)(ns / COLL_NS_PER_MS);
}

/* ---- Looks ---- */

static int missed_most(const struct coll_comm *comm, uint64_t *most_ns)
{
	int rank = -1;

	for (int r = 0; r < comm->size; r++) {
		const uint64_t ns = atomic_load_explicit(&comm->waits->of[r].waited_ns, memory_order_relaxed);

		if (ns > *most_ns) {
			*most_ns = ns;
			rank = r;
		}
	}
	return rank;
}

/* One communicator: its sums since the last looks. Several may wait at once, so a half has no more than its time. */
static void look_at_comm(struct coll_comm *comm, struct coll_slow_facts *f, uint64_t *longest_ms, uint64_t *most_ns)
{
	struct coll_waits_sample *at = comm->waits->at;
	const int missed = missed_most(comm, most_ns);
	uint64_t waited_ms = 0;

	memmove(&at[0], &at[1], NEWEST * sizeof(at[0]));
	at[NEWEST] = (struct coll_waits_sample){atomic_load_explicit(&comm->waits->waited_ns, memory_order_relaxed),
	                                        atomic_load_explicit(&comm->waits->in_call_ns, memory_order_relaxed)};
	for (int h = 0; h < 2; h++) {
		const struct coll_waits_sample *from = &at[h * HALF], *to = &at[(h + 1) * HALF];

		waited_ms += to_ms(to->waited_ns - from->waited_ns);
		f->waited_ms[h] += to_ms(to->waited_ns - from->waited_ns);
		f->in_call_ms[h] += to_ms(to->in_call_ns - from->in_call_ns);
	}
	if (waited_ms > *longest_ms) {
		*longest_ms = waited_ms;
		f->comm = comm->id;
	}
	if (missed >= 0) {
		f->waits_for = coll_comm_process(comm, missed);
		f->waits_for_ms = to_ms(*most_ns);
	}
}

static void look_at_comms(struct coll_slow *s, struct coll_slow_facts *f)
{
	uint64_t longest_ms = 0, most_ns = 0;

	memmove(&s->begun[0], &s->begun[1], NEWEST * sizeof(s->begun[0]));
	s->begun[NEWEST] = 0;
	pthread_mutex_lock(&s->ctx->comms_lock);
	for (struct coll_comm *comm = s->ctx->comms; comm; comm = comm->next) {
		s->begun[NEWEST] += atomic_load_explicit(&comm->recorder.next, memory_order_relaxed);
		if (comm->waits)
			look_at_comm(comm, f, &longest_ms, &most_ns);
	}
	pthread_mutex_unlock(&s->ctx->comms_lock);
	for (int h = 0; h < 2; h++) {
		f->half_ms[h] = s->samples >= SAMPLES ? to_ms(s->at_ns[(h + 1) * HALF] - s->at_ns[h * HALF]) : 0;
		if (f->waited_ms[h] > f->half_ms[h])
			f->waited_ms[h] = f->half_ms[h];
		if (f->in_call_ms[h] > f->half_ms[h])
			f->in_call_ms[h] = f->half_ms[h];
	}
}

/* Links between hosts are compared, and if there are sites, those within one: others are slow by nature. */
static bool is_compared(const struct coll_context *ctx, int process)
{
	return ctx->host_of[process] != ctx->host_of[ctx->rank] &&
	       ctx->peer_infos[process].site == ctx->peer_infos[ctx->rank].site;
}

static bool was_busy(const struct coll_slow *s, const struct link *l, int half)
{
	const uint64_t busy_us = l->at[(half + 1) * HALF].busy_us - l->at[half * HALF].busy_us;

	return busy_us * BUSY_PART >= (s->at_ns[(half + 1) * HALF] - s->at_ns[half * HALF]) / 1000;
}

/* A new socket counts from 0 again. */
static uint32_t rate_of(const struct link *l)
{
	const struct coll_link_counts *from = &l->at[0], *to = &l->at[NEWEST];

	return to->bytes > from->bytes && to->busy_us > from->busy_us
	               ? coll_slow_rate(to->bytes - from->bytes, to->busy_us - from->busy_us, to->rtt_us)
	               : 0;
}

/* The slowest come first. */
static void note_link(struct coll_slow_facts *f, int process, uint32_t kb)
{
	for (int i = 0; i < COLL_SLOW_LINKS; i++)
		if (f->slow[i].process < 0 || kb < f->slow[i].kb) {
			memmove(&f->slow[i + 1], &f->slow[i], (size_t)(COLL_SLOW_LINKS - 1 - i) * sizeof(f->slow[0]));
			f->slow[i].process = process;
			f->slow[i].kb = kb;
			return;
		}
}

/* The rates, of which the slowest are noted whether they are far behind or not. */
static void look_at_links(struct coll_slow *s, struct coll_slow_facts *f)
{
	uint32_t *kb = malloc((size_t)s->ctx->size * sizeof(*kb));
	int n = 0;

	for (int i = 0; i < COLL_SLOW_LINKS; i++)
		f->slow[i].process = -1;
	for (int p = 0; kb && p < s->ctx->size; p++) {
		struct link *l = &s->links[p];
		struct coll_link_counts counts;
		uint32_t rate;

		if (p == s->ctx->rank || !is_compared(s->ctx, p) || !coll_context_link_counts(s->ctx, p, &counts))
			continue;
		memmove(&l->at[0], &l->at[1], NEWEST * sizeof(l->at[0]));
		l->at[NEWEST] = counts;
		rate = s->samples >= SAMPLES ? rate_of(l) : 0;
		if (rate == 0)
			continue;
		kb[n++] = rate;
		if (was_busy(s, l, 0) && was_busy(s, l, 1))
			note_link(f, p, rate);
	}
	f->usual_kb = kb ? coll_slow_upper_median(kb, n) : 0;
	free(kb);
}

/* ---- Peers ---- */

static void add_peer(struct coll_slow *s, int process)
{
	for (int i = 0; i < s->npeers; i++)
		if (s->peers[i] == process)
			return;
	if (process != s->ctx->rank && s->npeers < COLL_SLOW_PEERS)
		s->peers[s->npeers++] = process;
}

/* Members of its communicators, all of small ones, the same at each look: so only a few control links are made. */
static void choose_peers(struct coll_slow *s)
{
	int comms = 0, each;

	s->npeers = 0;
	pthread_mutex_lock(&s->ctx->comms_lock);
	for (const struct coll_comm *comm = s->ctx->comms; comm; comm = comm->next)
		comms += comm->size > 1;
	each = comms > 0 ? COLL_SLOW_PEERS / (comms < 4 ? comms : 4) : 0;
	for (const struct coll_comm *comm = s->ctx->comms; comm; comm = comm->next) {
		const int n = comm->size - 1 < each ? comm->size - 1 : each;

		for (int i = 0; i < n; i++)
			add_peer(s, coll_comm_process(comm, (comm->rank + 1 + i * (comm->size - 1) / n) % comm->size));
	}
	pthread_mutex_unlock(&s->ctx->comms_lock);
}

static void ask(struct coll_slow *s, uint64_t now)
{
	const struct coll_mismatch_msg q = {.about = COLL_ABOUT_SLOW, .sequence = now, .third = -1};

	choose_peers(s);
	for (int i = 0; i < s->npeers; i++)
		coll_control_ask(s->ctx->control, s->peers[i], &q);
	s->asked_ns = now;
}

static bool is_member(struct coll_context *ctx, uint64_t id)
{
	bool found = false;

	pthread_mutex_lock(&ctx->comms_lock);
	for (const struct coll_comm *comm = ctx->comms; comm && !found; comm = comm->next)
		found = comm->id == id;
	pthread_mutex_unlock(&ctx->comms_lock);
	return found;
}

/* What those say that have answered. Who waits on a communicator of others does not wait for this process. */
static int hear(struct coll_slow *s, struct coll_slow_facts others[COLL_SLOW_PEERS])
{
	int n = 0;

	for (int i = 0; i < s->npeers; i++) {
		struct coll_peer_state state;

		coll_control_peer(s->ctx->control, s->peers[i], 0, COLL_ABOUT_SLOW, &state);
		if (state.answered_ns < s->asked_ns || state.answer.slow.half_ms[0] == 0)
			continue;
		others[n] = state.answer.slow;
		if (others[n].comm && !is_member(s->ctx, others[n].comm))
			others[n].comm = 0;
		n++;
	}
	return n;
}

/* ---- Verdicts ---- */

static void warn_of_rank(struct coll_slow *s, uint64_t now)
{
	const struct coll_slow_facts *f = &s->facts;
	const double waited_s = (f->waited_ms[0] + f->waited_ms[1]) * 1e-3;

	if (s->warned_ns && now - s->warned_ns < COLL_DELAY_NS(SLOW_AGAIN))
		return;
	s->warned_ns = now;
	coll_log(&s->ctx->logger, COLL_LOG_WARN,
	         "[COLL-5115] rank %d of the job (process %d, host %s) is behind its peers: in the last %.0f s they "
	         "waited %.1f s in calls, it waited %.1f s",
	         s->ctx->rank, (int)s->ctx->info.process, s->ctx->info.host_name,
	         (f->half_ms[0] + f->half_ms[1]) * 1e-3, waited_s + f->behind_ms * 1e-3, waited_s);
}

static void warn_of_link(struct coll_slow *s, int process, uint32_t kb, uint64_t now)
{
	struct link *l = &s->links[process];
	const struct coll_slow_facts *f = &s->facts;

	if (l->warned_ns && now - l->warned_ns < COLL_DELAY_NS(SLOW_AGAIN))
		return;
	l->warned_ns = now;
	coll_log(&s->ctx->logger, COLL_LOG_WARN,
	         "[COLL-5116] link %s-%s (rank %d to rank %d of the job) carries %.1f MB/s, median %.0f, for %.0f s",
	         s->ctx->info.host_name, s->ctx->peer_infos[process].host_name, s->ctx->rank, process, kb * 1e-3,
	         f->median_kb * 1e-3, (f->half_ms[0] + f->half_ms[1]) * 1e-3);
}

/* All have answered, or their time is over. */
static void judge(struct coll_slow *s, const struct coll_slow_facts *others, int n, uint64_t now)
{
	struct coll_slow_facts *f = &s->facts;
	const bool of_two = s->npeers == 1;
	int slow = 0;
	bool stays;

	f->behind_ms = n > 0 ? coll_slow_behind(f, others, n) : 0;
	stays = coll_slow_stays(&s->streak, of_two, f->behind_ms, n == 1 ? others[0].behind_ms : 0, now,
	                        COLL_DELAY_NS(SLOW_AGAIN));
	f->median_kb = coll_slow_median(f, others, n);
	while (slow < COLL_SLOW_LINKS && f->slow[slow].process >= 0 &&
	       coll_slow_is_far_below(f->slow[slow].kb, f->median_kb))
		slow++;
	for (int i = slow; i < COLL_SLOW_LINKS; i++)
		f->slow[i].process = -1;
	pthread_mutex_lock(&s->lock);
	s->told = *f;
	pthread_mutex_unlock(&s->lock);
	if (s->ctx->settings.warn_ms == 0)
		return;
	if (stays)
		warn_of_rank(s, now);
	for (int i = 0; i < slow; i++)
		warn_of_link(s, f->slow[i].process, f->slow[i].kb, now);
}

/* A job that stands still hangs, or has nothing to do: that is the business of others. */
static bool is_moving(const struct coll_slow *s)
{
	return s->begun[HALF] != s->begun[0] && s->begun[NEWEST] != s->begun[HALF];
}

/* The facts of a look are told at once, with the verdict of the look before. */
static void look(struct coll_slow *s, uint64_t now)
{
	struct coll_slow_facts *f = &s->facts, was;

	memmove(&s->at_ns[0], &s->at_ns[1], NEWEST * sizeof(s->at_ns[0]));
	s->at_ns[NEWEST] = now;
	s->samples += s->samples < SAMPLES;
	*f = (struct coll_slow_facts){.waits_for = -1};
	look_at_comms(s, f);
	look_at_links(s, f);
	pthread_mutex_lock(&s->lock);
	was = s->told;
	s->told = *f;
	s->told.behind_ms = was.behind_ms;
	s->told.median_kb = was.median_kb;
	memcpy(s->told.slow, was.slow, sizeof(was.slow));
	pthread_mutex_unlock(&s->lock);
	if (f->half_ms[0] && is_moving(s))
		ask(s, now);
	else
		judge(s, NULL, 0, now);
}

static void service(void *arg, bool ready)
{
	struct coll_slow *s = arg;
	const uint64_t now = coll_clock_ns();

	(void)ready;
	if (s->asked_ns) {
		struct coll_slow_facts others[COLL_SLOW_PEERS];
		const int n = hear(s, others);

		if (n < s->npeers && now - s->asked_ns < COLL_DELAY_NS(SLOW_ANSWER))
			return;
		s->asked_ns = 0;
		judge(s, others, n, now);
	}
	if (now - s->at_ns[NEWEST] >= COLL_DELAY_NS(SLOW_LOOK))
		look(s, now);
}

void coll_slow_facts(struct coll_context *ctx, struct coll_slow_facts *facts)
{
	struct coll_slow *s = ctx->slow;

	*facts = (struct coll_slow_facts){.waits_for = -1};
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	*facts = s->told;
	pthread_mutex_unlock(&s->lock);
}

/* ---- Life ---- */

static int no_fd(void *arg)
{
	(void)arg;
	return -1;
}

struct coll_slow *coll_slow_open(struct coll_context *ctx)
{
	struct coll_slow *s = ctx->size > 1 && ctx->control ? calloc(1, sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	s->links = calloc((size_t)ctx->size, sizeof(*s->links));
	if (!s->links) {
		free(s);
		return NULL;
	}
	s->ctx = ctx;
	s->client = (struct coll_service_client){.fd = no_fd, .service = service, .arg = s};
	s->told.waits_for = -1;
	for (int i = 0; i < COLL_SLOW_LINKS; i++)
		s->told.slow[i].process = -1;
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

void coll_slow_close(struct coll_slow **slow)
{
	struct coll_slow *s = *slow;

	if (!s)
		return;
	*slow = NULL;
	pthread_mutex_destroy(&s->lock);
	free(s->links);
	free(s);
}

const struct coll_service_client *coll_slow_client(const struct coll_slow *s)
{
	return &s->client;
}
