/*
 * The check of payloads between hosts: behind each piece of a payload goes its CRC-32C. See check.c.
 */
#ifndef COLL_TRANSPORTS_TCP_CHECK_H
#define COLL_TRANSPORTS_TCP_CHECK_H

#include <sys/uio.h>

#include "transports/tcp/tcp.h"

/* Settings, and where this process is. */
void coll_tcp_check_open(struct tcp_inst *in);

/* What checks the payloads of a link to the sender of this message, both ends alike; NULL: nothing does. */
coll_crc32c_fn coll_tcp_check_between(const struct tcp_inst *in, const struct coll_tcp_hello *peer);

/* Bytes of a frame on the wire behind its head. */
size_t coll_tcp_check_body(const struct tcp_link *l, uint32_t len_bytes);

/* ---- out: link's lock held --------------------------------------------- */

/* So many entries of the queue become at most 3 * TCP_CHECK_PIECES pieces, up to twice TCP_CHECK_BYTES and the rest of
 * a piece of payload. Returns how many; *asked: their bytes. */
int coll_tcp_check_gather(struct tcp_link *l, uint32_t entries, struct iovec *iov, size_t *asked);

/* What goes behind a frame that is no longer than a piece and sent before any other. */
void *coll_tcp_check_one(struct tcp_link *l, const struct tcp_entry *e);

/* The first of the queue, of which sent bytes had gone before, and n more now: before the queue moves. */
void coll_tcp_check_sent(struct tcp_link *l, size_t n);

/* ---- in: link's lock held ---------------------------------------------- */

/* The payload of into_head is to come. */
void coll_tcp_check_begin(struct tcp_link *l);

/* n bytes of it have come, and lie there. */
void coll_tcp_check_came(struct tcp_link *l, const char *bytes, uint32_t n);

/* The check of a piece that is here; false: it is another, *wrong says how. */
bool coll_tcp_check_end(struct tcp_link *l, const char trailer[TCP_TRAILER_BYTES], char *wrong, size_t wrong_bytes);

#endif
