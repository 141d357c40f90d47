/*
 * The check of payloads (COLL_CHECK=all). Behind the head of a frame stand the CRC-32Cs of its pieces: 256 KiB or what
 * is left, or an eighth of a frame of more than 2 MiB. They travel in the message that brings the head, so whoever sees
 * the frame has them. The sender computes them as it builds the work requests, the receiver where the payload lies:
 * in its slot, or in announced memory. That is host memory always, since memory of other kinds is refused.
 *
 * Each begins with the CRC of the head, which has the number of the frame, and the place of the piece: a piece of
 * another frame, or one that was not written, does not pass.
 */
#include "transports/rdma/sums.h"

#include <stdio.h>

enum { PIECE_BYTES = 256 * 1024, SUMS_MAX = 8 };

static_assert(sizeof(struct coll_rdma_head) + SUMS_MAX * sizeof(uint32_t) == RDMA_TAIL_BYTES, "they fit");

void coll_rdma_sums_open(struct rdma_inst *in)
{
	in->check = strcmp(in->env.setting(in->env.ctx, "COLL_CHECK"), "all") == 0 ? coll_crc32c_best() : NULL;
}

static uint32_t piece_bytes(uint32_t len_bytes)
{
	return len_bytes / SUMS_MAX < PIECE_BYTES ? PIECE_BYTES : len_bytes / SUMS_MAX + 1;
}

/* One at least: of an empty frame the head is checked. */
static uint32_t pieces_of(uint32_t len_bytes)
{
	return len_bytes == 0 ? 1 : (len_bytes - 1) / piece_bytes(len_bytes) + 1;
}

size_t coll_rdma_sums_bytes(uint32_t len_bytes)
{
	return pieces_of(len_bytes) * sizeof(uint32_t);
}

/* Of the piece that begins there; *end: where it ends. */
static uint32_t sum_at(const struct rdma_inst *in, const struct coll_rdma_head *head, const char *payload, uint32_t at,
                       uint32_t *end)
{
	const uint32_t left = head->frame.len_bytes - at, most = piece_bytes(head->frame.len_bytes);

	*end = at + (left < most ? left : most);
	return in->check(in->check(at, head, sizeof(*head)), payload + at, *end - at);
}

void coll_rdma_sums_put(const struct rdma_inst *in, struct coll_rdma_head *head, const char *payload)
{
	uint32_t *sums = (uint32_t *)(head + 1), end = 0;

	for (uint32_t i = 0; i < pieces_of(head->frame.len_bytes); i++)
		sums[i] = sum_at(in, head, payload, end, &end);
}

bool coll_rdma_sums_pass(const struct rdma_inst *in, const struct coll_rdma_head *head, const void *sums,
                         const char *payload, char *wrong, size_t wrong_bytes)
{
	const uint32_t pieces = pieces_of(head->frame.len_bytes);
	uint32_t begin, end = 0, sent;

	for (uint32_t i = 0; i < pieces; i++) {
		const uint32_t found = sum_at(in, head, payload, begin = end, &end);

		memcpy(&sent, (const char *)sums + i * sizeof(sent), sizeof(sent));
		if (found == sent)
			continue;
		if (wrong)
			snprintf(wrong, wrong_bytes,
			         "bytes %u to %u of a frame of %u fail their check: CRC-32C %08x, sent as %08x", begin,
			         end, head->frame.len_bytes, found, sent);
		return false;
	}
	return true;
}
