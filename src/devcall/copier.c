/*
 * Copies between device memory and any host memory: see copier.h.
 *
 * A copy is made in pieces of one slot each. The device stores the number of the last piece that it has copied, so a
 * slot is filled, or read, while the others are under way.
 */
#include "devcall/copier.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/delay.h"
#include "base/limits.h"
#include "core/error.h"
#include "device/device.h"
#include "inflight/drive.h"

enum { SLOTS = 4, SLOT_BYTES = COLL_STAGE_SLOT_BYTES, PAGE = 4096 };

#define MEMORY_BYTES (PAGE + (size_t)SLOTS * SLOT_BYTES)

struct coll_copier {
	struct coll_device *device;
	void *memory;     /* a page with the word, then the slots */
	uint64_t address; /* of memory, as kernels see it */
	_Atomic uint32_t *word;
	coll_device_stream stream;
	atomic_flag taken;
	/* The rest belongs to the thread that has it. */
	uint32_t number; /* of the last piece that was enqueued */
	coll_status broken;
};

/* ---- Life ---- */

coll_status coll_copier_create(struct coll_context *ctx, struct coll_error_box *err)
{
	struct coll_device *d = ctx->device;
	struct coll_copier *k;
	coll_status st;

	if (!d)
		return COLL_OK;
	k = ctx->async->copier = calloc(1, sizeof(*k));
	if (!k)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for a device");
	k->device = d;
	/* Shared: after a fork, pages that the parent writes must stay those that the device has. */
	k->memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (k->memory == MAP_FAILED) {
		k->memory = NULL;
		return coll_error_set(err, COLL_ERR_MEMORY, "no memory for %zu bytes of staging", MEMORY_BYTES);
	}
	k->word = k->memory;
	st = d->table->pin(d, k->memory, MEMORY_BYTES, &k->address);
	if (st == COLL_OK)
		st = d->table->stream_create(d, &k->stream);
	if (st != COLL_OK)
		coll_device_error(d, err);
	return st;
}

void coll_copier_destroy(struct coll_context *ctx)
{
	struct coll_copier *k = ctx->async->copier;

	if (!k)
		return;
	ctx->async->copier = NULL;
	if (k->stream)
		k->device->table->stream_destroy(k->device, k->stream);
	/* A device that has failed says nothing about copies that were under way: it keeps the memory. */
	if (k->memory && (!k->address || coll_device_unpin(k->device, k->memory) == COLL_OK))
		munmap(k->memory, MEMORY_BYTES);
	free(k);
}

/* ---- One thread at a time ---- */

struct taker {
	struct coll_copier *k;
	bool has;
};

/* A wait may ask once more after the answer was yes. */
static bool try_take(void *arg)
{
	struct taker *t = arg;

	if (!t->has)
		t->has = !atomic_flag_test_and_set_explicit(&t->k->taken, memory_order_acquire);
	return t->has;
}

void coll_copier_take(struct coll_context *ctx)
{
	struct taker t = {.k = ctx->async->copier};

	coll_async_await(&ctx, 1, NULL, try_take, &t, -1);
}

void coll_copier_give(struct coll_context *ctx)
{
	atomic_flag_clear_explicit(&ctx->async->copier->taken, memory_order_release);
	coll_context_wake(ctx);
}

/* ---- Copies ---- */

struct piece {
	const struct coll_copier *k;
	uint32_t number;
};

/* Acquire: what the device has copied by then is seen. */
static bool is_copied(void *arg)
{
	const struct piece *p = arg;

	return (int32_t)(atomic_load_explicit(p->k->word, memory_order_acquire) - p->number) >= 0;
}

static coll_status await(struct coll_context *ctx, uint32_t number)
{
	struct coll_copier *k = ctx->async->copier;
	struct piece p = {k, number};

	while (k->broken == COLL_OK) {
		coll_status st = coll_async_await(&ctx, 1, NULL, is_copied, &p, COLL_DELAY_DEVICE_LOOK_MS);

		if (st != COLL_AGAIN)
			return st;
		k->broken = k->device->table->fault(k->device);
	}
	return k->broken;
}

static size_t piece_bytes(size_t i, size_t len_bytes)
{
	const size_t left = len_bytes - i * SLOT_BYTES;

	return left < SLOT_BYTES ? left : SLOT_BYTES;
}

/* Piece i between the device and its slot. The device stores its number behind it. */
static void enqueue(struct coll_copier *k, uint64_t device, size_t i, size_t len_bytes, bool fetches)
{
	const uint64_t slot = k->address + PAGE + i % SLOTS * SLOT_BYTES, user = device + i * SLOT_BYTES;
	const struct coll_device_piece piece = {
	        .dst = fetches ? slot : user, .src = fetches ? user : slot, .len_bytes = piece_bytes(i, len_bytes)};

	if (k->broken != COLL_OK)
		return;
	k->number++;
	if (fetches)
		k->broken = k->device->table->gather(k->device, k->stream, &piece, 1, k->address, k->number);
	else
		k->broken = k->device->table->scatter(k->device, k->stream, &piece, 1, 0, k->address, k->number);
}

static char *slot_of(const struct coll_copier *k, size_t i)
{
	return (char *)k->memory + PAGE + i % SLOTS * SLOT_BYTES;
}

static coll_status fetch(struct coll_context *ctx, char *host, uint64_t device, size_t len_bytes)
{
	struct coll_copier *k = ctx->async->copier;
	const size_t n = (len_bytes + SLOT_BYTES - 1) / SLOT_BYTES;
	const uint32_t first = k->number;
	coll_status st = COLL_OK;

	for (size_t i = 0; i < n && i < SLOTS; i++)
		enqueue(k, device, i, len_bytes, true);
	for (size_t i = 0; i < n && st == COLL_OK; i++) {
		st = await(ctx, first + (uint32_t)i + 1);
		if (st == COLL_OK)
			memcpy(host + i * SLOT_BYTES, slot_of(k, i), piece_bytes(i, len_bytes));
		if (st == COLL_OK && i + SLOTS < n)
			enqueue(k, device, i + SLOTS, len_bytes, true);
	}
	return st;
}

static coll_status bring(struct coll_context *ctx, uint64_t device, const char *host, size_t len_bytes)
{
	struct coll_copier *k = ctx->async->copier;
	const size_t n = (len_bytes + SLOT_BYTES - 1) / SLOT_BYTES;
	const uint32_t first = k->number;
	coll_status st = COLL_OK;

	for (size_t i = 0; i < n && st == COLL_OK; i++) {
		if (i >= SLOTS)
			st = await(ctx, first + (uint32_t)(i - SLOTS) + 1);
		if (st != COLL_OK)
			break;
		memcpy(slot_of(k, i), host + i * SLOT_BYTES, piece_bytes(i, len_bytes));
		enqueue(k, device, i, len_bytes, false);
	}
	return st == COLL_OK ? await(ctx, k->number) : st;
}

/* A device wakes nobody up: threads that wait must look. */
static void begin(struct coll_context *ctx)
{
	atomic_fetch_add_explicit(&ctx->async->staged, 1, memory_order_relaxed);
}

static void end(struct coll_context *ctx)
{
	atomic_fetch_sub_explicit(&ctx->async->staged, 1, memory_order_relaxed);
}

coll_status coll_copier_fetch(struct coll_context *ctx, void *host, const void *device, size_t len_bytes)
{
	coll_status st;

	begin(ctx);
	st = fetch(ctx, host, (uint64_t)(uintptr_t)device, len_bytes);
	end(ctx);
	return st;
}

coll_status coll_copier_bring(struct coll_context *ctx, void *device, const void *host, size_t len_bytes)
{
	coll_status st;

	begin(ctx);
	st = bring(ctx, (uint64_t)(uintptr_t)device, host, len_bytes);
	end(ctx);
	return st;
}
