/*
 * Call records: see record.h for the order of memory accesses.
 */
#include "comm/record.h"

#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static_assert(sizeof(struct coll_record) % 8 == 0, "a record is whole words");

void coll_record_publish(struct coll_record_box *box, const struct coll_record *r)
{
	uint64_t words[COLL_RECORD_WORDS];
	uint32_t v = atomic_load_explicit(&box->version, memory_order_relaxed);

	memcpy(words, r, sizeof(words));
	atomic_store_explicit(&box->version, v + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	for (int i = 0; i < COLL_RECORD_WORDS; i++)
		atomic_store_explicit(&box->word[i], words[i], memory_order_relaxed);
	atomic_store_explicit(&box->version, v + 2, memory_order_release);
}

bool coll_record_read(const struct coll_record_box *box, struct coll_record *r)
{
	for (int tries = 0; tries < 100; tries++) {
		uint64_t words[COLL_RECORD_WORDS];
		uint32_t v = atomic_load_explicit(&box->version, memory_order_acquire);

		for (int i = 0; i < COLL_RECORD_WORDS; i++)
			words[i] = atomic_load_explicit(&box->word[i], memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		if (v % 2 == 0 && v == atomic_load_explicit(&box->version, memory_order_relaxed)) {
			memcpy(r, words, sizeof(*r));
			return true;
		}
	}
	return false;
}

static const char *const call_names[] = {"comm_split", "comm_duplicate", "comm_create_from_ranks", "comm_destroy"};
static_assert(sizeof(call_names) / sizeof(call_names[0]) == COLL_RECORD_KIND_END - COLL_RECORD_SPLIT,
              "a name for every kind");

const char *coll_record_kind_name(uint8_t kind)
{
	if (kind >= COLL_RECORD_SPLIT)
		return kind < COLL_RECORD_KIND_END ? call_names[kind - COLL_RECORD_SPLIT] : NULL;
	return coll_plan_kind_name((enum coll_kind)kind);
}

void coll_record_describe(const struct coll_record *r, char *buf, size_t len_bytes)
{
	const char *kind = coll_record_kind_name(r->kind);
	const char *type = coll_dtype_name((coll_dtype)r->type);
	const char *op = coll_op_name(r->op);

	/* Messages between pairs are not numbered on the communicator. */
	if (r->kind == COLL_KIND_SEND_RECV && r->active && type)
		snprintf(buf, len_bytes, "%s(count=%llu, %s, peer=%d)", kind, (unsigned long long)r->count, type,
		         r->root);
	else if (r->flags & COLL_RECORD_GONE)
		snprintf(buf, len_bytes, "comm_destroy, which is over");
	else if (r->sequence == 0)
		snprintf(buf, len_bytes, "no call yet");
	else if (!kind || !type)
		snprintf(buf, len_bytes, "an unknown call number %llu", (unsigned long long)r->sequence);
	else if (r->kind >= COLL_RECORD_SPLIT)
		snprintf(buf, len_bytes, "%s number %llu", kind, (unsigned long long)r->sequence);
	else if (coll_plan_kind_reduces((enum coll_kind)r->kind))
		snprintf(buf, len_bytes, "%s(count=%llu, %s, %s, root=%d) number %llu", kind,
		         (unsigned long long)r->count, type, op ? op : "user op", r->root,
		         (unsigned long long)r->sequence);
	else
		snprintf(buf, len_bytes, "%s(count=%llu, %s, root=%d) number %llu", kind, (unsigned long long)r->count,
		         type, r->root, (unsigned long long)r->sequence);
}
