/*
 * shm, inside: the objects shared by the files of this transport.
 *
 *   shm.c          the table: instances, addresses, sleeping
 *   link.c     links: made, found, broken, freed
 *   join.c     the handshake, and the messages of a link
 *   service.c  the service thread's work: accepting, connecting, deaths
 *   wire.c     the Unix socket: fixed messages, descriptors, proofs
 *   segment.c  memfd segments and the rings cut from them
 *   channel.c  opening and closing channels, grants
 *   ring.c     the data path
 *   completion.c   completions, announced destinations, progress
 *   cma.c      reading a peer's memory (CMA)
 *   push.c     writing into memory that a peer has offered for a frame
 *   region.c   memory that peers map: allocating, announcing, mapping
 *   offer.c    memory that a peer uses for longer than a frame
 *
 * Locks. inst->lock guards lists, links, connections and segments: the service
 * thread, opening and closing take it, the data path does not. A channel's pending.lock
 * guards its completion words and announcements (see transports/common/pending.h). Order: pending.lock,
 * then lock.
 * docs/design/shm-memory-ordering.md argues the atomics.
 */
#ifndef COLL_TRANSPORTS_SHM_SHM_H
#define COLL_TRANSPORTS_SHM_SHM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/proof.h"
#include "transport/transport.h"
#include "transports/common/pending.h"

extern const struct coll_transport coll_transport_shm;

enum {
	SHM_LINE = 64,
	SHM_GAP = 256,       /* lines a core may fetch ahead */
	SHM_INLINE_MAX = 40, /* payload that travels in the head's own line */
	SHM_REF_MIN = 32768, /* frames worth a pull: see ring.c */
	SHM_REF_MAX = 262144,
	SHM_MAP_MIN = 4096,      /* frames worth lending from mapped memory */
	SHM_PULL_UNIT = 1 << 20, /* longest uninterruptible read of a peer */
	SHM_SLOT_MAX = 4 << 20,
	SHM_NAME_BYTES = 24,
	SHM_CONNS_MAX = 256, /* connections that have not proved themselves, and nobody expects */
};

/* ---- In shared memory ------------------------------------------------------ */

/* One per process, mapped read-only by its peers. */
struct shm_page {
	uint64_t magic;
	atomic_uint armed; /* sleepers, or about to sleep */
};

/* The receiver's line at the start of a ring. */
struct shm_front {
	_Alignas(SHM_LINE) _Atomic uint64_t freed; /* frames given back */
	atomic_uint closed;
	_Atomic uint64_t announced; /* frames below this number have a destination: a hint */
};

/* SHM_WISH: by value, though lending would have paid had the destination been announced.
 * SHM_PUSHED: it lies where the receiver offered to take it. */
enum shm_kind { SHM_VALUE = 0, SHM_REF, SHM_WISH, SHM_PUSHED };
enum shm_loan { SHM_LOANED = 1, SHM_BACK, SHM_REVOKED };

/* Memory loaned to the receiver. */
struct shm_record {
	uint64_t address;
	uint64_t offset; /* in the region */
	uint32_t pid;
	uint32_t region; /* 0: none, read the address */
	atomic_uint loan;
};

/* The head of a slot: one line, so that a small frame moves as one. word is
 * turn << 2 | kind in the low half, and in the high half how many frames of the
 * opposite channel its writer has given back (modulo 2^32). turn is frame number + 1
 * modulo 2^30. */
struct shm_head {
	_Alignas(SHM_LINE) _Atomic uint64_t word;
	uint64_t sequence;
	uint32_t signature;
	uint32_t len_bytes;
	union {
		char bytes[SHM_INLINE_MAX];
		struct shm_record record;
	};
};

/* Where the receiver takes a frame to, one line for each slot; see push.c. state is
 * turn << 2 | what. OPEN: the peer may write there. CLAIMED, by the sender: it is writing. */
enum shm_invitation_state { SHM_INVITE_NONE = 0, SHM_INVITE_OPEN, SHM_INVITE_CLAIMED };
struct shm_invitation {
	_Alignas(SHM_LINE) atomic_uint state;
	uint32_t region;
	uint64_t offset;
	struct coll_frame expect;
};

/* Front, heads and offers, and a gap behind them: the receiver spins on heads, and its core
 * fetches the lines that follow. Without the gap these are the first payload lines, which
 * then are never in the sender's cache when it fills a small slot (50 ns of an 8-byte
 * exchange between far cores). */
static inline size_t coll_shm_control_bytes(uint32_t slots)
{
	return sizeof(struct shm_front) + slots * (sizeof(struct shm_head) + sizeof(struct shm_invitation)) + SHM_GAP;
}

/* ---- On the socket ------------------------------------------------------------ */

enum shm_message_type {
	SHM_HELLO = 1, /* connecting side: who, whom, nonce */
	SHM_CHALLENGE, /* accepting side: nonce, proof */
	SHM_AUTH,      /* connecting side: proof; page and wake descriptors */
	SHM_READY,     /* accepting side: page and wake descriptors */
	SHM_PULLS,     /* I can read your memory */
	SHM_GRANT,     /* a ring for the channel of this key; with a new segment's descriptor */
	SHM_REGION,    /* memory that may be named in records; with its descriptor */
	SHM_UNREGION,  /* it is gone */
	SHM_OFFER,     /* memory to be read for longer, by key; with its descriptor, or there is none */
	SHM_UNOFFER,   /* it is gone */
	SHM_HAND,      /* a descriptor that is the peer's from now on, by key */
	SHM_CLOSE,     /* the sender left this ring, or never came to it */
	SHM_WITHDRAW,  /* the receiver left this ring */
	SHM_BYE,       /* an orderly end */
};

struct shm_introduction {
	struct coll_proof proof;
	uint64_t probe_address;
	uint64_t probe_value;
	uint32_t pid;
	uint32_t barrier; /* registered for, and able to use, membarrier */
};

struct shm_grant {
	struct coll_channel_key key;
	uint64_t ring; /* name of the ring, unique on the link */
	uint64_t offset;
	uint64_t slot_bytes;
	uint64_t segment_len; /* 0: the segment is known already */
	uint32_t segment;
	uint32_t slots;
};

struct shm_region_note {
	uint64_t len;
	uint32_t id;
};

struct shm_offer_note {
	struct coll_channel_key key;
	uint64_t len;
};

struct shm_message {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	union {
		struct {
			struct coll_process_id self, peer;
			uint64_t nonce[2];
			struct coll_proof proof;
		} hello;
		struct shm_introduction intro;
		struct shm_grant grant;
		struct shm_region_note region;
		struct shm_offer_note offer;
		uint64_t ring;
		char pad[88];
	};
};
_Static_assert(sizeof(struct shm_message) == 96, "one size for all messages");

struct shm_address {
	uint32_t magic;
	uint32_t version;
	struct coll_process_id id;
	uint64_t host; /* hash of the host's text */
	uint64_t net;  /* network namespace: abstract socket names live there */
	uint64_t pids; /* process namespace */
	uint32_t pid;
	uint32_t uid;
	char name[SHM_NAME_BYTES]; /* of the listening socket, abstract */
};

/* ---- Here ----------------------------------------------------------------------- */

/* What an epoll event points at. */
enum shm_source_kind { SHM_LISTENER, SHM_TIMER, SHM_CONN, SHM_PID };
struct shm_source {
	enum shm_source_kind kind;
	int fd;
};

struct shm_outgoing {
	struct shm_outgoing *next;
	struct shm_message message;
	int fds[2]; /* -1: none; the first is ours to close */
	bool own_fd;
};

enum shm_conn_state { SHM_SENT_HELLO, SHM_WAIT_HELLO, SHM_WAIT_AUTH, SHM_WAIT_READY, SHM_JOINED, SHM_DEAD };

struct shm_conn {
	struct shm_source source;
	struct shm_conn *next;
	struct shm_link *link;
	enum shm_conn_state state;
	uint64_t since_ns;
	uint64_t nonce[2][2]; /* connecting side's, accepting side's */
	struct coll_process_id peer;
};

/* Space of a segment that no ring has. */
struct shm_hole {
	struct shm_hole *next; /* by offset, never adjoining */
	size_t offset, len;
};

struct shm_segment {
	struct shm_segment *next;
	uint32_t id;
	char *base;
	size_t len;
	struct shm_hole *holes; /* owner */
	int fd;                 /* owner: until its first grant carries it away; else -1 */
};

/* A ring we own: we receive through it. */
struct shm_ring {
	struct shm_ring *next;
	uint64_t name;
	struct shm_segment *segment;
	struct shm_front *front;
	size_t bytes;
	bool ours;   /* our channel is open */
	bool theirs; /* the sender may still write: it has not said CLOSE */
};

struct shm_pending_grant {
	struct shm_pending_grant *next;
	struct shm_grant grant;
};

/* Memory of ours that peers map; keys of its coll_memory. An id is serial * places +
 * place, and is never used again. */
enum { SHM_PLACES = 256 };
struct shm_region {
	uint64_t magic;
	struct shm_region *next; /* inst->lock */
	char *base;
	size_t len;
	uint32_t id;
	int fd;    /* -1: no further peer maps it, and it has no place */
	bool torn; /* some pages are not the memfd's any more: not to be loaned */
};

/* A peer's region, mapped here. users counts views; SHM_GONE is added when the owner has
 * freed it; the thread that takes base unmaps it. The struct lives as long as the link. */
enum { SHM_GONE = 1 << 30 };
struct shm_mapping {
	struct shm_mapping *next; /* inst->lock */
	uint32_t id;
	size_t len;
	atomic_uint users;
	_Atomic(char *) base;
};

/* Memory that a peer has offered. inst->lock */
struct shm_offered {
	struct shm_offered *next;
	struct coll_channel_key key;
	char *base; /* NULL: there is none, or it could not be mapped */
	size_t len;
	int fd; /* a descriptor that was handed over; -1: memory */
	bool taken;
};

/* What the two directions of one key tell each other. */
struct shm_pairing {
	struct shm_pairing *next;
	struct coll_channel_key key;
	uint32_t refs;
	_Atomic uint32_t taken; /* frames our receiving end has given back */
	_Atomic uint32_t heard; /* frames of our sending end that the peer says it gave back */
};

struct shm_link {
	/* Read by the data path. */
	_Atomic int status;                               /* coll_status: AGAIN, OK, error */
	atomic_bool fenced;                               /* sleepers cannot use membarrier: posts must fence */
	atomic_bool they_pull;                            /* the peer can read our memory */
	atomic_bool we_pull;                              /* we can read the peer's */
	_Atomic uint32_t announced[SHM_PLACES];           /* our regions that were announced to it, by place */
	_Atomic(struct shm_mapping *) mapped[SHM_PLACES]; /* its regions, by place */
	_Atomic(const struct shm_page *) peer_page;
	int peer_wake_fd;
	uint32_t peer_pid;                   /* as seen from here, 0 if not */
	uint32_t reported_pid;               /* as it calls itself */
	uint64_t probe_address, probe_value; /* a word that no other process has there */
	struct shm_source pid;               /* fd -1: none */
	struct shm_inst *inst;
	/* inst->lock */
	struct shm_link *next;
	struct coll_process_id peer;
	struct shm_address address;
	bool opened; /* by our side; else parked after the peer's connection */
	bool untold; /* link_down is due */
	bool bye;    /* the peer closed in order: no link_down */
	const char *cause;
	atomic_bool wanted; /* link_status said AGAIN */
	struct shm_conn *conn;
	uint64_t since_ns;
	uint64_t short_ns;   /* since when there has been no descriptor for it; before had_ns: there was one */
	uint64_t untaken_ns; /* since when its peer cannot be taken in for lack of one; 0: no attempt of it failed so */
	struct shm_outgoing *out, **out_tail;
	struct shm_segment *own, *theirs;
	uint32_t segments;
	uint64_t rings_made;
	struct shm_ring *rings;
	struct shm_pending_grant *grants;
	struct shm_pairing *pairings;
	struct shm_mapping *mappings;
	struct shm_offered *offers;
	uint32_t channels;
};

enum shm_want { SHM_WANT_FRAME = 1, SHM_WANT_CREDIT = 2 };

struct shm_announce {
	void *ptr;
	struct coll_frame expect;
	struct coll_completion *completion;
};

/* Receiver: its own note of an offer. */
struct shm_invited {
	uint64_t number; /* of the frame; + 1, so that 0 is none */
	char *ptr;
	uint32_t len_bytes;
};

struct shm_channel {
	_Atomic(struct shm_front *) ring; /* NULL until granted; publishes heads and payload */
	struct shm_head *heads;
	char *payload;
	size_t stride;
	uint32_t slots;
	uint32_t at; /* count % slots */
	enum coll_direction dir;
	bool held;              /* receiver: a view is out: shown and frame are it */
	uint8_t kind;           /* sender: of the next frame that is posted; enum shm_kind */
	atomic_bool by_value;   /* receiver: announcing is of no use; nothing is announced now */
	atomic_bool mismatched; /* sender: the grant did not fit */
	_Atomic uint64_t count; /* frames posted, or given back; one writer: the owner */
	_Atomic uint64_t freed; /* sender: frames known to have been given back */
	struct shm_link *link;
	struct shm_pairing *pair;
	struct shm_inst *inst;
	const void *shown;
	struct shm_mapping *using; /* receiver: what is shown lies in it; sender: what is pushed */
	struct shm_invitation *invitations;
	struct shm_invited *invited; /* receiver */
	bool inviting;               /* receiver: some may be open */
	_Atomic uint64_t declined;   /* receiver: number of the last frame not announced for that */
	struct coll_frame frame;
	atomic_uint want;
	size_t slot_bytes;
	struct coll_channel_key key;
	/* inst->lock */
	struct shm_channel *next;
	struct shm_ring *owned; /* receiver */
	uint64_t ring_name;     /* sender, once granted */
	/* pending.lock; loaned and reaped are also looked at without */
	struct coll_pending_channel pending;
	_Atomic uint32_t loaned; /* sender: completion words pending */
	_Atomic uint64_t reaped; /* sender: frames whose completion word is settled */
	struct coll_completion **completions;
	struct shm_announce *announces;
	uint64_t announced, answered;
};

struct shm_inst {
	struct coll_transport_env env;
	struct shm_address self;
	struct shm_page *page;
	int page_fd;
	int epoll_fd;
	struct shm_source listener;
	struct shm_source timer;
	bool barrier; /* membarrier works and we are registered */
	bool pulls;   /* plain memory is loaned for the peer's kernel to read: COLL_SHM_COPY=cma */
	struct coll_nonces nonces;
	uint64_t probe; /* read by peers, to see whether they can */
	atomic_bool closed;
	atomic_bool serviced; /* a service thread does the work */
	atomic_uint spins;
	pthread_mutex_t lock;
	struct shm_conn *conns;
	uint32_t strangers;
	struct shm_link *links;
	struct shm_channel *channels;
	struct shm_region *regions; /* that peers may get to map */
	struct shm_region *settled; /* that no further peer maps */
	uint32_t regions_made;
	atomic_uint regions_now;
	uint32_t untold; /* links that broke and whose link_down call is due */
	bool changed;    /* a sleeper may want to know */
	bool timer_set;
	uint64_t scarce_ns; /* when a lack of descriptors was said last */
	uint64_t had_ns;    /* when there was one last */
	char lack[240];     /* the cause of links that end for lack of something here */
	bool deaf;          /* no connection is accepted until the timer: there was no descriptor */
	struct coll_pending pending;
};

/* A barrier between our store and our later load, seen by other processes. */
static inline void shm_fence(void)
{
#if defined(__SANITIZE_THREAD__)
	atomic_uint here = 0; /* fences are unknown to ThreadSanitizer */

	atomic_fetch_add(&here, 1);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* shm.c */
void coll_shm_wake_self(struct shm_inst *in);

static inline coll_status coll_shm_link_state(const struct shm_link *l)
{
	return (coll_status)atomic_load(&l->status);
}

/* It broke for a lack of this process before it was opened. */
static inline bool coll_shm_parked_lacks(const struct shm_link *l)
{
	return !l->opened && coll_shm_link_state(l) == COLL_ERR_SYSTEM;
}

#endif
