/*
 * Target: what a member sends on an rdma link after the handshake, over the device in software. It writes into our
 * ring, as it may at any moment, and sends notes and frames of any content: what a device has delivered is overwritten
 * before the transport reads it.
 */
#include "tests/fuzz/fuzz.h"
#include "transports/rdma/address.h"
#include "transports/rdma/sides_test.h"
#include "transports/rdma/sums.h"
#include "transports/rdma/tx.h"

void fuzz_rdma(const uint8_t *data, size_t len_bytes);
void fuzz_rdma_checked(const uint8_t *data, size_t len_bytes);

enum { SLOT = 8192, SLOTS = 4, STEPS = 60 };

static const char *check = "";

static const char *a_setting(void *ctx, const char *name)
{
	return strcmp(name, "COLL_CHECK") == 0 ? check : "";
}

/* Side 0 is ours. */
struct bench {
	void *tx, *rx, *their_tx, *their_rx;
	struct coll_completion received;
	char user[SLOT];
};

static void *channel_on(struct side *s, uint64_t comm, enum coll_direction dir)
{
	const struct coll_channel_key key = {.comm = comm, .epoch = 1};
	void *ch = NULL;

	FUZZ_HOLDS(t->channel_open(s->link, &key, dir, SLOT, SLOTS, &ch) == COLL_OK);
	return ch;
}

static void begin(struct bench *b)
{
	void *p;

	for (int i = 0; i < SIDES; i++)
		open_side(&side[i], a_setting);
	/* One after the other: attempts that cross are made again after a while. */
	for (int i = 0; i < SIDES; i++) {
		open_link(&side[i], &side[!i]);
		FUZZ_HOLDS(AWAIT(is_up(&side[i])));
	}
	b->tx = channel_on(&side[0], 1, COLL_DIR_SEND);
	b->their_rx = channel_on(&side[1], 1, COLL_DIR_RECV);
	b->rx = channel_on(&side[0], 2, COLL_DIR_RECV);
	b->their_tx = channel_on(&side[1], 2, COLL_DIR_SEND);
	/* progress() besides: the service looks at completions ten times a second. */
	FUZZ_HOLDS(AWAIT((t->progress(side[0].in), t->progress(side[1].in), t->slot(b->tx, 8, &p) == COLL_OK) &&
	                 t->slot(b->their_tx, 8, &p) == COLL_OK));
}

static void end(struct bench *b)
{
	t->channel_close(b->their_tx);
	t->channel_close(b->their_rx);
	t->channel_close(b->tx);
	t->channel_close(b->rx);
	for (int i = 0; i < SIDES; i++)
		close_link(&side[i]);
	for (int i = 0; i < SIDES; i++)
		close_side(&side[i]);
	FUZZ_HOLDS(fabric_objects() == 0);
}

/* Any note: one is delivered, and then says what the input says. */
static void send_note(struct fuzz_input *in)
{
	struct rdma_link *theirs = side[1].link, *ours = side[0].link;
	struct coll_rdma_note note = {.type = COLL_RDMA_NOTE_CREDIT};
	uint8_t bytes[COLL_RDMA_NOTE_BYTES] = {0};

	fuzz_bytes(in, bytes, 1 + fuzz_byte(in) % sizeof(bytes));
	if (theirs->state != LINK_UP || ours->state != LINK_UP || !ours->notes)
		return;
	bytes[0] %= 16;
	coll_rdma_tx_note(theirs, &note);
	coll_rdma_tx_push(theirs);
	for (int i = 0; i < RDMA_RECVS; i++)
		memcpy(ours->notes + (size_t)(RDMA_SENDS + i) * COLL_RDMA_NOTE_BYTES, bytes, sizeof(bytes));
	t->service(side[0].in);
}

static void scribble(struct bench *b, struct fuzz_input *in)
{
	const struct rdma_ring *ring = &((struct rdma_channel *)b->rx)->ring;
	const uint8_t slot = fuzz_byte(in) % SLOTS;
	struct coll_rdma_head head;

	fuzz_bytes(in, &head, sizeof(head));
	if (slot & 1)
		head.check = coll_rdma_check(&(struct coll_rdma_head){.frame.len_bytes = 0}, NULL);
	memcpy(rdma_head_at(ring, slot), &head, sizeof(head));
	if (side[0].in->check && head.frame.len_bytes <= SLOT)
		coll_rdma_sums_put(side[0].in, rdma_head_at(ring, slot),
		                   rdma_payload_at(ring, slot, head.frame.len_bytes));
}

/* A frame as it should be. */
static void send_frame(struct bench *b, uint8_t how)
{
	const struct coll_frame f = {1, 2, (uint32_t)how << 4};
	void *p;

	if (t->slot(b->their_tx, f.len_bytes, &p) != COLL_OK)
		return;
	memset(p, 1, f.len_bytes);
	t->post(b->their_tx, &f);
}

static void we_do(struct bench *b, uint8_t how)
{
	const struct coll_frame expect = {1, 2, (uint32_t)how << 4};
	struct coll_frame f;
	const void *p;
	void *slot;
	unsigned sum = 0;

	t->progress(side[0].in);
	if (how & 1 && !coll_completion_pending(&b->received))
		t->recv_into(b->rx, b->user, NULL, &expect, &b->received);
	if (!coll_completion_pending(&b->received) && t->view(b->rx, &p, &f) == COLL_OK) {
		FUZZ_HOLDS(f.len_bytes <= SLOT);
		for (uint32_t i = 0; i < f.len_bytes; i++)
			sum += ((const volatile unsigned char *)p)[i];
		b->user[0] = (char)sum;
		t->done(b->rx);
	}
	if (how & 2 && t->slot(b->tx, 64, &slot) == COLL_OK) {
		const struct coll_frame mine = {1, 2, 64};

		memset(slot, 3, 64);
		t->post(b->tx, &mine);
	}
}

void fuzz_rdma(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	struct coll_rdma_peer_info info;
	struct bench b = {0};

	if (coll_rdma_address_decode(&info, data, len_bytes))
		FUZZ_HOLDS(info.count <= COLL_RDMA_PORTS);
	begin(&b);
	for (int i = 0; i < STEPS && in.left > 0; i++) {
		const uint8_t what = fuzz_byte(&in);

		switch (what % 4) {
		case 0: send_note(&in); break;
		case 1: scribble(&b, &in); break;
		case 2: send_frame(&b, fuzz_byte(&in)); break;
		default: we_do(&b, fuzz_byte(&in)); break;
		}
	}
	we_do(&b, 0);
	end(&b);
}

/* Payloads are checked, and the sums behind the heads are right. */
void fuzz_rdma_checked(const uint8_t *data, size_t len_bytes)
{
	check = "all";
	fuzz_rdma(data, len_bytes);
	check = "";
}
