/*
 * Payload in lines: every rank writes its own entry and reads all others'. One line costs
 * what a line takes from core to core, and nothing else.
 *
 * Lines of more than one are unpacked first, so that the operands lie together; the
 * operands of one line are used where they are.
 */
#include "native/enter.h"

/* All peers' first lines are there; ranks before s->done have been seen. */
static inline coll_status await_lines(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	const uint32_t entry = s->turn % COLL_DEPTH;

	for (uint32_t r = s->done; r < (uint32_t)n->size; r++) {
		coll_status st;

		if (r == (uint32_t)n->rank)
			continue;
		st = coll_native_check(job, s, &n->peers[r].region->entries[entry].lines[0], true);
		if (likely(st == COLL_OK))
			continue;
		if (r > s->done)
			s->events++;
		s->done = s->pending = r;
		return st == COLL_AGAIN ? coll_native_idle(n, s) : st;
	}
	return COLL_OK;
}

static inline void finish(struct coll_native *n, struct coll_hand_state *s)
{
	n->all = s->turn;
	s->events++;
}

coll_status coll_native_poll_barrier(void *arg, const struct coll_job *job, struct coll_hand_state *s)
{
	struct coll_native *n = arg;
	coll_status st;

	if (s->phase == NATIVE_NEW) {
		st = coll_native_enter(n, s);
		if (unlikely(st != COLL_OK))
			return st;
		coll_native_publish(n, job, s);
		coll_native_nudge(n);
	}
	st = await_lines(n, job, s);
	if (likely(st == COLL_OK))
		finish(n, s);
	return st;
}

coll_status coll_native_poll_line_reduce(void *arg, const struct coll_job *job, struct coll_hand_state *s)
{
	const void *src[COLL_NATIVE_SIZE_MAX];
	struct coll_native *n = arg;
	uint32_t entry;
	coll_status st;

	if (s->phase == NATIVE_NEW) {
		st = coll_native_enter(n, s);
		if (unlikely(st != COLL_OK))
			return st;
		coll_native_copy_small(n->mine->entries[s->turn % COLL_DEPTH].lines[0].payload, job->in.base,
		                       job->in.count * job->elem_bytes);
		coll_native_publish(n, job, s);
		coll_native_nudge(n);
	}
	st = await_lines(n, job, s);
	if (st != COLL_OK)
		return st;
	entry = s->turn % COLL_DEPTH;
	for (int r = 0; r < n->size; r++)
		src[r] = r == n->rank ? job->in.base : n->peers[r].region->entries[entry].lines[0].payload;
	coll_reduce_run(job->reduction, job->out.base, src, n->size, -1, true, job->in.count);
	finish(n, s);
	return COLL_OK;
}

/* ---- Several lines ---- */

static char *more_payload(const struct native_line *line)
{
	return (char *)(uintptr_t)&line->sequence;
}

void coll_native_pack(struct coll_native *n, const struct coll_job *job, const struct coll_hand_state *s,
                      const char *from, size_t bytes)
{
	struct native_entry *e = &n->mine->entries[s->turn % COLL_DEPTH];
	const uint64_t word = coll_native_word(s->turn, job->signature);
	const size_t first = bytes < COLL_FIRST_PAYLOAD ? bytes : COLL_FIRST_PAYLOAD;

	if (first > 0)
		coll_native_copy_small(e->lines[0].payload, from, first);
	coll_native_publish(n, job, s);
	bytes -= first;
	from = bytes > 0 ? from + first : NULL;
	for (struct native_line *line = &e->lines[1]; bytes > 0; line++) {
		const size_t part = bytes < COLL_MORE_PAYLOAD ? bytes : COLL_MORE_PAYLOAD;

		if (part == COLL_MORE_PAYLOAD)
			memcpy(more_payload(line), from, COLL_MORE_PAYLOAD);
		else
			memcpy(more_payload(line), from, part);
		/* Release: a reader that sees the word sees this line's payload. */
		atomic_store_explicit(&line->word, word, memory_order_release);
		from += part;
		bytes -= part;
	}
	coll_native_nudge(n);
}

coll_status coll_native_unpack(const struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s,
                               uint32_t rank, size_t bytes)
{
	const struct native_entry *e = &n->peers[rank].region->entries[s->turn % COLL_DEPTH];
	const size_t more = bytes > COLL_FIRST_PAYLOAD ? bytes - COLL_FIRST_PAYLOAD : 0;
	const uint32_t lines = 1 + (uint32_t)((more + COLL_MORE_PAYLOAD - 1) / COLL_MORE_PAYLOAD);
	char *to = n->unpacked + rank * COLL_ENTRY_PAYLOAD;

	for (uint32_t i = s->next; i < lines; i++) {
		const coll_status st = coll_native_check(job, s, &e->lines[i], i == 0);

		if (st != COLL_OK) {
			s->next = i;
			s->pending = rank;
			return st;
		}
		if (i == 0)
			memcpy(to, e->lines[0].payload, COLL_FIRST_PAYLOAD);
		else
			memcpy(to + COLL_FIRST_PAYLOAD + (i - 1) * COLL_MORE_PAYLOAD, more_payload(&e->lines[i]),
			       COLL_MORE_PAYLOAD);
	}
	s->next = 0;
	s->events++;
	return COLL_OK;
}

coll_status coll_native_poll_lines_reduce(void *arg, const struct coll_job *job, struct coll_hand_state *s)
{
	const void *src[COLL_NATIVE_SIZE_MAX];
	struct coll_native *n = arg;
	coll_status st;

	if (s->phase == NATIVE_NEW) {
		st = coll_native_enter(n, s);
		if (unlikely(st != COLL_OK))
			return st;
		coll_native_pack(n, job, s, job->in.base, job->in.count * job->elem_bytes);
	}
	for (; s->done < (uint32_t)n->size; s->done++) {
		if (s->done == (uint32_t)n->rank)
			continue;
		st = coll_native_unpack(n, job, s, s->done, job->in.count * job->elem_bytes);
		if (st != COLL_OK)
			return st == COLL_AGAIN ? coll_native_idle(n, s) : st;
	}
	for (int r = 0; r < n->size; r++)
		src[r] = r == n->rank ? job->in.base : n->unpacked + r * COLL_ENTRY_PAYLOAD;
	coll_reduce_run(job->reduction, job->out.base, src, n->size, -1, true, job->in.count);
	finish(n, s);
	return COLL_OK;
}
