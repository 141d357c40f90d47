/*
 * Connections of the rdma transport at moments that a real device rarely meets: two
 * instances over a device in software (fabric_test.h), driven by one thread, so that each
 * order of events can be made, and is made again from its seed. So are the orders in which
 * one instance goes on between two calls of the other to the device.
 */
#define PLAIN_OWN_MAIN
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/errno_text.h"
#include "base/hash.h"
#include "tests/plain.h"
#include "transports/rdma/fabric_test.h"
#include "transports/rdma/rdma.h"
#include "transports/rdma/sides_test.h"

enum { ROUNDS = 200, DEVICES = 3 };

/* False: each frame uses up a receive of its reader. */
static bool polled = true;

static const char *some_setting(void *ctx, const char *name)
{
	return strcmp(name, "COLL_RDMA_POLLED") == 0 && !polled ? "0" : "";
}

static struct rdma_link *link_of(struct side *s)
{
	return s->link;
}

static void *channel_on(struct side *s, enum coll_direction dir)
{
	const struct coll_channel_key key = {.comm = 1, .epoch = 1};
	void *ch = NULL;

	CHECK(t->channel_open(s->link, &key, dir, 64, 4, &ch) == COLL_OK);
	return ch;
}

/* Nothing of it may be touched that is not there. */
static void use_in_every_way(struct side *s, void *tx)
{
	const struct coll_frame frame = {.sequence = 1, .len_bytes = 8};
	void *p;

	t->progress(s->in);
	if (t->slot(tx, 8, &p) == COLL_OK) {
		memset(p, 7, 8);
		t->post(tx, &frame);
	}
	if (t->arm(s->in) == COLL_OK)
		t->disarm(s->in);
	t->progress(s->in);
}

/* 0 asks, 1 accepts: both are up, and the last word of 0 has not been heard by 1. */
static void up_before_the_last_word(void)
{
	open_side(&side[0], some_setting);
	open_side(&side[1], some_setting);
	open_link(&side[0], &side[1]);
	fabric_hold(true);
	CHECK(AWAIT(is_up(&side[0])));
	open_link(&side[1], &side[0]);
	CHECK(AWAIT(is_up(&side[1])));
	CHECK(link_of(&side[0])->asked && !link_of(&side[1])->asked);
}

/* Its identifier then goes with a refusal, which comes to a link that is up. */
static void an_end_that_has_not_heard_the_last_word_closes(void)
{
	void *tx;

	up_before_the_last_word();
	tx = channel_on(&side[0], COLL_DIR_SEND);
	close_link(&side[1]);
	CHECK(AWAIT(coll_rdma_link_at(side[1].in, 0)->state == LINK_FREE));
	use_in_every_way(&side[0], tx); /* before anything is served */
	t->service(side[0].in);
	use_in_every_way(&side[0], tx);
	CHECK(AWAIT(t->link_status(side[0].link) == COLL_ERR_PEER_DEAD));
	CHECK(side[0].downs == 0, "it said goodbye");
	use_in_every_way(&side[0], tx);
	t->channel_close(tx);
	close_link(&side[0]);
	fabric_hold(false);
	close_side(&side[0]);
	close_side(&side[1]);
	CHECK(fabric_objects() == 0, "%d objects are left", fabric_objects());
}

/* The same of a process that dies: told as a death, once, and soon. */
static void an_end_that_has_not_heard_the_last_word_dies(void)
{
	void *tx;

	up_before_the_last_word();
	tx = channel_on(&side[0], COLL_DIR_SEND);
	fabric_kill(side[1].in->cm);
	t->service(side[0].in);
	CHECK(link_of(&side[0])->state != LINK_UP, "the refusal is the end of the connection");
	use_in_every_way(&side[0], tx);
	close_link(&side[1]);
	close_side(&side[1]);
	CHECK(AWAIT(side[0].downs == 1));
	CHECK(side[0].why == COLL_ERR_PEER_DEAD, "%s", coll_status_string(side[0].why));
	use_in_every_way(&side[0], tx);
	t->channel_close(tx);
	close_link(&side[0]);
	fabric_hold(false);
	close_side(&side[0]);
	CHECK(fabric_objects() == 0, "%d objects are left", fabric_objects());
}

/* Side 1 is served while side 0 takes a connection down, between its queue pair and its identifier. */
static void destroy_qp_and_serve(struct rdma_cm_id *id)
{
	struct coll_rdma_verbs v;

	coll_rdma_verbs_load(&v, NULL, 0);
	v.rdma_destroy_qp(id);
	t->service(side[1].in);
}

/* The asking end gives up just when its peer accepts. */
static void an_attempt_is_accepted_while_it_is_taken_down(void)
{
	struct rdma_link *asking, *accepting;

	open_side(&side[0], some_setting);
	open_side(&side[1], some_setting);
	open_link(&side[0], &side[1]);
	asking = link_of(&side[0]);
	for (int i = 0; i < 10 && asking->stage != STAGE_CONNECT; i++)
		t->service(side[0].in);
	side[0].in->v.rdma_destroy_qp = destroy_qp_and_serve;
	close_link(&side[0]);
	t->service(side[0].in);
	CHECK(asking->state == LINK_FREE);
	accepting = coll_rdma_link_at(side[1].in, 0);
	CHECK(accepting && accepting->stage == STAGE_ACCEPTED);
	t->service(side[1].in);
	CHECK(accepting && accepting->stage == STAGE_IDLE, "it is told that the attempt is over");
	CHECK(accepting && accepting->state == LINK_FREE, "nobody here has asked for the link");
	CHECK(atomic_load(&side[1].in->connecting) == 0, "its service thread may sleep");
	close_side(&side[0]);
	close_side(&side[1]);
	CHECK(fabric_objects() == 0, "%d objects are left", fabric_objects());
}

/* ---- any order -------------------------------------------------------------------- */

enum { CHANNELS = 4 };

struct user {
	void *tx[CHANNELS], *rx[CHANNELS];
	uint64_t sent[CHANNELS], got[CHANNELS];
	int armed;
};

static struct user user[SIDES];

/* The threads of the other side, while one side is in the middle of what it does: at any of its calls to the device. */
static struct {
	struct coll_rng *rng;
	struct side *other; /* NULL: nobody */
} meantime;

static void go_on_meanwhile(void)
{
	struct side *s = meantime.other;

	if (!s || !s->in || coll_rng_below(meantime.rng, 8) > 0)
		return;
	meantime.other = NULL;
	if (coll_rng_below(meantime.rng, 4) == 0)
		t->progress(s->in);
	else
		t->service(s->in);
	meantime.other = s;
}

static struct coll_channel_key key_of(int i, int generation)
{
	return (struct coll_channel_key){
	        .comm = 1 + (uint64_t)generation, .epoch = 1, .lane = (uint16_t)i, .rail = (uint32_t)i};
}

static void send_one(struct user *u, int i)
{
	void *p;

	if (!u->tx[i] || t->slot(u->tx[i], 8, &p) != COLL_OK)
		return;
	memcpy(p, &u->sent[i], 8);
	t->post(u->tx[i], &(struct coll_frame){.sequence = u->sent[i]++, .len_bytes = 8});
}

static void recv_one(struct user *u, int i)
{
	struct coll_frame frame;
	const void *p;

	if (!u->rx[i] || t->view(u->rx[i], &p, &frame) != COLL_OK)
		return;
	CHECK(frame.sequence == u->got[i] && memcmp(p, &u->got[i], 8) == 0, "frame %llu for %llu",
	      (unsigned long long)frame.sequence, (unsigned long long)u->got[i]);
	u->got[i]++;
	t->done(u->rx[i]);
}

static void channel_or_not(struct side *s, struct user *u, int i, bool send)
{
	const struct coll_channel_key key = key_of(i, 0);
	void **ch = send ? &u->tx[i] : &u->rx[i];

	/* Opened once in the life of a link, so that the ends agree about the frames. */
	if (s->link && !*ch && (send ? u->sent[i] : u->got[i]) == 0)
		t->channel_open(s->link, &key, send ? COLL_DIR_SEND : COLL_DIR_RECV, 64, 4, ch);
}

static void end_link(struct side *s, struct user *u)
{
	for (int i = 0; i < CHANNELS; i++) {
		if (u->tx[i])
			t->channel_close(u->tx[i]);
		if (u->rx[i])
			t->channel_close(u->rx[i]);
		u->tx[i] = u->rx[i] = NULL;
	}
	if (s->link)
		close_link(s);
}

static void arm_or_disarm(struct side *s, struct user *u)
{
	if (u->armed)
		t->disarm(s->in);
	u->armed = !u->armed && t->arm(s->in) == COLL_OK;
}

static void step(struct coll_rng *rng, bool *killed)
{
	const int me = (int)coll_rng_below(rng, SIDES), i = (int)coll_rng_below(rng, CHANNELS);
	struct side *s = &side[me];
	struct user *u = &user[me];

	meantime.other = &side[!me];
	switch (coll_rng_below(rng, 64)) {
	case 0:
		if (coll_rng_below(rng, 2))
			fabric_hold(coll_rng_below(rng, 2));
		else
			fabric_unplug((int)coll_rng_below(rng, DEVICES), coll_rng_below(rng, 2));
		break;
	case 1 ... 3:
		if (!s->link && !u->armed)
			open_link(s, &side[!me]);
		break;
	case 4:
		if (coll_rng_below(rng, 4) == 0)
			end_link(s, u);
		break;
	case 5:
		if (coll_rng_below(rng, 8) == 0)
			t->close(s->in);
		break;
	case 6:
		if (coll_rng_below(rng, 16) == 0) {
			fabric_kill(s->in->cm);
			*killed = true;
		}
		break;
	case 7 ... 9: arm_or_disarm(s, u); break;
	case 10 ... 19: channel_or_not(s, u, i, true); break;
	case 20 ... 29: channel_or_not(s, u, i, false); break;
	case 30 ... 37: send_one(u, i); break;
	case 38 ... 45: recv_one(u, i); break;
	case 46 ... 49: t->progress(s->in); break;
	default: t->service(s->in); break;
	}
	meantime.other = NULL;
}

/* First one side, then the other, while the first goes on or is gone. */
static void end_of_life(uint64_t seed)
{
	for (int k = 0; k < SIDES; k++) {
		const int i = (int)(seed & 1) ^ k;

		meantime.other = &side[!i];
		if (user[i].armed)
			t->disarm(side[i].in);
		end_link(&side[i], &user[i]);
		if (seed & 2)
			t->service(side[i].in);
	}
	for (int k = 0; k < SIDES; k++) {
		const int i = (int)(seed >> 2 & 1) ^ k;

		meantime.other = &side[!i];
		close_side(&side[i]);
	}
	meantime.other = NULL;
}

static void life(uint64_t seed)
{
	struct coll_rng rng = {seed};
	const int before = atomic_load(&plain_failures);
	bool killed = false;

	memset(user, 0, sizeof(user));
	fabric_devices(1 + (int)(seed % DEVICES));
	open_side(&side[0], some_setting);
	open_side(&side[1], some_setting);
	meantime.rng = &rng;
	fabric_between(go_on_meanwhile);
	for (uint32_t n = 20 + coll_rng_below(&rng, 300); n > 0; n--)
		step(&rng, &killed);
	end_of_life(seed);
	for (int i = 0; i < DEVICES; i++)
		fabric_unplug(i, false);
	fabric_between(NULL);
	fabric_hold(false);
	CHECK(fabric_objects() == 0, "%d objects are left", fabric_objects());
	if (atomic_load(&plain_failures) > before)
		fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
}

/* Receives are given back some at a time: when the device refuses one in the middle, the others are posted, and
 * none of them counts as spent. */
static void a_receive_is_refused(void)
{
	enum { FIRST = 10, MORE = 16, SLOTS = 64 };
	const struct coll_channel_key key = {.comm = 1, .epoch = 1};

	polled = false;
	for (int after = 0; after < FIRST + MORE; after++) {
		struct user u = {.armed = 0};
		struct rdma_link *l;

		open_side(&side[0], some_setting);
		open_side(&side[1], some_setting);
		open_link(&side[0], &side[1]);
		open_link(&side[1], &side[0]);
		CHECK(AWAIT(is_up(&side[0]) && is_up(&side[1])));
		l = link_of(&side[1]);
		CHECK(t->channel_open(side[0].link, &key, COLL_DIR_SEND, 64, SLOTS, &u.tx[0]) == COLL_OK);
		CHECK(t->channel_open(side[1].link, &key, COLL_DIR_RECV, 64, SLOTS, &u.rx[0]) == COLL_OK);
		while (l->spent_count < FIRST && u.sent[0] < SLOTS - MORE) {
			send_one(&u, 0);
			for (int i = 0; i < SIDES; i++) {
				t->service(side[i].in);
				t->progress(side[i].in);
			}
		}
		CHECK(l->spent_count == FIRST, "%u", l->spent_count);
		for (int i = 0; i < MORE; i++)
			send_one(&u, 0);
		fabric_refuse_recvs(after);
		CHECK(AWAIT(side[1].downs == 1), "after %d", after);
		CHECK(l->spent_count == (uint32_t)(FIRST + MORE - after), "after %d: %u spent", after, l->spent_count);
		CHECK(l->recvs_posted <= RDMA_RECVS - l->spent_count, "after %d: %u spent, %u posted", after,
		      l->spent_count, l->recvs_posted);
		fabric_refuse_recvs(-1);
		for (int i = 0; i < SIDES; i++) {
			t->channel_close(i ? u.rx[0] : u.tx[0]);
			close_link(&side[i]);
		}
		close_side(&side[0]);
		close_side(&side[1]);
		CHECK(fabric_objects() == 0, "%d objects are left", fabric_objects());
	}
	polled = true;
}

static uint64_t first_seed = 1, last_seed = ROUNDS;

static void any_order(void)
{
	for (uint64_t seed = first_seed; seed <= last_seed; seed++)
		life(seed);
}

#if defined(__SANITIZE_THREAD__)
/* Several processes take turns in one thread here, also in the middle of a call of another one: the locks of one are
 * then taken under those of another, in every order, which no thread of a real process does. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "detect_deadlocks=0";
}
#endif

/* The limit of locked memory, and the command that raises it. */
static void memory_that_may_not_be_locked_names_the_limit(void)
{
	static char buffer[1 << 16];
	struct coll_memory mem = {.size = sizeof(mem), .base = buffer, .len_bytes = sizeof(buffer)};
	struct rlimit was, low;
	char text[192];

	open_side(&side[0], some_setting);
	CHECK(getrlimit(RLIMIT_MEMLOCK, &was) == 0);
	low = (struct rlimit){64 << 10, was.rlim_max};
	CHECK(setrlimit(RLIMIT_MEMLOCK, &low) == 0);
	coll_errno_clear();
	fabric_refuse_memory(true);
	CHECK(t->mem_reg(side[0].in, &mem) == COLL_ERR_MEMORY);
	fabric_refuse_memory(false);
	snprintf(text, sizeof(text), "%s", coll_errno_take("nothing").text);
	CHECK(strcmp(text, "ibv_reg_mr: Cannot allocate memory (RLIMIT_MEMLOCK is 64 KiB; ulimit -l N raises it)") == 0,
	      "%s", text);
	setrlimit(RLIMIT_MEMLOCK, &was);
	close_side(&side[0]);
}

/* life_test [FIRST SEED [LAST SEED]] */
int main(int argc, char **argv)
{
	if (argc > 1)
		first_seed = last_seed = strtoull(argv[1], NULL, 0);
	if (argc > 2)
		last_seed = strtoull(argv[2], NULL, 0);
	PLAIN_RUN(an_end_that_has_not_heard_the_last_word_closes);
	PLAIN_RUN(an_end_that_has_not_heard_the_last_word_dies);
	PLAIN_RUN(an_attempt_is_accepted_while_it_is_taken_down);
	PLAIN_RUN(a_receive_is_refused);
	PLAIN_RUN(memory_that_may_not_be_locked_names_the_limit);
	PLAIN_RUN(any_order);
	return plain_summary();
}
