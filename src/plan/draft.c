/*
 * See draft.h. The cost of a step is O(lanes + chunks it touches): a table keyed
 * by (buffer, chunk) remembers the last writer and the readers since, and every
 * lane keeps a vector of what is known to have retired elsewhere, so that a wait
 * which follows from an earlier one is not written down again.
 */
#include "plan/draft.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "plan/step.h"

/* ---- The table of places ---- */

/* in and out are one space: they are the same memory when in place. */
static uint64_t key_of(uint8_t buf, uint32_t chunk)
{
	uint64_t space = buf < COLL_BUF_SCRATCH ? 0 : (uint64_t)buf - COLL_BUF_SCRATCH + 1;

	return ((space << 32) | chunk) + 1;
}

static struct coll_draft_place *slot_of(struct coll_draft_place *table, size_t capacity, uint64_t key)
{
	size_t i = (size_t)coll_mix64(key) & (capacity - 1);

	while (table[i].key && table[i].key != key)
		i = (i + 1) & (capacity - 1);
	return &table[i];
}

static coll_status grow_places(struct coll_draft *d)
{
	size_t capacity = d->places_capacity ? 2 * d->places_capacity : 64;
	struct coll_draft_place *table = calloc(capacity, sizeof(*table));

	if (!table)
		return COLL_ERR_MEMORY;
	for (size_t i = 0; i < d->places_capacity; i++)
		if (d->places[i].key)
			*slot_of(table, capacity, d->places[i].key) = d->places[i];
	free(d->places);
	d->places = table;
	d->places_capacity = capacity;
	return COLL_OK;
}

/* NULL when out of memory (the draft's status says so). */
static struct coll_draft_place *place(struct coll_draft *d, uint8_t buf, uint32_t chunk)
{
	struct coll_draft_place *p;

	if (2 * (d->places_used + 1) > d->places_capacity) {
		d->status = grow_places(d);
		if (d->status)
			return NULL;
	}
	p = slot_of(d->places, d->places_capacity, key_of(buf, chunk));
	if (!p->key) {
		p->key = key_of(buf, chunk);
		d->places_used++;
	}
	return p;
}

/* ---- Walking what a step touches ---- */

typedef void touch_fn(struct coll_draft *d, struct coll_draft_place *p, const struct coll_step *s, uint32_t *need);

static uint32_t run_chunk(const struct coll_draft *d, const struct coll_step *s, uint32_t first, uint32_t i)
{
	struct coll_plan p = {.chunks = d->chunks, .block_at = d->block_at};

	return coll_step_chunk(&p, s, first, i);
}

static void walk_run(struct coll_draft *d, const struct coll_step *s, uint8_t buf, uint32_t first, touch_fn *touch,
                     uint32_t *need)
{
	for (uint32_t i = 0; i < s->run && !d->status; i++) {
		struct coll_draft_place *p = place(d, buf, run_chunk(d, s, first, i));

		if (p)
			touch(d, p, s, need);
	}
}

static void walk_reads(struct coll_draft *d, const struct coll_step *s, touch_fn *touch, uint32_t *need)
{
	if (coll_step_reads_src(s->op))
		walk_run(d, s, s->src, s->src_chunk, touch, need);
	if (s->op == COLL_STEP_REDUCE) {
		for (uint32_t k = 0; k < s->stride; k++)
			walk_run(d, s, (uint8_t)(s->src + k), s->src_chunk, touch, need);
		if (s->group != COLL_NO_SPLICE)
			walk_run(d, s, COLL_BUF_IN, s->src_chunk, touch, need);
	}
}

static void walk_writes(struct coll_draft *d, const struct coll_step *s, touch_fn *touch, uint32_t *need)
{
	if (coll_step_writes_dst(s->op))
		walk_run(d, s, s->dst, s->dst_chunk, touch, need);
}

static void at_least(uint32_t *a, uint32_t b)
{
	if (*a < b)
		*a = b;
}

static void need_read(struct coll_draft *d, struct coll_draft_place *p, const struct coll_step *s, uint32_t *need)
{
	if (p->writer_lane != s->lane)
		at_least(&need[p->writer_lane], p->writer);
}

static void need_write(struct coll_draft *d, struct coll_draft_place *p, const struct coll_step *s, uint32_t *need)
{
	need_read(d, p, s, need);
	for (uint32_t m = 0; m < COLL_LANES_MAX; m++)
		at_least(&need[m], m == s->lane ? p->sends[m] : p->readers[m]);
}

static void note_read(struct coll_draft *d, struct coll_draft_place *p, const struct coll_step *s, uint32_t *need)
{
	p->readers[s->lane] = d->lanes[s->lane].loose.count;
	if (s->op == COLL_STEP_SEND)
		p->sends[s->lane] = d->lanes[s->lane].loose.count;
}

static void note_write(struct coll_draft *d, struct coll_draft_place *p, const struct coll_step *s, uint32_t *need)
{
	memset(p->readers, 0, sizeof(p->readers));
	memset(p->sends, 0, sizeof(p->sends));
	p->writer = d->lanes[s->lane].loose.count;
	p->writer_lane = s->lane;
}

/* need[0] becomes 1 when any earlier step touched the place. */
static void find_touched(struct coll_draft *d, struct coll_draft_place *p, const struct coll_step *s, uint32_t *need)
{
	if (p->writer)
		need[0] = 1;
	for (uint32_t m = 0; m < COLL_LANES_MAX; m++)
		if (p->readers[m])
			need[0] = 1;
}

/* ---- Weights ---- */

static uint32_t held_at(struct coll_draft *d, uint8_t buf, uint32_t chunk)
{
	const struct coll_draft_place *p = buf == COLL_BUF_IN ? NULL : place(d, buf, chunk);

	return buf == COLL_BUF_IN ? 1 : p ? p->held : 0;
}

static void add_weight(struct coll_draft *d, const struct coll_plan_weight *w)
{
	if (d->nweights == d->weights_capacity) {
		const uint32_t capacity = d->weights_capacity ? 2 * d->weights_capacity : 32;
		struct coll_plan_weight *list = realloc(d->weights, capacity * sizeof(*list));

		if (!list) {
			d->status = COLL_ERR_MEMORY;
			return;
		}
		d->weights = list;
		d->weights_capacity = capacity;
	}
	d->weights[d->nweights++] = *w;
}

/* The weights of a reducing receive, equal neighbours in one entry. */
static void weigh(struct coll_draft *d, const struct coll_step *s, const struct coll_plan_weight *incoming)
{
	struct coll_plan_weight w = {0};

	for (uint32_t i = 0; i < s->run && !d->status; i++) {
		const uint32_t own = held_at(d, s->src, run_chunk(d, s, s->src_chunk, i));

		while (i >= incoming->end)
			incoming++;
		if (own == 0 || incoming->incoming == 0)
			d->status = COLL_ERR_INTERNAL;
		if (w.end > 0 && (own != w.own || incoming->incoming != w.incoming))
			add_weight(d, &w);
		w = (struct coll_plan_weight){i + 1, own, incoming->incoming};
	}
	if (!d->status)
		add_weight(d, &w);
}

/* What the places that a step has written hold now. */
static void note_held(struct coll_draft *d, const struct coll_step *s, const struct coll_plan_weight *w)
{
	for (uint32_t i = 0; i < s->run && !d->status && coll_step_writes_dst(s->op); i++) {
		const uint32_t held =
		        s->op == COLL_STEP_COPY ? held_at(d, s->src, run_chunk(d, s, s->src_chunk, i)) : 0;
		struct coll_draft_place *p = place(d, s->dst, run_chunk(d, s, s->dst_chunk, i));

		while (w && i >= w->end)
			w++;
		if (p)
			p->held = w ? w->own + w->incoming : held;
	}
}

static bool weighs(const struct coll_step *s)
{
	return coll_step_receives(s->op) && coll_step_reads_src(s->op);
}

/* ---- Appending ---- */

static coll_status note_known(struct coll_draft_lane *l)
{
	if (l->loose.count == l->at_start_capacity) {
		uint32_t capacity = l->at_start_capacity ? 2 * l->at_start_capacity : 32;
		uint32_t(*at_start)[COLL_LANES_MAX] = realloc(l->at_start, capacity * sizeof(*at_start));

		if (!at_start)
			return COLL_ERR_MEMORY;
		l->at_start = at_start;
		l->at_start_capacity = capacity;
	}
	memcpy(l->at_start[l->loose.count], l->known, sizeof(l->known));
	return COLL_OK;
}

static void push(struct coll_draft *d, const struct coll_step *step, int recv_from, int send_to, uint32_t weights)
{
	struct coll_loose_step s = {.step = *step,
	                            .recv_from = recv_from,
	                            .send_to = send_to,
	                            .weight_first = d->nweights - weights,
	                            .weight_count = weights};
	struct coll_draft_lane *l = &d->lanes[step->lane];

	d->status = note_known(l);
	if (!d->status)
		d->status = coll_loose_push(&l->loose, &s);
	if (d->status || step->op != COLL_STEP_SEND)
		return;
	l->sends++;
	for (; l->retired_scan < l->known[step->lane]; l->retired_scan++)
		l->retired_sends += l->loose.steps[l->retired_scan].step.op == COLL_STEP_SEND;
	at_least(&l->most_in_flight, l->sends - l->retired_sends);
}

/* From now on lane l can rely on the first count steps of lane m having retired, and on all that
 * the last of those could rely on when it started. */
static void learn(struct coll_draft *d, uint32_t l, uint32_t m, uint32_t count)
{
	const uint32_t *known = d->lanes[m].at_start[count - 1];

	at_least(&d->lanes[l].known[m], count);
	for (uint32_t i = 0; i < COLL_LANES_MAX; i++)
		at_least(&d->lanes[l].known[i], known[i]);
}

/* Whether another wait of need implies the one on lane m. */
static bool implied(const struct coll_draft *d, const uint32_t *need, uint32_t m)
{
	for (uint32_t o = 0; o < COLL_LANES_MAX; o++)
		if (o != m && need[o] && d->lanes[o].at_start[need[o] - 1][m] >= need[m])
			return true;
	return false;
}

/* Gives step the last wait of need that is still needed; the others become WAIT
 * steps before it. */
static void add_waits(struct coll_draft *d, struct coll_step *step, uint32_t *need)
{
	struct coll_step wait = {.op = COLL_STEP_WAIT, .lane = step->lane};
	struct coll_draft_lane *l = &d->lanes[step->lane];

	for (uint32_t m = 0; m < COLL_LANES_MAX; m++)
		if (need[m] <= l->known[m])
			need[m] = 0;
	for (uint32_t m = 0; m < COLL_LANES_MAX; m++)
		if (need[m] && implied(d, need, m))
			need[m] = 0;
	for (uint32_t m = 0; m < COLL_LANES_MAX && !d->status; m++) {
		if (!need[m])
			continue;
		if (step->wait_count) {
			wait.wait_lane = step->wait_lane;
			wait.wait_count = step->wait_count;
			push(d, &wait, -1, -1, 0);
		}
		step->wait_lane = (uint8_t)m;
		step->wait_count = need[m];
		learn(d, step->lane, m, need[m]);
	}
}

static void note_scratch(struct coll_draft *d, const struct coll_step *s, uint8_t buf, uint32_t first)
{
	uint32_t k = (uint32_t)buf - COLL_BUF_SCRATCH;

	if (buf < COLL_BUF_SCRATCH)
		return;
	if (k >= d->nscratch)
		d->nscratch = k + 1;
	if (!d->scratch_used[k])
		d->scratch_used[k] = calloc(d->chunks / 64 + 1, sizeof(uint64_t));
	if (!d->scratch_used[k]) {
		d->status = COLL_ERR_MEMORY;
		return;
	}
	for (uint32_t i = 0; i < s->run; i++) {
		uint32_t c = run_chunk(d, s, first, i);

		d->scratch_used[k][c / 64] |= (uint64_t)1 << (c % 64);
	}
}

static void note_extents(struct coll_draft *d, const struct coll_step *s)
{
	if (coll_step_reads_src(s->op))
		note_scratch(d, s, s->src, s->src_chunk);
	if (coll_step_writes_dst(s->op))
		note_scratch(d, s, s->dst, s->dst_chunk);
	for (uint32_t k = 0; s->op == COLL_STEP_REDUCE && k < s->stride; k++)
		note_scratch(d, s, (uint8_t)(s->src + k), s->src_chunk);
}

void coll_draft_append(struct coll_draft *d, const struct coll_step *in, int recv_from, int send_to,
                       const struct coll_plan_weight *incoming)
{
	const uint32_t weight_first = d->nweights;
	uint32_t need[COLL_LANES_MAX] = {0}, touched[COLL_LANES_MAX] = {0};
	struct coll_step step = *in;

	assert(step.lane < COLL_LANES_MAX);
	step.wait_lane = 0;
	step.wait_count = 0;
	walk_reads(d, &step, need_read, need);
	walk_writes(d, &step, need_write, need);
	if (d->arm && step.op == COLL_STEP_RECV) {
		walk_writes(d, &step, find_touched, touched);
		if (!touched[0])
			step.flags |= COLL_STEP_ARM;
	}
	if (!d->status)
		add_waits(d, &step, need);
	if (!d->status && weighs(&step))
		weigh(d, &step, incoming);
	if (!d->status)
		push(d, &step, recv_from, send_to, d->nweights - weight_first);
	if (d->status)
		return;
	note_held(d, &step, d->nweights > weight_first ? &d->weights[weight_first] : NULL);
	/* Reads first: a step that reads and writes a place is its writer. */
	walk_reads(d, &step, note_read, need);
	walk_writes(d, &step, note_write, need);
	note_extents(d, &step);
	if ((recv_from >= 0 || send_to >= 0) && d->max_run < step.run)
		d->max_run = step.run;
}

/* ---- Finishing ---- */

/* The shortest cyclic interval that holds every used chunk: the complement of the
 * longest gap. Unused: {0, 0}. */
static struct coll_plan_scratch extent(const uint64_t *used, uint32_t chunks)
{
	uint32_t first = 0, last = 0, n = 0, gap = 0, gap_end = 0;

	for (uint32_t c = 0; used && c < chunks; c++) {
		if (!(used[c / 64] >> (c % 64) & 1))
			continue;
		if (n == 0)
			first = c;
		else if (c - last - 1 > gap) {
			gap = c - last - 1;
			gap_end = c;
		}
		last = c;
		n++;
	}
	if (n == 0)
		return (struct coll_plan_scratch){0, 0};
	/* The gap across the end; ties prefer it, so that plain intervals stay plain. */
	if (chunks - last - 1 + first >= gap)
		return (struct coll_plan_scratch){first, last - first + 1};
	return (struct coll_plan_scratch){gap_end, chunks - gap};
}

coll_status coll_draft_finish(struct coll_draft *d, const struct coll_plan *head, struct coll_plan **plan)
{
	struct coll_plan_scratch scratch[COLL_SCRATCH_MAX];
	struct coll_loose_lane lanes[COLL_LANES_MAX];
	struct coll_plan full = *head;

	if (d->status)
		return d->status;
	full.chunks = d->chunks;
	full.block_at = d->block_at;
	full.max_run = d->max_run ? d->max_run : 1;
	full.nscratch = d->nscratch;
	full.max_in_flight = 0;
	for (uint32_t l = 0; l < COLL_LANES_MAX; l++) {
		full.max_in_flight += d->lanes[l].most_in_flight;
		lanes[l] = d->lanes[l].loose;
	}
	for (uint32_t k = 0; k < d->nscratch; k++)
		scratch[k] = extent(d->scratch_used[k], d->chunks);
	return coll_plan_pack(&full, lanes, scratch, d->weights, plan);
}

void coll_draft_fini(struct coll_draft *d)
{
	for (uint32_t l = 0; l < COLL_LANES_MAX; l++) {
		free(d->lanes[l].loose.steps);
		free(d->lanes[l].at_start);
	}
	for (uint32_t k = 0; k < COLL_SCRATCH_MAX; k++)
		free(d->scratch_used[k]);
	free(d->places);
	free(d->weights);
	*d = (struct coll_draft){0};
}
