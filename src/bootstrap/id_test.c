/*
 * Unique ids: the process that made one hosts the meeting, whatever rank it has, or none. Ranks are processes, which
 * are forked before the id is made: a sanitizer cannot work in the forks of a process that has threads.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "bootstrap/id.h"
#include "bootstrap/id_host.h"
#include "bootstrap/job_test.h"
#include "bootstrap/probe.h"
#include "bootstrap/rendezvous_state.h"
#include "tests/holdings.h"
#include "tests/plain.h"

/* In a page that the ranks share with the maker. */
struct shared {
	atomic_bool ready;
	coll_unique_id id;
};

static coll_status gather_by_id(struct job *j, int rank, struct coll_error_box *err)
{
	coll_config cfg = COLL_CONFIG_INIT;
	unsigned char mine[64], all[64 * JOB_RANKS_MAX];
	struct coll_identity who = j->id;
	struct shared *s = j->arg;
	coll_status st;

	while (!atomic_load(&s->ready))
		usleep(500);
	cfg.rank = rank;
	cfg.size = j->n;
	cfg.id = &s->id;
	for (size_t i = 0; i < sizeof(mine); i++)
		mine[i] = pattern(rank, i);
	st = coll_bootstrap_probe(&cfg, &j->settings, &who, err);
	if (st == COLL_OK && j->n > 1 && !who.job_key[0] && !who.job_key[1])
		return coll_error_set(err, COLL_ERR_INTERNAL, "no key");
	if (st == COLL_OK)
		st = coll_bootstrap_exchange(&cfg, &j->settings, &who, mine, all, sizeof(mine), err);
	return st == COLL_OK && !table_is_right(all, j->n, sizeof(mine)) ? COLL_ERR_CORRUPT : st;
}

static void begin(struct job *j, int n)
{
	job_init(j, n, gather_by_id);
	j->arg = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* This process makes the id, and the ranks go on. damage: one bit of what they get. */
static void publish(struct job *j, bool damage)
{
	struct shared *s = j->arg;

	CHECK(coll_bootstrap_unique_id(&j->settings, &s->id, NULL) == COLL_OK);
	s->id.bytes[30] = (char)(s->id.bytes[30] ^ damage);
	atomic_store(&s->ready, true);
}

static void finish(struct job *j)
{
	munmap(j->arg, sizeof(struct shared));
	job_free(j);
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

TEST(id, the_maker_is_no_member)
{
	static const int sizes[] = {2, 3, 8, 9, 13, 64};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const int threads = holdings_threads(), descriptors = holdings_descriptors();
		struct job j;

		begin(&j, sizes[i]);
		start_all_but(&j, -1);
		publish(&j, false);
		job_wait(&j);
		all_ok(&j);
		finish(&j);
		until_it_holds(threads, descriptors);
	}
}

TEST(id, the_maker_has_any_rank)
{
	const int threads = holdings_threads(), descriptors = holdings_descriptors();

	for (int mine = 0; mine < 4; mine++) {
		struct coll_error_box err;
		struct job j;

		coll_error_clear(&err);
		begin(&j, 4);
		start_all_but(&j, mine);
		publish(&j, false);
		CHECK(gather_by_id(&j, mine, &err) == COLL_OK, "%s", err.message);
		j.result[mine].status = COLL_OK;
		/* Its call has returned, so nothing of the others is in this process any more. */
		CHECK(gather_by_id(&j, mine, &err) == COLL_ERR_ARGUMENT);
		CHECK(strstr(err.message, "only once"), "%s", err.message);
		job_wait(&j);
		all_ok(&j);
		finish(&j);
		until_it_holds(threads, descriptors);
	}
}

TEST(id, one_rank_meets_nobody)
{
	const int threads = holdings_threads(), descriptors = holdings_descriptors();
	struct coll_error_box err;
	struct job j;

	coll_error_clear(&err);
	begin(&j, 1);
	publish(&j, false);
	CHECK(gather_by_id(&j, 0, &err) == COLL_OK, "%s", err.message);
	finish(&j);
	until_it_holds(threads, descriptors);
}

TEST(id, a_damaged_id_is_refused)
{
	const int threads = holdings_threads(), descriptors = holdings_descriptors();
	struct job j, good;
	struct shared *s;

	begin(&j, 2);
	begin(&good, 2);
	start_all_but(&j, -1);
	start_all_but(&good, -1);
	publish(&j, true);
	job_wait(&j);
	all_say(&j, -1, COLL_ERR_ARGUMENT, "damaged");
	/* Nobody had come to it. */
	s = good.arg;
	s->id = ((struct shared *)j.arg)->id;
	s->id.bytes[30] = (char)(s->id.bytes[30] ^ 1);
	atomic_store(&s->ready, true);
	job_wait(&good);
	all_ok(&good);
	finish(&good);
	finish(&j);
	until_it_holds(threads, descriptors);
}

/* ---- Failures ------------------------------------------------------------ */

TEST(id, a_missing_rank_is_named_by_all)
{
	const int threads = holdings_threads(), descriptors = holdings_descriptors();

	for (int missing = 0; missing < 5; missing += 2) {
		char text[64];
		struct job j;

		begin(&j, 5);
		j.settings.create_timeout_ms = 1000; /* of the ranks; the maker has another one */
		start_all_but(&j, missing);
		publish(&j, false);
		job_wait(&j);
		snprintf(text, sizeof(text), "rank %d of 5 did not connect", missing);
		all_say(&j, missing, COLL_ERR_BOOTSTRAP, text);
		all_say(&j, missing, COLL_ERR_BOOTSTRAP, "time limit 1000 ms");
		finish(&j);
		until_it_holds(threads, descriptors);
	}
}

static coll_status gather_with_other_size(struct job *j, int rank, struct coll_error_box *err)
{
	if (rank == 2)
		j->n = 7;
	return gather_by_id(j, rank, err);
}

TEST(id, sizes_that_differ)
{
	const int threads = holdings_threads(), descriptors = holdings_descriptors();
	struct job j;

	begin(&j, 4);
	j.run = gather_with_other_size;
	start_all_but(&j, -1);
	publish(&j, false);
	job_wait(&j);
	all_say(&j, -1, COLL_ERR_BOOTSTRAP, "ranks, the first that came says");
	finish(&j);
	until_it_holds(threads, descriptors);
}

TEST(id, two_processes_of_one_rank)
{
	const int threads = holdings_threads(), descriptors = holdings_descriptors();
	struct job j;

	begin(&j, 4);
	start_all_but(&j, 0);
	job_start_as(&j, 100, 2);
	publish(&j, false);
	job_wait(&j);
	CHECK(strstr(j.result[1].message, "two processes claim rank 2"), "%s", j.result[1].message);
	finish(&j);
	until_it_holds(threads, descriptors);
}

TEST(id, the_makers_death_ends_it)
{
	struct job j;
	pid_t maker;

	begin(&j, 2);
	j.settings.create_timeout_ms = 800;
	maker = fork();
	if (maker == 0) {
		publish(&j, false);
		_exit(0);
	}
	waitpid(maker, NULL, 0);
	start_all_but(&j, -1);
	job_wait(&j);
	all_say(&j, -1, COLL_ERR_BOOTSTRAP, "its process has ended");
	finish(&j);
}

TEST(id, a_fork_hosts_its_own)
{
	struct job j;
	pid_t child;
	int status = 1;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	SKIP("a sanitizer cannot work in the fork of a process that has threads");
#endif
	begin(&j, 2);
	start_all_but(&j, -1);
	CHECK(coll_bootstrap_unique_id(&j.settings, &((struct shared *)j.arg)->id, NULL) == COLL_OK);
	child = fork();
	if (child == 0) {
		struct job k;

		alarm(60);
		begin(&k, 3);
		start_all_but(&k, 1);
		publish(&k, false);
		k.result[1].status = gather_by_id(&k, 1, NULL);
		job_wait(&k);
		all_ok(&k);
		_exit(plain_failures);
	}
	atomic_store(&((struct shared *)j.arg)->ready, true);
	job_wait(&j);
	all_ok(&j);
	waitpid(child, &status, 0);
	CHECK(status == 0, "the child failed: %d", status);
	finish(&j);
}

/* A process that knows the key says this first; its answer's type and text. */
static uint32_t say_first(const coll_unique_id *id, const struct introduction *in, size_t payload_bytes, char *text,
                          size_t text_bytes)
{
	const uint64_t until = coll_clock_ns() + 20000000000u;
	unsigned char *buf = calloc(1, sizeof(*in) + payload_bytes);
	struct coll_wire w = {.fd = -1};
	struct coll_places places;
	struct coll_wire_frame f;
	uint64_t key[2];
	uint32_t type = 0;
	bool said = false;

	CHECK(coll_id_read(id, &places, key, NULL) == COLL_OK && coll_wire_connect(&w, &places.place[0], key));
	memcpy(buf, in, sizeof(*in));
	while (!type && w.state != COLL_WIRE_CLOSED && coll_clock_ns() < until) {
		struct pollfd p = {.fd = w.fd, .events = coll_wire_events(&w)};

		if (!said && w.state == COLL_WIRE_OPEN)
			said = coll_wire_send(&w, FRAME_REGISTER, buf, sizeof(*in) + payload_bytes, NULL, 0);
		poll(&p, 1, 10);
		coll_wire_pump(&w, p.revents);
		if (coll_wire_peek(&w, 1 << 20, &f)) {
			type = f.type;
			snprintf(text, text_bytes, "%.*s", f.len_bytes > 8 ? (int)f.len_bytes - 8 : 0,
			         (const char *)f.body + 8);
		}
	}
	coll_wire_close(&w);
	free(buf);
	return type;
}

static long size_kb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[200];
	long kb = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmPeak: %ld", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb;
}

/* The first rank that comes says how many there are, and may lie: what the others will bring takes no memory before
 * they bring it. */
TEST(id, what_the_first_rank_claims_is_not_believed_at_once)
{
	const int threads = holdings_threads(), descriptors = holdings_descriptors();
	struct introduction lie = {
	        .version = WIRE_VERSION, .size = 1 << 17, .rank = 1, .len_bytes = 4000, .left_ms = 20000};
	struct coll_settings settings;
	coll_unique_id id;
	char text[700];
	long before;

	coll_settings_load(&settings, NULL, NULL, NULL);
	CHECK(coll_bootstrap_unique_id(&settings, &id, NULL) == COLL_OK);
	before = size_kb();
	CHECK(say_first(&id, &lie, 4000, text, sizeof(text)) == FRAME_STAY, "%s", text);
	CHECK(size_kb() - before < 200 << 10, "%ld KB more", size_kb() - before);
	lie.size = UINT32_MAX;
	for (int i = 0; i < 2; i++, lie.size = 0) {
		CHECK(coll_bootstrap_unique_id(&settings, &id, NULL) == COLL_OK);
		CHECK(say_first(&id, &lie, 4000, text, sizeof(text)) == FRAME_FAILED);
		CHECK(strstr(text, "an id can bring together"), "%s", text);
	}
	until_it_holds(threads, descriptors);
}

TEST(id, abandoned_ids_are_bounded)
{
	enum { MORE = 2 * COLL_ID_WAITING_MAX };
	const int threads = holdings_threads(), descriptors = holdings_descriptors();
	struct job oldest, newest;
	coll_unique_id id;

	begin(&oldest, 2);
	begin(&newest, 2);
	oldest.settings.create_timeout_ms = 500;
	start_all_but(&newest, -1);
	start_all_but(&oldest, -1);
	CHECK(coll_bootstrap_unique_id(&oldest.settings, &((struct shared *)oldest.arg)->id, NULL) == COLL_OK);
	for (int i = 0; i < MORE; i++)
		CHECK(coll_bootstrap_unique_id(&oldest.settings, &id, NULL) == COLL_OK);
	until_it_holds(threads + COLL_ID_WAITING_MAX, descriptors + 2 * COLL_ID_WAITING_MAX);
	atomic_store(&((struct shared *)oldest.arg)->ready, true);
	job_wait(&oldest);
	all_say(&oldest, -1, COLL_ERR_BOOTSTRAP, "does not answer");
	publish(&newest, false);
	job_wait(&newest);
	all_ok(&newest);
	finish(&oldest);
	finish(&newest);
}

static void *nothing(void *arg)
{
	return arg;
}

PROGRAM(id, "")
{
	pthread_t first;

	/* A sanitizer starts a thread of its own with the first one. */
	pthread_create(&first, NULL, nothing, NULL);
	pthread_join(first, NULL);
	return 1;
}
