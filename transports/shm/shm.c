/*
 * shm: processes of one host through memory they share. This file is the table:
 * instances, what an address says, and falling asleep.
 *
 * Memory comes from sealed memfds that travel over an abstract Unix socket; the
 * socket stays open as the link's lifeline. Nothing has a name in a file system, so
 * nothing is left behind however a process ends.
 */
#include "transports/shm/shm.h"

#include <assert.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/proof.h"
#include "transports/shm/channel.h"
#include "transports/shm/cma.h"
#include "transports/shm/completion.h"
#include "transports/shm/link.h"
#include "transports/shm/offer.h"
#include "transports/shm/push.h"
#include "transports/shm/region.h"
#include "transports/shm/ring.h"
#include "transports/shm/segment.h"
#include "transports/shm/service.h"
#include "transports/shm/wire.h"

enum { ADDRESS_MAGIC = 0x68736c63, PAGE_BYTES = 4096, BACKLOG = 1024 };
static const uint64_t page_magic = 0x6c6c6f632d6d6873u;

void coll_shm_wake_self(struct shm_inst *in)
{
	const uint64_t one = 1;

	if (atomic_load(&in->page->armed) && in->env.wake_fd >= 0 && write(in->env.wake_fd, &one, sizeof(one)) < 0) {
		/* The counter is full: the sleeper is awake already. */
	}
}

/* ---- Opening ---------------------------------------------------------------- */

static long membarrier(int command)
{
	return syscall(__NR_membarrier, command, 0, 0);
}

static bool register_barrier(void)
{
	const long known = membarrier(MEMBARRIER_CMD_QUERY);

	return known > 0 && (known & MEMBARRIER_CMD_GLOBAL_EXPEDITED) &&
	       membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

static uint64_t namespace_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static bool make_address(struct shm_inst *in)
{
	struct shm_address *a = &in->self;
	unsigned char random[SHM_NAME_BYTES];

	if (!coll_random(random, sizeof(random)) || !coll_random(&in->probe, sizeof(in->probe)) ||
	    !coll_random(in->nonces.key, sizeof(in->nonces.key)))
		return false;
	a->magic = ADDRESS_MAGIC;
	a->version = 2;
	a->id = in->env.self;
	a->host = coll_hash_bytes(ADDRESS_MAGIC, in->env.host_id, strlen(in->env.host_id));
	a->net = namespace_of("/proc/self/ns/net");
	a->pids = namespace_of("/proc/self/ns/pid");
	a->pid = (uint32_t)getpid();
	a->uid = (uint32_t)geteuid();
	for (int i = 0; i < SHM_NAME_BYTES; i++)
		a->name[i] = "abcdefghijklmnopqrstuvwxyz012345"[random[i] & 31];
	return true;
}

static bool watch(struct shm_inst *in, struct shm_source *source)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = source};

	if (source->fd < 0)
		return false;
	if (epoll_ctl(in->epoll_fd, EPOLL_CTL_ADD, source->fd, &e) == 0)
		return true;
	coll_errno_keep("epoll_ctl");
	return false;
}

static bool make_listener(struct shm_inst *in)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const socklen_t len = offsetof(struct sockaddr_un, sun_path) + 1 + SHM_NAME_BYTES;

	memcpy(at.sun_path + 1, in->self.name, SHM_NAME_BYTES);
	in->listener.kind = SHM_LISTENER;
	in->listener.fd = COLL_FD(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (in->listener.fd >= 0 &&
	    (bind(in->listener.fd, (struct sockaddr *)&at, len) != 0 || listen(in->listener.fd, BACKLOG) != 0)) {
		coll_errno_keep("listen");
		return false;
	}
	return in->listener.fd >= 0 && watch(in, &in->listener);
}

static bool make_page(struct shm_inst *in)
{
	in->page_fd = coll_shm_memfd(PAGE_BYTES);
	if (in->page_fd < 0)
		return false;
	in->page = (struct shm_page *)(void *)coll_shm_map(in->page_fd, PAGE_BYTES, true);
	if (!in->page)
		return false;
	in->page->magic = page_magic;
	return true;
}

static void release(struct shm_inst *in)
{
	if (in->page)
		munmap(in->page, PAGE_BYTES);
	if (in->page_fd >= 0)
		coll_fd_close(in->page_fd);
	if (in->listener.fd >= 0)
		coll_fd_close(in->listener.fd);
	if (in->timer.fd >= 0)
		coll_fd_close(in->timer.fd);
	if (in->epoll_fd >= 0)
		coll_fd_close(in->epoll_fd);
	pthread_mutex_destroy(&in->lock);
	coll_pending_fini(&in->pending);
	free(in);
}

static coll_status inst_open(const struct coll_transport_env *env, void **inst)
{
	struct shm_inst *in = calloc(1, sizeof(*in));

	if (!in)
		return COLL_ERR_MEMORY;
	in->env = *env;
	in->page_fd = in->listener.fd = -1;
	pthread_mutex_init(&in->lock, NULL);
	coll_pending_init(&in->pending);
	in->barrier = register_barrier();
	in->pulls = strcmp(env->setting(env->ctx, "COLL_SHM_COPY"), "cma") == 0;
	in->epoll_fd = COLL_FD(epoll_create1(EPOLL_CLOEXEC));
	in->timer.kind = SHM_TIMER;
	in->timer.fd = COLL_FD(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
	if (in->timer.fd < 0)
		coll_errno_keep("timerfd_create");
	if (!make_address(in) || in->epoll_fd < 0 || !watch(in, &in->timer) || !make_page(in) || !make_listener(in)) {
		env->log(env->ctx, 0, "[COLL-6201] shm: cannot have random bytes, socket, memfd or epoll: %s",
		         coll_errno_text(errno).text);
		release(in);
		return COLL_ERR_SYSTEM;
	}
	*inst = in;
	return COLL_OK;
}

/* A sleeper either counts in armed already, or will find closed when it looks. */
static void inst_close(void *inst)
{
	struct shm_inst *in = inst;

	if (!atomic_exchange(&in->closed, true))
		coll_shm_wake_self(in);
}

static void inst_fini(void *inst)
{
	struct shm_inst *in = inst;

	if (!in)
		return;
	assert(!in->channels);
	coll_shm_regions_free(in);
	while (in->conns) {
		struct shm_conn *c = in->conns;

		in->conns = c->next;
		coll_fd_close(c->source.fd);
		free(c);
	}
	while (in->links) { /* parked: the peer connected, we never opened */
		struct shm_link *l = in->links;

		assert(!l->opened);
		in->links = l->next;
		coll_shm_link_free(l);
	}
	release(in);
}

/* Tables, not measurements: equal on all ranks. */
static void inst_caps(void *inst, struct coll_transport_caps *caps)
{
	*caps = (struct coll_transport_caps){.latency_ns = 200,
	                                     .overhead_ns = 40,
	                                     .bytes_per_ns = 8,
	                                     .depth = 12, /* docs/design/shm-memory-ordering.md */
	                                     .slot_bytes_max = SHM_SLOT_MAX,
	                                     .post_ref = true,
	                                     .recv_into = true,
	                                     .offers = true,
	                                     .mapped = true};
}

static coll_status inst_address(void *inst, void *buf, size_t cap, size_t *len_bytes)
{
	struct shm_inst *in = inst;

	if (cap < sizeof(in->self))
		return COLL_ERR_ARGUMENT;
	memcpy(buf, &in->self, sizeof(in->self));
	*len_bytes = sizeof(in->self);
	return COLL_OK;
}

/* Symmetric in the two addresses, so both ends decide alike. */
static const char *unreachable(const struct shm_inst *in, const struct shm_address *a)
{
	if (a->magic != ADDRESS_MAGIC || a->version != in->self.version)
		return "not an address of this transport";
	if (a->host != in->self.host)
		return "it is on another host";
	if (a->net != in->self.net)
		return "it is in another network namespace";
	if (a->uid != in->self.uid)
		return "it belongs to another user";
	return NULL;
}

static bool inst_reachable(void *inst, const void *address, size_t len_bytes, char *why, size_t why_bytes)
{
	struct shm_address a;
	const char *reason = "not an address of this transport";

	if (len_bytes == sizeof(a)) {
		memcpy(&a, address, sizeof(a));
		reason = unreachable(inst, &a);
	}
	if (reason && why && why_bytes)
		snprintf(why, why_bytes, "%s", reason);
	return !reason;
}

/* ---- Sleeping ---------------------------------------------------------------- */

static bool anything(struct shm_inst *in)
{
	bool found = atomic_load(&in->closed);

	pthread_mutex_lock(&in->lock);
	for (const struct shm_channel *c = in->channels; c && !found; c = c->next)
		found = coll_shm_noteworthy(c);
	/* Told once: whoever waited for the link may not ask it again. */
	for (struct shm_link *l = in->links; l && !found; l = l->next)
		found = atomic_load(&l->status) != COLL_AGAIN && atomic_exchange(&l->wanted, false);
	pthread_mutex_unlock(&in->lock);
	return found;
}

static void inst_disarm(void *inst)
{
	atomic_fetch_sub(&((struct shm_inst *)inst)->page->armed, 1);
}

static coll_status inst_arm(void *inst)
{
	struct shm_inst *in = inst;

	atomic_fetch_add(&in->page->armed, 1);
	shm_fence();
	if (in->barrier)
		membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
	if (!anything(in))
		return COLL_OK;
	inst_disarm(in);
	return COLL_AGAIN;
}

static int inst_service_fd(void *inst)
{
	return ((struct shm_inst *)inst)->epoll_fd;
}

static const struct coll_transport_shared shared = {
        .size = sizeof(struct coll_transport_shared),
        .offer = coll_shm_offer,
        .settle = coll_shm_settle,
        .withdraw = coll_shm_withdraw,
        .offered = coll_shm_offered,
        .give_back = coll_shm_give_back,
        .nudge = coll_shm_nudge,
        .hand = coll_shm_hand,
        .handed = coll_shm_handed,
        .share = coll_shm_share,
        .reach = coll_shm_reach,
        .leave = coll_shm_leave,
        .part = coll_shm_part,
        .pull = coll_shm_cma_from,
        .invite = coll_shm_invite,
        .push = coll_shm_push,
};

const struct coll_transport coll_transport_shm = {
        .size = sizeof(struct coll_transport),
        .name = "shm",
        .shared = &shared,
        .open = inst_open,
        .close = inst_close,
        .fini = inst_fini,
        .caps = inst_caps,
        .address = inst_address,
        .reachable = inst_reachable,
        .link_open = coll_shm_link_open,
        .link_close = coll_shm_link_close,
        .link_status = coll_shm_link_status,
        .channel_open = coll_shm_channel_open,
        .channel_close = coll_shm_channel_close,
        .slot = coll_shm_slot,
        .post = coll_shm_post,
        .post_ref = coll_shm_post_ref,
        .view = coll_shm_view,
        .done = coll_shm_done,
        .recv_into = coll_shm_recv_into,
        .progress = coll_shm_progress,
        .arm = inst_arm,
        .disarm = inst_disarm,
        .service_fd = inst_service_fd,
        .service = coll_shm_service,
        .mem_alloc = coll_shm_mem_alloc,
        .mem_free = coll_shm_mem_free,
};
