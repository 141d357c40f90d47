/*
 * shm: segments and the rings cut from them.
 *
 * The receiver owns the memory it receives through. Segments grow by doubling, are
 * made per link, and travel to the peer once, with the first grant that needs them.
 * They are sealed against shrinking, and so is what a peer sends us, else touching
 * it could end in SIGBUS. A segment's space is reused once all its rings have been
 * left by both sides: a sender that does not know of the receiver's close yet never
 * writes into somebody else's ring.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transports/shm/shm.h"

enum { SEGMENT_MIN = 1 << 18, SEGMENT_GROWTH_MAX = 16 << 20, TOUCH_MAX = 1 << 18, PAGE = 4096 };

int coll_shm_memfd(size_t len)
{
	const int fd = memfd_create("coll", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)len) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return fd;
	close(fd);
	return -1;
}

char *coll_shm_map(int fd, size_t len, bool writable)
{
	struct stat st;
	const int seals = fcntl(fd, F_GET_SEALS);
	void *p;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) != 0 || st.st_size < 0 || (size_t)st.st_size < len)
		return NULL;
	p = mmap(NULL, len, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

struct shm_segment *coll_shm_segment_find(struct shm_segment *list, uint32_t id)
{
	while (list && list->id != id)
		list = list->next;
	return list;
}

void coll_shm_segments_free(struct shm_segment **list)
{
	while (*list) {
		struct shm_segment *s = *list;

		*list = s->next;
		munmap(s->base, s->len);
		if (s->fd >= 0)
			close(s->fd);
		free(s);
	}
}

static struct shm_segment *segment_new(struct shm_link *l, size_t need)
{
	struct shm_segment *s = calloc(1, sizeof(*s));
	size_t len = SEGMENT_MIN;

	if (!s)
		return NULL;
	for (uint32_t i = 0; i < l->segments && len < SEGMENT_GROWTH_MAX; i++)
		len *= 2;
	if (len < need)
		len = (need + PAGE - 1) & ~(size_t)(PAGE - 1);
	s->len = len;
	s->id = l->segments;
	s->fd = coll_shm_memfd(len);
	if (s->fd >= 0)
		s->base = coll_shm_map(s->fd, len, true);
	if (!s->base) {
		l->inst->env.log(l->inst->env.ctx, 0, "shm: no memory for a segment of %zu bytes: %m", len);
		if (s->fd >= 0)
			close(s->fd);
		free(s);
		return NULL;
	}
	l->segments++;
	s->next = l->own;
	l->own = s;
	return s;
}

static size_t stride_of(size_t slot_bytes)
{
	return (slot_bytes + SHM_LINE - 1) & ~(size_t)(SHM_LINE - 1);
}

size_t coll_shm_ring_bytes(size_t slot_bytes, uint32_t slots)
{
	return coll_shm_control_bytes(slots) + slots * stride_of(slot_bytes);
}

coll_status coll_shm_ring_new(struct shm_link *l, size_t slot_bytes, uint32_t slots, struct shm_ring **ring)
{
	const size_t bytes = coll_shm_ring_bytes(slot_bytes, slots);
	const size_t control = coll_shm_control_bytes(slots);
	struct shm_segment *s = l->own;
	struct shm_ring *r = calloc(1, sizeof(*r));

	if (!r)
		return COLL_ERR_MEMORY;
	while (s && s->len - s->used < bytes)
		s = s->next;
	if (!s)
		s = segment_new(l, bytes);
	if (!s) {
		free(r);
		return COLL_ERR_MEMORY;
	}
	r->front = (struct shm_front *)(void *)(s->base + s->used);
	/* The receiver touches small rings first, so that they lie near it; the pages of
	 * large slots come into being as they are used. */
	memset(r->front, 0, bytes <= TOUCH_MAX ? bytes : control);
	r->segment = s;
	r->name = ++l->rings_made;
	r->ours = r->theirs = true;
	r->next = l->rings;
	l->rings = r;
	s->used += bytes;
	s->live++;
	*ring = r;
	return COLL_OK;
}

void coll_shm_ring_put(struct shm_link *l, struct shm_ring *ring)
{
	struct shm_ring **at = &l->rings;

	if (ring->ours || ring->theirs)
		return;
	while (*at != ring)
		at = &(*at)->next;
	*at = ring->next;
	if (--ring->segment->live == 0)
		ring->segment->used = 0;
	free(ring);
}
