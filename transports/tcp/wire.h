/*
 * What goes over a TCP link, byte for byte. Both structs are written as they lie
 * in memory on a little-endian machine; a machine of the other order is refused
 * by the magic number. The layout is explained in docs/design/tcp.md.
 *
 * First the handshake (HELLO, CHALLENGE, PROOF, VERDICT, one struct
 * coll_tcp_hello each), then frames: a head, and for DATA its payload. On links
 * that check payloads a CRC-32C follows each 256 KiB of it, and the last bytes (check.c).
 */
#ifndef COLL_TRANSPORTS_TCP_WIRE_H
#define COLL_TRANSPORTS_TCP_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/proof.h"
#include "base/siphash.h"
#include "transport/transport.h"

enum {
	COLL_TCP_MAGIC = 0x31636f6c, /* "loc1" */
	COLL_TCP_VERSION = 6,
	COLL_TCP_HEAD_MAGIC = 0xc011,
	COLL_TCP_NO_CHANNEL = 0xffffffff,
	COLL_TCP_SEVERAL = 0x80, /* in the verdict of HELLO and PROOF: the rail is one of several */
	COLL_TCP_ASKS = 1,       /* in the flags of DATA: the credit is to come back at once */
};

enum coll_tcp_hello_type { COLL_TCP_HELLO = 1, COLL_TCP_CHALLENGE, COLL_TCP_PROOF, COLL_TCP_VERDICT };
enum coll_tcp_verdict { COLL_TCP_ACCEPT = 1, COLL_TCP_BUSY = 2 };

struct coll_tcp_hello {
	uint32_t magic;
	uint16_t version;
	uint8_t type;
	uint8_t verdict;   /* of VERDICT; in HELLO and PROOF the number of the rail */
	uint64_t nonce[2]; /* of the one who speaks, the same in both of its messages */
	/* From here to the proof it travels masked: see coll_tcp_hello_mask(). */
	struct coll_process_id from;
	struct coll_process_id to;
	uint64_t host; /* equal on processes of one machine */
	/* Of a rail that had sockets before: what names it, and how many it has had; else 0. */
	uint64_t line;
	uint32_t made;
	uint32_t place;          /* a hash of the host: payloads between two places have checks */
	struct coll_proof proof; /* over all the above and the other side's nonce */
};
static_assert(sizeof(struct coll_tcp_hello) == 96, "handshake layout");

enum coll_tcp_type {
	COLL_TCP_DATA = 1,   /* channel, len_bytes, signature, sequence, index; payload follows */
	COLL_TCP_CREDIT = 2, /* only the piggybacked credits */
	COLL_TCP_GRANT = 3,  /* receiver -> sender: channel is mine, key and sizes packed below */
	COLL_TCP_CLOSE = 4,  /* receiver -> sender: channel is closed, send no more */
	COLL_TCP_CLOSED = 5, /* sender -> receiver: nothing more of channel follows */
	COLL_TCP_BYE = 6,    /* the end of the stream is no death */
	COLL_TCP_NOP = 7,    /* makes the peer's kernel acknowledge something */
	COLL_TCP_STATE = 8,  /* receiver -> sender: frames before index are here, and `credits` more may come */
};

/*
 * channel is the index the receiver of the data gave to the channel. GRANT uses
 * the other members for the key: sequence = comm, signature = epoch, index =
 * lane << 16 | window, len_bytes = slot_bytes, credits = slots.
 */
struct coll_tcp_head {
	uint16_t magic;
	uint8_t type;
	uint8_t flags; /* of DATA */
	uint32_t channel;
	uint32_t len_bytes;
	uint32_t signature;
	uint64_t sequence;
	uint32_t credit_channel; /* COLL_TCP_NO_CHANNEL: no credits here */
	uint32_t credits;
	uint32_t index; /* running number of DATA on the channel */
	uint32_t check;
};
static_assert(sizeof(struct coll_tcp_head) == 40, "head layout");

/* Of one connection: see coll_tcp_hello_key(). */
struct coll_tcp_key {
	uint64_t word[2];
};

/*
 * Check value over a head: 32 bits of SipHash-2-4 over it and its running number, under the key of the connection. A
 * forged head is accepted once in 2^32 tries, and the first that is not ends the link. Numbers of the process of higher
 * id begin at COLL_TCP_NUMBER_HIGH, so that nothing passes in the other direction, or twice.
 */
#define COLL_TCP_NUMBER_HIGH ((uint64_t)1 << 63)

static inline uint32_t coll_tcp_head_check(const struct coll_tcp_head *head, const struct coll_tcp_key *key,
                                           uint64_t number)
{
	const uint64_t len_bytes = offsetof(struct coll_tcp_head, check) + sizeof(number);
	struct coll_siphash s = coll_siphash_begin(key->word);
	uint64_t word[4];

	memcpy(word, head, sizeof(word));
	for (int i = 0; i < 4; i++)
		coll_siphash_word(&s, word[i]);
	coll_siphash_word(&s, head->index | number << 32);
	coll_siphash_word(&s, number >> 32 | len_bytes << 56);
	s.v2 ^= 0xff;
	return (uint32_t)coll_siphash_end(&s);
}

#endif
