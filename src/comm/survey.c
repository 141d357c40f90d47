/*
 * The exchange about what is inside hosts: see survey.h.
 *
 * These are calls of the communicator like others, with a record kind of their own. They take the time for creation
 * as their limit, and no forced algorithm.
 */
#include "comm/survey.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "call/blocking.h"
#include "comm/inside.h"
#include "comm/settings.h"
#include "core/error.h"
#include "inflight/async.h"
#include "inflight/drive.h"
#include "topology/host_digest.h"

bool coll_survey_matters(const struct coll_comm *comm)
{
	const struct coll_settings *s = &comm->ctx->settings;
	const unsigned forced = coll_settings_levels(s);

	if (comm->size == 1 || strcmp(s->layout, "flat") == 0)
		return false;
	if (forced)
		return forced >> COLL_LEVEL_PACKAGE != 0;
	return comm->rank_map.hosts > 1 && comm->rank_map.local_max >= COLL_LEVELS_RANKS_MIN;
}

/* ---- Calls ---- */

/* What is different while the exchange runs. */
struct usual {
	int arrival_timeout_ms;
	const char *forced;
	int depth;
};

static struct usual begin(struct coll_comm *comm)
{
	const struct usual u = {comm->arrival_timeout_ms, comm->facts.forced, coll_group.depth};

	comm->arrival_timeout_ms = comm->ctx->settings.create_timeout_ms;
	comm->facts.forced = "";
	coll_group.depth = 0; /* a group of the calling thread is not about this communicator */
	return u;
}

static void end(struct coll_comm *comm, const struct usual *u)
{
	comm->arrival_timeout_ms = u->arrival_timeout_ms;
	comm->facts.forced = u->forced;
	coll_group.depth = u->depth;
}

/* A call that was refused (without memory for its plan) leaves the communicator as it was; but the others wait for it.
 */
static coll_status make_call(struct coll_comm *comm, const struct coll_call *c)
{
	const coll_status st = coll_comm_call(comm, c);

	return st == COLL_OK || comm->failed ? st : coll_comm_lose(comm, st, comm->rank, comm->refusal.message);
}

static coll_status gather(struct coll_comm *comm, const void *in, void *out, size_t len_bytes)
{
	return make_call(comm, &(struct coll_call){.kind = COLL_KIND_ALL_GATHER,
	                                           .record_kind = COLL_RECORD_CREATE,
	                                           .in = in,
	                                           .out = out,
	                                           .count = len_bytes / 4,
	                                           .type = COLL_U32});
}

static coll_status send_digest(struct coll_comm *comm, int root, const uint8_t *mine, uint8_t *out, size_t len_bytes)
{
	return make_call(comm, &(struct coll_call){.kind = COLL_KIND_BROADCAST,
	                                           .record_kind = COLL_RECORD_CREATE,
	                                           .in = comm->rank == root ? mine : NULL,
	                                           .out = out,
	                                           .count = len_bytes,
	                                           .type = COLL_U8,
	                                           .root = root});
}

/* ---- Exchange ---- */

struct exchange {
	struct coll_host_digest host;
	struct coll_inside_info *infos;
	int *digest_of, *sender, digests;
	uint8_t (*bytes)[COLL_DIGEST_MAX];
};

static coll_status out_of_memory(struct coll_comm *comm)
{
	return coll_comm_lose(comm, COLL_ERR_MEMORY, comm->rank, "out of memory for the topology of the hosts");
}

static coll_status exchange(struct coll_comm *comm, struct exchange *x)
{
	const size_t n = (size_t)comm->size;
	struct coll_inside_info mine;
	cpu_set_t cpus;
	coll_status st;

	x->infos = malloc(n * sizeof(*x->infos));
	x->digest_of = malloc(2 * n * sizeof(*x->digest_of));
	if (!x->infos || !x->digest_of)
		return out_of_memory(comm);
	x->sender = x->digest_of + n;
	coll_host_digest_obtain(&x->host);
	CPU_ZERO(&cpus);
	(void)sched_getaffinity(0, sizeof(cpus), &cpus);
	mine = coll_inside_info_of(x->host.digest.bytes, x->host.digest.len_bytes, &cpus);
	st = gather(comm, &mine, x->infos, sizeof(mine));
	if (st != COLL_OK)
		return st;
	x->digests = coll_inside_digests(x->infos, comm->size, x->digest_of, x->sender);
	x->bytes = calloc(x->digests > 0 ? (size_t)x->digests : 1, sizeof(*x->bytes));
	if (!x->bytes)
		return out_of_memory(comm);
	for (int d = 0; d < x->digests && st == COLL_OK; d++) {
		const uint32_t len_bytes = x->infos[x->sender[d]].len_bytes;

		/* A damaged info is refused later, by all ranks. */
		if (len_bytes <= COLL_DIGEST_MAX)
			st = send_digest(comm, x->sender[d], x->host.digest.bytes, x->bytes[d], len_bytes);
	}
	return st;
}

static void say(const struct coll_comm *comm, struct coll_text *t, const char *line)
{
	coll_log(&comm->ctx->logger, COLL_LOG_INFO, "%s", line);
	coll_text_add(t, "%s\n", line);
}

static bool is_there(const struct coll_inside *s, enum coll_level level)
{
	for (int i = 0; i < s->levels; i++)
		if (s->level[i] == level)
			return true;
	return false;
}

/* Into the log, and kept for coll-info. */
static void report(const struct coll_comm *comm, const struct exchange *x, const struct coll_inside *s)
{
	const struct coll_host_digest *h = &x->host;
	struct coll_text t = {0};
	char line[800];
	int n;

	snprintf(line, sizeof(line),
	         "topology of this host: digest %016llx, %zu bytes, %s in %.1f ms%s%s; %d digest%s sent for %d ranks",
	         (unsigned long long)h->digest.hash, h->digest.len_bytes,
	         h->cached ? "from the file of this boot" : "read", h->load_ms, h->note[0] ? "; " : "", h->note,
	         x->digests, x->digests == 1 ? "" : "s", comm->size);
	say(comm, &t, line);
	n = snprintf(line, sizeof(line), "levels inside hosts:");
	for (int i = 0; i < COLL_INSIDE_LEVELS_MAX; i++) {
		const enum coll_level level = COLL_LEVEL_PACKAGE + (unsigned)i;

		n += snprintf(line + n, sizeof(line) - (size_t)n, "%s %s: %s%s", i ? ";" : "", coll_level_name(level),
		              is_there(s, level) ? "" : "no, ", s->why[i]);
	}
	say(comm, &t, line);
	if (s->mixed[0] >= 0) {
		snprintf(line, sizeof(line),
		         "ranks %d and %d of host %.60s see different machines: nothing is known inside this host",
		         s->mixed[0], s->mixed[1], coll_comm_peer_info(comm, s->mixed[0])->host_name);
		coll_text_add(&t, "%s\n", line);
		if (s->mixed[0] == comm->rank)
			coll_log(&comm->ctx->logger, COLL_LOG_INFO, "%s", line);
	}
	free(comm->ctx->inside_text);
	comm->ctx->inside_text = t.p;
}

void coll_survey_warn(const struct coll_comm *comm)
{
	const struct coll_settings *s = &comm->ctx->settings;
	const unsigned forced = coll_settings_levels(s);

	if (forced && comm->rank == 0 && strcmp(s->layout, "flat") == 0)
		coll_log(&comm->ctx->logger, COLL_LOG_WARN,
		         "[COLL-5109] COLL_LEVELS=%s has no effect with COLL_LAYOUT=flat", s->levels);
	else if (forced >> COLL_LEVEL_SITE & 1 && comm->rank == 0 && !comm->ctx->sites)
		coll_log(&comm->ctx->logger, COLL_LOG_WARN,
		         "[COLL-5109] COLL_LEVELS=%s: there is no level site without COLL_SITE", s->levels);
}

static void warn_of_missing(const struct coll_comm *comm, const struct coll_inside *s)
{
	const unsigned forced = coll_settings_levels(&comm->ctx->settings);

	for (int i = 0; i < COLL_INSIDE_LEVELS_MAX && comm->rank == 0; i++) {
		const enum coll_level level = COLL_LEVEL_PACKAGE + (unsigned)i;

		if (forced >> level & 1 && !is_there(s, level))
			coll_log(&comm->ctx->logger, COLL_LOG_WARN,
			         "[COLL-5109] COLL_LEVELS=%s: there is no level %s here: %s",
			         comm->ctx->settings.levels, coll_level_name(level), s->why[i]);
	}
}

/* The levels that were found become those of the context, by process. */
static coll_status keep(struct coll_comm *comm, const struct coll_inside *s)
{
	struct coll_context *ctx = comm->ctx;

	for (int i = 0; i < s->levels; i++) {
		uint32_t *group_of = calloc((size_t)ctx->size, sizeof(*group_of));

		if (!group_of)
			return out_of_memory(comm);
		for (int r = 0; r < comm->size; r++)
			group_of[coll_comm_process(comm, r)] = s->group_of[i][r];
		ctx->inside[ctx->ninside++] = (struct coll_inside_level){coll_level_name(s->level[i]), group_of};
	}
	return COLL_OK;
}

static coll_status derive(struct coll_comm *comm, const struct exchange *x)
{
	const struct coll_inside_in in = {.ranks = comm->size,
	                                  .hosts = (int)comm->rank_map.hosts,
	                                  .host_of = comm->rank_map.host_of,
	                                  .infos = x->infos,
	                                  .digests = x->digests,
	                                  .digest_of = x->digest_of,
	                                  .sender = x->sender,
	                                  .bytes = (const uint8_t(*)[COLL_DIGEST_MAX])x->bytes,
	                                  .forced = coll_settings_levels(&comm->ctx->settings)};
	char why[240], text[300];
	struct coll_inside s;
	int culprit;
	coll_status st;

	if (!coll_inside_find(&in, &s, &culprit, why, sizeof(why))) {
		if (culprit < 0)
			return out_of_memory(comm);
		snprintf(text, sizeof(text), "[COLL-3204] %s", why);
		return coll_comm_lose(comm, COLL_ERR_CORRUPT, culprit, text);
	}
	st = keep(comm, &s);
	if (st == COLL_OK) {
		report(comm, x, &s);
		warn_of_missing(comm, &s);
	}
	coll_inside_free(&s);
	return st;
}

coll_status coll_survey_run(struct coll_comm *comm)
{
	const struct usual usual = begin(comm);
	struct exchange *x = calloc(1, sizeof(*x));
	coll_status st = x ? exchange(comm, x) : out_of_memory(comm);

	end(comm, &usual);
	if (st == COLL_OK)
		st = derive(comm, x);
	if (x) {
		free(x->infos);
		free(x->digest_of);
		free(x->bytes);
	}
	free(x);
	return st;
}

coll_status coll_survey_compare(struct coll_comm *comm, const struct coll_layout *layout)
{
	const struct coll_inside_fingerprint mine = coll_inside_fingerprint_of(layout);
	struct coll_inside_fingerprint *all = malloc((size_t)comm->size * sizeof(*all));
	const struct usual usual = begin(comm);
	coll_status st = all ? gather(comm, &mine, all, sizeof(mine)) : out_of_memory(comm);
	const char *level;
	char text[160];
	int other;

	end(comm, &usual);
	if (st == COLL_OK && (other = coll_inside_compare(all, comm->size, &level)) >= 0) {
		snprintf(text, sizeof(text),
		         "[COLL-3205] ranks 0 and %d derive different layouts: the first difference is in level %s",
		         other, level);
		st = coll_comm_lose(comm, COLL_ERR_CORRUPT, other, text);
	}
	free(all);
	return st;
}

coll_status coll_survey_gather(struct coll_comm *comm, const void *in, void *out, size_t len_bytes)
{
	const struct usual usual = begin(comm);
	const coll_status st = gather(comm, in, out, len_bytes);

	end(comm, &usual);
	return st;
}

coll_status coll_survey_send(struct coll_comm *comm, int root, void *bytes, size_t len_bytes)
{
	const struct usual usual = begin(comm);
	const coll_status st = send_digest(comm, root, bytes, bytes, len_bytes);

	end(comm, &usual);
	return st;
}

void coll_survey_describe(const struct coll_comm *comm, char *buf, size_t len_bytes)
{
	char layout[96] = "flat";

	if (comm->layout)
		coll_layout_print(comm->layout, layout, sizeof(layout));
	snprintf(buf, len_bytes, "layout: %s\n%s", layout,
	         comm->ctx->inside_text
	                 ? comm->ctx->inside_text
	                 : "levels inside hosts: not looked for (one host, few ranks on each, or COLL_LAYOUT "
	                   "or COLL_LEVELS)\n");
}
