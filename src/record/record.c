/*
 * Call records: see record.h for the order of memory accesses.
 */
#include "record/record.h"

#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static_assert(sizeof(struct coll_record) % 8 == 0, "a record is whole words");

enum { WORDS_MAX = 16 };
static_assert(sizeof(struct coll_record) <= WORDS_MAX * sizeof(uint64_t), "a record fits");

void coll_words_publish(_Atomic uint32_t *version, _Atomic uint64_t *words, const void *from, int n)
{
	const uint32_t v = atomic_load_explicit(version, memory_order_relaxed);
	uint64_t copy[WORDS_MAX];

	memcpy(copy, from, (size_t)n * sizeof(copy[0]));
	atomic_store_explicit(version, v + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	for (int i = 0; i < n; i++)
		atomic_store_explicit(&words[i], copy[i], memory_order_relaxed);
	atomic_store_explicit(version, v + 2, memory_order_release);
}

bool coll_words_read(const _Atomic uint32_t *version, const _Atomic uint64_t *words, void *to, int n)
{
	for (int tries = 0; tries < 100; tries++) {
		uint64_t copy[WORDS_MAX];
		const uint32_t v = atomic_load_explicit(version, memory_order_acquire);

		for (int i = 0; i < n; i++)
			copy[i] = atomic_load_explicit(&words[i], memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		if (v % 2 == 0 && v == atomic_load_explicit(version, memory_order_relaxed)) {
			memcpy(to, copy, (size_t)n * sizeof(copy[0]));
			return true;
		}
	}
	return false;
}

void coll_record_publish(struct coll_record_box *box, const struct coll_record *r)
{
	coll_words_publish(&box->version, box->word, r, COLL_RECORD_WORDS);
}

bool coll_record_read(const struct coll_record_box *box, struct coll_record *r)
{
	return coll_words_read(&box->version, box->word, r, COLL_RECORD_WORDS);
}

static const char *const call_names[] = {"comm_split",   "comm_duplicate", "comm_create_from_ranks",
                                         "comm_destroy", "comm_create",    "comm_create_group"};
static_assert(sizeof(call_names) / sizeof(call_names[0]) == COLL_RECORD_KIND_END - COLL_RECORD_SPLIT,
              "a name for every kind");

const char *coll_record_kind_name(uint8_t kind)
{
	if (kind >= COLL_RECORD_SPLIT)
		return kind < COLL_RECORD_KIND_END ? call_names[kind - COLL_RECORD_SPLIT] : NULL;
	return coll_plan_kind_name((enum coll_kind)kind);
}

const char *coll_record_message_name(uint8_t op)
{
	static const char *const names[COLL_MESSAGE_END] = {"send",     "recv",  "send_recv", "send_tag",
	                                                    "recv_tag", "irecv", "probe"};

	return names[op < COLL_MESSAGE_END ? op : COLL_MESSAGE_SEND_RECV];
}

/* Messages between pairs are not numbered on the communicator. */
static void describe_message(const struct coll_record *r, char *buf, size_t len_bytes)
{
	const char *type = coll_dtype_name((coll_dtype)r->type);
	char peer[24] = "any source", tag[24] = "";

	if (r->root >= 0)
		snprintf(peer, sizeof(peer), "peer=%d", r->root);
	if (coll_message_has_tag(r->op) && (int32_t)r->signature < 0)
		snprintf(tag, sizeof(tag), ", any tag");
	else if (coll_message_has_tag(r->op))
		snprintf(tag, sizeof(tag), ", tag=%d", (int32_t)r->signature);
	if (r->op == COLL_MESSAGE_PROBE)
		snprintf(buf, len_bytes, "probe(%s%s)", peer, tag);
	else
		snprintf(buf, len_bytes, "%s(count=%llu, %s, %s%s)", coll_record_message_name(r->op),
		         (unsigned long long)r->count, type ? type : "?", peer, tag);
}

static void describe_count(const struct coll_record *r, char *buf, size_t len_bytes)
{
	const unsigned long long count = r->count;

	if (r->flags & COLL_RECORD_PAIRWISE)
		snprintf(buf, len_bytes, "%s", "");
	else
		snprintf(buf, len_bytes, "%scount=%llu%s, ", r->flags & COLL_RECORD_RAGGED ? "largest " : "", count,
		         r->flags & COLL_RECORD_MERGED ? " in several calls of a group" : "");
}

/* What of a call must be equal on all ranks. */
static void describe_call(const struct coll_record *r, const char *kind, const char *type, char *buf, size_t len_bytes)
{
	const enum coll_kind k = (enum coll_kind)r->kind;
	const char *v = r->flags & (COLL_RECORD_RAGGED | COLL_RECORD_PAIRWISE) ? "v" : "";
	const char *graph = r->flags & COLL_RECORD_CAPTURED ? " of its graphs" : "";
	char count[64], op[32] = "", root[24] = "";

	describe_count(r, count, sizeof(count));
	if (coll_plan_kind_reduces(k) && coll_op_name(r->op))
		snprintf(op, sizeof(op), ", %s", coll_op_name(r->op));
	else if (coll_plan_kind_reduces(k))
		snprintf(op, sizeof(op), ", operation %u", r->op);
	if (k == COLL_KIND_BROADCAST || k == COLL_KIND_REDUCE || k == COLL_KIND_GATHER || k == COLL_KIND_SCATTER)
		snprintf(root, sizeof(root), ", root=%d", r->root);
	if (k == COLL_KIND_BARRIER)
		snprintf(buf, len_bytes, "%s number %llu%s", kind, (unsigned long long)r->sequence, graph);
	else
		snprintf(buf, len_bytes, "%s%s(%s%s%s%s) number %llu%s", kind, v, count, type, op, root,
		         (unsigned long long)r->sequence, graph);
}

/* What the call is, without whether it is made or prepared. */
static void describe(const struct coll_record *r, char *buf, size_t len_bytes)
{
	const char *kind = coll_record_kind_name(r->kind);
	const char *type = coll_dtype_name((coll_dtype)r->type);

	if (r->flags & COLL_RECORD_GONE)
		snprintf(buf, len_bytes, "comm_destroy, which is over");
	else if (r->kind == COLL_KIND_SEND_RECV)
		describe_message(r, buf, len_bytes);
	else if (r->sequence == 0)
		snprintf(buf, len_bytes, "no call yet");
	else if (!kind || !type)
		snprintf(buf, len_bytes, "an unknown call number %llu", (unsigned long long)r->sequence);
	else if (r->kind >= COLL_RECORD_SPLIT)
		snprintf(buf, len_bytes, "%s number %llu", kind, (unsigned long long)r->sequence);
	else
		describe_call(r, kind, type, buf, len_bytes);
}

void coll_record_describe(const struct coll_record *r, char *buf, size_t len_bytes)
{
	const int n = r->flags & COLL_RECORD_PREPARING ? snprintf(buf, len_bytes, "the preparation of ") : 0;

	describe(r, buf + n, len_bytes - (size_t)n);
}
