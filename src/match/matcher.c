/*
 * The matcher: see matcher.h.
 *
 * A receive that names a source waits in the list of that source, all others in one list. Each list is in the order of
 * posting, so an arriving message compares the first that fits of either list. Messages are in two lists: that of their
 * source and that of all.
 */
#include "match/matcher.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/planted.h"

enum {
	FIRST_BYTES = COLL_MATCH_CELL_BYTES - sizeof(struct coll_arrival),
	REST_BYTES = COLL_MATCH_CELL_BYTES - sizeof(void *)
};

_Static_assert(sizeof(struct coll_match_cell) == COLL_MATCH_CELL_BYTES, "a cell has no padding");
_Static_assert(sizeof(struct coll_arrival) < COLL_MATCH_CELL_BYTES, "short payloads lie in the first cell");

coll_status coll_matcher_init(struct coll_matcher *m, int sources, uint32_t share)
{
	*m = (struct coll_matcher){.sources = sources, .share = share};
	m->source = calloc((size_t)sources, sizeof(*m->source));
	if (!m->source)
		return COLL_ERR_MEMORY;
	for (int s = 0; s < sources; s++) {
		coll_list_init(&m->source[s].posted);
		coll_list_init(&m->source[s].arrivals);
	}
	coll_list_init(&m->posted_any);
	coll_list_init(&m->arrivals);
	return COLL_OK;
}

void coll_matcher_fini(struct coll_matcher *m)
{
	for (int s = 0; m->source && s < m->sources; s++)
		free(m->source[s].memory);
	free(m->source);
	*m = (struct coll_matcher){.sources = 0};
}

uint32_t coll_matcher_cells(size_t len_bytes)
{
	if (len_bytes <= FIRST_BYTES)
		return 1;
	return 1 + (uint32_t)((len_bytes - FIRST_BYTES + REST_BYTES - 1) / REST_BYTES);
}

/* ---- Receives ---- */

static bool fits(int wanted, int tag)
{
	return wanted == COLL_MATCH_ANY || wanted == tag || planted(MATCH_TAG);
}

/* The links of an arrival differ by list. */
static struct coll_arrival *entry(const struct coll_link *l, bool by_source)
{
	return by_source ? COLL_ENTRY(l, struct coll_arrival, by_source) : COLL_ENTRY(l, struct coll_arrival, by_time);
}

static struct coll_arrival *find(const struct coll_matcher *m, int source, int tag)
{
	const bool named = source != COLL_MATCH_ANY && !planted(MATCH_SOURCE);
	const struct coll_link *list = named ? &m->source[source].arrivals : &m->arrivals;

	if (planted(MATCH_NEWEST)) {
		for (const struct coll_link *l = list->prev; l != list; l = l->prev)
			if (fits(tag, entry(l, named)->head.tag))
				return entry(l, named);
		return NULL;
	}
	for (const struct coll_link *l = list->next; l != list; l = l->next)
		if (fits(tag, entry(l, named)->head.tag))
			return entry(l, named);
	return NULL;
}

const struct coll_arrival *coll_matcher_peek(const struct coll_matcher *m, int source, int tag)
{
	return find(m, source, tag);
}

static void unlist(struct coll_arrival *a)
{
	coll_list_remove(&a->by_source);
	coll_list_remove(&a->by_time);
}

struct coll_arrival *coll_matcher_post(struct coll_matcher *m, struct coll_posted *p)
{
	struct coll_arrival *a = find(m, p->source, p->tag);

	coll_list_init(&p->link);
	p->order = ++m->order;
	if (!a) {
		coll_list_append(p->source == COLL_MATCH_ANY ? &m->posted_any : &m->source[p->source].posted, &p->link);
		return NULL;
	}
	unlist(a);
	return a;
}

bool coll_matcher_cancel(struct coll_matcher *m, struct coll_posted *p)
{
	if (coll_list_empty(&p->link))
		return false;
	if (!planted(MATCH_CANCEL))
		coll_list_remove(&p->link);
	return true;
}

/* ---- Messages ---- */

static struct coll_posted *first_that_fits(const struct coll_link *list, int tag)
{
	for (const struct coll_link *l = list->next; l != list; l = l->next) {
		struct coll_posted *p = COLL_ENTRY(l, struct coll_posted, link);

		if (fits(p->tag, tag))
			return p;
	}
	return NULL;
}

static struct coll_posted *receive_for(const struct coll_matcher *m, int source, int tag)
{
	struct coll_posted *named = first_that_fits(&m->source[source].posted, tag);
	struct coll_posted *any = first_that_fits(&m->posted_any, tag);

	return !named || (any && (any->order < named->order) != planted(MATCH_POSTED)) ? any : named;
}

struct coll_posted *coll_matcher_arrive(struct coll_matcher *m, int source, int tag)
{
	struct coll_posted *p = receive_for(m, source, tag);

	if (p)
		coll_list_remove(&p->link);
	return p;
}

static coll_status need_pool(struct coll_matcher *m, struct coll_match_source *s)
{
	if (s->memory)
		return COLL_OK;
	s->memory = calloc(m->share, sizeof(*s->memory));
	if (!s->memory)
		return COLL_ERR_MEMORY;
	for (uint32_t i = m->share; i-- > 0;) {
		s->memory[i].next = s->spare;
		s->spare = &s->memory[i];
	}
	return COLL_OK;
}

static struct coll_match_cell *take_cell(struct coll_match_source *s)
{
	struct coll_match_cell *c = s->spare;

	s->spare = c->next;
	c->next = NULL;
	s->used++;
	return c;
}

/* Spread the payload over the first cell and as many others as it takes. */
static void fill(struct coll_match_source *s, struct coll_arrival *a, const char *from, size_t len_bytes)
{
	struct coll_match_cell **tail = &a->rest;
	size_t part = len_bytes < FIRST_BYTES ? len_bytes : FIRST_BYTES;

	if (part > 0)
		memcpy(a + 1, from, part);
	for (size_t at = part; at < len_bytes; at += part) {
		struct coll_match_cell *c = take_cell(s);

		part = len_bytes - at < REST_BYTES ? len_bytes - at : REST_BYTES;
		memcpy(c->bytes, from + at, part);
		*tail = c;
		tail = &c->next;
	}
}

coll_status coll_matcher_keep(struct coll_matcher *m, const struct coll_message_head *head, const void *payload)
{
	struct coll_match_source *s = &m->source[head->source];
	const uint32_t cells = coll_matcher_cells(head->len_bytes);
	struct coll_arrival *a;
	coll_status st;

	if (cells > m->share - s->used)
		return COLL_ERR_CORRUPT;
	st = need_pool(m, s);
	if (st != COLL_OK)
		return st;
	a = (struct coll_arrival *)(void *)take_cell(s);
	*a = (struct coll_arrival){.head = *head, .cells = cells};
	fill(s, a, payload, head->len_bytes);
	assert(s->used <= m->share);
	coll_list_append(&s->arrivals, &a->by_source);
	coll_list_append(&m->arrivals, &a->by_time);
	return COLL_OK;
}

struct coll_arrival *coll_matcher_withdraw(struct coll_matcher *m, int source, const void *sender)
{
	const struct coll_link *list = &m->source[source].arrivals;

	for (const struct coll_link *l = list->next; l != list; l = l->next)
		if (entry(l, true)->head.sender == sender) {
			struct coll_arrival *a = entry(l, true);

			unlist(a);
			return a;
		}
	return NULL;
}

void coll_matcher_drop_offers(struct coll_matcher *m, int source)
{
	struct coll_link *list = &m->source[source].arrivals, *next;

	for (struct coll_link *l = list->next; l != list; l = next) {
		struct coll_arrival *a = entry(l, true);

		next = l->next;
		if (!a->head.here) {
			unlist(a);
			coll_matcher_release(m, a);
		}
	}
}

void coll_matcher_read(const struct coll_arrival *a, void *to)
{
	const size_t len_bytes = a->head.len_bytes;
	const struct coll_match_cell *c = a->rest;
	size_t part = len_bytes < FIRST_BYTES ? len_bytes : FIRST_BYTES;
	char *out = to;

	if (part > 0)
		memcpy(out, a + 1, part);
	for (size_t at = part; at < len_bytes; at += part, c = c->next) {
		part = len_bytes - at < REST_BYTES ? len_bytes - at : REST_BYTES;
		memcpy(out + at, c->bytes, part);
	}
}

uint32_t coll_matcher_release(struct coll_matcher *m, struct coll_arrival *a)
{
	struct coll_match_source *s = &m->source[a->head.source];
	struct coll_match_cell *c = a->rest, *first = (struct coll_match_cell *)(void *)a;
	const uint32_t cells = a->cells;

	while (c) {
		struct coll_match_cell *next = c->next;

		c->next = s->spare;
		s->spare = c;
		c = next;
	}
	first->next = s->spare;
	s->spare = first;
	s->used -= cells;
	return planted(MATCH_CREDIT) ? 0 : cells;
}
