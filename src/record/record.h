/*
 * The call record: what this rank is doing on a communicator, published when a
 * call starts and ends, read by the service thread at any time.
 *
 * One writer (the thread inside the call), any readers. It is a sequence lock
 * built from atomics: the writer makes version odd, writes the words, makes it
 * even again; a reader takes a copy only if version was even and unchanged. The
 * words are atomics with relaxed order, so the race is defined; the release store
 * of the odd version is followed by a release fence (the words may not move above
 * it), the even one is itself a release; the reader pairs with an acquire load
 * before and an acquire fence after reading the words.
 */
#ifndef COLL_RECORD_RECORD_H
#define COLL_RECORD_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/guards.h"

/* Calls that are no collective of a plan of their own. */
enum coll_record_kind {
	COLL_RECORD_SPLIT = 64,
	COLL_RECORD_DUPLICATE,
	COLL_RECORD_FROM_RANKS,
	COLL_RECORD_DESTROY, /* in the last barrier */
	COLL_RECORD_CREATE,  /* ranks exchange what their hosts are made of */
	COLL_RECORD_GROUP,   /* the members of a group wait for each other: the first call on it */
	COLL_RECORD_KIND_END
};

/* `op` of records of messages. Of those with a tag, `signature` is the tag, -1: any, and a root of -1 is any source. */
enum coll_record_message {
	COLL_MESSAGE_SEND,
	COLL_MESSAGE_RECV,
	COLL_MESSAGE_SEND_RECV,
	COLL_MESSAGE_SEND_TAG,
	COLL_MESSAGE_RECV_TAG,
	COLL_MESSAGE_IRECV, /* posted, perhaps long before anybody waits for it */
	COLL_MESSAGE_PROBE,
	COLL_MESSAGE_END
};
static inline bool coll_message_has_tag(uint8_t op)
{
	return op >= COLL_MESSAGE_SEND_TAG && op < COLL_MESSAGE_END;
}

enum coll_record_flag {
	COLL_RECORD_GONE = 1,      /* an answer: this process has destroyed the communicator */
	COLL_RECORD_PREPARING = 2, /* the call is prepared, not made */
	COLL_RECORD_RAGGED = 4,    /* blocks of different lengths, known to all */
	COLL_RECORD_PAIRWISE = 8,  /* known to their two ends only: see pair_counts.h */
	COLL_RECORD_MERGED = 16,   /* several calls of a group in one */
	COLL_RECORD_CAPTURED = 32  /* of a graph: its number is that of such calls */
};

/* Plain copy; travels in control messages. */
struct coll_record {
	uint64_t comm;     /* communicator id */
	uint64_t sequence; /* of the last call begun, from 1 */
	uint64_t count;
	uint32_t signature;
	uint32_t active; /* inside that call */
	uint8_t kind;    /* enum coll_kind, or enum coll_record_kind */
	uint8_t type;
	uint8_t op;
	uint8_t flags; /* enum coll_record_flag */
	int32_t root;
	int32_t waits_for; /* rank, -1 none */
	uint32_t pad2;
};

/* Whether whoever is in `theirs` has not come to `mine`: an earlier call, or one that is numbered apart. */
static inline bool coll_record_is_before(const struct coll_record *theirs, const struct coll_record *mine)
{
	return ((theirs->flags ^ mine->flags) & COLL_RECORD_CAPTURED) || theirs->sequence < mine->sequence;
}

enum { COLL_RECORD_WORDS = sizeof(struct coll_record) / 8 };

/* The words that change from call to call. */
enum {
	COLL_RECORD_SEQUENCE = offsetof(struct coll_record, sequence) / 8,
	COLL_RECORD_ACTIVE = offsetof(struct coll_record, active) / 8,
	COLL_RECORD_WAITS = offsetof(struct coll_record, waits_for) / 8
};

/* Two members of four bytes as the word they share; made from registers, since a load
 * that spans two fresh stores stalls. */
static inline uint64_t coll_record_pair(uint32_t first, uint32_t second)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (uint64_t)second << 32 | first;
#else
	return (uint64_t)first << 32 | second;
#endif
}

struct coll_record_box {
	_Atomic uint32_t version;
	_Atomic uint64_t word[COLL_RECORD_WORDS];
};

/* The same for any few words under a version. */
void coll_words_publish(_Atomic uint32_t *version, _Atomic uint64_t *words, const void *from, int n);
bool coll_words_read(const _Atomic uint32_t *version, const _Atomic uint64_t *words, void *to, int n);

void coll_record_publish(struct coll_record_box *box, const struct coll_record *r);
/* The call that *r was published for has ended: one word changes, which readers see
 * before or after. */
static inline void coll_record_retire(struct coll_record_box *box, struct coll_record *r)
{
	r->active = 0;
	if (!COLL_GUARDS)
		return;
	atomic_store_explicit(&box->word[COLL_RECORD_ACTIVE], coll_record_pair(r->signature, 0), memory_order_relaxed);
}

/* Publish *r, which differs from what the box holds in sequence, active and waits_for
 * at most. */
static inline void coll_record_again(struct coll_record_box *box, const struct coll_record *r)
{
	const uint32_t v = atomic_load_explicit(&box->version, memory_order_relaxed);

	if (!COLL_GUARDS)
		return;
	atomic_store_explicit(&box->version, v + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&box->word[COLL_RECORD_SEQUENCE], r->sequence, memory_order_relaxed);
	atomic_store_explicit(&box->word[COLL_RECORD_ACTIVE], coll_record_pair(r->signature, r->active),
	                      memory_order_relaxed);
	atomic_store_explicit(&box->word[COLL_RECORD_WAITS], coll_record_pair((uint32_t)r->waits_for, r->pad2),
	                      memory_order_relaxed);
	atomic_store_explicit(&box->version, v + 2, memory_order_release);
}

/* False when the writer kept writing meanwhile. */
bool coll_record_read(const struct coll_record_box *box, struct coll_record *r);

/* "all_reduce", "comm_split" ...; NULL when unknown. */
const char *coll_record_kind_name(uint8_t kind);

/* "send", "irecv" ...; for an unknown one, "send_recv". */
const char *coll_record_message_name(uint8_t op);

/* "all_reduce(count=8, f32, sum) number 12" */
void coll_record_describe(const struct coll_record *r, char *buf, size_t len_bytes);

#endif
