/*
 * Unique ids: the process that made one hosts the meeting, whatever rank it has, or none. Ranks are processes.
 */
#define PLAIN_OWN_MAIN
#include <pthread.h>

#include "base/clock.h"
#include "bootstrap/id.h"
#include "bootstrap/id_host.h"
#include "bootstrap/job_test.h"
#include "bootstrap/probe.h"
#include "tests/holdings.h"
#include "tests/plain.h"

static coll_status gather_by_id(struct job *j, int rank, struct coll_error_box *err)
{
	coll_config cfg = COLL_CONFIG_INIT;
	unsigned char mine[64], all[64 * JOB_RANKS_MAX];
	struct coll_identity who = j->id;
	coll_status st;

	cfg.rank = rank;
	cfg.size = j->n;
	cfg.id = j->arg;
	for (size_t i = 0; i < sizeof(mine); i++)
		mine[i] = pattern(rank, i);
	st = coll_bootstrap_probe(&cfg, &j->settings, &who, err);
	if (st == COLL_OK && j->n > 1 && !who.job_key[0] && !who.job_key[1])
		return coll_error_set(err, COLL_ERR_INTERNAL, "no key");
	if (st == COLL_OK)
		st = coll_bootstrap_exchange(&cfg, &j->settings, &who, mine, all, sizeof(mine), err);
	return st == COLL_OK && !table_is_right(all, j->n, sizeof(mine)) ? COLL_ERR_CORRUPT : st;
}

static void make(struct job *j, int n, coll_unique_id *id)
{
	job_init(j, n, gather_by_id);
	CHECK(coll_bootstrap_unique_id(&j->settings, id, NULL) == COLL_OK);
	j->arg = id;
}

/* Wait until this process holds no more than it did. */
static void until_it_holds(int threads, int descriptors)
{
	const uint64_t until = coll_clock_ns() + 20000000000u;

	while ((holdings_threads() > threads || holdings_descriptors() > descriptors) && coll_clock_ns() < until)
		usleep(1000);
	CHECK(holdings_threads() <= threads, "%d threads instead of %d", holdings_threads(), threads);
	CHECK(holdings_descriptors() <= descriptors, "%d descriptors instead of %d", holdings_descriptors(),
	      descriptors);
}

static void the_maker_is_no_member(void)
{
	static const int sizes[] = {2, 3, 8, 9, 13, 64};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const int threads = holdings_threads(), descriptors = holdings_descriptors();
		coll_unique_id id;
		struct job j;

		make(&j, sizes[i], &id);
		start_all_but(&j, -1);
		job_wait(&j);
		all_ok(&j);
		job_free(&j);
		until_it_holds(threads, descriptors);
	}
}

static void the_maker_has_any_rank(void)
{
	for (int mine = 0; mine < 4; mine++) {
		struct coll_error_box err;
		coll_unique_id id;
		struct job j;

		coll_error_clear(&err);
		make(&j, 4, &id);
		start_all_but(&j, mine);
		CHECK(gather_by_id(&j, mine, &err) == COLL_OK, "%s", err.message);
		j.result[mine].status = COLL_OK;
		/* Its call has returned, so nothing of the others is in this process any more. */
		CHECK(gather_by_id(&j, mine, &err) == COLL_ERR_ARGUMENT);
		CHECK(strstr(err.message, "only once"), "%s", err.message);
		job_wait(&j);
		all_ok(&j);
		job_free(&j);
	}
}

static void one_rank_meets_nobody(void)
{
	struct coll_error_box err;
	const int threads = holdings_threads(), descriptors = holdings_descriptors();
	coll_unique_id id;
	struct job j;

	coll_error_clear(&err);
	make(&j, 1, &id);
	CHECK(gather_by_id(&j, 0, &err) == COLL_OK, "%s", err.message);
	job_free(&j);
	until_it_holds(threads, descriptors);
}

static void a_damaged_id_is_refused(void)
{
	coll_unique_id id;
	struct job j;

	make(&j, 2, &id);
	id.bytes[30] = (char)(id.bytes[30] ^ 1);
	start_all_but(&j, -1);
	job_wait(&j);
	all_say(&j, -1, COLL_ERR_ARGUMENT, "damaged");
	id.bytes[30] = (char)(id.bytes[30] ^ 1);
	job_init(&j, 2, gather_by_id);
	j.arg = &id;
	start_all_but(&j, -1); /* nobody had come */
	job_wait(&j);
	all_ok(&j);
	job_free(&j);
}

/* ---- Failures ------------------------------------------------------------ */

static void a_missing_rank_is_named_by_all(void)
{
	for (int missing = 0; missing < 5; missing += 2) {
		coll_unique_id id;
		struct job j;

		make(&j, 5, &id);
		j.settings.create_timeout_ms = 1000; /* of the ranks; the maker has another one */
		start_all_but(&j, missing);
		job_wait(&j);
		for (int r = 0; r < j.n; r++) {
			char text[64];

			snprintf(text, sizeof(text), "rank %d of 5 did not connect", missing);
			CHECK(r == missing || strstr(j.result[r].message, text), "rank %d says: %s", r,
			      j.result[r].message);
			CHECK(r == missing || strstr(j.result[r].message, "time limit 1000 ms"), "rank %d says: %s", r,
			      j.result[r].message);
		}
		job_free(&j);
	}
}

static coll_status gather_with_other_size(struct job *j, int rank, struct coll_error_box *err)
{
	if (rank == 2)
		j->n = 7;
	return gather_by_id(j, rank, err);
}

static void sizes_that_differ(void)
{
	coll_unique_id id;
	struct job j;

	make(&j, 4, &id);
	j.run = gather_with_other_size;
	start_all_but(&j, -1);
	job_wait(&j);
	all_say(&j, -1, COLL_ERR_BOOTSTRAP, "ranks, the first that came says");
	job_free(&j);
}

static void two_processes_of_one_rank(void)
{
	coll_unique_id id;
	struct job j;

	make(&j, 4, &id);
	start_all_but(&j, 0);
	job_start_as(&j, 100, 2);
	job_wait(&j);
	CHECK(strstr(j.result[1].message, "two processes claim rank 2"), "%s", j.result[1].message);
	job_free(&j);
}

static void the_makers_death_ends_it(void)
{
	coll_unique_id *id = mmap(NULL, sizeof(*id), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct job j;
	pid_t maker;

	job_init(&j, 2, gather_by_id);
	j.settings.create_timeout_ms = 800;
	j.arg = id;
	maker = fork();
	if (maker == 0)
		_exit(coll_bootstrap_unique_id(&j.settings, id, NULL) == COLL_OK ? 0 : 1);
	waitpid(maker, NULL, 0);
	start_all_but(&j, -1);
	job_wait(&j);
	all_say(&j, -1, COLL_ERR_BOOTSTRAP, "its process has ended");
	job_free(&j);
	munmap(id, sizeof(*id));
}

static void a_fork_hosts_its_own(void)
{
	coll_unique_id before;
	struct job j;
	pid_t child;
	int status = 1;

#ifdef __SANITIZE_THREAD__
	SKIP("the sanitizer permits no threads in a fork of a process that has threads");
#endif
	make(&j, 2, &before);
	child = fork();
	if (child == 0) {
		coll_unique_id id;
		struct job k;

		alarm(60);
		make(&k, 3, &id);
		start_all_but(&k, 1);
		k.result[1].status = gather_by_id(&k, 1, NULL);
		job_wait(&k);
		all_ok(&k);
		_exit(plain_failures);
	}
	start_all_but(&j, -1);
	job_wait(&j);
	all_ok(&j);
	waitpid(child, &status, 0);
	CHECK(status == 0, "the child failed: %d", status);
	job_free(&j);
}

static void abandoned_ids_are_bounded(void)
{
	const int threads = holdings_threads(), descriptors = holdings_descriptors();
	coll_unique_id id[3 * COLL_ID_WAITING_MAX];
	struct job j;

	for (int i = 0; i < 3 * COLL_ID_WAITING_MAX; i++)
		make(&j, 2, &id[i]);
	until_it_holds(threads + COLL_ID_WAITING_MAX, descriptors + 2 * COLL_ID_WAITING_MAX);
	j.settings.create_timeout_ms = 500;
	j.arg = &id[0];
	start_all_but(&j, -1);
	job_wait(&j);
	CHECK(j.result[1].status == COLL_ERR_ARGUMENT || j.result[1].status == COLL_ERR_BOOTSTRAP, "%d",
	      j.result[1].status);
	/* The newest are still good. */
	for (int i = 3 * COLL_ID_WAITING_MAX - 2; i < 3 * COLL_ID_WAITING_MAX; i++) {
		job_init(&j, 2, gather_by_id);
		j.arg = &id[i];
		start_all_but(&j, -1);
		job_wait(&j);
		all_ok(&j);
		job_free(&j);
	}
}

static void *nothing(void *arg)
{
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t first;
	static const struct plain_case tests[] = {
	        PLAIN_CASE(the_maker_is_no_member),         PLAIN_CASE(the_maker_has_any_rank),
	        PLAIN_CASE(one_rank_meets_nobody),          PLAIN_CASE(a_damaged_id_is_refused),
	        PLAIN_CASE(a_missing_rank_is_named_by_all), PLAIN_CASE(sizes_that_differ),
	        PLAIN_CASE(two_processes_of_one_rank),      PLAIN_CASE(the_makers_death_ends_it),
	        PLAIN_CASE(a_fork_hosts_its_own),           PLAIN_CASE(abandoned_ids_are_bounded),
	};

	/* A sanitizer starts a thread of its own with the first one. */
	pthread_create(&first, NULL, nothing, NULL);
	pthread_join(first, NULL);
	plain_run_cases("", tests, sizeof(tests) / sizeof(tests[0]), argc > 1 ? argv[1] : NULL);
	return plain_summary();
}
