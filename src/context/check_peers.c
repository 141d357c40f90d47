/*
 * What all ranks of a job must have in common: see check_peers.h.
 */
#include "context/check_peers.h"

#include <stdio.h>
#include <string.h>

#include "bootstrap/rendezvous.h"

static coll_status check_settings(const struct coll_peer_info *info, const struct coll_peer_info *first,
                                  struct coll_error_box *err)
{
	int at;
	const char *which = coll_settings_differing(&info->settings, &first->settings, &at);

	if (!which)
		return COLL_OK;
	return coll_error_set(err, COLL_ERR_CONFIG,
	                      "[COLL-1101] settings differ between rank 0 and rank %d: %s must be equal on all ranks "
	                      "(coll-info marks it 'agreed'), but is '%s' on rank 0 and '%s' on rank %d",
	                      info->rank, which, first->settings.value[at], info->settings.value[at], info->rank);
}

/* ---- Versions ---- */

enum { NAMES_ITSELF = 14, VERSION_TEXT_BYTES = 80, VERSIONS_NAMED = 4 };

/* The version of a rank in words. */
static void version_text(const struct coll_peer_info *info, char text[VERSION_TEXT_BYTES])
{
	if (info->magic != COLL_PEER_INFO_MAGIC)
		snprintf(text, VERSION_TEXT_BYTES, "an unknown version");
	else if (info->version < NAMES_ITSELF)
		snprintf(text, VERSION_TEXT_BYTES, "an older version (form %u)", info->version);
	else if (info->version != COLL_PEER_INFO_VERSION)
		snprintf(text, VERSION_TEXT_BYTES, "%.*s, form %u", COLL_LIBRARY_BYTES - 1, info->library,
		         info->version);
	else
		snprintf(text, VERSION_TEXT_BYTES, "%.*s", COLL_LIBRARY_BYTES - 1, info->library);
}

/* Equal words, but for a commit that one of them does not know: another commit may choose other plans, and only builds
 * inside the source tree have none. */
static bool together(const char *a, const char *b)
{
	const size_t n = strcspn(a, " ");

	return strcmp(a, b) == 0 || (n == strcspn(b, " ") && memcmp(a, b, n) == 0 && (!a[n] || !b[n]));
}

struct version {
	const struct coll_context *c;
	char text[VERSION_TEXT_BYTES];
};

static bool runs(const void *arg, int rank)
{
	const struct version *v = arg;
	char text[VERSION_TEXT_BYTES];

	version_text(&v->c->peer_infos[rank], text);
	return strcmp(text, v->text) == 0;
}

/* Each version, with the ranks that run it. */
static void name_versions(const struct coll_context *c, char *text, size_t len_bytes)
{
	struct version v[VERSIONS_NAMED];
	size_t at = 0;
	int n = 0;

	for (int r = 0; r < c->size && n < VERSIONS_NAMED && at < len_bytes; r++) {
		char ranks[96];
		bool named = false;

		for (int i = 0; i < n && !named; i++)
			named = runs(&v[i], r);
		if (named)
			continue;
		v[n].c = c;
		version_text(&c->peer_infos[r], v[n].text);
		name_ranks(ranks, sizeof(ranks), c->size, runs, &v[n]);
		at += (size_t)snprintf(
		        text + at, len_bytes - at, "%s%s on %s (first on host %.40s)", n ? "; " : "", v[n].text, ranks,
		        c->peer_infos[r].version == COLL_PEER_INFO_VERSION ? c->peer_infos[r].host_name : "?");
		n++;
	}
}

static coll_status check_versions(const struct coll_context *c, struct coll_error_box *err)
{
	struct version first = {.c = c};
	char text[VERSIONS_NAMED * 256];
	int known = 0;

	/* Compare with a rank that knows its commit. */
	while (known < c->size && !strchr(c->peer_infos[known].library, ' '))
		known++;
	version_text(&c->peer_infos[known < c->size ? known : 0], first.text);
	for (int r = 0; r < c->size; r++) {
		version_text(&c->peer_infos[r], text);
		if (c->peer_infos[r].version == COLL_PEER_INFO_VERSION && together(text, first.text))
			continue;
		name_versions(c, text, sizeof(text));
		return coll_error_set(err, COLL_ERR_BOOTSTRAP,
		                      "[COLL-4204] the ranks run different versions of this library: %s", text);
	}
	return COLL_OK;
}

coll_status coll_context_check_peers(const struct coll_context *c, struct coll_error_box *err)
{
	if (check_versions(c, err) != COLL_OK)
		return COLL_ERR_BOOTSTRAP;
	for (int r = 0; r < c->size; r++) {
		const struct coll_peer_info *info = &c->peer_infos[r];

		if (info->rank != r || info->size != c->size)
			return coll_error_set(err, COLL_ERR_BOOTSTRAP,
			                      "rank %d reports that it is rank %d of %d, rank %d reports a job of %d",
			                      r, info->rank, info->size, c->rank, c->size);
		if (check_settings(info, &c->peer_infos[0], err) != COLL_OK)
			return COLL_ERR_CONFIG;
	}
	return COLL_OK;
}
