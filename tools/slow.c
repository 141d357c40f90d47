/*
 * Who is slow: see slow.h.
 */
#include "slow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_rank(const void *a, const void *b)
{
	const struct dump *x = a, *y = b;

	return x->job != y->job ? (x->job > y->job) - (x->job < y->job) : x->process - y->process;
}

static void order(struct dump_list *told)
{
	qsort(told->dumps, told->n, sizeof(told->dumps[0]), by_rank);
}

static const char *host_of(const struct dump_list *told, const struct dump *of, int process)
{
	for (size_t i = 0; i < told->n; i++)
		if (told->dumps[i].job == of->job && told->dumps[i].process == process)
			return told->dumps[i].host;
	return "?";
}

static void add_row(const struct dump *d, struct coll_text *out)
{
	const struct dump_slow *s = &d->slow;
	char most[48] = "-", rate[32] = "-";

	if (s->waits_for >= 0)
		snprintf(most, sizeof(most), "rank %d, %.1f s", s->waits_for, s->waits_for_ms * 1e-3);
	if (s->usual_kb > 0)
		snprintf(rate, sizeof(rate), "%.1f MB/s", s->usual_kb * 1e-3);
	coll_text_add(out, "%5d  %-16.16s %7.1f %9.1f %8.1f  %-22s %s\n", d->process, d->host, s->window_ms * 1e-3,
	              s->waited_ms * 1e-3, s->in_call_ms * 1e-3, most, rate);
}

/* Both ends of a link may say so: the lower one is enough. */
static bool said_by_lower(const struct dump_list *told, const struct dump *d, int to)
{
	for (size_t i = 0; i < told->n; i++) {
		const struct dump *o = &told->dumps[i];

		for (int k = 0; o->job == d->job && o->process == to && to < d->process && k < o->slow.links; k++)
			if (o->slow.to[k] == d->process)
				return true;
	}
	return false;
}

static bool add_verdicts(const struct dump_list *told, struct coll_text *out)
{
	bool any = false;

	for (size_t i = 0; i < told->n; i++) {
		const struct dump *d = &told->dumps[i];

		if (d->slow.behind_ms > 0)
			coll_text_add(
			        out,
			        "slow: rank %d (pid %d, host %s): in the last %.0f s its peers waited %.1f s longer "
			        "in calls than it did\n",
			        d->process, d->pid, d->host, d->slow.window_ms * 1e-3, d->slow.behind_ms * 1e-3);
		any |= d->slow.behind_ms > 0 || d->slow.links > 0;
	}
	for (size_t i = 0; i < told->n; i++) {
		const struct dump *d = &told->dumps[i];

		for (int k = 0; k < d->slow.links; k++)
			if (!said_by_lower(told, d, d->slow.to[k]))
				coll_text_add(out, "slow: link %s-%s (rank %d to rank %d): %.1f MB/s, median %.0f\n",
				              d->host, host_of(told, d, d->slow.to[k]), d->process, d->slow.to[k],
				              d->slow.kb[k] * 1e-3, d->slow.median_kb * 1e-3);
	}
	return any;
}

bool slow_explain(struct dump_list *told, struct coll_text *out)
{
	bool any, young = false;
	int missing = 0;

	order(told);
	coll_text_add(out, "%5s  %-16s %7s %9s %8s  %-22s %s\n", "rank", "host", "of s", "waited", "in calls",
	              "most since the start", "links");
	for (size_t i = 0; i < told->n; i++) {
		const struct dump *d = &told->dumps[i];

		add_row(d, out);
		young |= d->slow.window_ms == 0;
		missing += i == 0 || told->dumps[i - 1].job != d->job ? d->processes - 1 : -1;
	}
	if (missing > 0)
		coll_text_add(out, "%d ranks have not answered\n", missing);
	any = add_verdicts(told, out);
	if (!any)
		coll_text_add(out, young ? "some ranks are too young to say: ask again in 10 s\n"
		                         : "no rank and no link is far behind\n");
	return any;
}

bool slow_json(struct dump_list *told, struct coll_text *out)
{
	bool any = false;

	order(told);
	coll_text_add(out, "{\"ranks\":[");
	for (size_t i = 0; i < told->n; i++) {
		const struct dump *d = &told->dumps[i];
		const struct dump_slow *s = &d->slow;

		coll_text_add(out, "%s\n{\"rank\":%d,\"pid\":%d,\"host\":", i ? "," : "", d->process, d->pid);
		coll_text_add_json(out, d->host);
		coll_text_add(
		        out,
		        ",\"window_ms\":%d,\"waited_ms\":%d,\"in_call_ms\":%d,\"waits_for\":%d,\"waits_for_ms\":%d",
		        s->window_ms, s->waited_ms, s->in_call_ms, s->waits_for, s->waits_for_ms);
		coll_text_add(out, ",\"slow\":%s,\"behind_ms\":%d,\"link_kB_s\":%d,\"median_kB_s\":%d,\"slow_links\":[",
		              s->behind_ms > 0 ? "true" : "false", s->behind_ms, s->usual_kb, s->median_kb);
		for (int k = 0; k < s->links; k++)
			coll_text_add(out, "%s{\"rank\":%d,\"kB_s\":%d}", k ? "," : "", s->to[k], s->kb[k]);
		coll_text_add(out, "]}");
		any |= s->behind_ms > 0 || s->links > 0;
	}
	coll_text_add(out, "\n],\"slow\":%s}\n", any ? "true" : "false");
	return any;
}
