/*
 * Do all ranks describe the same parameters? Rank 0's description goes out as
 * text, one line per parameter; each rank looks for the first line that differs
 * from its own, and the least of these lines is told by whom it concerns.
 */
#include "ddp/ddp_inner.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 192

/* Line 0 are the settings that shape what is sent. */
static void describe(const coll_ddp *d, int i, char *line)
{
	const coll_ddp_config *c = &d->config;
	const struct param *p = &d->params[i - 1];
	int n;

	memset(line, 0, LINE_BYTES);
	if (i == 0) {
		snprintf(line, LINE_BYTES,
		         "%d parameters, type %s, buckets %zu/%zu/%zu, whole %d, wire %d, powersgd %d, zero %d, uneven "
		         "%d",
		         d->param_count, coll_dtype_name(c->type), c->first_bytes, c->bucket_bytes, c->last_bytes,
		         c->keep_whole, (int)c->wire, c->powersgd_rank, c->zero, c->uneven);
		return;
	}
	n = snprintf(line, LINE_BYTES, "%s [", p->name);
	for (int k = 0; k < p->dim_count; k++)
		n += snprintf(line + n, LINE_BYTES - (size_t)n, "%s%zu", k ? " x " : "", p->dims[k]);
	snprintf(line + n, LINE_BYTES - (size_t)n, "] %s%s%s", coll_dtype_name(c->type), p->buffer ? ", a buffer" : "",
	         p->lookup ? ", a table" : "");
}

/* The lines of this rank that rank 0 does not have, "" where the list is shorter. */
static uint64_t first_difference(const coll_ddp *d, const char *lines, int count)
{
	char mine[LINE_BYTES];

	for (int i = 0; i <= d->param_count && i <= count; i++) {
		describe(d, i, mine);
		if (memcmp(mine, lines + (size_t)i * LINE_BYTES, LINE_BYTES) != 0)
			return (uint64_t)i;
	}
	return UINT64_MAX;
}

/* Whose line differs from rank 0's, in a few words. */
static void name_ranks(const coll_ddp *d, const char *lines, char *text, size_t len_bytes)
{
	size_t n = 0;

	text[0] = 0;
	for (int r = 1; r < d->size; r++)
		if (memcmp(lines, lines + (size_t)r * LINE_BYTES, LINE_BYTES) != 0 && n + 16 < len_bytes)
			n += (size_t)snprintf(text + n, len_bytes - n, "%s%d", n ? ", " : "", r);
}

/* A line for whatever line is the first to differ, of every rank. */
static coll_status tell(coll_ddp *d, coll_comm *comm, uint64_t which)
{
	char *all = malloc((size_t)d->size * LINE_BYTES), mine[LINE_BYTES], ranks[128];
	const char *other = "";
	coll_status status;

	describe(d, (int)which <= d->param_count ? (int)which : 0, mine);
	if (!all)
		return ddp_fail(d, COLL_ERR_MEMORY, "no memory to compare parameters");
	status = ddp_pass(d, comm, coll_all_gather(mine, all, LINE_BYTES, COLL_U8, comm, NULL));
	if (!status) {
		name_ranks(d, all, ranks, sizeof(ranks));
		for (int r = d->size - 1; r > 0; r--)
			if (memcmp(all, all + (size_t)r * LINE_BYTES, LINE_BYTES) != 0)
				other = all + (size_t)r * LINE_BYTES;
		status = which == 0
		                 ? ddp_fail(d, COLL_ERR_MISMATCH, "ranks differ: rank 0 has %s; rank%s %s: %s", all,
		                            strchr(ranks, ',') ? "s" : "", ranks, other)
		                 : ddp_fail(d, COLL_ERR_MISMATCH, "parameter %d differs: rank 0 has %s; rank%s %s: %s",
		                            (int)which - 1, all, strchr(ranks, ',') ? "s" : "", ranks, other);
	}
	free(all);
	return status;
}

coll_status ddp_compare(coll_ddp *d, coll_comm *comm)
{
	uint64_t count = (uint64_t)d->param_count, which;
	coll_status status = ddp_pass(d, comm, coll_broadcast(&count, &count, 1, COLL_U64, 0, comm, NULL));
	char *lines = status ? NULL : calloc(count + 1, LINE_BYTES);
	uint64_t known = lines != NULL;

	if (!status)
		status = ddp_pass(d, comm, coll_all_reduce(&known, &known, 1, COLL_U64, COLL_MIN, comm, NULL));
	if (!status && !known)
		status = ddp_fail(d, COLL_ERR_MEMORY, "no memory to compare parameters on some rank");
	if (!status) {
		for (uint64_t i = 0; i <= count && d->rank == 0; i++)
			describe(d, (int)i, lines + i * LINE_BYTES);
		status = ddp_pass(d, comm,
		                  coll_broadcast(lines, lines, (count + 1) * LINE_BYTES, COLL_U8, 0, comm, NULL));
	}
	if (!status) {
		which = first_difference(d, lines, (int)count);
		status = ddp_pass(d, comm, coll_all_reduce(&which, &which, 1, COLL_U64, COLL_MIN, comm, NULL));
		if (!status && which != UINT64_MAX)
			status = tell(d, comm, which);
	}
	free(lines);
	return status;
}
