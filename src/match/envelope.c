/*
 * Envelopes: see envelope.h.
 */
#include "match/envelope.h"

#include "coll/coll.h"

_Static_assert(sizeof(struct coll_envelope) == 32, "no padding: every byte that is sent is set");

static const char *message_wrong(const struct coll_envelope *e, size_t payload_bytes, size_t eager_max)
{
	const size_t elem_bytes = coll_dtype_size((coll_dtype)e->type);
	size_t bytes;

	if (elem_bytes == 0 || e->tag < 0)
		return "type or tag of a message do not exist";
	if (__builtin_mul_overflow(e->count, elem_bytes, &bytes) || bytes > PTRDIFF_MAX)
		return "the length of a message overflows";
	if (e->kind == COLL_ENVELOPE_EAGER)
		return bytes != payload_bytes || bytes > eager_max || e->id ? "length of an eager message" : NULL;
	return bytes <= eager_max || e->id == 0 || payload_bytes > 0 ? "a message is offered that must be sent" : NULL;
}

const char *coll_envelope_wrong(const struct coll_envelope *e, size_t len_bytes, size_t eager_max)
{
	if (e->pad || e->pad2)
		return "unused bytes are not zero";
	switch (e->kind) {
	case COLL_ENVELOPE_EAGER:
	case COLL_ENVELOPE_OFFER: return message_wrong(e, len_bytes - sizeof(*e), eager_max);
	case COLL_ENVELOPE_PULL:
	case COLL_ENVELOPE_DROP:
	case COLL_ENVELOPE_CREDIT:
		return len_bytes != sizeof(*e) || e->type || e->tag || e->count ||
		                       (e->kind == COLL_ENVELOPE_CREDIT) != (e->id == 0)
		               ? "an answer says more than it may"
		               : NULL;
	default: return "its kind does not exist";
	}
}
