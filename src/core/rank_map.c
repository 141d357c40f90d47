/*
 * The members of a communicator: see rank_map.h.
 */
#include "core/rank_map.h"

#include <stdlib.h>
#include <string.h>

#include "context/context.h"

static coll_status map_ranks(struct coll_rank_map *m, const int *process_of)
{
	m->process_of = malloc((size_t)m->size * sizeof(*m->process_of));
	m->rank_of = malloc((size_t)m->processes * sizeof(*m->rank_of));
	if (!m->process_of || !m->rank_of)
		return COLL_ERR_MEMORY;
	memcpy(m->process_of, process_of, (size_t)m->size * sizeof(*process_of));
	memset(m->rank_of, -1, (size_t)m->processes * sizeof(*m->rank_of));
	for (int r = 0; r < m->size; r++)
		m->rank_of[process_of[r]] = r;
	return COLL_OK;
}

/* Number the hosts of the context again, in the order of the communicator's ranks. */
static coll_status find_hosts(struct coll_rank_map *m, const struct coll_context *ctx)
{
	const int own = coll_rank_map_rank(m, ctx->rank);
	int *ranks;
	int *number = malloc(2 * (size_t)ctx->hosts * sizeof(*number)); /* of each host; then its ranks */

	m->host_of = malloc((size_t)m->size * sizeof(*m->host_of));
	if (!number || !m->host_of) {
		free(number);
		return COLL_ERR_MEMORY;
	}
	ranks = number + ctx->hosts;
	memset(number, -1, ctx->hosts * sizeof(*number));
	memset(ranks, 0, ctx->hosts * sizeof(*ranks));
	for (int r = 0; r < m->size; r++) {
		const uint32_t host = ctx->host_of[coll_rank_map_process(m, r)];

		if (number[host] < 0)
			number[host] = (int)m->hosts++;
		m->host_of[r] = (uint32_t)number[host];
		m->local_max = ++ranks[host] > m->local_max ? ranks[host] : m->local_max;
		m->oversubscribed = m->oversubscribed || ctx->oversubscribed[host];
		if (host == ctx->host_of[ctx->rank]) {
			m->local_rank += r < own;
			m->local_size++;
		}
	}
	free(number);
	return COLL_OK;
}

coll_status coll_rank_map_init(struct coll_rank_map *m, const struct coll_context *ctx, const int *process_of, int size)
{
	coll_status st = COLL_OK;

	*m = (struct coll_rank_map){.size = process_of ? size : ctx->size, .processes = ctx->size};
	if (process_of)
		st = map_ranks(m, process_of);
	return st == COLL_OK ? find_hosts(m, ctx) : st;
}

void coll_rank_map_fini(struct coll_rank_map *m)
{
	free(m->process_of);
	free(m->rank_of);
	free(m->host_of);
	*m = (struct coll_rank_map){.size = 0};
}
