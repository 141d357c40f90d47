/*
 * Ranks that run different versions of the library: all are refused in creation, with the version of each, however they
 * meet. The version is the text that src/commit.c has elsewhere; here each process writes its own.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "meeting.h"
#include "plain.h"

/* Of base/version.h, which declares it constant. */
extern char coll_built_version[64];
char coll_built_version[64] = "0.1.0 (aaaa)";

enum { RANKS = 4 };
enum way { BY_EXCHANGE, BY_ROOT, BY_ID };

static struct shared {
	struct meeting meeting;
	atomic_int id_made;
	coll_unique_id id;
	coll_status status[RANKS];
	char message[RANKS][1024];
} * shared;

struct attempt {
	enum way way;
	const char *version[RANKS];
};

/* Made by a rank: it has a thread, and a process that forks is to have none. */
static void give_id(int rank)
{
	if (rank == 0 && coll_unique_id_create(&shared->id) == COLL_OK)
		atomic_store(&shared->id_made, 1);
	for (int i = 0; i < 20000 && !atomic_load(&shared->id_made); i++)
		usleep(500);
	if (!atomic_load(&shared->id_made))
		_exit(1);
}

static void run_rank(const void *arg, int rank)
{
	const struct attempt *a = arg;
	struct meeting_seat seat = {&shared->meeting, rank, RANKS};
	char root[64], of_rank[32];
	const char *settings[] = {"COLL_SIZE=4", "COLL_TRANSPORTS=shm", of_rank, root, NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;

	snprintf(coll_built_version, sizeof(coll_built_version), "%s", a->version[rank]);
	snprintf(of_rank, sizeof(of_rank), "COLL_RANK=%d", rank);
	snprintf(root, sizeof(root), "COLL_ROOT=127.0.0.1:%d", 21000 + (int)(getppid() % 10000));
	cfg.settings = a->way == BY_ROOT ? settings : NULL;
	cfg.rank = a->way == BY_ROOT ? -1 : rank;
	cfg.size = a->way == BY_ROOT ? 0 : RANKS;
	if (a->way == BY_ID) {
		give_id(rank);
		cfg.id = &shared->id;
	}
	if (a->way == BY_EXCHANGE)
		meeting_sit(&seat, &cfg);
	shared->status[rank] = coll_comm_create(&comm, &cfg);
	if (shared->status[rank] != COLL_OK)
		snprintf(shared->message[rank], sizeof(shared->message[0]), "%s", coll_last_error(NULL)->message);
	coll_comm_destroy(&comm);
	_exit(0);
}

static void attempt(const struct attempt *a)
{
	pid_t pids[RANKS];

	memset(shared, 0, sizeof(*shared));
	fflush(stdout);
	for (int r = 0; r < RANKS; r++)
		pids[r] = meeting_fork(run_rank, a, r);
	for (int r = 0; r < RANKS; r++)
		waitpid(pids[r], NULL, 0);
}

static void refused(const char *const *version, const char *text)
{
	for (enum way way = BY_EXCHANGE; way <= BY_ID; way++) {
		const struct attempt a = {way, {version[0], version[1], version[2], version[3]}};

		attempt(&a);
		for (int r = 0; r < RANKS; r++) {
			CHECK(shared->status[r] == COLL_ERR_BOOTSTRAP, "way %d, rank %d: %d", (int)way, r,
			      (int)shared->status[r]);
			CHECK(strstr(shared->message[r], text), "way %d, rank %d: %s", (int)way, r, shared->message[r]);
			CHECK(strstr(shared->message[r], "[COLL-4204]"), "%s", shared->message[r]);
		}
	}
}

static void accepted(const char *const *version)
{
	const struct attempt a = {BY_ROOT, {version[0], version[1], version[2], version[3]}};

	attempt(&a);
	for (int r = 0; r < RANKS; r++)
		CHECK(shared->status[r] == COLL_OK, "rank %d: %s", r, shared->message[r]);
}

TEST(versions, another_number_is_refused)
{
	const char *const version[] = {"0.1.0 (aaaa)", "0.1.0 (aaaa)", "0.2.0 (bbbb)", "0.1.0 (aaaa)"};

	refused(version, "0.1.0 (aaaa) on ranks 0-1, 3 ");
	CHECK(strstr(shared->message[0], "0.2.0 (bbbb) on rank 2 "), "%s", shared->message[0]);
}

TEST(versions, another_commit_is_refused)
{
	const char *const version[] = {"0.1.0", "0.1.0 (aaaa)", "0.1.0 (bbbb)", "0.1.0 (bbbb)"};

	refused(version, "0.1.0 (bbbb) on ranks");
}

TEST(versions, a_build_without_a_commit_goes_with_all)
{
	const char *const version[] = {"0.1.0 (aaaa)", "0.1.0", "0.1.0 (aaaa)", "0.1.0"};

	accepted(version);
}

PROGRAM(versions, "[TEST]")
{
	(void)argc, (void)argv;
	shared = meeting_page(sizeof(*shared));
	return argc > 1 ? 1 : argc;
}
