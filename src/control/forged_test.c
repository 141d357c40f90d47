/*
 * Over the socket of a control plane: what is guessed, reflected, replayed, altered or added is refused, tells nothing,
 * and is no sign of death. The right key is let in each time beside it, so that a refusal means something.
 */
#include <errno.h>

#define PLAIN_OWN_MAIN
#include "base/delay.h"
#include "control/gossip.h"
#include "control/handshake.h"
#include "control/liveness.h"
#include "control/planes_test.h"
#include "tests/plain.h"

static char said[480];

static void keep_line(void *arg, int level, const char *line)
{
	if (strstr(line, "COLL-2105"))
		snprintf(said, sizeof(said), "%s", line);
}

static bool begin_heard(struct job *j)
{
	const bool good = begin(j);

	j->logger.level = COLL_LOG_WARN;
	j->logger.fn = keep_line;
	said[0] = '\0';
	return good;
}

/* ---- A connection to rank 1 that says whatever the test wants ---- */

static struct coll_control_link *dial(struct job *j)
{
	struct coll_control_link *l = calloc(1, sizeof(*l));
	bool in_progress;

	l->fd = coll_link_connect(&j->peer_infos[1], NULL, 1000, &in_progress);
	l->peer = 1;
	return l;
}

static void hang_up(struct coll_control_link *l)
{
	close(l->fd);
	free(l);
}

/* 1: a message of rank 1 is in l->in, -1: it has closed, 0: neither. */
static int hear(struct job *j, struct coll_control_link *l)
{
	int got = 0;

	for (int i = 0; i < TURNS && got == 0; i++) {
		serve(j, 1);
		got = coll_link_read(l);
	}
	return got;
}

static bool hear_challenge(struct job *j, struct coll_control_link *l)
{
	return hear(j, l) == 1 && l->in.type == COLL_MSG_CHALLENGE;
}

static void say(struct coll_control_link *l, const struct coll_message *m)
{
	CHECK(coll_link_queue(l, m) && coll_link_flush(l));
}

/* As rank 0, with the key of the job. *record: the greeting as it was sent; NULL: not wanted. */
static bool shake_hands(struct job *j, struct coll_control_link *l, struct coll_message *record)
{
	struct coll_message m = {.type = COLL_MSG_HELLO};

	if (!hear_challenge(j, l) || !coll_handshake_hello(j->c[0], l, &l->in.u.hello, &m.u.hello))
		return false;
	l->greeted = true;
	say(l, &m);
	if (record)
		*record = l->out[0];
	return hear(j, l) == 1 && l->in.type == COLL_MSG_WELCOME && coll_handshake_done(l, &l->in.u.hello);
}

/* Rank 1 knows nobody by that connection. */
static bool unmoved(const struct job *j)
{
	for (int r = 0; r < RANKS; r++)
		if (j->c[1]->peers[r].met || j->c[1]->peers[r].dead || j->c[1]->peers[r].life.left)
			return false;
	return !j->c[1]->notes && j->c[1]->nsuspects == 0;
}

static struct coll_link_ends ends_as_rank_0(const struct job *j, const struct coll_control_link *l)
{
	struct coll_link_ends ends = {
	        .connects = j->peer_infos[0].id, .accepts = j->peer_infos[1].id, .answered = {5, 6}, .size = RANKS};

	memcpy(ends.asked, l->in.u.hello.nonce, sizeof(ends.asked));
	return ends;
}

/* ---- Before a proof ---- */

static void nobody_is_told_who_listens(void)
{
	struct coll_control_link *l;
	char hex[40];
	struct job j;

	REQUIRE(begin(&j));
	l = dial(&j);
	CHECK(hear_challenge(&j, l));
	for (int r = 0; r < RANKS; r++)
		for (int i = 0; i < 2; i++) {
			const uint64_t word = j.peer_infos[r].id.word[i];

			CHECK(!memmem(&l->in, sizeof(l->in), &word, sizeof(word)), "word %d of the id of rank %d", i,
			      r);
			snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)word);
			CHECK(!strstr(j.peer_infos[r].control_unix, hex), "in the name of its socket");
		}
	hang_up(l);
	end(&j);
}

/* Everything but the key is known to whoever tries. */
static void try_key(const uint64_t with[2], enum coll_link_role role, uint64_t size, bool right)
{
	struct coll_message m = {.type = COLL_MSG_HELLO, .u.hello.nonce = {5, 6}};
	struct coll_control_link *l;
	struct coll_link_ends ends;
	struct job j;
	int got;

	REQUIRE(begin(&j));
	l = dial(&j);
	CHECK(hear_challenge(&j, l));
	ends = ends_as_rank_0(&j, l);
	ends.size = size;
	m.u.hello.proof = coll_link_proof(with, role, &ends);
	say(l, &m);
	got = hear(&j, l);
	CHECK(right ? got == 1 && l->in.type == COLL_MSG_WELCOME : got == -1, "key %llx, role %d, size %llu: %d",
	      (unsigned long long)with[0], role, (unsigned long long)size, got);
	CHECK(right ? j.c[1]->peers[0].met : unmoved(&j));
	hang_up(l);
	end(&j);
}

static void a_guessed_key_is_refused(void)
{
	static const uint64_t zero[2], guess[2] = {9, 9}, half[2] = {3, 5};

	try_key(key, COLL_LINK_CONNECTS, RANKS, true);
	try_key(zero, COLL_LINK_CONNECTS, RANKS, false);
	try_key(guess, COLL_LINK_CONNECTS, RANKS, false);
	try_key(half, COLL_LINK_CONNECTS, RANKS, false);
	/* The proof of the other end, of another message, of another job. */
	try_key(key, COLL_LINK_ACCEPTS, RANKS, false);
	try_key(key, COLL_LINK_CHALLENGES, RANKS, false);
	try_key(key, COLL_LINK_CONNECTS, RANKS + 1, false);
}

static void a_reflected_proof_is_refused(void)
{
	struct coll_message m = {.type = COLL_MSG_HELLO};
	struct coll_control_link *l;
	struct job j;

	REQUIRE(begin(&j));
	for (int as = 0; as < RANKS; as++) {
		l = dial(&j);
		CHECK(hear_challenge(&j, l));
		m.u.hello = l->in.u.hello;
		m.u.hello.rank = as;
		say(l, &m);
		CHECK(hear(&j, l) == -1 && unmoved(&j), "as rank %d", as);
		hang_up(l);
	}
	end(&j);
}

static void a_recorded_handshake_is_refused(void)
{
	const struct coll_message note = {.type = COLL_MSG_NOTE,
	                                  .u.note = {.kind = COLL_GOSSIP_FAIL,
	                                             .status = COLL_ERR_ABORTED,
	                                             .process = -1,
	                                             .comm = COMM,
	                                             .text = "recorded"}};
	struct coll_message hello, sealed;
	struct coll_control_link *l;
	struct coll_note told;
	struct job j;

	REQUIRE(begin(&j));
	l = dial(&j);
	REQUIRE(shake_hands(&j, l, &hello));
	say(l, &note);
	sealed = l->out[1];
	for (int i = 0; i < TURNS && !coll_control_failure(j.c[1], COMM, &told); i++)
		serve(&j, 1);
	CHECK(coll_control_failure(j.c[1], COMM, &told), "who has the key is heard");
	hang_up(l);
	end(&j);

	REQUIRE(begin(&j));
	l = dial(&j);
	CHECK(hear_challenge(&j, l));
	CHECK(write(l->fd, &hello, sizeof(hello)) == sizeof(hello));
	CHECK(write(l->fd, &sealed, sizeof(sealed)) == sizeof(sealed));
	CHECK(hear(&j, l) == -1 && unmoved(&j));
	hang_up(l);
	end(&j);
}

/* ---- Behind the handshake ---- */

enum trick { NONE, ALTERED, ADDED, REPEATED, LEFT_OUT, REFLECTED, TRICKS };

/* The bytes of a note that rank 2 is dead, as they arrive. */
static void play(struct coll_control_link *l, const struct coll_message *death, enum trick trick)
{
	const struct coll_message alive = {.type = COLL_MSG_ALIVE};
	struct coll_message m = *death;

	m.magic = COLL_PEER_INFO_MAGIC;
	m.version = COLL_PEER_INFO_VERSION;
	if (trick == LEFT_OUT)
		coll_seal_next(&l->seal_out, &m, offsetof(struct coll_message, check));
	if (trick == REPEATED) {
		say(l, &alive);
		CHECK(write(l->fd, &l->out[(l->head + COLL_LINK_QUEUE - 1) % COLL_LINK_QUEUE], sizeof(m)) == sizeof(m));
		return;
	}
	if (trick == REFLECTED)
		m.check = coll_seal_next(&l->seal_in, &m, offsetof(struct coll_message, check));
	else if (trick != ADDED)
		m.check = coll_seal_next(&l->seal_out, &m, offsetof(struct coll_message, check));
	if (trick == ALTERED)
		m.u.note.text[3] ^= 1;
	CHECK(write(l->fd, &m, sizeof(m)) == sizeof(m));
}

static void what_is_not_the_next_message_ends_the_link(void)
{
	const struct coll_message death = {.type = COLL_MSG_NOTE,
	                                   .u.note = {.kind = COLL_GOSSIP_DEATH,
	                                              .status = COLL_ERR_PEER_DEAD,
	                                              .process = 2,
	                                              .origin = 0,
	                                              .text = "forged"}};
	const struct coll_control_link *still;
	struct coll_control_link *l;
	struct job j;

	for (enum trick trick = NONE; trick < TRICKS; trick++) {
		REQUIRE(begin_heard(&j));
		l = dial(&j);
		REQUIRE(shake_hands(&j, l, NULL));
		play(l, &death, trick);
		for (int i = 0; i < TURNS && !j.c[1]->peers[2].dead && !j.c[1]->peers[0].corrupt; i++)
			serve(&j, 1);
		CHECK(j.c[1]->peers[2].dead == (trick == NONE), "trick %d", trick);
		CHECK(j.c[1]->peers[0].corrupt == (trick != NONE), "trick %d", trick);
		CHECK(!j.c[1]->peers[0].dead && !j.c[1]->peers[0].life.left && j.c[1]->nsuspects == 0);
		if (trick != NONE) {
			CHECK(strstr(said, "rank 0") && strstr(said, "corrupt"), "'%s'", said);
			still = coll_control_find_link(j.c[1], 0);
			CHECK(!j.c[1]->notes && !(still && still->ready), "trick %d", trick);
			/* The other end learns that this is no death of rank 1. */
			CHECK(hear(&j, l) == 1 && l->in.type == COLL_MSG_ALTERED, "trick %d: type %u", trick,
			      l->in.type);
			CHECK(trick == REFLECTED || coll_link_genuine(l));
			CHECK(hear(&j, l) == -1);
		}
		hang_up(l);
		end(&j);
	}
}

/* What was altered may have been its goodbye: that it no longer listens is then no sign that it was killed. */
static void who_leaves_behind_a_corrupt_link_is_not_dead(const struct coll_message *last, enum trick trick)
{
	struct coll_control_link *l;
	struct job j;

	REQUIRE(begin_heard(&j));
	l = dial(&j);
	REQUIRE(shake_hands(&j, l, NULL));
	play(l, last, trick);
	for (int i = 0; i < TURNS && !j.c[1]->peers[0].corrupt; i++)
		serve(&j, 1);
	CHECK(j.c[1]->peers[0].corrupt && !j.c[1]->peers[0].life.left && strstr(said, "corrupt"), "'%s'", said);
	coll_control_gone(j.c[1], 0, "nobody listens");
	coll_control_settle_suspects(j.c[1], coll_clock_ns() + 3600000 * COLL_NS_PER_MS);
	CHECK(!j.c[1]->peers[0].dead && j.c[1]->peers[0].life.left);
	hang_up(l);
	end(&j);
}

static void who_was_not_understood_is_not_dead(void)
{
	who_leaves_behind_a_corrupt_link_is_not_dead(&(struct coll_message){.type = COLL_MSG_BYE}, ALTERED);
}

/* It has dropped the link, with the goodbye that it would have said there. */
static void who_did_not_understand_is_not_dead(void)
{
	who_leaves_behind_a_corrupt_link_is_not_dead(&(struct coll_message){.type = COLL_MSG_ALTERED}, NONE);
}

int main(void)
{
	PLAIN_RUN(nobody_is_told_who_listens);
	PLAIN_RUN(a_guessed_key_is_refused);
	PLAIN_RUN(a_reflected_proof_is_refused);
	PLAIN_RUN(a_recorded_handshake_is_refused);
	PLAIN_RUN(what_is_not_the_next_message_ends_the_link);
	PLAIN_RUN(who_was_not_understood_is_not_dead);
	PLAIN_RUN(who_did_not_understand_is_not_dead);
	return plain_summary();
}
