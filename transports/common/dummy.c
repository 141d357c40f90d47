/*
 * Defaults for all members that a transport leaves out. The initialiser is positional, so that
 * a member added to the interface and forgotten here is a compiler warning. Optional functions
 * return UNSUPPORTED, notifications do nothing, an address is empty and no peer is
 * reachable: a table with only the required members is complete and safe.
 * A completed table always has a table of shared memory: one that refuses everything where
 * the transport has none.
 */
#include "transports/common/dummy.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "transport/transport.h"

enum { MEMBER = sizeof(void (*)(void)) };
static_assert((sizeof(struct coll_transport) - offsetof(struct coll_transport, open)) % MEMBER == 0,
              "function pointers");
static_assert((sizeof(struct coll_transport_shared) - offsetof(struct coll_transport_shared, offer)) % MEMBER == 0,
              "function pointers");

static coll_status dummy_open(const struct coll_transport_env *env, void **inst)
{
	return COLL_ERR_UNSUPPORTED;
}

static void dummy_close(void *inst)
{
}

static void dummy_fini(void *inst)
{
}

static void dummy_caps(void *inst, struct coll_transport_caps *caps)
{
	*caps = (struct coll_transport_caps){
	        .latency_ns = 1e6, .overhead_ns = 1e6, .bytes_per_ns = 1e-3, .depth = 2, .slot_bytes_max = 64};
}

static coll_status dummy_address(void *inst, void *buf, size_t cap, size_t *len_bytes)
{
	*len_bytes = 0;
	return COLL_OK;
}

static bool dummy_reachable(void *inst, const void *address, size_t len_bytes, char *why, size_t why_bytes)
{
	if (why && why_bytes)
		snprintf(why, why_bytes, "the transport reaches no peer");
	return false;
}

static coll_status dummy_link_open(void *inst, const struct coll_process_id *peer, const void *address,
                                   size_t len_bytes, void **link)
{
	return COLL_ERR_UNSUPPORTED;
}

static void dummy_link_close(void *link)
{
}

static coll_status dummy_link_status(void *link)
{
	return COLL_OK;
}

static coll_status dummy_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                      size_t slot_bytes, uint32_t slots, void **channel)
{
	return COLL_ERR_UNSUPPORTED;
}

static void dummy_channel_close(void *channel)
{
}

static coll_status dummy_slot(void *channel, size_t len_bytes, void **p)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status dummy_post(void *channel, const struct coll_frame *frame)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status dummy_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                                  const struct coll_frame *frame, struct coll_completion *completion)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status dummy_view(void *channel, const void **p, struct coll_frame *frame)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status dummy_done(void *channel)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status dummy_recv_into(void *channel, void *ptr, const struct coll_memory *mem,
                                   const struct coll_frame *expect, struct coll_completion *completion)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status dummy_recv_through(void *channel, const struct coll_taker *taker, const struct coll_frame *expect,
                                      struct coll_completion *completion)
{
	return COLL_ERR_UNSUPPORTED;
}

static int dummy_progress(void *inst)
{
	return 0;
}

/* A transport that cannot wake a thread must not let it sleep. */
static coll_status dummy_arm(void *inst)
{
	return COLL_AGAIN;
}

static void dummy_disarm(void *inst)
{
}

static int dummy_poll_fd(void *inst)
{
	return -1;
}

static int dummy_service_fd(void *inst)
{
	return -1;
}

static void dummy_service(void *inst)
{
}

static coll_status dummy_mem_alloc(void *inst, size_t len_bytes, struct coll_memory *mem)
{
	return COLL_ERR_UNSUPPORTED;
}

static void dummy_mem_free(void *inst, struct coll_memory *mem)
{
}

static coll_status dummy_mem_reg(void *inst, struct coll_memory *mem)
{
	return COLL_OK;
}

static void dummy_mem_dereg(void *inst, struct coll_memory *mem)
{
}

static void dummy_path(void *inst, const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                       struct coll_transport_path *path)
{
	*path = (struct coll_transport_path){.rails = 1};
}

static void dummy_confine(void *inst)
{
}

static bool dummy_link_counts(void *link, struct coll_link_counts *counts)
{
	return false;
}

/* ---- No shared memory ---- */

static coll_status none_offer(void *link, const struct coll_channel_key *key, const struct coll_memory *mem)
{
	return mem ? COLL_ERR_UNSUPPORTED : COLL_OK;
}

static void none_settle(void *inst, const struct coll_memory *mem)
{
}

static void none_withdraw(void *link, const struct coll_channel_key *key)
{
}

static coll_status none_offered(void *link, const struct coll_channel_key *key, struct coll_offer *offer)
{
	return COLL_ERR_UNSUPPORTED;
}

static void none_give_back(void *link, struct coll_offer *offer)
{
}

static void none_nudge(void *link)
{
}

static coll_status none_hand(void *link, const struct coll_channel_key *key, int fd)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status none_handed(void *link, const struct coll_channel_key *key, int *fd)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status none_invite(void *channel, uint32_t ahead, void *ptr, const struct coll_memory *mem,
                               const struct coll_frame *expect)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status none_push(void *channel, const struct coll_frame *frame, void **p)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status none_share(void *link, const void *ptr, size_t len_bytes, struct coll_piece *piece)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status none_reach(void *link, const struct coll_piece *piece, size_t len_bytes, void **p, void **hold)
{
	return COLL_ERR_UNSUPPORTED;
}

static void none_leave(void *link, void *hold)
{
}

static void none_part(void *link, void *ptr, size_t len_bytes)
{
}

static coll_status none_pull(void *link, uint64_t address, void *to, size_t len_bytes)
{
	return COLL_ERR_UNSUPPORTED;
}

const struct coll_transport_shared coll_transport_shared_none = {
        sizeof(struct coll_transport_shared),
        none_offer,
        none_settle,
        none_withdraw,
        none_offered,
        none_give_back,
        none_nudge,
        none_hand,
        none_handed,
        none_share,
        none_reach,
        none_leave,
        none_part,
        none_pull,
        none_invite,
        none_push,
};

/* ---- The table ---- */

static const struct coll_transport dummy = {
        sizeof(struct coll_transport),
        "dummy",
        &coll_transport_shared_none,
        false,
        dummy_open,
        dummy_close,
        dummy_fini,
        dummy_caps,
        dummy_address,
        dummy_reachable,
        dummy_link_open,
        dummy_link_close,
        dummy_link_status,
        dummy_channel_open,
        dummy_channel_close,
        dummy_slot,
        dummy_post,
        dummy_post_ref,
        dummy_view,
        dummy_done,
        dummy_recv_into,
        dummy_recv_through,
        dummy_progress,
        dummy_arm,
        dummy_disarm,
        dummy_poll_fd,
        dummy_service_fd,
        dummy_service,
        dummy_mem_alloc,
        dummy_mem_free,
        dummy_mem_reg,
        dummy_mem_dereg,
        dummy_path,
        dummy_confine,
        dummy_link_counts,
};

/* The tables hold function pointers only, behind their first members: so this loop never has to
 * be extended. */
static bool is_null(const void *table, size_t at)
{
	void (*member)(void), (*none)(void) = NULL;

	memcpy(&member, (const char *)table + at, sizeof(member));
	return member == none;
}

/* A table of another version, or with a gap, would be called where there is nothing. */
static bool is_whole(const struct coll_transport_shared *shared)
{
	if (shared->size != sizeof(*shared))
		return false;
	for (size_t at = offsetof(struct coll_transport_shared, offer); at < sizeof(*shared); at += MEMBER)
		if (is_null(shared, at))
			return false;
	return true;
}

void coll_transport_complete(const struct coll_transport *t, struct coll_transport *full)
{
	const size_t known = t->size < sizeof(*t) ? t->size : sizeof(*t);

	memset(full, 0, sizeof(*full));
	memcpy(full, t, known);
	full->size = sizeof(*full);
	for (size_t at = offsetof(struct coll_transport, open); at < sizeof(*full); at += MEMBER)
		if (is_null(full, at))
			memcpy((char *)full + at, (const char *)&dummy + at, MEMBER);
	assert(!full->shared || is_whole(full->shared));
	if (!full->shared || !is_whole(full->shared))
		full->shared = dummy.shared;
}
