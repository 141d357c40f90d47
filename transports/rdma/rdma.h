/*
 * The inside of the rdma transport: its objects and which lock guards what.
 *
 *   service.lock  identifiers of the connection manager, attempts, the timer
 *   links.lock    the table of links
 *   link's lock   queue pair, completion queue, channels of one link
 *
 * Taken in this order, never backwards; none is held while env->link_down runs. Links
 * are never freed before fini.
 *
 * A link has a rail over each pair of ports that the two processes share (pairs.c, rails.c). A rail is
 * an rdma_link of its own: one reliable connection (a queue pair) with a completion queue of its own. It begins over
 * the pair of its number, and goes on over another one if that is lost.
 * Frames are written by RDMA into the receiver's slots; notes are sent. Both use up a
 * receive that the peer has posted, so both are counted (recvs). Receives are posted
 * before the other side is notified of them, so the device always finds one.
 */
#ifndef COLL_TRANSPORTS_RDMA_RDMA_H
#define COLL_TRANSPORTS_RDMA_RDMA_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "transport/transport.h"
#include "transports/common/id_table.h"
#include "transports/common/link_table.h"
#include "transports/common/pending.h"
#include "transports/common/reactor.h"
#include "transports/rdma/verbs.h"
#include "transports/rdma/wire.h"

extern const struct coll_transport coll_transport_rdma;

enum {
	RDMA_SENDS = 256,            /* work requests of one link in flight */
	RDMA_RECVS = 256,            /* receives posted on one link */
	RDMA_RECVS_SPARE = 2,        /* of the peer's: for notes that give receives back */
	RDMA_SIGNAL_EVERY = 64,      /* of so many work requests one completes visibly */
	RDMA_CHAIN = 24,             /* work requests per doorbell */
	RDMA_PIECES = 16,            /* most messages one frame is split into */
	RDMA_INLINE_BYTES = 128,     /* wanted of the device */
	RDMA_CHANNELS_MAX = 1 << 16, /* per link and direction */
	RDMA_QUEUE_SPARE = 4096,     /* entries of a queue beyond those that open channels account for */
	RDMA_INTO_BYTES = 4096,      /* smaller frames are not worth an announcement */
	RDMA_TAIL_BYTES = 64,        /* of a slot: for the head, and what checks the payload */
	RDMA_RAILS_MAX = COLL_RDMA_PORTS,
	RDMA_MENDS = 8, /* in a row, without anything having moved in between */
};

struct rdma_link;
struct rdma_inst;

/* A connection that is to be destroyed when the port is active again. Its identifier says goodbye, and
 * a device that cannot send that may lose the queue pair of the connection manager itself
 * (soft-RoCE does, for good). Its queue pair is in the error state: soft-RoCE would wait for packets
 * that an interface which is down does not give back. */
struct rdma_corpse {
	struct rdma_corpse *next;
	struct rdma_cm_id *id; /* with its queue pair, if it has one */
	struct ibv_cq *cq;
	struct ibv_mr *notes_mr;
	char *notes;
	const struct rdma_port *port;
};

/* A port that this process uses. Fixed once the instance is open. */
struct rdma_port {
	struct rdma_inst *inst;
	unsigned index;
	struct rdma_cm_id *listener;
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	size_t message_max;
	bool immediates; /* else a note follows each frame */
	char interface[24];
	char where[128]; /* device, port and GID, for messages */
};

/* Registered memory, with each port. */
struct rdma_region {
	struct rdma_region *next;
	char *base;
	size_t len_bytes;
	struct ibv_mr *mr[COLL_RDMA_PORTS];
	unsigned refs;
};

/* Slots of one channel's end: payloads, each followed by a head. */
struct rdma_ring {
	char *memory;
	size_t len_bytes;
	struct ibv_mr *mr[COLL_RDMA_PORTS]; /* with each port that its rail has used */
	size_t stride;
	size_t room; /* where the head is: slot_bytes up to a multiple of 64 */
};

/* What senders and receivers share; the handle of channel_open points here. */
struct rdma_channel {
	struct rdma_link *link;
	enum coll_direction dir;
	struct coll_channel_key key;
	size_t slot_bytes;
	uint32_t slots;
	struct rdma_ring ring;
};

/* Where a receiver wants frame number. */
struct rdma_target {
	uint32_t number;
	uint32_t rkey;
	uint64_t ptr;
	struct coll_frame expect;
	bool set;
};

/*
 * State of a large frame by reference without an announced destination. It waits, and
 * the sender asks for the address (ASKS) or expects it without asking (TOLD); or it goes into its slot,
 * until a small frame has been sent (COMES). Both ends keep this state; see receiver.c.
 */
enum rdma_manner { MANNER_ASKS, MANNER_TOLD, MANNER_COMES };

/* The sender's view of a receiving end that the peer has opened. */
struct rdma_grant {
	struct coll_channel_key key;
	uint32_t id; /* the peer's number */
	uint32_t slots;
	size_t slot_bytes;
	uint64_t ring;
	uint32_t rkey;
	uint32_t credits;
	bool held;      /* the connection is a new one, and its key is not known yet */
	uint64_t count; /* frames accepted for sending */
	enum rdma_manner manner;
	struct rdma_sender *sender;
	/* Of frame number at number modulo slots; until there is a sender, as many as have been announced. */
	struct rdma_target *into;
	uint32_t targets;
};

static inline const struct rdma_target *rdma_target_of(const struct rdma_grant *g, uint64_t number)
{
	const struct rdma_target *t = &g->into[number % g->slots];

	return t->set && t->number == (uint32_t)number ? t : NULL;
}

struct rdma_sender {
	struct rdma_channel base;
	struct rdma_grant *grant;
	char *held;                 /* the slot that was given out, or NULL */
	bool closed;                /* free once nothing of it is queued or in flight */
	struct rdma_entry *waiting; /* a ring of slots: to be told where they go */
	uint32_t waiting_first, waiting_count;
	bool asked;        /* the receiver has been asked about the first of them */
	uint32_t queued;   /* entries in link->queue */
	uint32_t logged;   /* in link->log */
	uint32_t loaned;   /* completion words out */
	uint64_t last_seq; /* of its last work request, 0: none */
	struct rdma_sender *next, **prev;
};

struct rdma_into {
	char *ptr;
	struct coll_frame expect;
	struct coll_completion *completion;
	bool registered, told; /* told: to the peer, too */
	bool taken;            /* its frame has come; one that nobody announced is viewed before it */
	const struct rdma_region *region;
};

struct rdma_receiver {
	struct rdma_channel base;
	uint32_t id;
	uint64_t arrived, done;
	uint64_t completed; /* of those that arrived; the others were seen in their slots */
	unsigned polled_on; /* the last of those: on which connection */
	uint32_t owed;      /* slots emptied and not told yet */
	uint32_t due_at;
	struct rdma_receiver *owing_next;
	bool owing;
	uint32_t owed_due;       /* 1: counted in link->due */
	bool draining;           /* closed here, CLOSED not yet seen */
	enum rdma_manner manner; /* as the peer will know it */
	bool asked;              /* a frame waits there */
	/* Announced are the frames from arrived on, up to this one; more than one only if all are of
	 * registered memory. */
	uint64_t announced;
	struct rdma_into *into;    /* of frame number at number modulo slots */
	struct coll_frame *frames; /* of those that arrived, likewise */
};

/* One thing to send. */
struct rdma_entry {
	struct rdma_sender *sender; /* NULL: the note */
	struct coll_rdma_note note;
	/* A frame: */
	struct coll_frame frame;
	uint64_t number;
	const char *loaned; /* NULL: the payload is in the slot */
	const struct rdma_region *region;
	struct coll_completion *completion;
	bool fence; /* no data: a visible completion behind what went before */
	/* Sent before, on a connection that broke: with the same credits. */
	bool again;
	uint32_t credit_id;
	uint16_t credits;
	uint64_t seq; /* in the log: its work request */
};

/* TORN: the connection broke, and its queue pair is still there. Then CONNECTING again. */
enum rdma_state { LINK_FREE, LINK_CONNECTING, LINK_UP, LINK_TORN, LINK_ENDED, LINK_DOWN };

enum rdma_stage { STAGE_IDLE, STAGE_ADDRESS, STAGE_ROUTE, STAGE_CONNECT, STAGE_ACCEPTED };

/* A pair of ports. */
struct rdma_way {
	struct rdma_port *port;
	struct coll_rdma_spot target; /* the peer's */
};

struct rdma_link {
	struct coll_peer_link base; /* lingering: flush, then a BYE */
	struct rdma_inst *inst;
	enum rdma_state state;
	bool buried; /* everything of a broken connection is settled */

	bool down_reported; /* its users know, or will, that it has broken */
	/* Of each: 1 + the number of the rail that the peer has lost, and whether it was told of one here. */
	unsigned lost;
	bool lost_reported;

	struct rdma_port *port; /* NULL: not known yet */
	/* Those of the link's rails, the same at both ends; which one is used, or tried, which was when the connection
	 * broke, and since when it is tried. */
	struct rdma_way way[RDMA_RAILS_MAX];
	unsigned ways, at, broke_at; /* 0 ways: not opened here yet */
	uint64_t since_ns;

	/* The attempt, and then the connection. service.lock; qp and cq also base.lock. */
	struct rdma_cm_id *id;
	enum rdma_stage stage;
	bool asked; /* we are the client */
	uint64_t nonce[2], other[2];
	/* requests.c: of the connection that is up; of the peer's, if one has come. */
	uint64_t challenge, answer;
	bool challenged;
	struct coll_rdma_spot target; /* the peer's port */
	bool have_target;
	uint64_t deadline_ns, retry_ns, give_up_ns;
	uint64_t heard_ns; /* mending: when its host was last heard elsewhere */
	unsigned attempts;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	uint32_t inline_bytes;
	char *notes; /* RDMA_SENDS to send, RDMA_RECVS to receive */
	struct ibv_mr *notes_mr;

	/* out */
	struct rdma_entry *queue; /* ring, power of two */
	uint32_t queue_cap, queue_first, queue_count;
	uint64_t sq_tail, sq_done, sq_signalled; /* work requests posted, known complete, last visible one */
	uint32_t recvs;                          /* of the peer's, left to use */
	uint32_t recvs_owed;                     /* of ours, not told yet */
	/* Frames and notes sent whose completion has not been seen: who loaned memory gets it back
	 * from here, and a new connection sends again what the peer has not got. log_first is
	 * also how many items came before, ever. */
	struct rdma_entry log[RDMA_SENDS];
	uint64_t log_first, log_count;
	uint32_t recvs_posted; /* of ours, on this queue pair */
	uint64_t items_in;     /* frames and notes that have arrived, ever */
	bool mending;          /* was up before */
	uint64_t peer_items;   /* what the peer has got, as told when it connected */
	unsigned connections;
	unsigned mends; /* since anything was completed */
	struct rdma_sender *senders, *closing;
	struct coll_id_table grants; /* struct rdma_grant, by the peer's id */
	bool bye_sent;
	uint64_t bye_seq;

	/* in */
	struct coll_id_table receivers; /* struct rdma_receiver, by id */
	struct rdma_receiver *owing;
	uint32_t due;
	uint32_t spent[RDMA_RECVS]; /* receives to be posted again */
	uint32_t spent_count;
	bool news;

	uint64_t moved, moved_at_tick; /* completions */
	uint64_t moved_ns;             /* the last ones */
	/* Nothing of ours was completed since, though something waits to be. */
	uint64_t waits_ns, done_at_tick;

	uint64_t frames_out, frames_in, polled_in, into_in, copied_bytes, notes_out, ref_out, waited, doorbells;
};

/* requests.c */
struct rdma_requests {
	uint64_t last; /* the number of this end's last request */
	struct rdma_mark *mark;
	uint32_t cap, count;
};

struct rdma_inst {
	struct coll_transport_env env;
	struct coll_rdma_verbs v;
	struct coll_rdma_peer_info info; /* of the ports that are announced */
	struct rdma_port port[COLL_RDMA_PORTS];
	unsigned ports; /* the nearest first, as info has them */
	unsigned timeout_exponent, retries, traffic_class;
	struct coll_nonces nonces;
	struct rdma_requests requests; /* service.lock */
	/* For how long a process may be silent, a host out of reach, and a rail silent beside one that is not. */
	uint64_t timeout_ns, unreachable_ns, silent_ns;
	bool polled;          /* small frames are taken from their slots before they complete */
	coll_crc32c_fn check; /* of payloads; NULL: none */
	_Atomic bool closed;

	struct rdma_event_channel *cm;
	struct rdma_corpse *corpses;
	int wait_fd; /* an epoll set of the ports' completions, for sleepers */

	struct coll_link_table links;
	struct coll_reactor service;
	uint64_t liveness_ns;

	pthread_mutex_t arm_lock;
	_Atomic uint32_t armed;
	_Atomic uint32_t news;       /* since the last arm() that said AGAIN */
	_Atomic uint32_t connecting; /* links in LINK_CONNECTING */
	_Atomic uint32_t up;
	_Atomic uint32_t lingering;

	pthread_rwlock_t memory_lock;
	struct rdma_region *regions;
};

/* Tags of the service's events. */
enum { RDMA_TAG_CM, RDMA_TAG_COMPLETIONS };

#define rdma_log(in, level, ...) ((in)->env.log((in)->env.ctx, (level), __VA_ARGS__))

/* Its channels can be used. */
static inline bool rdma_works(const struct rdma_link *l)
{
	return coll_peer_link_works(&l->base);
}

/* The destination of the next frame was announced. */
static inline bool rdma_announced(const struct rdma_receiver *r)
{
	return r->announced > r->arrived;
}

static inline size_t rdma_pad(size_t len_bytes)
{
	return (len_bytes + 63) & ~(size_t)63;
}

static inline struct coll_rdma_head *rdma_head_at(const struct rdma_ring *ring, uint64_t slot)
{
	return (struct coll_rdma_head *)(void *)(ring->memory + slot * ring->stride + ring->room);
}

/* The payload ends where the head begins, so that one message carries both. */
static inline char *rdma_payload_at(const struct rdma_ring *ring, uint64_t slot, uint32_t len_bytes)
{
	return ring->memory + slot * ring->stride + ring->room - coll_rdma_padded(len_bytes);
}

/* ---- link.c ----------------------------------------------------------------------------- */

static inline struct rdma_link *coll_rdma_link_at(struct rdma_inst *in, uint32_t i)
{
	return (struct rdma_link *)coll_link_table_at(&in->links, i);
}
static inline void coll_rdma_kick(struct rdma_inst *in)
{
	coll_reactor_kick(&in->service);
}
static inline void coll_rdma_wake(struct rdma_inst *in)
{
	coll_eventfd_raise(in->env.wake_fd);
}

/* ---- service.c ------------------------------------------------------------------------------------- */

extern const struct coll_reactor_table coll_rdma_service_table;

#endif
