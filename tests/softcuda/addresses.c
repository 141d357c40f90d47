/*
 * Device addresses. The arena is a range of addresses which the CPU cannot touch, and a file in
 * memory mapped a second time, at a fixed distance, where kernels and copies reach it. Addresses
 * are handed out in granules of 64 KiB, each range followed by a granule that is never used,
 * and the next search starts behind the last one, so that freed addresses stay unused for long.
 * The file begins with a mark per granule, which is odd while a cuMemAlloc block begins there:
 * a process that maps the block looks at the mark, and so notices that its owner has freed it.
 */
#include "tests/softcuda/soft.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRANULE_BITS = 16 };
#define GRANULE   ((size_t)1 << GRANULE_BITS)
#define ARENA_LEN ((size_t)32 << 30)
#define GRANULES  (ARENA_LEN >> GRANULE_BITS)
#define ALIGNMENT ((uintptr_t)2 << 20) /* of the arena: the largest that is asked for */

static struct {
	uintptr_t lo;
	char *touchable;
	int fd;
	size_t cursor;
	unsigned char *taken;
	_Atomic(struct soft_block *) *table; /* by granule */
} arena = {.fd = -1};

static void *map_or_die(size_t len, int prot, int flags, int fd)
{
	void *p = mmap(NULL, len, prot, flags | MAP_NORESERVE, fd, 0);

	if (p == MAP_FAILED) {
		perror("softcuda: mmap");
		abort();
	}
	madvise(p, len, MADV_DONTDUMP);
	return p;
}

static size_t granules(size_t len)
{
	return (len + GRANULE - 1) >> GRANULE_BITS;
}

static void arena_init(void)
{
	const int private = MAP_PRIVATE | MAP_ANONYMOUS;
	/* The rule's planted mistake: device memory that the CPU can touch. */
	const int prot = soft_planted(RULE_untouchable) ? PROT_READ | PROT_WRITE : PROT_NONE;

	arena.fd = memfd_create("softcuda", MFD_CLOEXEC);
	if (arena.fd < 0 || ftruncate(arena.fd, (off_t)ARENA_LEN)) {
		perror("softcuda: memfd");
		abort();
	}
	/* Not every kernel aligns large mappings. */
	arena.lo = ((uintptr_t)map_or_die(ARENA_LEN + ALIGNMENT, prot, private, -1) + ALIGNMENT - 1) & -ALIGNMENT;
	arena.touchable = map_or_die(ARENA_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, arena.fd);
	arena.taken = map_or_die(GRANULES, PROT_READ | PROT_WRITE, private, -1);
	arena.table = map_or_die(GRANULES * sizeof(*arena.table), PROT_READ | PROT_WRITE, private, -1);
	arena.cursor = granules(GRANULES * sizeof(uint32_t)); /* the marks */
	memset(arena.taken, 1, arena.cursor);
}

bool soft_address_holds(uintptr_t address)
{
	return address - arena.lo < ARENA_LEN && arena.lo;
}

int soft_address_fd(void)
{
	return arena.fd;
}

intptr_t soft_address_delta(void)
{
	return (intptr_t)((uintptr_t)arena.touchable - arena.lo);
}

size_t soft_address_offset(uintptr_t address)
{
	return address - arena.lo;
}

const _Atomic uint32_t *soft_address_mark(uintptr_t lo)
{
	return (_Atomic uint32_t *)arena.touchable + (soft_address_offset(lo) >> GRANULE_BITS);
}

void soft_address_toggle(uintptr_t lo)
{
	atomic_fetch_add((_Atomic uint32_t *)arena.touchable + (soft_address_offset(lo) >> GRANULE_BITS), 1);
}

uintptr_t soft_address_take(size_t len, size_t align)
{
	const size_t want = granules(len) + 1;

	for (size_t tried = 0, at = arena.cursor; tried <= GRANULES; tried++, at++) {
		size_t run = 0;

		if (at + want > GRANULES)
			at = 0;
		if (((arena.lo + (at << GRANULE_BITS)) & (align - 1)) != 0)
			continue;
		while (run < want && !arena.taken[at + run])
			run++;
		if (run < want) {
			at += run;
			tried += run;
			continue;
		}
		memset(arena.taken + at, 1, want);
		arena.cursor = at + want;
		return arena.lo + (at << GRANULE_BITS);
	}
	return 0;
}

void soft_address_give(uintptr_t lo, size_t len)
{
	const size_t offset = soft_address_offset(lo);

	memset(arena.taken + (offset >> GRANULE_BITS), 0, granules(len) + 1);
	(void)fallocate(arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
	                (off_t)(granules(len) << GRANULE_BITS));
}

bool soft_address_map(uintptr_t lo, size_t len, int fd, size_t offset)
{
	char *at = (char *)(lo + (uintptr_t)soft_address_delta());

	return mmap(at, granules(len) << GRANULE_BITS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
	            fd >= 0 ? fd : arena.fd, (off_t)(fd >= 0 ? offset : soft_address_offset(lo))) != MAP_FAILED;
}

/* ---- the block table ---- */

/* Host ranges by address: the current list is replaced, never changed, so that readers need no lock.
 * Old lists and blocks are kept: a reader may still look at them. */
struct host_list {
	struct host_list *before;
	size_t count;
	struct soft_block *block[];
};

static _Atomic(struct host_list *) host;
static struct soft_block *all;

void soft_memory_init(void)
{
	if (!arena.lo)
		arena_init();
}

static uintptr_t host_address(const struct soft_block *b)
{
	return b->lo + (b->aliased ? (uintptr_t)b->delta : 0);
}

static bool by_host(const struct soft_block *b)
{
	return b->kind == SOFT_HOST || b->kind == SOFT_REGISTERED || b->kind == SOFT_MANAGED;
}

static void host_replace(struct soft_block *add, const struct soft_block *drop)
{
	struct host_list *old = host;
	const size_t count = old ? old->count : 0;
	struct host_list *list = calloc(1, sizeof(*list) + (count + 1) * sizeof(list->block[0]));

	if (!list)
		abort();
	list->before = old;
	for (size_t i = 0; i < count; i++)
		if (old->block[i] != drop)
			list->block[list->count++] = old->block[i];
	if (add)
		list->block[list->count++] = add;
	for (size_t i = list->count; add && i > 1 && host_address(list->block[i - 2]) > host_address(add); i--) {
		list->block[i - 1] = list->block[i - 2];
		list->block[i - 2] = add;
	}
	atomic_store(&host, list);
}

struct soft_block *soft_host_block_at(uintptr_t address)
{
	const struct host_list *list = atomic_load(&host);
	size_t lo = 0, hi = list ? list->count : 0;

	while (lo < hi) {
		const size_t mid = (lo + hi) / 2;

		if (host_address(list->block[mid]) <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || address - host_address(list->block[lo - 1]) >= list->block[lo - 1]->len)
		return NULL;
	return list->block[lo - 1];
}

struct soft_block *soft_block_at(uintptr_t address)
{
	struct soft_block *b;

	if (!soft_address_holds(address)) {
		b = soft_host_block_at(address);
		return b && !b->aliased ? b : NULL;
	}
	b = atomic_load(&arena.table[soft_address_offset(address) >> GRANULE_BITS]);
	/* The planted mistake: a block reaches to the end of its last granule. */
	if (b && address - b->lo >= b->len &&
	    !(soft_planted(RULE_guard) && address - b->lo < granules(b->len) << GRANULE_BITS))
		return NULL;
	return b;
}

static void table_set(uintptr_t lo, size_t len, struct soft_block *b)
{
	const size_t first = soft_address_offset(lo) >> GRANULE_BITS;
	const size_t last = soft_address_offset(lo + len - 1) >> GRANULE_BITS;

	for (size_t i = first; i <= last; i++)
		atomic_store(&arena.table[i], b);
}

struct soft_block *soft_block_add(enum soft_kind kind, uintptr_t lo, size_t len, intptr_t delta, CUcontext ctx)
{
	struct soft_block *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->kind = kind;
	b->lo = lo;
	b->len = len;
	b->delta = delta;
	b->ctx = ctx;
	b->device = ctx ? ctx->device : CU_DEVICE_INVALID;
	b->id = ++soft.ids;
	b->live = true;
	b->aliased = kind == SOFT_REGISTERED && delta != 0;
	b->next = all;
	all = b;
	if (soft_address_holds(lo))
		table_set(lo, len, b);
	if (by_host(b))
		host_replace(b, NULL);
	return b;
}

void soft_block_remove(struct soft_block *b)
{
	if (!(b->kind == SOFT_ALLOC && soft_planted(RULE_freed))) {
		b->live = false;
		if (soft_address_holds(b->lo))
			table_set(b->lo, b->len, NULL);
	}
	if (by_host(b))
		host_replace(NULL, b);
}

bool soft_is_host(const struct soft_block *b)
{
	return b && (b->kind == SOFT_HOST || b->kind == SOFT_REGISTERED);
}

bool soft_may_access(const struct soft_block *b, CUcontext ctx)
{
	switch (b->kind) {
	case SOFT_HOST:
	case SOFT_MANAGED: return true;
	case SOFT_REGISTERED: return b->ctx == ctx || (b->flags & CU_MEMHOSTREGISTER_PORTABLE);
	case SOFT_VMM: return (b->access >> ctx->device & 1) || soft_planted(RULE_vmm_access);
	case SOFT_IPC:
		if (*b->owner_live != b->owner_mark && !soft_planted(RULE_ipc_freed))
			return false;
		if (soft_planted(RULE_ipc_dead_owner) && kill(b->owner, 0))
			return false;
		break;
	case SOFT_ALLOC: break;
	}
	if (b->ctx == ctx || soft_planted(RULE_other_device))
		return true;
	for (int i = 0; i < SOFT_DEVICES_MAX; i++)
		if (ctx->peers[i] == b->ctx)
			return true;
	return false;
}

void *soft_touch(CUcontext ctx, uintptr_t address, size_t len)
{
	struct soft_block *b = soft_block_at(address);

	/* Mappings that follow each other without a gap are one range. */
	for (uintptr_t at = address; b;) {
		const uintptr_t end = b->lo + b->len;

		if (!soft_may_access(b, ctx))
			return NULL;
		if (address + len <= end || (soft_planted(RULE_guard) && b->kind == SOFT_ALLOC))
			return (void *)(address + (uintptr_t)b->delta);
		if (b->kind != SOFT_VMM || end <= at)
			return NULL;
		at = end;
		b = soft_block_at(at);
		if (b && b->kind != SOFT_VMM)
			return NULL;
	}
	return NULL;
}

void soft_blocks_end(CUcontext ctx)
{
	for (struct soft_block *b = all; b; b = b->next)
		if (b->live && b->ctx == ctx && b->kind != SOFT_VMM)
			soft_memory_end(b);
}
