/*
 * What the messages of a rendezvous say: a failure as the body of a frame, and ranks in words. Pure.
 */
#include <stdio.h>
#include <string.h>

#include "bootstrap/rendezvous.h"
#include "bootstrap/rendezvous_state.h"
#include "bootstrap/wire.h"

size_t pack_failure(unsigned char *buf, size_t cap, coll_status status, int rank, const char *text)
{
	const struct failure f = {status, rank};
	const size_t n = strnlen(text, cap - sizeof(f));

	memcpy(buf, &f, sizeof(f));
	memcpy(buf + sizeof(f), text, n);
	return sizeof(f) + n;
}

bool unpack_failure(const struct coll_wire_frame *f, coll_status *status, int *rank, char *text, size_t text_bytes)
{
	struct failure b;
	size_t n;

	if (f->len_bytes < sizeof(b))
		return false;
	memcpy(&b, f->body, sizeof(b));
	n = f->len_bytes - sizeof(b);
	if (n >= text_bytes)
		n = text_bytes - 1;
	memcpy(text, f->body + sizeof(b), n);
	text[n] = 0;
	*status = b.status > COLL_AGAIN ? (coll_status)b.status : COLL_ERR_BOOTSTRAP;
	*rank = b.rank;
	return true;
}

void name_ranks(char *buf, size_t len_bytes, int size, bool (*missing)(const void *arg, int rank), const void *arg)
{
	size_t at = 0;
	int named = 0, total = 0;

	for (int r = 0; r < size; r++)
		total += missing(arg, r);
	at += (size_t)snprintf(buf, len_bytes, total == 1 ? "rank" : "ranks");
	for (int r = 0; r < size && at + 48 < len_bytes; r++) {
		int last = r;

		if (!missing(arg, r))
			continue;
		while (last + 1 < size && missing(arg, last + 1))
			last++;
		at += (size_t)snprintf(buf + at, len_bytes - at, "%s %d", named ? "," : "", r);
		if (last > r)
			at += (size_t)snprintf(buf + at, len_bytes - at, "-%d", last);
		named += last - r + 1;
		r = last;
	}
	if (named < total)
		snprintf(buf + at, len_bytes - at, " and %d more", total - named);
}

const char *rank_name(char buf[32], int rank)
{
	if (rank == COLL_RENDEZVOUS_HOST)
		return "the maker of the id";
	snprintf(buf, 32, "rank %d", rank);
	return buf;
}
