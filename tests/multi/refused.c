/*
 * Memory that is refused. Of two ranks, threads of this process, one makes a series of calls, and
 * the k-th allocation that the library makes in its thread fails, alone or with all after it: for some
 * k, or alone for every k. What fails says so with COLL_ERR_MEMORY and a text, the rank can abort and
 * destroy, the other rank is not left waiting, and memory, descriptors and threads are as before.
 *
 * The allocator (refusing.h) needs glibc and no sanitizer. What the library's own threads ask for is not
 * refused.
 *
 * usage: refused TRANSPORT some|every [PART-OF-A-TEST'S-NAME]
 */
#include "refused.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Two ranks ---- */

enum { MOST = 2000 };

char refused_transports[64];
static bool every_k;

static int entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

struct footprint {
	long live;
	int descriptors, threads;
};

static struct footprint footprint(void)
{
	return (struct footprint){refusing_live(), entries("/proc/self/fd"), entries("/proc/self/task")};
}

/* A thread that was joined is seen a moment longer. */
static struct footprint settled(int threads)
{
	struct footprint f = footprint();

	for (int i = 0; i < 2000 && f.threads > threads; i++) {
		usleep(1000);
		f = footprint();
	}
	return f;
}

void refused_quiet(void *arg, int level, const char *line)
{
}

coll_status refused_create(coll_comm **comms, int n)
{
	const char *settings[] = {refused_transports,     "COLL_PROGRESS=off",
	                          "COLL_TIMEOUT_MS=4000", "COLL_ARRIVAL_TIMEOUT_MS=4000",
	                          "COLL_DEBUG=error",     NULL};
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.settings = settings;
	cfg.log = getenv("VERBOSE") ? NULL : refused_quiet;
	return coll_comm_create_all(comms, n, &cfg);
}

void refused_arm(const struct rank *r)
{
	refusing_arm(r->k, r->mode);
}

void refused_disarm(struct rank *r)
{
	r->refused = refusing_disarm();
}

coll_status refused_told(struct rank *r, const coll_comm *comm, coll_status st)
{
	const coll_error *e = coll_last_error(comm);

	refused_disarm(r);
	if (r->k > 0) {
		/* A link that ends for want of memory is seen by both, and either may be the first to tell;
		 * without memory for a note it is the other one. */
		const bool deaf = st == COLL_ERR_PEER_DEAD &&
		                  (r->mode == REFUSING_ALL_FROM || strstr(e->message, "the link between"));

		CHECK(st == COLL_ERR_MEMORY || deaf, "allocation %u: %s: %s", r->k, coll_status_string(st), e->message);
		CHECK(!comm || deaf || (e->status == st && strstr(e->message, "memory")), "allocation %u: %s", r->k,
		      e->message);
		coll_comm_abort(r->comm, "a test");
	} else {
		CHECK(st == COLL_ERR_MEMORY || st == COLL_ERR_ABORTED || st == COLL_ERR_PEER_DEAD, "%s: %s",
		      coll_status_string(st), e->message);
	}
	return st;
}

static void *rank_main(void *arg)
{
	struct rank *r = arg;

	refused_arm(r);
	r->status = r->act(r);
	refused_disarm(r);
	coll_comm_destroy(&r->comm);
	return NULL;
}

/* Returns how many allocations were refused. */
static unsigned job(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode)
{
	coll_comm *comms[2] = {NULL, NULL};
	struct rank ranks[2];
	pthread_t other;
	const coll_status st = refused_create(comms, 2);

	CHECK(st == COLL_OK, "%s", coll_last_error(NULL)->message);
	if (st != COLL_OK)
		return 0;
	for (int i = 0; i < 2; i++)
		ranks[i] = (struct rank){.comm = comms[i], .rank = i, .act = act, .k = i == 0 ? k : 0, .mode = mode};
	pthread_create(&other, NULL, rank_main, &ranks[1]);
	rank_main(&ranks[0]);
	pthread_join(other, NULL);
	CHECK(k > 0 || (ranks[0].status == COLL_OK && ranks[1].status == COLL_OK), "nothing was refused: %s, %s",
	      coll_status_string(ranks[0].status), coll_status_string(ranks[1].status));
	CHECK(ranks[0].status != COLL_OK || ranks[1].status == COLL_OK, "allocation %u: only the other rank: %s", k,
	      coll_status_string(ranks[1].status));
	return ranks[0].refused;
}

/* run(k, mode) for one k after the other, until it needs no k-th allocation. */
static void each_allocation(unsigned (*run)(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode),
                            coll_status (*act)(struct rank *r))
{
	struct footprint before, after;
	unsigned k = 1, total = 0;

	/* What is kept for good is made: errors of threads, stacks. */
	for (int i = 0; i < 3; i++)
		run(act, i, REFUSING_ONE);
	run(act, 0, REFUSING_ONE);
	for (enum refusing mode = REFUSING_ONE; mode <= REFUSING_ALL_FROM; mode++)
		for (k = 1; k <= MOST && atomic_load(&plain_failures) == 0;
		     k += mode == REFUSING_ONE && every_k ? 1 : 1 + k / 8) {
			unsigned n;

			before = footprint();
			n = run(act, k, mode);
			after = settled(before.threads);
			CHECK(after.live <= before.live, "allocation %u: %ld blocks leaked", k,
			      after.live - before.live);
			CHECK(after.descriptors <= before.descriptors, "allocation %u: descriptors leaked", k);
			CHECK(after.threads <= before.threads, "allocation %u: threads leaked", k);
			if (atomic_load(&plain_failures) > 0)
				fprintf(stderr, "at allocation %u, %s\n", k, mode ? "and all after it" : "alone");
			if (n == 0)
				break;
			total++;
		}
	CHECK(total > 0, "nothing was refused");
	printf("     %u refusals\n", total);
}

/* ---- Tests ---- */

TEST(refused, create_alone)
{
	each_allocation(refused_created_alone, NULL);
}

TEST(refused, create_together)
{
	each_allocation(refused_created_together, NULL);
}

TEST(refused, create_apart)
{
	if (strstr(refused_transports, "loop"))
		SKIP("loop stays in one process");
	each_allocation(refused_created_apart, NULL);
}

TEST(refused, create_on_hosts)
{
	if (!strstr(refused_transports, "tcp"))
		SKIP("nothing but tcp leads to another host");
	each_allocation(refused_created_on_hosts, NULL);
}

#define TEST_OF(what)                             \
	TEST(refused, what)                       \
	{                                         \
		each_allocation(job, act_##what); \
	}
TEST_OF(calls)
TEST_OF(repeats)
TEST_OF(children)
TEST_OF(ends)
TEST_OF(streams)
TEST_OF(groups)
TEST_OF(operations)
TEST_OF(memory)

PROGRAM(refused, "TRANSPORT some|every")
{
	every_k = strcmp(argv[2], "every") == 0;
	refusing_begin();
	snprintf(refused_transports, sizeof(refused_transports), "COLL_TRANSPORTS=%s", argv[1]);
	return 3;
}
