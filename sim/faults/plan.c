/*
 * See plan.h. It draws, and does nothing else.
 */
#include "sim/faults/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/delay.h"
#include "base/hash.h"

static const uint64_t US = 1000, MS = 1000000;
enum { LASTS_MS = 6000, GENTLE_MS = 600 };

static const char *const names[PLAN_KINDS] = {"kill", "dies within", "stop",  "cut",  "part",
                                              "deaf", "mute",        "reset", "full", "noise"};

const char *plan_kind_name(enum plan_kind kind)
{
	return names[kind];
}

static uint32_t below(struct coll_rng *r, uint32_t n)
{
	return coll_rng_below(r, n);
}

/* Most within the moments in which ballots run. */
static uint64_t some_time(struct coll_rng *r)
{
	switch (below(r, 4)) {
	case 0: return below(r, 2000) * US;
	case 1: return below(r, 30000) * US;
	case 2: return below(r, 600) * MS;
	default: return below(r, LASTS_MS) * MS;
	}
}

static void draw_shape(struct plan *p, struct coll_rng *r, int members)
{
	const uint32_t size = below(r, 16), hosts = below(r, 5);

	p->members = size < 1 ? 2 : size < 13 ? 3 + (int)below(r, 4) : 7 + (int)below(r, size < 15 ? 3 : 10);
	if (members)
		p->members = members;
	p->hosts = hosts < 2 ? 1 : hosts < 4 ? 2 + (int)below(r, 2) : p->members;
	if (p->hosts > p->members)
		p->hosts = p->members;
	for (int m = 0; m < p->members; m++) {
		p->host_of[m] = hosts == 2 ? (int)below(r, (uint32_t)p->hosts) : m % p->hosts;
		p->call_ns[m] = below(r, 3) == 0 ? 0 : some_time(r);
		p->late_ns[m] = below(r, 3) == 0 ? some_time(r) : below(r, 1000) * US;
	}
	p->leaver = below(r, 6) == 0 ? (int)below(r, (uint32_t)p->members) : -1;
	p->first_calls_at_once = below(r, 5) == 0;
	p->shows_ends = below(r, 2);
	p->gentle = below(r, 4) == 0;
	p->unreachable_ms = below(r, 2) ? 10000 : 2000 + below(r, 4000);
}

/* A third for about as long as it takes to suspect somebody: then ballots meet, whose lists differ. */
static uint64_t some_duration(struct coll_rng *r)
{
	switch (below(r, 3)) {
	case 0: return below(r, GENTLE_MS) * MS;
	case 1: return (COLL_DELAY_SUSPECT_MS - 200 + below(r, 600)) * MS;
	default: return below(r, LASTS_MS) * MS;
	}
}

static bool lasts(enum plan_kind kind)
{
	return kind == PLAN_STOP || (kind >= PLAN_CUT && kind <= PLAN_MUTE) || kind == PLAN_FULL;
}

void plan_draw(struct plan *p, uint64_t seed, int members)
{
	struct coll_rng rng = {coll_mix64(seed) ^ 0x6661756c7473u}, *r = &rng;
	uint32_t weight[PLAN_KINDS], sum = 0, again, early;
	bool lasted[PLAN_MEMBERS_MAX] = {false};

	memset(p, 0, sizeof(*p));
	p->seed = seed;
	draw_shape(p, r, members);
	for (int k = 0; k < PLAN_KINDS; k++)
		sum += weight[k] = below(r, 5) * (k <= PLAN_STOP ? 2 : 1);
	p->nfaults = sum ? (int)below(r, p->members > 8 ? PLAN_FAULTS_MAX : 9) : 0;
	again = below(r, 3);
	early = below(r, 3);
	for (int i = 0; i < p->nfaults; i++) {
		struct plan_fault *f = &p->fault[i];
		uint32_t at = below(r, sum);
		int k = 0;

		for (; at >= weight[k]; k++)
			at -= weight[k];
		f->kind = (enum plan_kind)k;
		f->at_ns = some_time(r);
		f->for_ns = some_duration(r);
		f->who = below(r, 10) < 3 ? -1 : (int)below(r, (uint32_t)p->members); /* -1: the lowest that lives */
		f->arg = 1 + below(r, again == 0 ? 12 : 120);
		/* While the first ballot runs: two members, of which one is likely to be its owner. */
		if (below(r, 2) && lasts(f->kind))
			f->at_ns = below(r, 3000) * US;
		if (early && i < 3 && (early > 1 || f->kind <= PLAN_DIE_IN)) {
			f->kind = early > 1 && i < 2 ? PLAN_DIE_IN : f->kind;
			f->at_ns = below(r, 4000) * US;
			f->arg = 1 + below(r, 40);
			f->who = i == 0 ? -1 : f->who;
		}
		if (!p->gentle)
			continue;
		/* One such fault for a member; the death of others excuses nothing. */
		f->for_ns = below(r, GENTLE_MS) * MS;
		if (lasts(f->kind) && (f->who < 0 || lasted[f->who] || f->kind == PLAN_PART))
			f->kind = PLAN_NOISE;
		if (lasts(f->kind))
			lasted[f->who] = true;
	}
}

void plan_print(const struct plan *p)
{
	printf("seed %llu: %d members, %d hosts (", (unsigned long long)p->seed, p->members, p->hosts);
	for (int m = 0; m < p->members; m++)
		printf("%s%d", m ? " " : "", p->host_of[m]);
	printf(")%s%s%s, leaver %d, unreachable after %llu ms\n", p->gentle ? ", gentle" : "",
	       p->shows_ends ? ", ends are shown" : "", p->first_calls_at_once ? ", without links" : "", p->leaver,
	       (unsigned long long)p->unreachable_ms);
	for (int m = 0; m < p->members; m++)
		printf("  member %d calls at %.3f ms, or %.3f ms after the end\n", m, (double)p->call_ns[m] * 1e-6,
		       (double)p->late_ns[m] * 1e-6);
	for (int i = 0; i < p->nfaults; i++)
		printf("  %d: at %.3f ms %s, member %d, for %.0f ms, %u\n", i, (double)p->fault[i].at_ns * 1e-6,
		       names[p->fault[i].kind], p->fault[i].who, (double)p->fault[i].for_ns * 1e-6, p->fault[i].arg);
}
