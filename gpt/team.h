/*
 * The threads of one process that run a pass together.
 *
 * Every thread runs the same code on its own share of the rows and meets the
 * others after each kernel. Shares cut outputs, never sums: results do not depend
 * on the number of threads, products by BLAS excepted.
 */
#ifndef GPT_TEAM_H
#define GPT_TEAM_H

#include <stddef.h>

struct gpt_team;

/* n threads, the caller's included; NULL when they cannot be had. */
struct gpt_team *gpt_team_create(int n);
void gpt_team_destroy(struct gpt_team **team);

/* fn on every thread, index 0 is the caller; returns when all have returned. */
typedef void (*gpt_team_fn)(void *arg, int index);
void gpt_team_run(struct gpt_team *team, gpt_team_fn fn, void *arg);

/* Inside fn: nobody goes on before all have come here, and what any of them
 * wrote before is seen by all after. NULL: a team of one. */
void gpt_team_meet(struct gpt_team *team);

/* The share of thread index of count in n things, cut at multiples of unit. */
struct gpt_share {
	size_t first, count;
};
static inline struct gpt_share gpt_share(size_t n, size_t unit, int index, int count)
{
	const size_t units = (n + unit - 1) / unit;
	const size_t from = units * (size_t)index / (size_t)count * unit;
	const size_t to = units * ((size_t)index + 1) / (size_t)count * unit;
	const size_t first = from < n ? from : n, end = to < n ? to : n;

	return (struct gpt_share){first, end - first};
}

#endif
