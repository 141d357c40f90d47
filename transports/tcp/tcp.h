/*
 * The inside of the tcp transport: its objects and which lock guards what.
 *
 *   service.lock  pending handshakes, connection attempts, the timer. Held by
 *                 service() (and progress() while something connects); long
 *                 (microseconds each for a bounded number of pending handshakes).
 *   links.lock    the table of links and the list of those that are up. Short.
 *   link's lock   socket, queue, channels of one link. Held over one system call.
 *
 * Taken in this order, never backwards; none is held while env->link_down runs.
 * Links are never freed before fini: a stale event finds a link whose
 * generation has moved on.
 */
#ifndef COLL_TRANSPORTS_TCP_TCP_H
#define COLL_TRANSPORTS_TCP_TCP_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/crc32c.h"
#include "net/listen.h"
#include "transport/transport.h"
#include "transports/common/id_table.h"
#include "transports/common/link_table.h"
#include "transports/common/pending.h"
#include "transports/common/reactor.h"
#include "wire.h"

extern const struct coll_transport coll_transport_tcp;

enum {
	TCP_PENDING_MAX = 256,          /* handshakes pending at once */
	TCP_ACCEPTS_PER_CALL = 64,      /* bound of one service() */
	TCP_CANDIDATES_MAX = 66,        /* addresses one process announces */
	TCP_RAILS_MAX = 8,              /* sockets of one link */
	TCP_LONG_SOCKETS = 4,           /* of one over a long path, unless the user says */
	TCP_CHANNELS_MAX = 1 << 16,     /* per link and direction */
	TCP_STAGE_BYTES = 16 * 1024,    /* heads and small payloads are read through this */
	TCP_LARGE_BYTES = 8 * 1024 + 1, /* payloads above are not worth staging */
	TCP_WAKE_BYTES = 1024 * 1024,   /* of a large payload that a thread sleeps for; see tcp.md */
	TCP_WAKE_MANY = 128 * 1024,     /* the same with many links */
	TCP_SLOT_BYTES = 1024 * 1024,   /* longer frames, fewer turns between sending and receiving; see tcp.md */
	TCP_BULK_BYTES = 512 * 1024,    /* what is handed to a taker is read through this */
	TCP_PIECE_BYTES = 64,           /* and handed on in multiples of this */
	TCP_CHECK_BYTES = 256 * 1024,   /* pieces of a payload that have a check of their own: see check.c */
	TCP_CHECK_PIECES = 16,          /* of which so many are computed before they are sent */
	TCP_TRAILER_BYTES = 4,
	TCP_HEADROOM = 64,      /* before each slot: head and payload go out as one piece */
	TCP_UNHEARD_MAX = 1024, /* so many reads without a sleeper: take the socket out of the data epoll */
	TCP_DIRECT_LINKS = 2,   /* up to so many links are read without asking epoll */
	TCP_EVENTS = 32,
	TCP_INTERFACE_NAME = 16,
	TCP_WHERE_TEXT = 112,  /* a name, two IPv6 addresses */
	TCP_CONTROL_NAME = 32, /* room for the name of a congestion control */
};

/* ---- addresses (address.c) -------------------------------------------- */

struct coll_tcp_candidate {
	uint8_t ip6; /* 0: the first four bytes of ip are IPv4 */
	uint8_t loopback;
	uint16_t port;
	uint8_t prefix;    /* bits of ip that name the network */
	uint8_t interface; /* equal for addresses of one interface */
	uint8_t distance;  /* of the interface from the process: enum coll_nic_distance */
	uint8_t origin;    /* of mbps: enum coll_rate_origin */
	uint32_t mbps;     /* rate of the interface, as given or as the system says; 0: unknown */
	uint8_t ip[16];
	char name[TCP_INTERFACE_NAME]; /* of the interface; of others' where its rate is announced, and there was room
	                                */
};

struct coll_tcp_address {
	uint64_t machine;    /* boot id */
	uint64_t name_space; /* boot id and network namespace: loopback is common */
	struct coll_process_id id;
	unsigned count;
	struct coll_tcp_candidate candidate[TCP_CANDIDATES_MAX];
};

/* ---- objects ------------------------------------------------------------ */

/* Two addresses, ours first, that a rail may use: the same network, and no interface twice. */
struct coll_tcp_pair {
	struct coll_tcp_candidate here, there;
};

struct tcp_link;
struct tcp_inst;

/* What senders and receivers share; the handle of channel_open points here. */
struct tcp_channel {
	struct tcp_link *link;
	enum coll_direction dir;
	struct coll_channel_key key;
	size_t slot_bytes;
	size_t stride;
	uint32_t slots;
	char *memory;
	uint32_t *spare; /* stack of free slots: the one used last is warm */
	uint32_t spare_count;
	uint32_t reserved;  /* entries of the link's queue */
	coll_status status; /* sticky, of this channel alone */
};

/* The sender's view of a receiving end that the peer has opened. */
struct tcp_grant {
	struct coll_channel_key key;
	uint32_t id; /* the peer's index */
	uint32_t slots;
	size_t slot_bytes;
	uint32_t credits;
	uint32_t index; /* of the next DATA */
	bool held;      /* after a new socket: the peer has not said yet what it has got */
	struct tcp_sender *sender;
};

struct tcp_sender {
	struct tcp_channel base;
	struct tcp_grant *grant;
	uint32_t current;                /* slot handed out by slot(), or UINT32_MAX */
	uint32_t queued;                 /* entries of this channel in link->queue */
	bool closed;                     /* free when queued is 0 */
	struct coll_completion **loaned; /* ring of slots completion words, oldest first */
	uint32_t loaned_first, loaned_count;
	uint32_t loaned_done;   /* how many of them are given back next: the kernel or the peer has taken them */
	struct tcp_entry *kept; /* see kept.c; NULL: the link has one socket */
	uint32_t kept_first, kept_count;
	struct tcp_sender *next, **prev;
};

struct tcp_arrival {
	uint32_t slot;
	bool asks; /* for its credit at once */
	struct coll_frame frame;
};

struct tcp_into {
	char *ptr;
	const struct coll_taker *taker; /* in place of ptr */
	size_t taken;                   /* bytes it has got */
	struct coll_frame expect;
	struct coll_completion *completion; /* NULL: nothing announced */
	bool finished;
	coll_status status;
};

struct tcp_receiver {
	struct tcp_channel base;
	uint32_t id;
	struct tcp_arrival *ring;
	uint32_t first;
	_Atomic uint32_t count; /* frames here; read without the lock by view */
	uint32_t allowed;       /* frames the sender may still send */
	uint32_t index;         /* expected of the next DATA */
	uint32_t owed;          /* slots emptied and not reported yet */
	uint32_t due_at;        /* tell when so many are owed */
	bool due;               /* counted in link->due */
	struct tcp_receiver *owing_next;
	struct tcp_into into;
	bool draining; /* closed here, CLOSED not yet seen: discard */
};

/* One thing to send. */
struct tcp_entry {
	struct coll_tcp_head head;
	const char *payload;
	uint32_t len_bytes;
	uint32_t slot;             /* UINT32_MAX: none */
	struct tcp_sender *sender; /* NULL: control */
	bool loaned;               /* payload is user memory, a completion word waits */
	void *owned;               /* to be freed when sent */
};

/* One connection being made: by us (in a link) or by an unknown peer (in pending). */
struct tcp_handshake {
	int fd;
	uint32_t generation;
	enum { HANDSHAKE_IDLE, HANDSHAKE_CONNECTING, HANDSHAKE_HELLO, HANDSHAKE_CHALLENGE, HANDSHAKE_PROOF } stage;
	uint64_t started_ns;
	uint64_t deadline_ns;
	uint64_t nonce[2];
	struct coll_tcp_hello peer; /* its first message, once complete */
	struct coll_tcp_hello in;
	size_t got;
};

enum tcp_state {
	LINK_FREE,
	LINK_CONNECTING,
	LINK_UP,
	LINK_ENDED, /* the peer said BYE and closed */
	LINK_DOWN,
};

struct tcp_link {
	struct coll_peer_link base; /* lingering: flush, then wait for the peer's end */
	struct tcp_inst *inst;
	_Atomic uint32_t generation;
	enum tcp_state state;
	bool bye_seen;
	bool several;   /* one of several rails: what is sent is kept until the peer has it */
	bool again;     /* its socket is lost, and the next one goes on: see kept.c */
	bool stranded;  /* again, and no way has been found yet */
	bool silent;    /* not acknowledged for long enough to doubt it, if others are */
	bool heard;     /* anything has ever arrived */
	bool unreached; /* not acknowledged for so long that its host counts as out of reach */
	uint64_t stranded_ns;
	uint64_t line;              /* names it over all its sockets; 0: it has had none */
	uint32_t made;              /* sockets that it has had, as both ends count */
	bool unjudged;              /* of several rails, broken: link_down waits for coll_tcp_rails_tear() */
	bool judged;                /* of several rails, the first: all are torn for the cause that was found */
	bool near;                  /* same network namespace: the kernel itself tells of deaths */
	char where[TCP_WHERE_TEXT]; /* while it is up: "eth1, 10.0.1.1 to 10.0.1.2"; near: "" */
	bool work;                  /* counted in inst->working */

	int fd;
	struct coll_tcp_key key;
	uint64_t number_out, number_in; /* of the next head */
	coll_crc32c_fn check;           /* of payloads; NULL: none */
	bool watched;                   /* in the data epoll: see coll_tcp_link_watch */
	bool deaf;                      /* not in the service thread's: see coll_tcp_link_unwatch */
	bool want_out;                  /* EPOLLOUT is asked for there */
	unsigned unheard;               /* looks at the socket since then, nobody asleep */

	/* out */
	struct tcp_entry *queue; /* ring, power of two */
	uint32_t queue_cap, queue_first, queue_count;
	uint32_t queue_need;                  /* entries that channels can fill */
	size_t sent;                          /* bytes of the first entry already taken */
	bool shut;                            /* our end of the stream is announced */
	uint32_t check_out[TCP_CHECK_PIECES]; /* of the first pieces that are not sent as a whole */
	uint32_t check_count;
	int out_errno;
	struct tcp_sender *senders;
	struct coll_id_table grants; /* struct tcp_grant, by the peer's id */

	/* in */
	char *stage;
	uint32_t stage_begin, stage_end;
	struct tcp_receiver *into; /* DATA being received, NULL: discard */
	char *into_ptr;
	bool taking; /* into_ptr is in bulk, and what comes goes to into's taker */
	char *bulk;  /* from the first taker on */
	struct coll_tcp_head into_head;
	uint32_t into_slot; /* UINT32_MAX: user memory */
	uint32_t into_left;
	uint32_t piece_left; /* of these, before the next check; without one all of them */
	bool trailer;        /* the check of the piece comes next */
	uint32_t check_in;   /* of the piece, as far as it has come */
	uint32_t passed;     /* bytes of the payload whose check was right */
	uint32_t good;       /* bytes that a taker may have */
	uint32_t skip;       /* of these, what its taker has had before */
	uint32_t wake_bytes; /* as set in the socket: no more than into_left, or 1 */
	bool large;
	struct coll_id_table receivers; /* struct tcp_receiver, by id */
	struct tcp_receiver *owing;     /* those with owed > 0 */
	uint32_t due;                   /* how many of them are due */
	bool asked;                     /* one is due that a sender waits for */
	bool news;                      /* something happened on a channel since the lock was taken */

	/* liveness, service.lock */
	uint64_t unanswered_ns; /* since when data in flight is not acknowledged, 0: it is */
	uint64_t moved;         /* bytes in and out, link's lock */
	uint64_t moved_at_tick;

	/* connecting, service.lock */
	struct tcp_handshake attempt;
	struct coll_tcp_address target;
	unsigned target_next;
	unsigned target_other; /* the last one of the others that was tried */
	unsigned round;
	uint64_t deadline_ns;
	uint64_t retry_ns;
	uint64_t short_ns;   /* since when there has been no socket to connect with; 0: there was one */
	bool retry_any;      /* a candidate of this round may do better later */
	bool cut_off_any;    /* to one no connection could be made */
	uint64_t cut_off_ns; /* since when none could be made to any; 0: one could */
	bool sourced;        /* the first of target is reached from source */
	struct coll_tcp_candidate source;

	char last_error[128];

	/* counters for tests and reports, link's lock */
	uint64_t data_out, data_in, credit_out;
	uint64_t calls_out, calls_in; /* system calls that moved bytes */
};

struct tcp_inst {
	struct coll_transport_env env;
	struct coll_tcp_address address;
	struct coll_nonces nonces;
	char congestion[TCP_CONTROL_NAME];     /* COLL_TCP_CONGESTION; "": by the path */
	char system_control[TCP_CONTROL_NAME]; /* what a new socket has */
	uint64_t timeout_ns;
	uint64_t unreachable_ns; /* for so long a host may be out of reach */
	unsigned sockets;        /* of a link; 0: by the interfaces and the round trip */
	atomic_bool said_long;   /* that there are long paths */
	int buffer_bytes;        /* 0: the kernel's own */
	enum { TCP_CHECK_NONE, TCP_CHECK_LINKS, TCP_CHECK_ALL } check;
	uint32_t place; /* equal where payloads need no check, unless all do */
	_Atomic bool closed;

	struct coll_listeners listeners;
	int data_epoll;
	int reserve_fd; /* given up to refuse a connection when descriptors are out */

	struct coll_link_table links;
	struct tcp_link **up; /* for progress; links.lock */
	uint32_t up_cap;
	_Atomic uint32_t up_count;
	/* The first of them, for a look without the lock: links are never freed before fini,
	 * and one that has ended meanwhile says so under its own. */
	_Atomic(struct tcp_link *) direct[TCP_DIRECT_LINKS];

	struct coll_reactor service;
	struct tcp_handshake *pending;
	uint32_t pending_count;
	bool accept_off;
	uint32_t remote_count;
	uint64_t liveness_ns; /* when it was looked at last */
	uint64_t progress_at_tick;

	_Atomic uint32_t armed;      /* threads between arm and disarm */
	_Atomic uint32_t connecting; /* links in LINK_CONNECTING */
	_Atomic uint32_t working;    /* links with work set */
	_Atomic uint32_t unwatched;  /* links that are up and not in the data epoll */
	_Atomic uint32_t deaf;       /* and of these, not in the service thread's either */
	_Atomic uint64_t progress_calls;
	_Atomic uint64_t refused; /* handshakes refused */
};

/* ---- tags of epoll events ------------------------------------------------ */

enum { TAG_LISTEN = 1, TAG_PENDING, TAG_ATTEMPT, TAG_LINK };

static inline uint64_t tcp_tag(unsigned kind, uint32_t generation, uint32_t index)
{
	return (uint64_t)kind << 60 | (uint64_t)(generation & 0xfffffff) << 32 | index;
}

static inline uint64_t tcp_link_tag(const struct tcp_link *l)
{
	return tcp_tag(TAG_LINK, atomic_load_explicit(&l->generation, memory_order_relaxed), l->base.slot);
}

static inline struct tcp_entry *tcp_queue_at(const struct tcp_link *l, uint32_t i)
{
	return &l->queue[(l->queue_first + i) & (l->queue_cap - 1)];
}

#define tcp_log(in, level, ...) ((in)->env.log((in)->env.ctx, (level), __VA_ARGS__))

/* ---- handshake.c ---------------------------------------------------------- */

extern const uint64_t coll_tcp_no_nonce[2];

/* ---- link.c: the life of a link ------------------------------------------- */

static inline struct tcp_link *tcp_link_at(struct tcp_inst *in, uint32_t i)
{
	return (struct tcp_link *)coll_link_table_at(&in->links, i);
}
/* The congestion control for a path to a peer on this machine, elsewhere, or, of a listener, where the handshake will
 * tell: before fd connects or listens, and when it has become known. Whether the system allows it. */
enum tcp_path { TCP_PATH_UNKNOWN, TCP_PATH_HERE, TCP_PATH_AWAY };
/* The context's sleepers. Any lock held. */
static inline void coll_tcp_wake(struct tcp_inst *in)
{
	coll_eventfd_raise(in->env.wake_fd);
}

/* ---- channel.c, grant.c ------------------------------------------------------------------ */

/* All with link's lock held. */

/* ---- service.c --------------------------------------------------------------------- */

extern const struct coll_reactor_table coll_tcp_service_table;

#endif
