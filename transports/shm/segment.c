/*
 * shm: segments and the rings cut from them.
 *
 * The receiver owns the memory it receives through. Segments grow by doubling, are
 * made per link, and travel to the peer once, with the first grant that needs them.
 * They are sealed against shrinking, and so is what a peer sends us, else touching
 * it could end in SIGBUS. A ring's space is reused once both sides have left it: a
 * sender that has not yet received the receiver's close never writes into
 * another ring. So the space of a link is bounded by the rings that lived at one time.
 */
#include "transports/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "base/fork.h"
#include "base/planted.h"
#include "transports/shm/shm.h"

enum { SEGMENT_MIN = 1 << 18, SEGMENT_GROWTH_MAX = 16 << 20, TOUCH_MAX = 1 << 18, PAGE = 4096, SPREAD_MIN = 16384 };

/* Memory counts as a file: beyond the limit (ulimit -f) ftruncate() raises SIGXFSZ, whose handling is the program's. */
static bool within_limit(size_t len)
{
	struct rlimit most;

	if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY || len <= most.rlim_cur)
		return true;
	errno = EFBIG;
	coll_errno_keep("ftruncate");
	return false;
}

int coll_shm_memfd(size_t len)
{
	const int fd = within_limit(len) ? COLL_FD(memfd_create("coll", MFD_CLOEXEC | MFD_ALLOW_SEALING)) : -1;

	if (fd < 0)
		return -1;
	if (planted(NAMED_FILE))
		close(shm_open("/coll-planted", O_CREAT | O_RDWR, 0600));
	if (ftruncate(fd, (off_t)len) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return fd;
	coll_errno_keep("ftruncate");
	coll_fd_close(fd);
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
	if (p != MAP_FAILED)
		return p;
	coll_errno_keep("mmap");
	return NULL;
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
		while (s->holes) {
			struct shm_hole *h = s->holes;

			s->holes = h->next;
			free(h);
		}
		munmap(s->base, s->len);
		if (s->fd >= 0)
			coll_fd_close(s->fd);
		free(s);
	}
}

/* ---- Space ---- */

/* A place of so many bytes, or SIZE_MAX. */
static size_t cut(struct shm_segment *s, size_t bytes)
{
	for (struct shm_hole **at = &s->holes; *at; at = &(*at)->next) {
		struct shm_hole *h = *at;
		const size_t offset = h->offset;

		if (h->len < bytes)
			continue;
		h->offset += bytes;
		h->len -= bytes;
		if (h->len == 0) {
			*at = h->next;
			free(h);
		}
		return offset;
	}
	return SIZE_MAX;
}

/* False: no memory, and the space is lost until the link ends. */
static bool put_back(struct shm_segment *s, size_t offset, size_t bytes)
{
	struct shm_hole **at = &s->holes, *before = NULL, *h;

	while (*at && (*at)->offset < offset) {
		before = *at;
		at = &before->next;
	}
	h = *at;
	if (before && before->offset + before->len == offset) {
		before->len += bytes;
		if (h && h->offset == before->offset + before->len) {
			before->len += h->len;
			before->next = h->next;
			free(h);
		}
		return true;
	}
	if (h && offset + bytes == h->offset) {
		h->offset = offset;
		h->len += bytes;
		return true;
	}
	h = calloc(1, sizeof(*h));
	if (!h)
		return false;
	*h = (struct shm_hole){*at, offset, bytes};
	*at = h;
	return true;
}

/* ---- Segments ---- */

static bool segment_map(struct shm_segment *s)
{
	s->fd = coll_shm_memfd(s->len);
	if (s->fd >= 0)
		s->base = coll_shm_map(s->fd, s->len, true);
	if (s->base && put_back(s, 0, s->len))
		return true;
	if (s->base)
		munmap(s->base, s->len);
	if (s->fd >= 0)
		coll_fd_close(s->fd);
	return false;
}

static struct shm_segment *segment_new(struct shm_link *l, size_t need)
{
	struct shm_segment *s = calloc(1, sizeof(*s));
	size_t len = SEGMENT_MIN;

	if (!s)
		return NULL;
	for (uint32_t i = 0; i < l->segments && len < SEGMENT_GROWTH_MAX; i++)
		len *= 2;
	s->len = len < need ? (need + PAGE - 1) & ~(size_t)(PAGE - 1) : len;
	s->id = l->segments;
	if (!segment_map(s)) {
		l->inst->env.log(l->inst->env.ctx, 0, "[COLL-6202] shm: no memory for a segment of %zu bytes: %s",
		                 s->len, coll_errno_text(errno).text);
		free(s);
		return NULL;
	}
	l->segments++;
	s->next = l->own;
	l->own = s;
	return s;
}

/* ---- Rings ---- */

/* Large slots lie a page further apart than their size, which tends to be a power of two:
 * else the beginnings of all would compete for the same sets of the caches. */
size_t coll_shm_stride(size_t slot_bytes)
{
	const size_t lines = (slot_bytes + SHM_LINE - 1) & ~(size_t)(SHM_LINE - 1);

	return lines < SPREAD_MIN ? lines : lines + PAGE;
}

size_t coll_shm_ring_bytes(size_t slot_bytes, uint32_t slots)
{
	return coll_shm_control_bytes(slots) + slots * coll_shm_stride(slot_bytes);
}

static struct shm_front *place(struct shm_link *l, size_t bytes, struct shm_segment **segment)
{
	struct shm_segment *s = l->own;
	size_t offset = SIZE_MAX;

	while (s && (offset = cut(s, bytes)) == SIZE_MAX)
		s = s->next;
	if (!s)
		s = segment_new(l, bytes);
	if (s && offset == SIZE_MAX)
		offset = cut(s, bytes);
	*segment = s;
	return offset == SIZE_MAX ? NULL : (struct shm_front *)(void *)(s->base + offset);
}

coll_status coll_shm_ring_new(struct shm_link *l, size_t slot_bytes, uint32_t slots, struct shm_ring **ring)
{
	const size_t bytes = coll_shm_ring_bytes(slot_bytes, slots);
	struct shm_ring *r = calloc(1, sizeof(*r));

	if (!r)
		return COLL_ERR_MEMORY;
	r->front = place(l, bytes, &r->segment);
	if (!r->front) {
		free(r);
		return coll_errno_status(COLL_ERR_MEMORY);
	}
	/* The receiver touches small rings first, so that they lie near it; the pages of
	 * large slots come into being as they are used. */
	memset(r->front, 0, bytes <= TOUCH_MAX ? bytes : coll_shm_control_bytes(slots));
	r->bytes = bytes;
	r->name = ++l->rings_made;
	r->ours = r->theirs = true;
	r->next = l->rings;
	l->rings = r;
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
	put_back(ring->segment, (size_t)((char *)ring->front - ring->segment->base), ring->bytes);
	free(ring);
}
