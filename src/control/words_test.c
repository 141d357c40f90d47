/*
 * Words that outlive their writer: they are read behind its end, also by a reader that was not served meanwhile; those
 * that are not genuine are refused; and who is on another host counts as nobody's.
 */
#include "control/words.h"

#include "control/carry.h"
#include "control/planes_test.h"
#include "tests/plain.h"

static struct {
	int count, writer, last;
	bool words;
} got[RANKS];

static void carried(void *ctx, int process, bool words, const uint8_t *bytes)
{
	const int rank = *(int *)ctx;

	got[rank].count++;
	got[rank].writer = process;
	got[rank].words = words;
	got[rank].last = bytes[0];
}

static int ranks[RANKS] = {0, 1, 2};

static bool begin_here(struct job *j)
{
	memset(got, 0, sizeof(got));
	if (!open_all(j))
		return false;
	for (int r = 0; r < RANKS; r++) {
		j->peer_infos[r].name_space = 7;
		j->c[r]->env.carried = carried;
		j->c[r]->env.ctx = &ranks[r];
	}
	return join_all(j);
}

static enum coll_words_left leave(struct job *j, int writer, int reader, int what)
{
	const uint8_t bytes[COLL_CARRIED_BYTES] = {(uint8_t)what};
	enum coll_words_left left;

	coll_control_lock(j->c[writer]);
	left = coll_control_leave_words(j->c[writer], reader, bytes);
	coll_control_unlock(j->c[writer]);
	return left;
}

static bool has_ended(struct job *j, int reader, int writer)
{
	bool ended;

	coll_control_lock(j->c[reader]);
	j->c[reader]->peers[writer].looked_ns = 0;
	ended = coll_control_has_ended(j->c[reader], writer);
	coll_control_unlock(j->c[reader]);
	return ended;
}

TEST_WITH(words, are_read_behind_the_end_of_their_writer, struct job, j, REQUIRE(begin_here(&j)), end(&j))
{
	CHECK(leave(j, 2, 0, 11) == COLL_WORDS_WRITTEN && leave(j, 2, 0, 12) == COLL_WORDS_WRITTEN);
	CHECK(!has_ended(j, 0, 2));
	coll_control_close(&j->c[2], 0);
	CHECK(!has_ended(j, 0, 2), "nobody has reported it, so nobody looks");
	j->c[0]->peers[2].dead = true;
	CHECK(has_ended(j, 0, 2));
	CHECK(got[0].count >= 2 && got[0].writer == 2 && got[0].words && got[0].last == 12, "%d, last %d", got[0].count,
	      got[0].last);
	CHECK(leave(j, 0, 2, 13) == COLL_WORDS_GONE);
}

TEST_WITH(words, a_process_that_lives_has_not_ended, struct job, j, REQUIRE(begin_here(&j)), end(&j))
{
	j->c[0]->peers[2].dead = true;
	CHECK(!has_ended(j, 0, 2), "whatever is reported");
	j->peer_infos[1].name_space = 8;
	coll_control_close(&j->c[1], 0);
	j->c[0]->peers[1].dead = true;
	CHECK(!has_ended(j, 0, 1), "of another host nothing is certain");
}

TEST_WITH(words, of_a_writer_without_the_key_are_refused, struct job, j, REQUIRE(begin_here(&j)), end(&j))
{
	static const uint64_t other[2] = {8, 9};

	j->c[2]->env.job_key = other;
	CHECK(leave(j, 2, 0, 11) == COLL_WORDS_WRITTEN);
	for (int i = 0; i < 20; i++)
		serve(j, 0);
	CHECK(got[0].count == 0);
	j->c[2]->env.job_key = key;
	CHECK(leave(j, 2, 0, 12) == COLL_WORDS_WRITTEN);
	for (int i = 0; i < 20; i++)
		serve(j, 0);
	CHECK(got[0].count == 1 && got[0].last == 12);
}
