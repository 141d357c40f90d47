/*
 * What all ranks of a job must have in common: see check_peers.h.
 */
#include "context/check_peers.h"

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

coll_status coll_context_check_peers(const struct coll_context *c, struct coll_error_box *err)
{
	for (int r = 0; r < c->size; r++) {
		const struct coll_peer_info *info = &c->peer_infos[r];

		if (info->magic != COLL_PEER_INFO_MAGIC || info->version != COLL_PEER_INFO_VERSION)
			return coll_error_set(err, COLL_ERR_BOOTSTRAP,
			                      "[COLL-4204] rank %d runs a different version of this library", r);
		if (info->rank != r || info->size != c->size)
			return coll_error_set(err, COLL_ERR_BOOTSTRAP,
			                      "rank %d reports that it is rank %d of %d, rank %d reports a job of %d",
			                      r, info->rank, info->size, c->rank, c->size);
		if (check_settings(info, &c->peer_infos[0], err) != COLL_OK)
			return COLL_ERR_CONFIG;
	}
	return COLL_OK;
}
