/*
 * The records of tests: see fake_record.h.
 */
#include "tests/fakes/fake_record.h"

#include "core/way_name.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct fake_record fake_record;

static struct coll_entry entries[COLL_RECORDER_ENTRIES];

void fake_record_reset(void)
{
	memset(entries, 0, sizeof(entries));
	fake_record = (struct fake_record){.waits_for = -1};
}

struct coll_record fake_record_of(uint64_t comm, uint8_t kind, uint64_t sequence, uint64_t count)
{
	return (struct coll_record){.comm = comm,
	                            .sequence = sequence,
	                            .count = count,
	                            .signature = (uint32_t)(kind * 1000 + count),
	                            .active = 1,
	                            .kind = kind,
	                            .waits_for = -1};
}

void fake_record_add(struct coll_recorder *r, const struct coll_op_record *op)
{
	assert(fake_record.nops < FAKE_OPS);
	r->entries = entries;
	fake_record.op[fake_record.nops++] = *op;
	atomic_store(&r->next, (uint64_t)fake_record.nops);
}

void coll_words_publish(_Atomic uint32_t *version, _Atomic uint64_t *words, const void *from, int n)
{
	memcpy((void *)words, from, (size_t)n * sizeof(uint64_t));
	*version += 2;
}

bool coll_words_read(const _Atomic uint32_t *version, const _Atomic uint64_t *words, void *to, int n)
{
	memcpy(to, (const void *)words, (size_t)n * sizeof(uint64_t));
	return true;
}

void coll_record_publish(struct coll_record_box *box, const struct coll_record *r)
{
	coll_words_publish(&box->version, box->word, r, COLL_RECORD_WORDS);
}

bool coll_record_read(const struct coll_record_box *box, struct coll_record *r)
{
	return coll_words_read(&box->version, box->word, r, COLL_RECORD_WORDS);
}

const char *coll_record_kind_name(uint8_t kind)
{
	static const char *const names[] = {"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"};

	return kind < 10 ? names[kind] : "k10+";
}

void coll_record_describe(const struct coll_record *r, char *buf, size_t len_bytes)
{
	if (r->count)
		snprintf(buf, len_bytes, "kind %d count %d number %d", r->kind, (int)r->count, (int)r->sequence);
	else
		snprintf(buf, len_bytes, "kind %d number %d", r->kind, (int)r->sequence);
}

bool coll_recorder_read(const struct coll_recorder *r, uint64_t index, uint64_t comm, struct coll_op_record *record)
{
	if (index >= (uint64_t)fake_record.nops)
		return false;
	*record = fake_record.op[index];
	record->comm = comm;
	record->index = index;
	return true;
}

bool coll_recorder_make_room(struct coll_recorder *r, uint64_t index, uint64_t what, uint64_t count, int32_t root)
{
	return true;
}

void coll_recorder_start(const struct coll_recorder *r, struct coll_entry *e)
{
	fake_record.started++;
}

void coll_recorder_waits(struct coll_entry *e, int32_t peer, uint32_t step, uint32_t lane)
{
	fake_record.waits++;
	fake_record.waits_for = peer;
}

void coll_op_record_call(const struct coll_op_record *op, struct coll_record *call)
{
	*call = (struct coll_record){.comm = op->comm,
	                             .sequence = op->sequence,
	                             .count = op->count,
	                             .signature = op->signature,
	                             .kind = op->kind,
	                             .type = op->type,
	                             .op = op->op,
	                             .root = op->root,
	                             .waits_for = -1};
}

/* All algorithms are one way. */
uint8_t coll_way_of_algo(const struct coll_algo *algo)
{
	return COLL_WAY_PLAN;
}

const char *coll_way_name(uint8_t way)
{
	return way == COLL_WAY_PLAN ? "a plan" : "a way";
}

const char *coll_way_text(uint8_t way)
{
	return "what it does";
}
