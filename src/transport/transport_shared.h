/*
 * The second, optional table of a transport: memory that processes of one host share for
 * longer than a frame. struct coll_transport points to it; NULL there means that the
 * transport has none. A transport that has the table fills every member.
 *
 * Frames, credits and channels stay with the core table (transport.h). Here two processes
 * map each other's memory and agree by themselves who reads and writes what, and when.
 *
 * Threads. The members that take a link may be called by any thread, and by several at
 * once. Those that take a channel are called by the thread that uses the channel. The
 * caller holds no lock of the transport. A member that locks waits only for other threads
 * of this process. Only pull() does work of unbounded length, so the caller bounds it.
 */
#ifndef COLL_TRANSPORT_TRANSPORT_SHARED_H
#define COLL_TRANSPORT_TRANSPORT_SHARED_H

#include "transport/transport.h"

/* Memory of one process as another one finds it: a name that travels between them. */
struct coll_piece {
	uint32_t region; /* 0: none */
	uint32_t pad;
	uint64_t offset;
};

/* Memory of a peer, mapped here. */
struct coll_offer {
	size_t size;
	const char *base;
	size_t len_bytes;
	/* After a store that the peer may sleep for: call nudge() if this word is not 0, or if
	 * fenced is set. Read the word anew each time, behind a compiler barrier at least. */
	const unsigned *asleep;
	bool fenced;
	void *keys; /* the transport's */
};

struct coll_transport_shared {
	size_t size; /* sizeof(struct coll_transport_shared) of the transport that filled it */

	/* ---- Memory known by a key ---- */

	/* The peer may map this memory (of mem_alloc), read it, and write the parts that the two
	 * agree upon. NULL: this process has none, for good; the peer's offered() then says
	 * UNSUPPORTED. Once per link and key. Locks, does not block.
	 * OK: the pages live until both ends have let go, also beyond mem_free. Error: nothing
	 * was offered, and the peer was not told. */
	coll_status (*offer)(void *link, const struct coll_channel_key *key, const struct coll_memory *mem);
	/* No further peer is offered this memory of mem_alloc, and it is neither shared nor loaned: the
	 * transport releases what it keeps for that, as a descriptor. What was offered stands, also
	 * if it is still on its way. mem_free comes later, as always. Locks, does not block. */
	void (*settle)(void *inst, const struct coll_memory *mem);
	/* The owner lets go: call it before the memory is freed. A mapping that the peer already
	 * took stays valid. A key that was not offered is accepted. Locks, does not block. */
	void (*withdraw)(void *link, const struct coll_channel_key *key);
	/* What the peer offered under the key. OK: *offer is filled, and the mapping is the
	 * caller's until give_back(). AGAIN: nothing has come yet. UNSUPPORTED: the peer has no
	 * memory, or it cannot be mapped here. Other errors: the link is broken. *offer is
	 * written only with OK. Locks, does not block. */
	coll_status (*offered)(void *link, const struct coll_channel_key *key, struct coll_offer *offer);
	/* End the use of an offer: once for each OK of offered(), before link_close. Nobody here
	 * touches the memory any more. Clears offer->base. Locks and unmaps. */
	void (*give_back)(void *link, struct coll_offer *offer);
	/* Wake the sleepers of the peer's context. One system call that does not block; no lock. */
	void (*nudge)(void *link);
	/* Give the peer a copy of a descriptor, under a key that no offer has. Once per link and key. Locks, does not
	 * block. */
	coll_status (*hand)(void *link, const struct coll_channel_key *key, int fd);
	/* The descriptor that the peer gave under the key. OK: *fd is the caller's, and the key is free again. AGAIN:
	 * nothing has come yet. Other errors: the link is broken. Locks, does not block. */
	coll_status (*handed)(void *link, const struct coll_channel_key *key, int *fd);

	/* ---- Memory named by its owner ---- */

	/* Give len_bytes at ptr (of mem_alloc) a name for the peer of this link; all peers get the
	 * same name. OK: the peer can reach() it as soon as it has received the name from the
	 * caller. UNSUPPORTED: not this memory. Locks, does not block. The caller keeps the
	 * memory until the peers have left it, or calls part(). */
	coll_status (*share)(void *link, const void *ptr, size_t len_bytes, struct coll_piece *piece);
	/* Map the memory that the peer calls so, to be read and written. OK: *p is valid until
	 * leave(*hold), whatever its owner does meanwhile. AGAIN: the name is known, the memory is
	 * still on its way. UNSUPPORTED: no such memory, or it cannot be mapped. Other errors:
	 * the link is broken. Outputs are written only with OK. Takes no lock. */
	coll_status (*reach)(void *link, const struct coll_piece *piece, size_t len_bytes, void **p, void **hold);
	/* End the use of what reach() gave: once for each OK, before link_close. Never blocks. */
	void (*leave)(void *link, void *hold);
	/* The owner takes its memory back from peers that do not answer. The peers keep the old
	 * pages. The caller gets other pages with the same bytes at the same address, and what
	 * the peers write from now on is not seen here. Whole pages only. The region is not
	 * shared again. Locks; copies len_bytes. */
	void (*part)(void *link, void *ptr, size_t len_bytes);

	/* ---- Any memory of the peer's process ---- */

	/* Copy from an address that the peer sent and leaves alone meanwhile. OK: all bytes are of
	 * the very process that the link leads to. UNSUPPORTED: this memory, or any memory,
	 * cannot be read (len_bytes 0 asks about any); part of *to may have changed. Other
	 * errors: the peer is gone; *to is worthless. Takes no lock. The copy is not
	 * interrupted, so ask for at most 1 MiB at a time. */
	coll_status (*pull)(void *link, uint64_t address, void *to, size_t len_bytes);

	/* ---- Memory of a receiver that its peer fills: one copy where slots need two ---- */

	/* Receiving end. The frame that comes after `ahead` others is going to be taken to ptr,
	 * and is expected to match expect in every member. This is a permission to the sender
	 * and no more: the frame may come any other way. It ends when that frame is seen, or when
	 * the channel is closed. view() of a frame that was written there shows ptr itself. No
	 * destination is announced and no view is out when it is called. UNSUPPORTED: not for
	 * this memory. Never blocks. */
	coll_status (*invite)(void *channel, uint32_t ahead, void *ptr, const struct coll_memory *mem,
	                      const struct coll_frame *expect);
	/* Sending end, in place of slot(). OK: the peer wants this very frame at *p, and the
	 * place is the caller's until post(). AGAIN: no credit. UNSUPPORTED: use slot(). Never
	 * blocks. */
	coll_status (*push)(void *channel, const struct coll_frame *frame, void **p);
};

#endif
