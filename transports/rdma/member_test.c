/*
 * A member of the job that lies: side 1 sends notes of its own making to side 0, over the device in software. What it
 * claims makes side 0 allocate no more than its notes justify, and the link ends as corrupt.
 */
#include <malloc.h>

#include "tests/plain.h"
#include "transports/rdma/address.h"
#include "transports/rdma/hello.h"
#include "transports/rdma/link.h"
#include "transports/rdma/sides_test.h"
#include "transports/rdma/tx.h"

enum { LONG = 8192, FLOOD = 20000, GRANTS = 100, BREAKS = 70, RECORDS = 2 * BREAKS + 2 };

static const char *no_setting(void *ctx, const char *name)
{
	return "";
}

static void sides_open(void)
{
	for (int i = 0; i < SIDES; i++)
		open_side(&side[i], no_setting);
	for (int i = 0; i < SIDES; i++) {
		open_link(&side[i], &side[!i]);
		CHECK(AWAIT(is_up(&side[i])));
	}
}

static void sides_close(void)
{
	for (int i = 0; i < SIDES; i++)
		close_link(&side[i]);
	for (int i = 0; i < SIDES; i++)
		close_side(&side[i]);
	CHECK(fabric_objects() == 0, "%d objects are left", fabric_objects());
}

/* As if side 0 had said that it has taken in all before. */
static void say(const struct coll_rdma_note *note)
{
	struct rdma_link *theirs = side[1].link;
	struct ibv_wc wc;

	while (ibv_poll_cq(theirs->cq, 1, &wc) > 0)
		;
	theirs->recvs = RDMA_RECVS;
	theirs->sq_done = theirs->sq_tail;
	theirs->log_count = 0;
	coll_rdma_tx_note(theirs, note);
	coll_rdma_tx_push(theirs);
	t->progress(side[0].in);
}

static struct coll_rdma_note grant(uint32_t id, uint32_t slots)
{
	return (struct coll_rdma_note){.type = COLL_RDMA_NOTE_GRANT,
	                               .id = id,
	                               .grant = {.key = {.comm = 9, .epoch = id}, .slots = slots, .slot_bytes = 64}};
}

static void expect_corrupt(const char *what)
{
	t->progress(side[0].in);
	CHECK(side[0].downs == 1 && side[0].why == COLL_ERR_CORRUPT && strstr(side[0].cause, what) &&
	              strstr(side[0].cause, "rdma fabric0"),
	      "%d: %s", (int)side[0].why, side[0].cause);
}

TEST(rdma_member, channels_of_many_slots_that_nobody_opens_cost_little)
{
	struct mallinfo2 before;
	size_t more;

	sides_open();
	before = mallinfo2();
	for (uint32_t i = 0; i < GRANTS; i++) {
		const struct coll_rdma_note note = grant(i, UINT16_MAX);

		say(&note);
	}
	more = mallinfo2().uordblks + mallinfo2().hblkhd - before.uordblks - before.hblkhd;
	CHECK(side[0].downs == 0, "%s", side[0].cause);
	CHECK(more < GRANTS * 1024, "%zu bytes", more);
	sides_close();
}

TEST(rdma_member, a_channel_of_a_high_number_is_refused)
{
	const struct coll_rdma_note note = grant(1 << 19, 4);

	sides_open();
	say(&note);
	expect_corrupt("out of range");
	sides_close();
}

TEST(rdma_member, memory_is_announced_in_order_until_there_is_a_sender)
{
	struct coll_rdma_note note = grant(0, UINT16_MAX);

	sides_open();
	say(&note);
	note = (struct coll_rdma_note){.type = COLL_RDMA_NOTE_INTO};
	for (uint32_t i = 0; i < 40; i++) {
		note.into.number = i;
		say(&note);
	}
	CHECK(side[0].downs == 0, "%s", side[0].cause);
	note.into.number = 60000;
	say(&note);
	expect_corrupt("out of order");
	sides_close();
}

/* A frame that waits for memory which is not registered is answered each time that the sender asks. */
TEST(rdma_member, questions_without_receives_for_answers_end)
{
	const struct coll_channel_key key = {.comm = 1, .epoch = 1};
	const struct coll_rdma_note ask = {.type = COLL_RDMA_NOTE_ASK};
	const struct coll_frame expect = {.sequence = 1, .len_bytes = LONG};
	static char user[LONG];
	struct coll_completion received;
	struct rdma_link *ours;
	uint32_t most = 0;
	void *rx;

	sides_open();
	ours = side[0].link;
	CHECK(t->channel_open(side[0].link, &key, COLL_DIR_RECV, LONG, 4, &rx) == COLL_OK);
	CHECK(t->recv_into(rx, user, NULL, &expect, &received) == COLL_OK);
	for (int i = 0; i < FLOOD && side[0].downs == 0; i++) {
		say(&ask);
		most = ours->queue_count > most ? ours->queue_count : most;
	}
	CHECK(most <= RDMA_QUEUE_SPARE + 64, "%u entries", most);
	expect_corrupt("questions");
	t->channel_close(rx);
	CHECK(AWAIT(!coll_completion_pending(&received)));
	sides_close();
}

/* The requests of side 1, as somebody on the network sees them. */
static struct coll_rdma_hello recorded[RECORDS];
static int records;

static int connect_seen(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	CHECK(records < RECORDS);
	if (records < RECORDS)
		memcpy(&recorded[records++], p->private_data, p->private_data_len);
	return side[0].in->v.rdma_connect(id, p);
}

static void record(void)
{
	records = 0;
	side[1].in->v.rdma_connect = connect_seen;
}

/* As rank 1's process, or a stranger who has recorded it: a request with these bytes, which nothing follows. */
static void request(const struct coll_rdma_hello *m)
{
	const struct coll_rdma_verbs *v = &side[0].in->v;
	const struct coll_rdma_spot *to = &side[0].in->info.port[0];
	struct rdma_conn_param p = {.private_data = m, .private_data_len = (uint8_t)coll_rdma_hello_bytes(m)};
	struct rdma_event_channel *channel = v->rdma_create_event_channel();
	struct sockaddr_storage at, from;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	coll_rdma_spot_sockaddr(&side[1].in->info.port[0], 0, &from);
	coll_rdma_spot_sockaddr(to, to->listens, &at);
	CHECK(v->rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(v->rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&at, 1) == 0);
	CHECK(v->rdma_connect(id, &p) == 0);
	for (int i = 0; i < 20; i++)
		t->service(side[0].in);
	while (v->rdma_get_cm_event(channel, &event) == 0)
		v->rdma_ack_cm_event(event);
	v->rdma_destroy_id(id);
	v->rdma_destroy_event_channel(channel);
}

static int links_of(struct rdma_inst *in)
{
	int links = 0;
	struct rdma_link *l;

	for (uint32_t i = 0; (l = coll_rdma_link_at(in, i)); i++)
		links += l->state != LINK_FREE;
	return links;
}

static bool both_up(unsigned connections)
{
	const struct rdma_link *a = side[0].link, *b = side[1].link;

	return a->state == LINK_UP && b->state == LINK_UP && a->connections == connections &&
	       b->connections == connections;
}

/* Side 1 alone learns that the connection is gone, and makes it again. */
static void break_quietly(void)
{
	struct rdma_link *l = side[1].link;
	const unsigned connections = l->connections;

	fabric_mute(0, true);
	pthread_mutex_lock(&l->base.lock);
	l->mends = 0;
	coll_rdma_link_torn(l, COLL_ERR_PEER_DEAD, "broken by the test");
	coll_rdma_link_leave(l);
	pthread_mutex_unlock(&l->base.lock);
	for (int i = 0; i < 100 && l->id; i++)
		t->service(side[1].in);
	fabric_mute(0, false);
	CHECK(l->state == LINK_CONNECTING && ((struct rdma_link *)side[0].link)->state == LINK_UP);
	CHECK(AWAIT(both_up(connections + 1)), "a member's own request is taken");
	((struct rdma_link *)side[0].link)->mends = 0;
}

static void expect_untouched(unsigned connections, int after)
{
	CHECK(both_up(connections) && side[0].downs == 0 && side[1].downs == 0, "after %d: %u connections, %s %s",
	      after, ((struct rdma_link *)side[0].link)->connections, side[0].cause, side[1].cause);
}

TEST(rdma_member, a_request_that_comes_again_ends_no_connection_however_many_came_since)
{
	unsigned connections;

	sides_open();
	record();
	for (int i = 0; i < BREAKS; i++)
		break_quietly();
	connections = ((struct rdma_link *)side[0].link)->connections;
	CHECK(records == 2 * BREAKS, "%d requests: each is challenged once", records);
	for (int i = 0; i < records; i++) {
		request(&recorded[i]);
		expect_untouched(connections, i);
	}
	sides_close();
}

/* One that somebody held back: its number is new, and its seal is right. */
TEST(rdma_member, a_request_without_proof_that_it_is_of_now_ends_no_connection)
{
	struct coll_rdma_hello m;
	unsigned connections;

	sides_open();
	connections = ((struct rdma_link *)side[0].link)->connections;
	for (int i = 0; i < 2 * RDMA_MENDS; i++) {
		const uint64_t nonce[2] = {41, UINT64_MAX / 2 + (unsigned)i};

		coll_rdma_hello_make(&m, side[1].in, COLL_RDMA_ASK_AGAIN, &side[0].env.self, nonce, NULL, side[1].link);
		request(&m);
		expect_untouched(connections, i);
	}
	sides_close();
}

/* A link that is gone is not made again by what was recorded of it. */
TEST(rdma_member, a_request_that_comes_again_makes_no_link)
{
	int objects;

	for (int i = 0; i < SIDES; i++)
		open_side(&side[i], no_setting);
	record();
	open_link(&side[1], &side[0]);
	CHECK(AWAIT(is_up(&side[1])));
	open_link(&side[0], &side[1]);
	CHECK(AWAIT(both_up(1)));
	break_quietly();
	CHECK(records == 3 && recorded[0].type == COLL_RDMA_ASK);
	close_link(&side[0]);
	close_link(&side[1]);
	CHECK(AWAIT(links_of(side[0].in) == 0 && links_of(side[1].in) == 0));
	objects = fabric_objects();
	for (int i = 0; i < records; i++) {
		request(&recorded[i]);
		CHECK(links_of(side[0].in) == 0 && fabric_objects() == objects, "%d", i);
	}
	for (int i = 0; i < SIDES; i++)
		close_side(&side[i]);
	CHECK(fabric_objects() == 0, "%d objects are left", fabric_objects());
}
