/*
 * The check of payloads. On a link between hosts each piece of a payload, 256 KiB or what is left of it, is followed by
 * its CRC-32C. The sender computes it just before the piece goes to the kernel, the receiver while the bytes come in,
 * so the piece is in the cache both times. The CRC begins with the check value of the head and the place of the piece:
 * a piece of another frame does not pass.
 *
 * Invariant of the way out: check_out holds the values of the first pieces of the queue that are computed and not sent
 * as a whole. None is computed twice. Invariant of the way in: a frame has arrived only
 * when all its pieces have passed. A taker gets bytes before that, while they are in the cache: its call fails if they
 * do not pass. Where a lost socket may end a frame in its middle, and the next one skips what was taken, it gets the
 * first `good` bytes only, which have passed.
 */
#include "transports/tcp/check.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

void coll_tcp_check_open(struct tcp_inst *in)
{
	const char *host = in->env.host_id ? in->env.host_id : "";
	const char *check = in->env.setting(in->env.ctx, "COLL_CHECK");

	in->place = (uint32_t)coll_hash_bytes(in->env.host_mark, host, strlen(host));
	in->check = strcmp(check, "none") == 0  ? TCP_CHECK_NONE
	            : strcmp(check, "all") == 0 ? TCP_CHECK_ALL
	                                        : TCP_CHECK_LINKS;
}

coll_crc32c_fn coll_tcp_check_between(const struct tcp_inst *in, const struct coll_tcp_hello *peer)
{
	const bool wanted = in->check == TCP_CHECK_ALL || (in->check == TCP_CHECK_LINKS && peer->place != in->place);

	return wanted ? coll_crc32c_best() : NULL;
}

static uint32_t pieces_of(uint32_t len_bytes)
{
	return (uint32_t)(((uint64_t)len_bytes + TCP_CHECK_BYTES - 1) / TCP_CHECK_BYTES);
}

size_t coll_tcp_check_body(const struct tcp_link *l, uint32_t len_bytes)
{
	return len_bytes + (l->check ? (size_t)pieces_of(len_bytes) * TCP_TRAILER_BYTES : 0);
}

/* What is left of a payload from there, and at most a piece. */
static uint32_t piece_at(uint32_t len_bytes, uint32_t at)
{
	return len_bytes - at < TCP_CHECK_BYTES ? len_bytes - at : TCP_CHECK_BYTES;
}

/* ---- out ----------------------------------------------------------------- */

static uint32_t value_of(const struct tcp_link *l, const struct tcp_entry *e, uint32_t at)
{
	return l->check(e->head.check + at, e->payload + at, piece_at(e->len_bytes, at));
}

void *coll_tcp_check_one(struct tcp_link *l, const struct tcp_entry *e)
{
	assert(l->check_count == 0 && e->len_bytes <= TCP_CHECK_BYTES);
	l->check_out[l->check_count++] = value_of(l, e, 0);
	return l->check_out;
}

static void add(struct iovec **iov, size_t *asked, const void *at, size_t len_bytes, size_t *skip)
{
	const size_t less = *skip < len_bytes ? *skip : len_bytes;

	*skip -= less;
	if (less == len_bytes)
		return;
	*(*iov)++ = (struct iovec){(char *)(uintptr_t)at + less, len_bytes - less};
	*asked += len_bytes - less;
}

int coll_tcp_check_gather(struct tcp_link *l, uint32_t entries, struct iovec *iov, size_t *asked)
{
	struct iovec *next = iov;
	uint32_t pieces = 0;
	size_t skip = l->sent;

	*asked = 0;
	for (uint32_t i = 0; i < entries && pieces < TCP_CHECK_PIECES && *asked < 2 * TCP_CHECK_BYTES; i++) {
		const struct tcp_entry *e = tcp_queue_at(l, i);

		add(&next, asked, &e->head, sizeof(e->head), &skip);
		for (uint32_t at = 0, n; at < e->len_bytes && pieces < TCP_CHECK_PIECES && *asked < 2 * TCP_CHECK_BYTES;
		     at += n) {
			n = piece_at(e->len_bytes, at);
			if (skip >= n + TCP_TRAILER_BYTES) {
				skip -= n + TCP_TRAILER_BYTES;
				continue;
			}
			if (pieces == l->check_count)
				l->check_out[l->check_count++] = value_of(l, e, at);
			add(&next, asked, e->payload + at, n, &skip);
			add(&next, asked, &l->check_out[pieces++], TCP_TRAILER_BYTES, &skip);
		}
	}
	return (int)(next - iov);
}

/* How many pieces are whole in the first bytes of an entry. */
static uint32_t pieces_in(const struct tcp_link *l, const struct tcp_entry *e, size_t bytes)
{
	if (bytes < sizeof(e->head))
		return 0;
	bytes -= sizeof(e->head);
	if (bytes >= coll_tcp_check_body(l, e->len_bytes))
		return pieces_of(e->len_bytes);
	return (uint32_t)(bytes / (TCP_CHECK_BYTES + TCP_TRAILER_BYTES));
}

void coll_tcp_check_sent(struct tcp_link *l, size_t n)
{
	uint32_t done = 0;

	for (size_t sent = l->sent, i = 0; n > 0; i++, sent = 0) {
		const struct tcp_entry *e = tcp_queue_at(l, (uint32_t)i);
		const size_t left = sizeof(e->head) + coll_tcp_check_body(l, e->len_bytes) - sent,
		             more = n < left ? n : left;

		done += pieces_in(l, e, sent + more) - pieces_in(l, e, sent);
		n -= more;
	}
	assert(done <= l->check_count);
	l->check_count -= done;
	memmove(l->check_out, l->check_out + done, l->check_count * sizeof(l->check_out[0]));
}

/* ---- in -------------------------------------------------------------------- */

static void begin_piece(struct tcp_link *l, uint32_t at)
{
	l->piece_left = l->check ? piece_at(l->into_head.len_bytes, at) : l->into_head.len_bytes;
	l->check_in = l->into_head.check + at;
	l->trailer = false;
}

void coll_tcp_check_begin(struct tcp_link *l)
{
	l->into_left = l->into_head.len_bytes;
	l->good = l->check && l->several ? 0 : l->into_left;
	l->passed = 0;
	begin_piece(l, 0);
}

void coll_tcp_check_came(struct tcp_link *l, const char *bytes, uint32_t n)
{
	l->into_left -= n;
	l->piece_left -= n;
	if (!l->check || n == 0)
		return;
	l->check_in = l->check(l->check_in, bytes, n);
	l->trailer = l->piece_left == 0;
}

bool coll_tcp_check_end(struct tcp_link *l, const char trailer[TCP_TRAILER_BYTES], char *wrong, size_t wrong_bytes)
{
	const uint32_t end = l->into_head.len_bytes - l->into_left;
	uint32_t sent;

	memcpy(&sent, trailer, sizeof(sent));
	if (sent != l->check_in) {
		snprintf(wrong, wrong_bytes,
		         "bytes %u to %u of a frame of %u fail their check: CRC-32C %08x, sent as %08x", l->passed, end,
		         l->into_head.len_bytes, l->check_in, sent);
		return false;
	}
	l->passed = end;
	if (l->good < end)
		l->good = end;
	begin_piece(l, end);
	return true;
}
