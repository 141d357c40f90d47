/*
 * Target: what a member sends on a tcp link after the handshake. Heads are sealed as the link wants it, or left as they
 * are; good frames in between keep the link going. The other end has three channels to receive and one to send.
 */
#include "base/crc32c.h"
#include "tests/fuzz/fuzz.h"
#include "transports/tcp/raw_peer_test.h"

void fuzz_tcp(const uint8_t *data, size_t len_bytes);
void fuzz_tcp_checked(const uint8_t *data, size_t len_bytes);

enum { SLOT = 300, SLOTS = 4, CHANNELS = 3, STEPS = 60 };

/* Made once. The second one wants a check behind each payload, as links between hosts do. */
static struct station stations[2] = {{.check = "none"}, {.check = "all"}};
static struct station *here;

struct bench {
	struct raw_peer peer;
	void *link, *rx[CHANNELS], *tx;
	struct coll_completion completion;
	char user[SLOT];
};

static bool open_bench(struct bench *b)
{
	const struct coll_channel_key back = {.comm = 6};
	struct coll_tcp_head grant;
	static uint64_t id = 1;

	if (!raw_connect(&b->peer, here, ++id))
		return false;
	b->link = raw_link(here, id, 1);
	FUZZ_HOLDS(UNTIL(here, here->t->link_status(b->link) != COLL_AGAIN));
	for (unsigned i = 0; i < CHANNELS; i++) {
		const struct coll_channel_key key = {.comm = 5, .lane = (uint16_t)i};

		FUZZ_HOLDS(here->t->channel_open(b->link, &key, COLL_DIR_RECV, SLOT, SLOTS, &b->rx[i]) == COLL_OK &&
		           raw_hear(&b->peer, here, &grant, sizeof(grant)));
	}
	FUZZ_HOLDS(here->t->channel_open(b->link, &back, COLL_DIR_SEND, SLOT, SLOTS, &b->tx) == COLL_OK);
	return true;
}

static void close_bench(struct bench *b)
{
	close(b->peer.fd);
	for (int i = 0; i < CHANNELS; i++)
		here->t->channel_close(b->rx[i]);
	here->t->channel_close(b->tx);
	here->t->link_close(b->link);
	for (int i = 0; i < 3; i++)
		station_turn(here);
}

/* What callers of the honest end do. */
static void take(struct bench *b, uint8_t how)
{
	struct coll_frame f;
	const void *p;
	void *slot;

	station_turn(here);
	if (how & 1 && coll_completion_pending(&b->completion) == 0) {
		const struct coll_frame expect = {1, 1, how};

		here->t->recv_into(b->rx[0], b->user, NULL, &expect, &b->completion);
	}
	for (int i = coll_completion_pending(&b->completion) ? 1 : 0; i < CHANNELS; i++)
		while (here->t->view(b->rx[i], &p, &f) == COLL_OK) {
			char copy[SLOT];

			FUZZ_HOLDS(f.len_bytes <= SLOT);
			memcpy(copy, p, f.len_bytes);
			here->t->done(b->rx[i]);
		}
	if (how & 2 && here->t->slot(b->tx, SLOT, &slot) == COLL_OK) {
		const struct coll_frame mine = {1, 2, how};

		memset(slot, 3, SLOT);
		here->t->post(b->tx, &mine);
	}
}

static void say(struct bench *b, struct fuzz_input *in, bool sealed)
{
	struct coll_tcp_head h;
	uint8_t more[SLOT];
	size_t len_bytes;
	uint32_t check;

	fuzz_bytes(in, &h, sizeof(h));
	if (sealed)
		raw_seal(&b->peer, &h);
	raw_send(&b->peer, here, &h, sizeof(h));
	len_bytes = h.type == COLL_TCP_DATA && h.len_bytes <= SLOT ? h.len_bytes : 0;
	fuzz_bytes(in, more, len_bytes);
	raw_send(&b->peer, here, more, len_bytes);
	if (here != &stations[1] || len_bytes == 0)
		return;
	check = coll_crc32c_best()(h.check, more, len_bytes) ^ (fuzz_byte(in) == 0xff);
	raw_send(&b->peer, here, &check, sizeof(check));
}

static void talk(struct station *s, const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	struct bench b = {0};

	here = s;
	if (!here->t)
		FUZZ_HOLDS(station_open(here, 1) == COLL_OK);
	FUZZ_HOLDS(open_bench(&b));
	for (int i = 0; i < STEPS && in.left > 0; i++) {
		const uint8_t what = fuzz_byte(&in);

		if (what % 4 == 3)
			take(&b, fuzz_byte(&in));
		else
			say(&b, &in, what % 4 != 2);
	}
	take(&b, 3);
	close_bench(&b);
}

void fuzz_tcp(const uint8_t *data, size_t len_bytes)
{
	talk(&stations[0], data, len_bytes);
}

void fuzz_tcp_checked(const uint8_t *data, size_t len_bytes)
{
	talk(&stations[1], data, len_bytes);
}
