/*
 * Other jobs of this user that share the cores of this rank: see other_jobs.h.
 */
#include "context/other_jobs.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/hash.h"
#include "bootstrap/running.h"
#include "context/context.h"
#include "control/one_host.h"
#include "net/net.h"

struct coll_other_jobs {
	struct coll_running table;
	uint64_t job;
	uint64_t look_ns;      /* the time of the next look */
	uint32_t ranks;        /* of others, on cores of this rank, at the last look */
	bool shared;           /* with them the ranks exceed the cores */
	uint32_t core_sharers; /* of this job alone */
};

static struct coll_running_rank entry_of(const struct coll_peer_info *info, uint64_t job)
{
	struct coll_running_rank r = {
	        .job = job, .process_space = info->process_space, .cores = info->cores, .process = info->process};

	memcpy(r.cpus, info->cpus, sizeof(r.cpus));
	return r;
}

static bool overlap(const uint64_t a[4], const uint64_t b[4])
{
	return ((a[0] & b[0]) | (a[1] & b[1]) | (a[2] & b[2]) | (a[3] & b[3])) != 0;
}

static bool one_process(const struct coll_running_rank *a, const struct coll_running_rank *b)
{
	return a->process == b->process && a->process_space == b->process_space;
}

/* Ranks with the same processors share their cores. Different sets add up, but to no more than all their processors. */
static uint32_t cores_of(const struct coll_context *c, const struct coll_running_rank *ranks, int n)
{
	uint64_t all[4] = {0};
	uint32_t cores = 0, cpus = 0;

	for (int i = 0; i < n; i++) {
		bool known = false;

		for (int k = 0; k < i && !known; k++)
			known = memcmp(ranks[k].cpus, ranks[i].cpus, sizeof(ranks[i].cpus)) == 0;
		if (!known)
			cores += ranks[i].cores;
		for (int w = 0; w < 4; w++)
			all[w] |= ranks[i].cpus[w];
	}
	for (int w = 0; w < 4; w++)
		cpus += (uint32_t)__builtin_popcountll(all[w]);
	if (c->settings.test_cores > 0)
		return (uint32_t)c->settings.test_cores;
	return cores < cpus ? cores : cpus;
}

/* The ranks of this job on cores of this rank. */
static int list_own(const struct coll_context *c, uint64_t job, struct coll_running_rank *list)
{
	int n = 0;

	for (int r = 0; r < c->size; r++)
		if (coll_one_machine(&c->peer_infos[r], &c->info) && overlap(c->peer_infos[r].cpus, c->info.cpus))
			list[n++] = entry_of(&c->peer_infos[r], job);
	return n;
}

/* The ranks of others in addition, without processes of this job, and of a process with several jobs those of one. */
static int add_others(const struct coll_context *c, const struct coll_other_jobs *o, struct coll_running_rank *list,
                      int n)
{
	const int end = n + coll_running_others(&o->table, o->job, list + n);

	for (int i = n; i < end; i++) {
		bool counted = !overlap(list[i].cpus, c->info.cpus);

		for (int k = 0; k < n && !counted; k++)
			counted = list[k].job != list[i].job && one_process(&list[k], &list[i]);
		if (!counted)
			list[n++] = list[i];
	}
	return n;
}

/* What the looks have found is what the waits do. */
static void decide(struct coll_context *c, uint32_t ranks, uint32_t of_all, uint32_t cores)
{
	struct coll_other_jobs *o = c->other_jobs;
	const uint32_t each = (of_all + cores - 1) / cores;
	const bool shared = ranks > 0 && of_all > cores;

	atomic_store_explicit(&c->core_sharers, shared && each - 1 > o->core_sharers ? each - 1 : o->core_sharers,
	                      memory_order_relaxed);
	atomic_store_explicit(&c->spins, c->dedicated_cores && !shared && coll_net->held_up_ns, memory_order_relaxed);
	if (shared && (!o->shared || ranks != o->ranks))
		coll_log(&c->logger, COLL_LOG_INFO,
		         "%u rank%s of other jobs of this user share the cores of this one: its waits yield them",
		         ranks, ranks == 1 ? "" : "s");
	else if (o->shared && !shared)
		coll_log(&c->logger, COLL_LOG_INFO, "no other job of this user crowds the cores of this rank any more");
	o->ranks = ranks;
	o->shared = shared;
}

void coll_other_jobs_look(struct coll_context *c)
{
	struct coll_other_jobs *o = c->other_jobs;
	const uint64_t now = coll_clock_ns();
	struct coll_running_rank *list;
	bool changed;

	if (!o || now < o->look_ns)
		return;
	o->look_ns = now + COLL_DELAY_NS(OTHER_JOBS);
	changed = coll_running_changed(&o->table);
	/* Who ended by force has changed nothing. */
	if (!changed && o->ranks == 0)
		return;
	list = malloc(((size_t)c->size + COLL_RUNNING_MAX) * sizeof(*list));
	if (list) {
		const int own = list_own(c, o->job, list), all = add_others(c, o, list, own);
		const uint32_t cores = cores_of(c, list, all);

		decide(c, (uint32_t)(all - own), (uint32_t)all, cores ? cores : 1);
	}
	free(list);
}

void coll_other_jobs_enter(struct coll_context *c)
{
	const struct coll_process_id *first = &c->peer_infos[0].id;
	const char *path = c->settings.jobs_file;
	struct coll_other_jobs *o = strcmp(path, "none") != 0 ? calloc(1, sizeof(*o)) : NULL;
	struct coll_running_rank self;

	if (!o)
		return;
	o->job = coll_hash_combine(first->word[0], first->word[1]);
	o->core_sharers = c->core_sharers;
	self = entry_of(&c->info, o->job);
	coll_running_enter(&o->table, path[0] ? path : NULL, &self);
	if (path[0] && o->table.fd < 0)
		coll_log(&c->logger, COLL_LOG_INFO, "COLL_JOBS_FILE=%s: not a file of this user with mode 600", path);
	c->other_jobs = o;
	coll_other_jobs_look(c);
}

void coll_other_jobs_leave(struct coll_context *c)
{
	if (c->other_jobs)
		coll_running_leave(&c->other_jobs->table);
	free(c->other_jobs);
	c->other_jobs = NULL;
}
