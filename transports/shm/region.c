/*
 * shm: memory that peers on this host map, so that a frame by reference is read where
 * it lies, with no copy and no system call.
 *
 * The owner makes it of a memfd and sends the descriptor to a peer the first time it
 * lends that peer a piece; until the mapping is there, the record's address serves. The
 * peer reads what a record names, and writes only where the owner offers to take a frame
 * (push.c), or as the two have agreed about memory that they use in place (share, reach).
 * When the owner frees a region the peer drops its mapping as soon as no view lies in it.
 */
#include "transports/shm/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "base/fork.h"
#include "transports/shm/segment.h"
#include "transports/shm/shm.h"
#include "transports/shm/wire.h"

enum { HUGE = 2 << 20, PAGE = 4096 };
static const uint64_t region_magic = 0x6e6f69676572736du;

/* ---- Owner ------------------------------------------------------------------------ */

/* Map at a multiple of a huge page, where large enough to gain from one. */
static char *map_aligned(int fd, size_t len, int prot)
{
	const size_t room = len >= HUGE ? len + HUGE : len;
	char *p = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *at;

	if (p == MAP_FAILED)
		return NULL;
	at = len >= HUGE ? (char *)(((uintptr_t)p + HUGE - 1) & ~(uintptr_t)(HUGE - 1)) : p;
	if (mmap(at, len, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		munmap(p, room);
		return NULL;
	}
	if (at > p)
		munmap(p, (size_t)(at - p));
	if (p + room > at + len)
		munmap(at + len, (size_t)(p + room - at - len));
	if (len >= HUGE)
		madvise(at, len, MADV_HUGEPAGE); /* a wish */
	return at;
}

/* A place nobody uses, so that peers find it by number. */
static bool take_place(struct shm_inst *in, struct shm_region *r)
{
	bool used[SHM_PLACES] = {false};

	for (const struct shm_region *o = in->regions; o; o = o->next)
		used[o->id % SHM_PLACES] = true;
	for (uint32_t place = 0; place < SHM_PLACES; place++) {
		if (!used[place]) {
			r->id = ++in->regions_made * SHM_PLACES + place;
			return true;
		}
	}
	return false;
}

coll_status coll_shm_mem_alloc(void *inst, size_t len_bytes, struct coll_memory *mem)
{
	struct shm_inst *in = inst;
	struct shm_region *r = calloc(1, sizeof(*r));
	bool placed;

	if (!r)
		return COLL_ERR_MEMORY;
	r->magic = region_magic;
	r->len = (len_bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
	r->fd = r->len >= len_bytes && r->len ? coll_shm_memfd(r->len) : -1;
	r->base = r->fd >= 0 ? map_aligned(r->fd, r->len, PROT_READ | PROT_WRITE) : NULL;
	pthread_mutex_lock(&in->lock);
	placed = r->base && take_place(in, r);
	if (placed) {
		r->next = in->regions;
		in->regions = r;
		atomic_fetch_add(&in->regions_now, 1);
	}
	pthread_mutex_unlock(&in->lock);
	if (!placed) { /* the caller uses plain memory */
		if (r->base)
			munmap(r->base, r->len);
		if (r->fd >= 0)
			coll_fd_close(r->fd);
		free(r);
		return COLL_ERR_UNSUPPORTED;
	}
	*mem = (struct coll_memory){.size = sizeof(*mem), .base = r->base, .len_bytes = len_bytes, .keys = r};
	return COLL_OK;
}

static void region_free(struct shm_region *r)
{
	munmap(r->base, r->len);
	if (r->fd >= 0)
		coll_fd_close(r->fd);
	r->magic = 0;
	free(r);
}

/* lock held: peers that know the region forget it. */
static void report_gone(struct shm_inst *in, const struct shm_region *r)
{
	struct shm_message m = coll_shm_message(SHM_UNREGION);

	m.region.id = r->id;
	for (struct shm_link *l = in->links; l; l = l->next) {
		_Atomic uint32_t *known = &l->announced[r->id % SHM_PLACES];

		if (atomic_load(known) == r->id) {
			atomic_store(known, 0);
			coll_shm_enqueue(l, &m, -1, false);
		}
	}
}

/* lock held */
static void unlist(struct shm_region **list, const struct shm_region *r)
{
	while (*list != r)
		list = &(*list)->next;
	*list = r->next;
}

/* lock held: some peer knows it by its place. */
static bool is_announced(const struct shm_inst *in, const struct shm_region *r)
{
	const struct shm_link *l = in->links;

	while (l && atomic_load(&l->announced[r->id % SHM_PLACES]) != r->id)
		l = l->next;
	return l != NULL;
}

/* Offers have descriptors of their own. One that was announced keeps its place until it is freed: it may be loaned at
 * this moment. */
void coll_shm_settle(void *inst, const struct coll_memory *mem)
{
	struct shm_inst *in = inst;
	struct shm_region *r = mem->keys;

	pthread_mutex_lock(&in->lock);
	if (r->fd >= 0 && !is_announced(in, r)) {
		unlist(&in->regions, r);
		r->next = in->settled;
		in->settled = r;
		atomic_fetch_sub(&in->regions_now, 1);
		coll_fd_close(r->fd);
		r->fd = -1;
	}
	pthread_mutex_unlock(&in->lock);
}

void coll_shm_mem_free(void *inst, struct coll_memory *mem)
{
	struct shm_inst *in = inst;
	struct shm_region *r = mem->keys;

	if (!r)
		return;
	pthread_mutex_lock(&in->lock);
	if (r->fd < 0) {
		unlist(&in->settled, r);
	} else {
		unlist(&in->regions, r);
		atomic_fetch_sub(&in->regions_now, 1);
		report_gone(in, r);
	}
	pthread_mutex_unlock(&in->lock);
	region_free(r);
	mem->base = NULL;
	mem->keys = NULL;
}

static void free_all(struct shm_region **list)
{
	while (*list) {
		struct shm_region *r = *list;

		*list = r->next;
		region_free(r);
	}
}

void coll_shm_regions_free(struct shm_inst *in)
{
	free_all(&in->regions);
	free_all(&in->settled);
}

static bool announce(struct shm_link *l, const struct shm_region *r)
{
	struct shm_message m = coll_shm_message(SHM_REGION);
	_Atomic uint32_t *known = &l->announced[r->id % SHM_PLACES];
	bool told = true;

	m.region = (struct shm_region_note){.len = r->len, .id = r->id};
	pthread_mutex_lock(&l->inst->lock);
	if (atomic_load(known) != r->id) {
		const int fd = COLL_FD(dup(r->fd)); /* the region may be freed before the message is sent */

		told = fd >= 0 && coll_shm_enqueue(l, &m, fd, true) == COLL_OK;
		if (told)
			atomic_store(known, r->id);
		else if (fd >= 0)
			coll_fd_close(fd);
	}
	pthread_mutex_unlock(&l->inst->lock);
	return told;
}

static bool within(const struct shm_region *r, const char *p, size_t len_bytes)
{
	return p >= r->base && p <= r->base + r->len && len_bytes <= (size_t)(r->base + r->len - p);
}

/* lock held */
static const struct shm_region *region_of(const struct shm_inst *in, const char *p, size_t len_bytes)
{
	const struct shm_region *r = in->regions;

	while (r && !within(r, p, len_bytes))
		r = r->next;
	return r;
}

/* Callers need not know that a pointer lies in a region. Busy: no matter, there are other
 * ways to send. */
static const struct shm_region *region_around(struct shm_inst *in, const char *p, size_t len_bytes)
{
	const struct shm_region *r;

	if (!atomic_load_explicit(&in->regions_now, memory_order_relaxed) || pthread_mutex_trylock(&in->lock) != 0)
		return NULL;
	r = region_of(in, p, len_bytes);
	pthread_mutex_unlock(&in->lock);
	return r;
}

static bool known_to(const struct shm_link *l, const struct shm_region *r)
{
	return atomic_load_explicit(&l->announced[r->id % SHM_PLACES], memory_order_relaxed) == r->id;
}

uint32_t coll_shm_lend(struct shm_channel *c, const void *ptr, const struct coll_memory *mem, size_t len_bytes,
                       uint64_t *offset)
{
	const struct shm_region *r = mem ? mem->keys : NULL;

	if (!r)
		r = region_around(c->inst, ptr, len_bytes);
	if (!r || r->magic != region_magic || r->torn || !within(r, ptr, len_bytes))
		return 0;
	if (!known_to(c->link, r) && !announce(c->link, r))
		return 0;
	*offset = (uint64_t)((const char *)ptr - r->base);
	return r->id;
}

coll_status coll_shm_share(void *link, const void *ptr, size_t len_bytes, struct coll_piece *piece)
{
	struct shm_link *l = link;
	const struct shm_region *r;

	if (!atomic_load_explicit(&l->inst->regions_now, memory_order_relaxed))
		return COLL_ERR_UNSUPPORTED;
	pthread_mutex_lock(&l->inst->lock);
	r = region_of(l->inst, ptr, len_bytes);
	if (r && r->torn)
		r = NULL;
	pthread_mutex_unlock(&l->inst->lock);
	if (!r || (!known_to(l, r) && !announce(l, r)))
		return COLL_ERR_UNSUPPORTED;
	*piece = (struct coll_piece){.region = r->id, .offset = (uint64_t)((const char *)ptr - r->base)};
	return COLL_OK;
}

void coll_shm_region_tear(struct shm_inst *in, const char *p, size_t len_bytes)
{
	pthread_mutex_lock(&in->lock);
	for (struct shm_region *r = in->regions; r; r = r->next)
		if (within(r, p, len_bytes))
			r->torn = true;
	pthread_mutex_unlock(&in->lock);
}

/* ---- Reader ------------------------------------------------------------------------- */

static void unmap(struct shm_mapping *m)
{
	char *base = atomic_exchange(&m->base, NULL);

	if (base)
		munmap(base, m->len);
}

coll_status coll_shm_on_region(struct shm_link *l, const struct shm_region_note *note, int fd)
{
	struct shm_mapping *m;
	char *probe;

	/* Check seals and size by the common way; then map aligned. */
	if (fd < 0 || !note->id || !note->len || note->len > SIZE_MAX / 2)
		return COLL_ERR_CORRUPT;
	probe = coll_shm_map(fd, note->len, false);
	if (!probe && coll_errno_status(COLL_OK) == COLL_OK)
		return COLL_ERR_CORRUPT;
	m = calloc(1, sizeof(*m));
	if (!m) {
		if (probe)
			munmap(probe, note->len);
		return COLL_ERR_MEMORY;
	}
	m->id = note->id;
	m->len = note->len;
	/* No room: it is known that there is none, and records are pulled. */
	if (probe) {
		munmap(probe, note->len);
		atomic_store(&m->base, map_aligned(fd, m->len, PROT_READ | PROT_WRITE));
	}
	l->inst->changed = true; /* somebody may wait for it: reach */
	m->next = l->mappings;
	l->mappings = m;
	atomic_store(&l->mapped[m->id % SHM_PLACES], m);
	return COLL_OK;
}

void coll_shm_on_unregion(struct shm_link *l, const struct shm_region_note *note)
{
	struct shm_mapping *m = atomic_load(&l->mapped[note->id % SHM_PLACES]);

	if (!m || m->id != note->id)
		return;
	atomic_store(&l->mapped[note->id % SHM_PLACES], NULL);
	if (atomic_fetch_add(&m->users, SHM_GONE) == 0)
		unmap(m);
}

const char *coll_shm_borrow(struct shm_link *l, uint32_t region, uint64_t offset, size_t len_bytes,
                            struct shm_mapping **mapping)
{
	struct shm_mapping *m = atomic_load(&l->mapped[region % SHM_PLACES]);

	const char *base;

	if (!m || m->id != region || offset > m->len || len_bytes > m->len - offset)
		return NULL;
	if (atomic_fetch_add(&m->users, 1) >= SHM_GONE) {
		coll_shm_return(m);
		return NULL;
	}
	base = atomic_load_explicit(&m->base, memory_order_relaxed);
	if (!base) {
		coll_shm_return(m);
		return NULL;
	}
	*mapping = m;
	return base + offset;
}

void coll_shm_return(struct shm_mapping *mapping)
{
	if (atomic_fetch_sub(&mapping->users, 1) == SHM_GONE + 1)
		unmap(mapping);
}

coll_status coll_shm_reach(void *link, const struct coll_piece *piece, size_t len_bytes, void **p, void **hold)
{
	struct shm_link *l = link;
	const struct shm_mapping *m = atomic_load(&l->mapped[piece->region % SHM_PLACES]);
	struct shm_mapping *mapping = NULL;
	const char *at;

	if (coll_shm_link_state(l) > COLL_AGAIN)
		return coll_shm_link_state(l);
	if (!m || m->id != piece->region)
		return COLL_AGAIN;
	at = coll_shm_borrow(l, piece->region, piece->offset, len_bytes, &mapping);
	if (!at)
		return COLL_ERR_UNSUPPORTED;
	*p = (void *)(uintptr_t)at;
	*hold = mapping;
	return COLL_OK;
}

void coll_shm_leave(void *link, void *hold)
{
	coll_shm_return(hold);
}

void coll_shm_mappings_free(struct shm_link *l)
{
	while (l->mappings) {
		struct shm_mapping *m = l->mappings;

		l->mappings = m->next;
		unmap(m);
		free(m);
	}
}
