/*
 * See one_host.h. A process keeps the smallest hashes of its addresses. Invariant: each answer is a function of the two
 * peer infos, in either order.
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

/*
 * Each has an address that the other lacks. Between the starts of two processes of one host an address comes or goes,
 * so one of them may have more. What is greater than the last of a full list was left out of it, perhaps.
 */
static bool differ(const uint32_t a[COLL_HOST_MARKS], const uint32_t b[COLL_HOST_MARKS])
{
	bool only_a = false, only_b = false;
	int i = 0, k = 0;

	while (i < COLL_HOST_MARKS && k < COLL_HOST_MARKS && (a[i] || b[k])) {
		const bool first = a[i] && (!b[k] || a[i] <= b[k]), second = b[k] && (!a[i] || b[k] <= a[i]);

		only_a = only_a || !second;
		only_b = only_b || !first;
		i += first;
		k += second;
	}
	return only_a && only_b;
}

bool coll_one_host(const struct coll_peer_info *a, const struct coll_peer_info *b)
{
	return strncmp(a->host_id, b->host_id, sizeof(a->host_id)) == 0 && !differ(a->marks, b->marks);
}

bool coll_one_network(const struct coll_peer_info *a, const struct coll_peer_info *b)
{
	return a->name_space && a->name_space == b->name_space && !differ(a->marks, b->marks);
}

bool coll_one_machine(const struct coll_peer_info *a, const struct coll_peer_info *b)
{
	return a->machine == b->machine && !coll_copies(a, b);
}

bool coll_copies(const struct coll_peer_info *a, const struct coll_peer_info *b)
{
	return a->name_space && a->name_space == b->name_space && differ(a->marks, b->marks);
}
