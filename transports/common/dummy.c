/*
 * Defaults for all members that a transport leaves out. The initialiser is positional, so that
 * a member added to the interface and forgotten here is a compiler warning. Optional functions
 * return UNSUPPORTED, notifications do nothing, an address is empty and no peer is
 * reachable: a table with only the required members is complete and safe.
 */
#include <stdio.h>
#include <string.h>

#include "transports/common/dummy.h"
#include "transports/common/registry.h"

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
                                  const struct coll_frame *frame, struct coll_cookie *cookie)
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
                                   const struct coll_frame *expect, struct coll_cookie *cookie)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status dummy_recv_through(void *channel, const struct coll_taker *taker, const struct coll_frame *expect,
                                      struct coll_cookie *cookie)
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

static coll_status dummy_offer(void *link, const struct coll_channel_key *key, const struct coll_memory *mem)
{
	return mem ? COLL_ERR_UNSUPPORTED : COLL_OK;
}

static void dummy_withdraw(void *link, const struct coll_channel_key *key)
{
}

static coll_status dummy_offered(void *link, const struct coll_channel_key *key, struct coll_offer *offer)
{
	return COLL_ERR_UNSUPPORTED;
}

static void dummy_give_back(void *link, struct coll_offer *offer)
{
}

static void dummy_nudge(void *link)
{
}

static coll_status dummy_invite(void *channel, uint32_t ahead, void *ptr, const struct coll_memory *mem,
                                const struct coll_frame *expect)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status dummy_push(void *channel, const struct coll_frame *frame, void **p)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status dummy_share(void *link, const void *ptr, size_t len_bytes, struct coll_piece *piece)
{
	return COLL_ERR_UNSUPPORTED;
}

static coll_status dummy_reach(void *link, const struct coll_piece *piece, size_t len_bytes, void **p, void **hold)
{
	return COLL_ERR_UNSUPPORTED;
}

static void dummy_leave(void *link, void *hold)
{
}

static void dummy_part(void *link, void *ptr, size_t len_bytes)
{
}

static coll_status dummy_pull(void *link, uint64_t address, void *to, size_t len_bytes)
{
	return COLL_ERR_UNSUPPORTED;
}

static const struct coll_transport dummy = {
        sizeof(struct coll_transport),
        "dummy",
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
        dummy_offer,
        dummy_withdraw,
        dummy_offered,
        dummy_give_back,
        dummy_nudge,
        dummy_invite,
        dummy_push,
        dummy_share,
        dummy_reach,
        dummy_leave,
        dummy_part,
        dummy_recv_through,
        dummy_pull,
};

/* Every member behind name is a function pointer: fill by position, so that this
 * loop never has to be extended. */
void coll_transport_complete(const struct coll_transport *t, struct coll_transport *full)
{
	const size_t first = offsetof(struct coll_transport, open);
	const size_t known = t->size < sizeof(*t) ? t->size : sizeof(*t);
	void (*member)(void), (*none)(void) = NULL;

	_Static_assert((sizeof(*t) - offsetof(struct coll_transport, open)) % sizeof(member) == 0, "function pointers");
	memset(full, 0, sizeof(*full));
	memcpy(full, t, known);
	full->size = sizeof(*full);
	for (size_t at = first; at < sizeof(*full); at += sizeof(member)) {
		memcpy(&member, (const char *)full + at, sizeof(member));
		if (member == none)
			memcpy((char *)full + at, (const char *)&dummy + at, sizeof(member));
	}
}
