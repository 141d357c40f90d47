/*
 * Payload in lines: every rank writes its own entry and reads all others'. One line costs
 * what a line takes from core to core, and nothing else.
 *
 * Lines of more than one are unpacked first, so that the operands lie together; the
 * operands of one line are used where they are.
 */
#include "intra/eager_line.h"

#include <stddef.h>

#include "intra/enter.h"

/* All peers' first lines are there; ranks before s->done have been seen. */
static inline coll_status await_lines(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const uint32_t entry = s->epoch % COLL_DEPTH;

	for (uint32_t r = s->done; r < (uint32_t)n->size; r++) {
		coll_status st;

		if (r == (uint32_t)n->rank)
			continue;
		st = coll_intra_await(n, job, s, &n->peers[r].region->entries[entry].lines[0], true);
		if (likely(st == COLL_OK))
			continue;
		if (r > s->done)
			s->events++;
		s->done = s->pending = r;
		return coll_intra_not_yet(n, s, st);
	}
	return COLL_OK;
}

coll_status coll_intra_poll_barrier(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	coll_status st;

	if (s->phase == INTRA_NEW) {
		s->way = COLL_WAY_EAGER_LINE;
		st = coll_intra_enter(n, s);
		if (unlikely(st != COLL_OK))
			return coll_intra_not_yet(n, s, st);
		coll_intra_publish(n, job, s);
		coll_intra_nudge(n);
	}
	st = await_lines(n, job, s);
	if (likely(st == COLL_OK))
		coll_intra_entered_all(n, s);
	return st;
}

coll_status coll_intra_poll_eager_line_reduce(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	const void *src[COLL_INTRA_SIZE_MAX];
	struct coll_intra *n = arg;
	uint32_t entry;
	coll_status st;

	if (s->phase == INTRA_NEW) {
		s->way = COLL_WAY_EAGER_LINE;
		st = coll_intra_enter(n, s);
		if (unlikely(st != COLL_OK))
			return coll_intra_not_yet(n, s, st);
		coll_intra_copy_part(n->mine->entries[s->epoch % COLL_DEPTH].lines[0].payload, job->in.base,
		                     job->in.count * job->elem_bytes);
		coll_intra_publish(n, job, s);
		coll_intra_nudge(n);
	}
	st = await_lines(n, job, s);
	if (st != COLL_OK)
		return st;
	entry = s->epoch % COLL_DEPTH;
	for (int r = 0; r < n->size; r++)
		src[r] = r == n->rank ? job->in.base : n->peers[r].region->entries[entry].lines[0].payload;
	coll_reduce_run(job->reduction, job->out.base, src, n->size, -1, true, job->in.count);
	coll_intra_entered_all(n, s);
	return COLL_OK;
}

/* ---- Several lines ---- */

static char *more_payload(const struct intra_line *line)
{
	return (char *)(uintptr_t)line + offsetof(struct intra_line, sequence);
}

void coll_intra_pack(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, uint32_t first,
                     const char *from, size_t bytes)
{
	struct intra_line *line = &n->mine->entries[s->epoch % COLL_DEPTH].lines[first];
	const uint64_t word = coll_intra_word(s->epoch, job->signature);

	if (likely(bytes >= COLL_FIRST_PAYLOAD))
		memcpy(line->payload, from, COLL_FIRST_PAYLOAD);
	else
		coll_intra_copy_part(line->payload, from, bytes);
	line->sequence = job->sequence;
	/* Release, here and below: a reader that sees the word sees this line's payload. */
	atomic_store_explicit(&line->word, word, memory_order_release);
	if (bytes <= COLL_FIRST_PAYLOAD)
		return;
	from += COLL_FIRST_PAYLOAD;
	bytes -= COLL_FIRST_PAYLOAD;
	for (line++; bytes >= COLL_MORE_PAYLOAD; line++) {
		memcpy(more_payload(line), from, COLL_MORE_PAYLOAD);
		atomic_store_explicit(&line->word, word, memory_order_release);
		from += COLL_MORE_PAYLOAD;
		bytes -= COLL_MORE_PAYLOAD;
	}
	if (bytes > 0) {
		coll_intra_copy_part(more_payload(line), from, bytes);
		atomic_store_explicit(&line->word, word, memory_order_release);
	}
}

coll_status coll_intra_unpack(const struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s,
                              uint32_t rank, uint32_t first, char *to, size_t bytes)
{
	const struct intra_line *lines = &n->peers[rank].region->entries[s->epoch % COLL_DEPTH].lines[first];
	const uint32_t count = coll_intra_lines(bytes);

	for (uint32_t i = s->next; i < count; i++) {
		const coll_status st = coll_intra_await(n, job, s, &lines[i], i == 0);
		const size_t at = i == 0 ? 0 : COLL_FIRST_PAYLOAD + (i - 1) * (size_t)COLL_MORE_PAYLOAD;

		if (unlikely(st != COLL_OK)) {
			s->next = i;
			s->pending = rank;
			return st;
		}
		if (i == 0 && bytes >= COLL_FIRST_PAYLOAD)
			memcpy(to, lines[0].payload, COLL_FIRST_PAYLOAD);
		else if (i > 0 && bytes - at >= COLL_MORE_PAYLOAD)
			memcpy(to + at, more_payload(&lines[i]), COLL_MORE_PAYLOAD);
		else
			coll_intra_copy_part(to + at, i ? more_payload(&lines[i]) : lines[0].payload, bytes - at);
	}
	s->next = 0;
	s->events++;
	return COLL_OK;
}

coll_status coll_intra_poll_eager_lines_reduce(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	const void *src[COLL_INTRA_SIZE_MAX];
	struct coll_intra *n = arg;
	const size_t bytes = job->in.count * job->elem_bytes;
	coll_status st;

	if (s->phase == INTRA_NEW) {
		s->way = COLL_WAY_EAGER_LINES;
		st = coll_intra_enter(n, s);
		if (unlikely(st != COLL_OK))
			return coll_intra_not_yet(n, s, st);
		coll_intra_pack(n, job, s, 0, job->in.base, bytes);
		coll_intra_nudge(n);
	}
	for (; s->done < (uint32_t)n->size; s->done++) {
		if (s->done == (uint32_t)n->rank)
			continue;
		st = coll_intra_unpack(n, job, s, s->done, 0, n->unpacked + s->done * COLL_ENTRY_PAYLOAD, bytes);
		if (st != COLL_OK)
			return coll_intra_not_yet(n, s, st);
	}
	for (int r = 0; r < n->size; r++)
		src[r] = r == n->rank ? job->in.base : n->unpacked + r * COLL_ENTRY_PAYLOAD;
	coll_reduce_run(job->reduction, job->out.base, src, n->size, -1, true, job->in.count);
	coll_intra_entered_all(n, s);
	return COLL_OK;
}
