/*
 * The transport interface: a table of functions that moves frames between two
 * processes. A transport knows processes, links and channels; it never sees a
 * rank, a plan or a communicator.
 *
 *   instance   one per context and transport: listeners, wakeups, budgets
 *   link       the relation between this process and one other process
 *   channel    one direction of one lane: one producer, one consumer, frames in
 *              order, a fixed number of slots granted by the receiver
 *
 * Who may call what. open, close, fini, address, link_*, channel_* and service
 * are called by any thread of the context, one at a time per object. slot, post,
 * post_ref, view, done, recv_into and recv_through are called by one thread at a time per
 * channel; another thread may go on with a channel if the handing over
 * synchronises the two. Different channels of one instance, and of one link, may be
 * used, opened and closed by different threads at once, so what they share inside
 * the transport is locked (or needs no lock) inside. progress may be called by
 * several threads at once: it may return at once when another thread is inside.
 * Nothing here blocks unless it says so; what waits for a lock waits for other
 * threads of this process, and for no longer than a copy of one frame or a
 * system call that does not block.
 */
#ifndef COLL_TRANSPORT_TRANSPORT_H
#define COLL_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"

/* 128-bit incarnation of a process (of a context, to be exact): never reused. */
struct coll_process_id {
	uint64_t word[2];
};

/* What a transport says about itself; numbers feed the cost model and must be
 * equal on all ranks (they come from tables or configuration, not from a
 * measurement made by one rank). */
struct coll_transport_caps {
	double latency_ns;     /* one frame, one way */
	double overhead_ns;    /* CPU time per frame and side */
	double bytes_per_ns;   /* payload rate of one link, one direction */
	uint32_t depth;        /* slots per channel it likes (>= 2) */
	size_t slot_bytes_max; /* largest frame */
	bool post_ref;         /* sends from user memory without a copy into a slot */
	bool recv_into;        /* receives into user memory without a view */
	bool cross_host;       /* can reach another host */
	/* Bytes move in progress() only, and memory that is loaned goes into buffers of
	 * the kernel: a sender does not wait for its reader to run. */
	bool streamed;
	size_t slot_bytes_best; /* frames worth having when memory allows; 0: no opinion */
	bool offers;            /* peers map each other's memory: see transport_shared.h */
	bool mapped;            /* a slot is memory that the two ends share: the peer reads what was stored */
	uint32_t streams;       /* windows of a link go so many separate ways; 0, 1: they share one */
};

enum { COLL_RAILS_MAX = 8 };

/* Who says what a link carries; a later one is believed before an earlier one. A number that software reports whatever
 * the path carries is nobody's word. */
enum coll_rate_origin { COLL_RATE_UNKNOWN, COLL_RATE_SYSTEM, COLL_RATE_MEASURED, COLL_RATE_USER };

/* One of the ways of a link that do not share a network card: a card of each process, in one network. */
struct coll_transport_rail {
	uint32_t network;    /* of other links, too, equal where the network is; 0: unknown */
	uint32_t mbps;       /* one direction; 0: unknown */
	uint8_t distance[2]; /* of each card from its process: enum coll_nic_distance */
	char card[24];       /* of the first process, where its name is known: "eth0", "mlx5_0:1"; else "" */
	uint8_t origin;      /* of mbps: enum coll_rate_origin */
	uint8_t teller;      /* whose card limits it: 0 the first process, 1 the second */
	char told_by[24];    /* the name of that card, where it is known; else "" */
};

/* What a link between two processes is like. */
struct coll_transport_path {
	uint32_t round_trip_us; /* of the two hosts, which the caller of path() fills in; 0: unknown */
	uint32_t rails;         /* 1 to COLL_RAILS_MAX; several of a network are several connections in it */
	struct coll_transport_rail rail[COLL_RAILS_MAX];
};

/* What the system has counted of a link, from this process to the other. */
struct coll_link_counts {
	uint64_t bytes;   /* acknowledged by the other end */
	uint64_t busy_us; /* in which some were on their way, and the other end would have taken more */
	uint32_t rtt_us;
	uint32_t repeated; /* segments sent again */
};

/* Of a network card from a process. */
enum coll_nic_distance {
	COLL_NIC_NEAR, /* or nobody knows */
	COLL_NIC_OTHER_NODE,
	COLL_NIC_OTHER_PACKAGE
};

struct coll_ip;

/* What a context lends to its transports. Everything here outlives the instance. */
struct coll_transport_env {
	size_t size;
	struct coll_process_id self;
	/* Secret of the session, 128 bits, which handshakes prove. It is known when the addresses of the peers are, so
	 * that neither open nor address use it, and service is not called before. */
	const uint64_t *job_key;
	const char *host_id; /* equal on processes that may try shared memory */
	uint32_t host_mark;  /* of the addresses of this host: differs on copies of a machine, whose ids may be equal */
	bool sole;           /* nothing that shares memory is open beside it */
	bool one_host;       /* all ranks are on this host, however COLL_HOST_ID divides it */
	void *group;         /* loop: the object shared by ranks of one process, else NULL */
	int wake_fd;         /* eventfd: written to wake this context's sleeper */
	void *ctx;
	/* The text of a setting ("COLL_INTERFACE"), never NULL ("" when unset). */
	const char *(*setting)(void *ctx, const char *name);
	/* level as coll_log_fn. Any thread. */
	void (*log)(void *ctx, int level, const char *format, ...);
	/* A link broke, or the process behind it is gone. Any thread; once per link.
	 * why: COLL_ERR_PEER_DEAD: the process is taken for dead;
	 * COLL_ERR_PEER_SILENT: the same, since its host has not acknowledged for so long
	 * (the status of the link is COLL_ERR_PEER_DEAD then, too); COLL_ERR_CORRUPT: only what
	 * uses the link is lost; COLL_ERR_MEMORY or COLL_ERR_SYSTEM: the same, for lack of something here. */
	void (*link_down)(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause);
	void *hook; /* of a wrapping transport: its state, else NULL */
	/* What the topology says of a network card, by the name that the system gives it ("eth0", "mlx5_0", of a port
	 * "mlx5_0:1"): a transport reads no topology itself. Any thread; they read files, so they are for opening, not
	 * for the data path. NULL: nothing is known (tests).
	 * Its rate in one direction, in Mb/s, as the system reports it now; 0: unknown. */
	uint32_t (*nic_mbps)(void *ctx, const char *nic);
	/* Whether that rate is a constant of its driver, which says nothing of the path. NULL: it never is. */
	bool (*nic_constant)(void *ctx, const char *nic);
	/* How far it is from this process, or from its device if it has one. */
	enum coll_nic_distance (*nic_distance)(void *ctx, const char *nic);
	/* The address of a peer over which it met the rendezvous: it works. False: none is known. NULL: as well. */
	bool (*met)(void *ctx, const struct coll_process_id *peer, struct coll_ip *ip);
	/* The round trip to the host of a peer in microseconds, the same at both ends; 0: unknown. NULL: as well. */
	uint32_t (*round_trip_us)(void *ctx, const struct coll_process_id *peer);
	/* Whether two processes are on copies of a machine, so that what names a network namespace is equal on two
	 * hosts; known when the addresses of the peers are. NULL: none are. */
	bool (*copies)(void *ctx, const struct coll_process_id *a, const struct coll_process_id *b);
	/* A link to this peer is not acknowledged: when anything last arrived from its host outside the transport
	 * (coll_clock_ns), 0: never. Asks the host if that is long ago. NULL: not known. */
	uint64_t (*heard_ns)(void *ctx, const struct coll_process_id *peer);
};

/* Names a channel on both ends. Used once: after either end has closed no channel of
 * this key and direction is opened again on the link. rail is no part of the name: it says
 * which rail of the path carries the channel, and is the same at both ends. */
struct coll_channel_key {
	uint64_t comm; /* communicator id */
	uint32_t epoch;
	uint16_t lane;
	uint16_t window;
	uint32_t rail; /* in path()'s order, modulo their number */
	uint32_t zero;
};

/* Travels with every frame and is checked by the receiver's engine before any
 * byte of it is used. */
struct coll_frame {
	uint64_t sequence;  /* operation number on the communicator */
	uint32_t signature; /* hash of kind, type, op, count, root; see select/bind.c */
	uint32_t len_bytes;
};

/* Completion of a by-reference transfer. The transport writes status, then pending =
 * 0 with release, and touches neither the completion word nor the memory loaned afterwards. It
 * may do so in any thread: in a call on the channel, in anybody's progress, in
 * service. So pending is read with acquire: coll_completion_pending(). */
struct coll_completion {
	uint32_t pending;
	coll_status status;
};

/* While it is 1 the transport owns completion word and memory; once it is 0, the caller. */
static inline uint32_t coll_completion_pending(const struct coll_completion *completion)
{
	return __atomic_load_n(&completion->pending, __ATOMIC_ACQUIRE);
}

/* Memory by handle. base may be NULL for memory this process cannot touch. */
struct coll_memory {
	size_t size;
	int kind; /* 0 host */
	char *base;
	size_t len_bytes;
	void *keys; /* of the transport that registered it, or NULL */
};

enum coll_direction { COLL_DIR_SEND, COLL_DIR_RECV };

/* Whom the bytes of a frame are handed to, piece by piece, in order and without gaps: at is
 * where in the frame a piece begins, a multiple of 64, as its length is but for the last
 * piece's. Any thread, one at a time; it does not block and calls nothing of the transport. */
struct coll_taker {
	void (*take)(void *arg, const void *bytes, size_t at, size_t len_bytes);
	void *arg;
	/* Where the frame may be put first, each byte at its place, so that take() finds it where
	 * the result goes; NULL: nowhere. */
	char *at;
};

struct coll_transport_shared; /* transport_shared.h */

struct coll_transport {
	size_t size; /* sizeof(struct coll_transport) of whoever filled it */
	const char *name;
	/* Memory that processes of one host share; NULL: none. */
	const struct coll_transport_shared *shared;
	/* It listens at TCP ports, which a job is spared whose ranks all share memory. */
	bool ports;

	/* Make an instance. On failure *inst is untouched and nothing is left. */
	coll_status (*open)(const struct coll_transport_env *env, void **inst);
	/* Refuse new work and wake sleepers; idempotent, never blocks, any thread. */
	void (*close)(void *inst);
	/* Free everything; links and channels are closed before. Never blocks for
	 * longer than 100 ms. NULL accepted. */
	void (*fini)(void *inst);

	/* Fill caps; agreed facts only. */
	void (*caps)(void *inst, struct coll_transport_caps *caps);

	/* Write the bytes that let others reach this instance (at most cap);
	 * exchanged by bootstrap. */
	coll_status (*address)(void *inst, void *buf, size_t cap, size_t *len_bytes);

	/* Whether the process with this address can be reached (host, family ...);
	 * decided from the two addresses, so that both ends decide alike. why: one
	 * line when not. */
	bool (*reachable)(void *inst, const void *address, size_t len_bytes, char *why, size_t why_bytes);

	/* The link to a process: at most one per peer; starts connecting and returns
	 * at once. Both ends call it sooner or later; simultaneous opens yield one
	 * working link. link_close never blocks; frames already posted are still
	 * delivered if the peer lives (TCP: flushed by fini, bounded). */
	coll_status (*link_open)(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
	                         void **link);
	void (*link_close)(void *link);
	/* OK: usable; AGAIN: connecting; error: broken for good (sticky). */
	coll_status (*link_status)(void *link);

	/* One end of a channel with slots slots of slot_bytes each (equal at both
	 * ends, agreed). Opening the receiving end grants the credits; until then the
	 * sender's slot() says AGAIN. channel_close of a receiving end discards what
	 * has arrived. When channel_close returns, every completion word of the channel is settled
	 * and nobody, here or at the peer, reads memory loaned to it as data of a frame, or
	 * writes memory announced to it; no taker is called any more. */
	coll_status (*channel_open)(void *link, const struct coll_channel_key *key, enum coll_direction dir,
	                            size_t slot_bytes, uint32_t slots, void **channel);
	void (*channel_close)(void *channel);

	/* Make the next outgoing slot of at least len bytes (<= slot_bytes) writable at
	 * *p. AGAIN when the peer has granted no credit. The slot is the caller's
	 * until post(); asking again before post() gives the same slot. */
	coll_status (*slot)(void *channel, size_t len_bytes, void **p);
	/* Send the slot; never AGAIN after a successful slot(). */
	coll_status (*post)(void *channel, const struct coll_frame *frame);
	/* Send frame->len_bytes from user memory. OK: accepted, the memory is loaned
	 * until coll_completion_pending() is 0 (may already be so on return). AGAIN: no credit.
	 * UNSUPPORTED: use slot and post for this one. A slot that was handed out and not
	 * posted is not the caller's any more after OK. */
	coll_status (*post_ref)(void *channel, const void *ptr, const struct coll_memory *mem,
	                        const struct coll_frame *frame, struct coll_completion *completion);
	/* The next incoming frame in place: AGAIN if there is none yet. Valid until
	 * done(); asking again before done() gives the same frame. */
	coll_status (*view)(void *channel, const void **p, struct coll_frame *frame);
	/* Give the viewed frame's slot back to the sender. */
	coll_status (*done)(void *channel);
	/* Announce where the next frame goes. The frame must match expect in every
	 * member before a byte is written to ptr; otherwise completion->status is
	 * COLL_ERR_MISMATCH, memory untouched, and view() still shows that frame.
	 * UNSUPPORTED: use view. OK: ptr is loaned until coll_completion_pending() is 0; view and
	 * done are not called on the channel before. */
	coll_status (*recv_into)(void *channel, void *ptr, const struct coll_memory *mem,
	                         const struct coll_frame *expect, struct coll_completion *completion);

	/* As recv_into, for bytes that are worked on rather than kept: the next frame is handed
	 * to the taker as it comes in, while it is in the caches, and needs no slot. taker lives
	 * until the completion word is settled. UNSUPPORTED: use view. */
	coll_status (*recv_through)(void *channel, const struct coll_taker *taker, const struct coll_frame *expect,
	                            struct coll_completion *completion);

	/* Drain everything granted, move queued bytes, complete words. Returns > 0
	 * if anything happened, 0 if not. Never blocks. */
	int (*progress)(void *inst);

	/* Sleeping. After arm() returns OK, any new frame, credit, completion or link
	 * event for this context writes env->wake_fd (or makes poll_fd readable).
	 * AGAIN: something is there already and nothing is armed, do not sleep.
	 * disarm() after waking, once for each OK. Several threads may be armed at once.
	 * arm() knows what this thread was refused, not what another thread has meanwhile
	 * taken in for it: so with more than one thread, look once more at all you wait
	 * for between arm() and sleeping. One event writes wake_fd once, whomever it is
	 * for: who reads it wakes the other sleepers of the context. */
	coll_status (*arm)(void *inst);
	void (*disarm)(void *inst);
	/* A descriptor to poll beside wake_fd while armed, or -1. */
	int (*poll_fd)(void *inst);

	/* The service thread polls service_fd (-1: none) and calls service() when it
	 * is readable: accept, handshake, notice deaths. Bounded work, never blocks;
	 * runs at the same time as the data path. */
	int (*service_fd)(void *inst);
	void (*service)(void *inst);

	/* Memory. map_alloc makes memory that peers on this host can map (NULL member
	 * result UNSUPPORTED: the caller uses plain memory). reg announces plain
	 * memory. */
	coll_status (*mem_alloc)(void *inst, size_t len_bytes, struct coll_memory *mem);
	void (*mem_free)(void *inst, struct coll_memory *mem);
	coll_status (*mem_reg)(void *inst, struct coll_memory *mem);
	void (*mem_dereg)(void *inst, struct coll_memory *mem);

	/* What a link between the processes with these two addresses is like, this process one of them or not: all
	 * rails that it will have. Decided from the two addresses and agreed settings, in either order (but for
	 * distance[], which is as a and b), so that all ranks find the same for any two. An address that makes no
	 * sense: one rail of unknown rate. */
	void (*path)(void *inst, const void *a, size_t a_bytes, const void *b, size_t b_bytes,
	             struct coll_transport_path *path);
	/* The addresses of all peers are known, and those that use this transport share this network namespace: stop
	 * listening for others. Before the first call of service. */
	void (*confine)(void *inst);
	/* False: nothing is counted, or the link is not up. Any thread; it makes system calls. */
	bool (*link_counts)(void *link, struct coll_link_counts *counts);
};

#endif
