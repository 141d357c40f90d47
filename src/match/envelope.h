/*
 * Envelopes: what a frame of the envelope lane begins with. What a peer sends is checked here before it is used.
 */
#ifndef COLL_MATCH_ENVELOPE_H
#define COLL_MATCH_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum coll_envelope_kind {
	COLL_ENVELOPE_EAGER = 1, /* a message, with its payload behind the envelope */
	COLL_ENVELOPE_OFFER,     /* a message whose payload waits at its sender, under a number */
	COLL_ENVELOPE_PULL,      /* a receive has taken offer `id`: send its payload next */
	COLL_ENVELOPE_DROP,      /* a receive has taken offer `id`, but does not want its payload */
	COLL_ENVELOPE_CREDIT,    /* nothing but cells */
	COLL_ENVELOPE_END
};

/* Travels as it is: all processes of a job have the same byte order. */
struct coll_envelope {
	uint8_t kind;
	uint8_t type; /* coll_dtype of a message */
	uint16_t pad;
	int32_t tag;    /* of a message */
	uint32_t cells; /* of the pool, given back to the receiver of this frame */
	uint32_t pad2;
	uint64_t count; /* elements of a message */
	uint64_t id;    /* of an offer, from 1 */
};

/* Why this cannot have been sent by a rank that keeps the rules, in a frame of len_bytes; NULL: it can. */
const char *coll_envelope_wrong(const struct coll_envelope *e, size_t len_bytes, size_t eager_max);

#endif
