/*
 * Thousands of short-lived communicators over one link, with one that lives all the while:
 * nothing of them is left at either end, and none of them gets a frame of another.
 *
 * Counted: descriptors, threads, mappings, mapped bytes of shared memory, and (without a
 * sanitizer) bytes of the heap, between the moment when the tables have their size and the
 * end.
 */
#include <malloc.h>
#include <stdlib.h>

#include "tests/conform/conform.h"
#include "tests/holdings.h"

enum { ROUNDS = 10000, WARM_UP = 600, LEN = 3000, HEAP_SLACK = 64 << 10 };

struct holdings {
	int descriptors, threads, mappings;
	size_t shared, heap;
};

static struct holdings take_stock(void)
{
	struct holdings h = {.descriptors = holdings_descriptors(), .threads = holdings_threads()};
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long from, to;

		if (!strstr(line, "memfd:") || sscanf(line, "%lx-%lx", &from, &to) != 2)
			continue;
		h.mappings++;
		h.shared += to - from;
	}
	if (maps)
		fclose(maps);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	h.heap = mallinfo2().uordblks + mallinfo2().hblkhd;
#endif
	return h;
}

/* Ways in which the two ends of a channel come and go. */
enum way { IN_ORDER, SENDER_LEAVES_FIRST, RECEIVER_LEAVES_FIRST, NO_SENDER, NO_RECEIVER, UNREAD, ANOTHER_SIZE, WAYS };

static void no_partner(struct world *w, struct coll_channel_key key, enum coll_direction dir)
{
	const bool sends = dir == COLL_DIR_SEND;
	void *ch = channel(w, !sends, sends, dir, key, LEN, 2);

	if (key.comm % 2)
		for (int i = 0; i < 20; i++)
			world_progress(w);
	w->t->channel_close(ch);
}

/* What is posted and not read is discarded; the sender is told, or finds no credit. */
static void unread(struct world *w, void *tx, void *rx, uint64_t c)
{
	void *p;

	send_one(w, tx, c, 0, LEN);
	send_one(w, tx, c, 1, LEN);
	w->t->channel_close(rx);
	for (int i = 0; i < 5; i++) {
		world_progress(w);
		CHECK(w->t->slot(tx, 8, &p) != COLL_OK);
	}
	w->t->channel_close(tx);
}

static void short_life(struct world *w, uint64_t c, enum way way)
{
	const struct coll_channel_key key = key_of(1000 + c, 0, 0);
	const size_t slot_bytes = way == ANOTHER_SIZE ? LEN + 64 * (c % 37) : LEN;
	void *tx, *rx;

	if (way == NO_SENDER || way == NO_RECEIVER) {
		no_partner(w, key, way == NO_SENDER ? COLL_DIR_RECV : COLL_DIR_SEND);
		return;
	}
	if (c % 2) {
		tx = channel(w, 0, 1, COLL_DIR_SEND, key, slot_bytes, 2);
		rx = channel(w, 1, 0, COLL_DIR_RECV, key, slot_bytes, 2);
	} else {
		rx = channel(w, 1, 0, COLL_DIR_RECV, key, slot_bytes, 2);
		tx = channel(w, 0, 1, COLL_DIR_SEND, key, slot_bytes, 2);
	}
	if (way == UNREAD) {
		unread(w, tx, rx, c);
		return;
	}
	send_one(w, tx, c, 0, c % LEN);
	if (way == SENDER_LEAVES_FIRST)
		w->t->channel_close(tx);
	recv_one(w, rx, c, 0, c % LEN);
	w->t->channel_close(rx);
	if (way != SENDER_LEAVES_FIRST)
		w->t->channel_close(tx);
}

/* What was said before has been heard at both ends, and answered: a new channel each way is
 * granted behind it. Else the rounds run ahead of the service threads, and more channels
 * live at once than the test means. */
static void settle_down(struct world *w, void *const *tx, void *const *rx, uint64_t i)
{
	for (unsigned k = 0; k < 2; k++) {
		void *out = channel(w, (int)k, !k, COLL_DIR_SEND, key_of(2, (unsigned)i, k), LEN, 2);
		void *in = channel(w, !k, (int)k, COLL_DIR_RECV, key_of(2, (unsigned)i, k), LEN, 2);

		send_one(w, out, k, i, 100);
		recv_one(w, in, k, i, 100);
		w->t->channel_close(in);
		w->t->channel_close(out);
		send_one(w, tx[k], k, i, 100);
		recv_one(w, rx[k], k, i, 100);
	}
}

TEST_IN_WORLD(many, short_lived_communicators_leave_nothing, 2, true)
{
	struct holdings before = {0}, after = {0};
	void *tx[2], *rx[2];
	uint64_t i = 0;

	for (int k = 0; k < 2; k++) {
		tx[k] = channel(w, k, !k, COLL_DIR_SEND, key_of(1, 0, 0), LEN, 2);
		rx[k] = channel(w, !k, k, COLL_DIR_RECV, key_of(1, 0, 0), LEN, 2);
	}
	for (uint64_t c = 0; c < ROUNDS && atomic_load(&plain_failures) == 0; c++) {
		if (c == WARM_UP)
			before = take_stock();
		short_life(w, c, (enum way)(coll_mix64(c) % WAYS));
		if (c % 16 == 0)
			settle_down(w, tx, rx, i++);
	}
	for (int k = 0; k < 200; k++)
		settle_down(w, tx, rx, i++);
	/* What the service threads still have in hand is theirs for a moment. */
	AWAIT_S(w, (after = take_stock()).heap <= before.heap + HEAP_SLACK && after.shared <= before.shared, 5);
	printf("     %d communicators: %d descriptors, %d threads, %d mappings of %zu bytes, heap %zu and %zu bytes\n",
	       ROUNDS, after.descriptors, after.threads, after.mappings, after.shared, before.heap, after.heap);
	CHECK(after.descriptors <= before.descriptors, "%d descriptors, %d before", after.descriptors,
	      before.descriptors);
	CHECK(after.threads <= before.threads, "%d threads, %d before", after.threads, before.threads);
	CHECK(after.mappings <= before.mappings, "%d mappings, %d before", after.mappings, before.mappings);
	CHECK(after.shared <= before.shared, "%zu bytes shared, %zu before", after.shared, before.shared);
	CHECK(after.heap <= before.heap + HEAP_SLACK, "heap of %zu bytes, %zu before", after.heap, before.heap);
	for (int k = 0; k < 2; k++) {
		CHECK(atomic_load(&w->node[k]->downs) == 0);
		w->t->channel_close(tx[k]);
		w->t->channel_close(rx[k]);
	}
}
