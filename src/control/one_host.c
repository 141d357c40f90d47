/*
 * See one_host.h. A process keeps the smallest hashes of its addresses: two processes of one host keep the same ones,
 * or nearly so if an address came or went between them.
 */
#include "control/one_host.h"

#include <string.h>

#include "base/hash.h"

/* Smaller ones first, each once; 0 is an empty place. */
static void insert(uint32_t marks[COLL_HOST_MARKS], uint32_t mark)
{
	int at = 0;

	while (at < COLL_HOST_MARKS && marks[at] != 0 && marks[at] < mark)
		at++;
	if (at == COLL_HOST_MARKS || marks[at] == mark)
		return;
	memmove(&marks[at + 1], &marks[at], (size_t)(COLL_HOST_MARKS - 1 - at) * sizeof(marks[0]));
	marks[at] = mark;
}

void coll_one_host_mark(struct coll_peer_info *info, const struct ifaddrs *all)
{
	struct coll_ips ips;

	memset(info->marks, 0, sizeof(info->marks));
	coll_ips_read(&ips, all, "");
	for (unsigned i = 0; i < ips.count; i++)
		if (!ips.at[i].loopback && !ips.at[i].bridge)
			insert(info->marks, (uint32_t)coll_hash_bytes(7, ips.at[i].bytes, sizeof(ips.at[i].bytes)) | 1);
}

bool coll_one_host(const struct coll_peer_info *a, const struct coll_peer_info *b)
{
	if (strncmp(a->host_id, b->host_id, sizeof(a->host_id)) != 0)
		return false;
	for (int i = 0; i < COLL_HOST_MARKS && a->marks[i]; i++)
		for (int k = 0; k < COLL_HOST_MARKS && b->marks[k]; k++)
			if (a->marks[i] == b->marks[k])
				return true;
	return !a->marks[0] || !b->marks[0];
}
