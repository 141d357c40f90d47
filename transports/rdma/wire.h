/*
 * What two ends of an rdma link say to each other: what a process's address tells (address.c),
 * the private data of a connection, the notes sent beside the frames, and the head
 * that stands behind each frame. All of one byte order: an address says which.
 */
#ifndef COLL_TRANSPORTS_RDMA_WIRE_H
#define COLL_TRANSPORTS_RDMA_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/proof.h"
#include "transport/transport.h"

#define COLL_RDMA_MAGIC   0x52444d41u /* "RDMA" in the byte order of its writer */
#define COLL_RDMA_VERSION 12u

enum { COLL_RDMA_PORTS = 8, COLL_RDMA_DEVICE_BYTES = 16 };

/* One port of a process: an RDMA port with an address. */
struct coll_rdma_spot {
	uint8_t ip[16];
	uint16_t listens; /* at this port of the connection manager */
	uint8_t family;   /* 4 or 6 */
	uint8_t prefix;   /* of the address's network, in bits; 0: unknown */
	uint8_t fabric;   /* enum ibv_transport_type */
	uint8_t layer;    /* InfiniBand or Ethernet, as ibv_port_attr */
	uint8_t number;   /* of the device's ports */
	uint8_t distance; /* from the process: enum coll_nic_distance */
	uint8_t origin;   /* of mbps: enum coll_rate_origin */
	uint32_t mbps;    /* 0: unknown */
	char device[COLL_RDMA_DEVICE_BYTES];
};

/* How others reach this instance; exchanged by bootstrap. The nearest port first. address.c has its text. */
struct coll_rdma_peer_info {
	struct coll_process_id id;
	unsigned count;
	struct coll_rdma_spot port[COLL_RDMA_PORTS];
};

enum coll_rdma_hello_type {
	COLL_RDMA_ASK = 1,
	COLL_RDMA_ANSWER,
	COLL_RDMA_PROOF,
	COLL_RDMA_ASK_AGAIN,
	COLL_RDMA_CHALLENGE, /* in the private data of a refusal: ask again with the first word of its nonce */
};

/* In the private data of a refusal: there is no such link any more. */
#define COLL_RDMA_GONE 0x47

/* In the private data of request and reply; the nonce of a request: requests.c. */
struct coll_rdma_hello {
	uint16_t magic; /* the low half of COLL_RDMA_MAGIC */
	uint8_t version;
	uint8_t type;
	uint16_t recvs;              /* receives that are posted here */
	uint8_t rail;                /* which rail of the link */
	uint8_t way;                 /* over which of its pairs of ports */
	struct coll_process_id from; /* masked while it travels: see hello.c */
	uint64_t nonce[2];
	struct coll_proof proof; /* over this with proof 0, the addressee, and the nonce it answers */
	/* Frames and notes that have arrived here, ever: what is sent again begins behind them. A request has no room
	 * for it; there the proof that follows brings it. */
	uint64_t items;
};

enum { COLL_RDMA_ASK_BYTES = offsetof(struct coll_rdma_hello, items) };
static_assert(COLL_RDMA_ASK_BYTES == 56, "the most that a request carries");

enum coll_rdma_note_type {
	COLL_RDMA_NOTE_PROOF = 1, /* client to server: word[0] and [1] are the proof, [2] its items */
	COLL_RDMA_NOTE_GRANT,     /* a receiving end is open */
	COLL_RDMA_NOTE_CREDIT,    /* slots given back: pairs of id and count */
	COLL_RDMA_NOTE_INTO,      /* where the next frame may go */
	COLL_RDMA_NOTE_CLOSE,     /* the receiver closes */
	COLL_RDMA_NOTE_CLOSED,    /* the sender has sent its last write there */
	COLL_RDMA_NOTE_BYE,       /* the last of this link */
	COLL_RDMA_NOTE_ASK,       /* the sender: a frame by reference waits to be told where it goes */
	COLL_RDMA_NOTE_WAIT,      /* the receiver: they are to wait, and will be told */
	COLL_RDMA_NOTE_COME,      /* the receiver: from this number on they may come into the slots */
	COLL_RDMA_NOTE_FRAME,     /* one is in its slot, where no immediate can say so; word[0] is that */
	COLL_RDMA_NOTE_LOST,      /* rail number id of this link has broken: the link is over */
	COLL_RDMA_NOTE_KEYS,      /* of a connection made again, its first: keys of rings */
};

enum { COLL_RDMA_NOTE_BYTES = 64, COLL_RDMA_NOTE_CREDITS = 6 };

struct coll_rdma_note {
	uint8_t type;
	uint8_t count;  /* of credits or keys */
	uint16_t recvs; /* receives posted again since the last one told */
	uint32_t id;    /* channel, the receiver's number */
	union {
		struct {
			struct coll_channel_key key;
			uint32_t slots;
			uint32_t rkey;
			uint64_t slot_bytes;
			uint64_t ring;
		} grant;
		struct {
			uint32_t number; /* of the frame, modulo 2^32 */
			uint32_t rkey;
			uint64_t ptr;
			struct coll_frame expect;
		} into;
		struct {
			uint32_t id;
			uint32_t count;
		} credit[COLL_RDMA_NOTE_CREDITS];
		struct {
			uint32_t id;
			uint32_t rkey;
		} key[COLL_RDMA_NOTE_CREDITS];
		uint64_t word[7];
	};
};

static_assert(sizeof(struct coll_rdma_note) == COLL_RDMA_NOTE_BYTES, "one line");

/* The last 32 bytes of a frame. The payload ends where the head begins, but for
 * padding: coll_rdma_padded(). With COLL_CHECK=all sums of it follow (sums.c). */
struct coll_rdma_head {
	struct coll_frame frame;
	uint32_t credit_id; /* of the other direction */
	uint16_t credits;
	uint16_t recvs;
	uint32_t number; /* frames before this one, modulo 2^32 */
	/* Of payload and head, for small frames: who sees it match in its slot need not wait for
	 * the completion, in whatever order the device placed the bytes. 0: none. */
	uint32_t check;
};

static_assert(sizeof(struct coll_rdma_head) == 32, "no holes");

enum { COLL_RDMA_POLLED_BYTES = 256 };

/* What a payload takes up before its head: aligned like a line, or, where every byte on the wire
 * counts, like the largest of types. */
static inline size_t coll_rdma_padded(size_t len_bytes)
{
	const size_t unit = len_bytes <= COLL_RDMA_POLLED_BYTES ? 16 : 64;

	return (len_bytes + unit - 1) & ~(unit - 1);
}

/* payload: of whole words, the last one padded with whatever travels along. */
static inline uint32_t coll_rdma_check(const struct coll_rdma_head *head, const void *payload)
{
	const size_t words = (head->frame.len_bytes + 7) / 8;
	struct coll_rdma_head h = *head;
	uint64_t w, sum = 0x9e3779b97f4a7c15u;

	h.check = 0;
	for (size_t i = 0; i < words + sizeof(h) / 8; i++) {
		memcpy(&w, i < words ? (const char *)payload + 8 * i : (const char *)&h + 8 * (i - words), 8);
		sum = (sum ^ w) * 0xff51afd7ed558ccdu;
		sum ^= sum >> 32;
	}
	return (uint32_t)sum | 1;
}

/* The immediate of a frame: the channel, and where the payload lies. */
#define COLL_RDMA_IMM_INTO 0x80000000u /* where the receiver announced, else in the slot */
#define COLL_RDMA_IMM_ID   0x000fffffu

#endif
