/*
 * Do all ranks describe the same parameters? Rank 0 broadcasts its description as
 * text, one line per parameter. Each rank finds the first line that differs
 * from its own. The smallest of these lines is reported, with the ranks that it concerns.
 */
#include "ddp/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/base.h"
#include "ddp/ddp_inner.h"

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

static bool same_line(const char *lines, int a, int b)
{
	return memcmp(lines + (size_t)a * LINE_BYTES, lines + (size_t)b * LINE_BYTES, LINE_BYTES) == 0;
}

/* "; ranks 1, 3: ...": all whose line is first's, as far as there is room; what text has grown to. */
static size_t name_group(const coll_ddp *d, const char *lines, int first, char *text, size_t n, size_t len_bytes)
{
	int last = first;

	for (int r = first + 1; r < d->size; r++)
		last = same_line(lines, first, r) ? r : last;
	n += (size_t)snprintf(text + n, len_bytes - n, "; rank%s %d", last > first ? "s" : "", first);
	for (int r = first + 1; r <= last && n + 16 < len_bytes; r++)
		if (same_line(lines, first, r))
			n += (size_t)snprintf(text + n, len_bytes - n, ", %d", r);
	n += (size_t)snprintf(text + n, len_bytes - n, ": %s", lines + (size_t)first * LINE_BYTES);
	return n < len_bytes ? n : len_bytes - 1;
}

/* The ranks whose line differs from that of rank 0, and how; ranks with equal lines are listed together. */
static void name_lines(const coll_ddp *d, const char *lines, char *text, size_t len_bytes)
{
	size_t n = 0;

	text[0] = 0;
	for (int r = 1; r < d->size && n + 32 < len_bytes; r++) {
		int first = 0;

		while (!same_line(lines, first, r))
			first++;
		if (first == r)
			n = name_group(d, lines, r, text, n, len_bytes);
	}
}

/* A line for whatever line is the first to differ, of every rank; all: room for them. */
static coll_status tell(coll_ddp *d, coll_comm *comm, uint64_t which, char *all)
{
	char mine[LINE_BYTES], others[ERROR_BYTES];
	coll_status status;

	describe(d, (int)which <= d->param_count ? (int)which : 0, mine);
	status = ddp_pass(d, comm, coll_all_gather(mine, all, LINE_BYTES, COLL_U8, comm, NULL));
	if (!status) {
		name_lines(d, all, others, sizeof(others));
		status = which == 0 ? ddp_fail(d, COLL_ERR_MISMATCH, "ranks differ: rank 0 has %s%s", all, others)
		                    : ddp_fail(d, COLL_ERR_MISMATCH, "parameter %d differs: rank 0 has %s%s",
		                               (int)which - 1, all, others);
	}
	return status;
}

coll_status ddp_compare(coll_ddp *d, coll_comm *comm)
{
	uint64_t count = (uint64_t)d->param_count, which;
	coll_status status = ddp_pass(d, comm, coll_broadcast(&count, &count, 1, COLL_U64, 0, comm, NULL));
	char *lines = status ? NULL : calloc(count + 1, LINE_BYTES);
	char *all = status ? NULL : malloc((size_t)d->size * LINE_BYTES);
	uint64_t known = lines && all;

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
			status = tell(d, comm, which, all);
	}
	free(all);
	free(lines);
	return status;
}
