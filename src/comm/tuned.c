/*
 * See tuned.h. The text is sent as it is, so each rank reads the same numbers; whether it is taken rank 0 has decided.
 */
#include "comm/tuned.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errno_text.h"
#include "comm/facts.h"
#include "comm/survey.h"
#include "core/error.h"
#include "core/tuned.h"
#include "inflight/drive.h"
#include "topology/measured.h"

bool coll_comm_tuned_matters(const struct coll_comm *comm)
{
	return comm->ctx->settings.tune_file[0] && comm->rank_map.hosts > 1 && comm->size == comm->ctx->size;
}

static bool has_namesake(const struct coll_context *ctx, int process)
{
	for (int p = 0; p < ctx->size; p++)
		if (ctx->host_of[p] != ctx->host_of[process] &&
		    strcmp(ctx->peer_infos[p].host_name, ctx->peer_infos[process].host_name) == 0)
			return true;
	return false;
}

void coll_comm_tuned_name(const struct coll_context *ctx, int process, char *buf, size_t len_bytes)
{
	const struct coll_peer_info *info = &ctx->peer_infos[process];

	if (has_namesake(ctx, process))
		snprintf(buf, len_bytes, "%.*s", (int)strcspn(info->host_id, "/"), info->host_id);
	else
		snprintf(buf, len_bytes, "%s", info->host_name);
}

/* The text of a file; NULL with the reason. */
static char *read_file(const char *path, char *why, size_t why_bytes)
{
	FILE *f = fopen(path, "re");
	char *text = f ? malloc(COLL_TUNE_TEXT_MAX + 1) : NULL;
	size_t n;

	if (!text) {
		snprintf(why, why_bytes, "%.120s", f ? "out of memory" : coll_errno_text(errno).text);
		if (f)
			fclose(f);
		return NULL;
	}
	n = fread(text, 1, COLL_TUNE_TEXT_MAX + 1, f);
	fclose(f);
	text[n <= COLL_TUNE_TEXT_MAX ? n : 0] = '\0';
	if (n <= COLL_TUNE_TEXT_MAX && strlen(text) == n)
		return text;
	snprintf(why, why_bytes, "it is longer than %d bytes, or no text", COLL_TUNE_TEXT_MAX);
	free(text);
	return NULL;
}

/* What the table says of this job's hosts; NULL with the reason. */
static struct coll_tuned *judge(const struct coll_comm *comm, const struct coll_measured *t, char *why,
                                size_t why_bytes)
{
	const struct coll_context *ctx = comm->ctx;
	const struct coll_opened_transport *w = coll_comm_facts_transport(comm, true);
	struct coll_tuned *tuned = calloc(1, sizeof(*tuned) + ctx->hosts * sizeof(tuned->of[0]));
	char name[COLL_TUNE_NAME_BYTES];

	if (!tuned) {
		snprintf(why, why_bytes, "out of memory");
		return NULL;
	}
	tuned->hop_ns = t->hop_ns;
	for (int p = 0; p < ctx->size; p++) {
		const struct coll_measured_host *host;

		coll_comm_tuned_name(ctx, p, name, sizeof(name));
		host = coll_measured_find(t, name);
		if (!host || !w || strcmp(t->transport, w->table.name) != 0) {
			snprintf(why, why_bytes,
			         !host ? "host %.60s is not in it"
			               : "it is of transport %.60s, and this job uses another",
			         !host ? name : t->transport);
			free(tuned);
			return NULL;
		}
		tuned->of[ctx->host_of[p]] =
		        (struct coll_tuned_host){.mbps = host->out < host->in ? host->out : host->in,
		                                 .site = (uint32_t)(host->site < 0 ? 0 : host->site),
		                                 .site_mbps = host->site < 0 ? 0 : t->uplink[host->site]};
		tuned->sites |= tuned->of[ctx->host_of[p]].site != tuned->of[ctx->host_of[0]].site;
	}
	return tuned;
}

static struct coll_tuned *take(const struct coll_comm *comm, const char *text, char *why, size_t why_bytes)
{
	struct coll_tuned *tuned = NULL;
	struct coll_measured t;

	if (coll_measured_parse(text, &t, why, why_bytes)) {
		tuned = judge(comm, &t, why, why_bytes);
		if (tuned && comm->rank == 0)
			coll_log(&comm->ctx->logger, COLL_LOG_INFO, "links as measured %s, from COLL_TUNE_FILE=%s",
			         t.measured, comm->ctx->settings.tune_file);
		coll_measured_free(&t);
	}
	return tuned;
}

coll_status coll_comm_tuned_share(struct coll_comm *comm)
{
	struct coll_context *ctx = comm->ctx;
	const char *path = ctx->settings.tune_file;
	char *text = NULL, why[160] = "";
	uint32_t bytes = 0;
	coll_status st;

	if (comm->rank == 0) {
		text = read_file(path, why, sizeof(why));
		ctx->tuned = text ? take(comm, text, why, sizeof(why)) : NULL;
		if (!ctx->tuned)
			coll_log(&ctx->logger, COLL_LOG_WARN, "[COLL-5117] COLL_TUNE_FILE=%s is ignored: %s", path,
			         why);
		bytes = ctx->tuned ? (uint32_t)strlen(text) + 1 : 0;
	}
	st = coll_survey_send(comm, 0, &bytes, sizeof(bytes));
	if (st == COLL_OK && bytes > 0 && comm->rank != 0)
		text = bytes <= COLL_TUNE_TEXT_MAX + 1 ? calloc(1, bytes) : NULL;
	if (st == COLL_OK && bytes > 0 && !text)
		st = coll_comm_lose(comm, COLL_ERR_MEMORY, comm->rank, "out of memory for the table of measured links");
	if (st == COLL_OK && bytes > 0)
		st = coll_survey_send(comm, 0, text, bytes);
	if (st == COLL_OK && bytes > 0 && comm->rank != 0) {
		text[bytes - 1] = '\0';
		ctx->tuned = take(comm, text, why, sizeof(why));
		if (!ctx->tuned)
			st = coll_comm_lose(comm, COLL_ERR_MEMORY, comm->rank, why);
	}
	free(text);
	return st;
}
