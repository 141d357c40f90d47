/*
 * What the library says: log functions, log files, and settings that are refused by name.
 * Ranks are threads.
 *
 * usage: log_lines TRANSPORT [PART-OF-A-TEST'S-NAME]
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/coll.h"
#include "plain.h"
#include "thread_ranks.h"

struct log_count {
	atomic_int lines, bad, errors, about_ranks;
};

static void count_line(void *arg, int level, const char *line)
{
	struct log_count *c = arg;

	atomic_fetch_add(&c->lines, 1);
	if (level < 0 || level > 3 || !*line || strchr(line, '\n'))
		atomic_fetch_add(&c->bad, 1);
	if (level == 0)
		atomic_fetch_add(&c->errors, 1);
	if (strstr(line, "rank 0 of 2") || strstr(line, "rank 1 of 2"))
		atomic_fetch_add(&c->about_ranks, 1);
}

static void say_nothing(void *arg, int level, const char *line)
{
}

TEST(log_lines, log_lines_arrive)
{
	const char *settings[] = {transports, "COLL_DEBUG=debug", NULL};
	const char *wrong[] = {"COLL_TIMEOUT_MS=soon", NULL};
	struct log_count count = {0};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comms[2] = {NULL, NULL};
	int before;

	cfg.settings = settings;
	cfg.log = count_line;
	cfg.log_arg = &count;
	REQUIRE(coll_comm_create_all(comms, 2, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	before = atomic_load(&count.lines);
	each_rank(comms, 2, sums, AND_DESTROY);
	CHECK(atomic_load(&count.lines) > before, "the choice of an algorithm is worth a line");
	CHECK(atomic_load(&count.errors) == 0);
	cfg.settings = wrong;
	CHECK(coll_comm_create_all(comms, 2, &cfg) == COLL_ERR_CONFIG);
	CHECK(strstr(coll_last_error(NULL)->message, "COLL_TIMEOUT_MS"));
	CHECK(atomic_load(&count.errors) == 1, "a failed creation is worth a line");
	CHECK(atomic_load(&count.bad) == 0);
}

/* What was logged is in the file at once, not when the process ends well. */
TEST(log_lines, log_file_is_current)
{
	char path[] = "/tmp/coll-contracts-XXXXXX", setting[64], line[256] = "";
	const char *settings[] = {transports, "COLL_DEBUG=info", setting, NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comms[1];
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	snprintf(setting, sizeof(setting), "COLL_LOG_FILE=%s", path);
	cfg.settings = settings;
	CHECK(coll_comm_create_all(comms, 1, &cfg) == COLL_OK);
	CHECK(coll_comm_set_name(comms[0], "tp/0") == COLL_OK);
	CHECK(coll_barrier(comms[0], NULL) == COLL_OK);
	CHECK(read(fd, line, sizeof(line) - 1) > 0 && strstr(line, "tp/0: barrier count="), "in the file: '%s'", line);
	CHECK(coll_comm_destroy(&comms[0]) == COLL_OK);
	close(fd);
	unlink(path);
}

/* Numbers that mean nothing are told by name, not taken for very large ones. */
TEST(log_lines, settings_out_of_range)
{
	static const char *const bad[] = {"COLL_TIMEOUT_MS=0",
	                                  "COLL_ARRIVAL_TIMEOUT_MS=-5",
	                                  "COLL_CREATE_TIMEOUT_MS=0",
	                                  "COLL_WARN_MS=-1",
	                                  "COLL_SPIN_US=-1",
	                                  "COLL_WINDOWS=-1",
	                                  "COLL_SLOTS=1",
	                                  "COLL_SLOTS=-2",
	                                  "COLL_SLOTS=257",
	                                  "COLL_PROGRESS=maybe",
	                                  "COLL_PROGRESS=",
	                                  "COLL_SHM_COPY=aut",
	                                  "COLL_SLOT_BYTES=-1",
	                                  "COLL_INTRA=2",
	                                  "COLL_INTRA_BYTES=64Q",
	                                  "COLL_ISA=mmx",
	                                  "COLL_DEBUG=loud",
	                                  "COLL_DUMP_SIGNAL=kill",
	                                  "COLL_PORT_RANGE=5",
	                                  "COLL_RDMA_TRAFFIC_CLASS=256",
	                                  "COLL_RDMA_TIMEOUT=99",
	                                  "COLL_RDMA_TIMEOUT=-1",
	                                  "COLL_RDMA_RETRY=8",
	                                  "COLL_RDMA_IMMEDIATE=2",
	                                  "COLL_RDMA_POLLED=-1",
	                                  "COLL_RDMA_GID_INDEX=one",
	                                  "COLL_RDMA_MESSAGE_MAX=4294967296"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *settings[] = {transports, "COLL_DEBUG=error", bad[i], NULL};
		coll_config cfg = COLL_CONFIG_INIT;
		coll_comm *comm = NULL;

		cfg.settings = settings;
		cfg.log = say_nothing;
		CHECK(coll_comm_create_all(&comm, 1, &cfg) == COLL_ERR_CONFIG, "%s", bad[i]);
		CHECK(strstr(coll_last_error(NULL)->message, bad[i]), "%s: %s", bad[i], coll_last_error(NULL)->message);
		if (comm)
			coll_comm_destroy(&comm);
	}
}

/* What a log function may call. */
struct impatience {
	coll_comm **waiting;
	bool in_stream;
	atomic_int warnings, over;
	coll_status status[2];
};

static void end_wait(void *arg, int level, const char *line)
{
	struct impatience *p = arg;

	if (level != 1)
		return;
	atomic_fetch_add(&p->warnings, 1);
	CHECK(strstr(line, "waiting ") && strstr(line, " [COLL-5101]"), "%s", line);
	CHECK(coll_comm_abort(*p->waiting, "said enough") == COLL_OK);
}

static void wait_or_stay_away(coll_comm **comm, int rank, void *arg)
{
	struct impatience *p = arg;
	coll_stream *stream = NULL;
	int x = 1;

	if (rank == 1) {
		while (!atomic_load(&p->over))
			usleep(1000);
	} else if (p->in_stream) {
		CHECK(coll_stream_create(&stream, *comm) == COLL_OK);
		CHECK(coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, *comm, stream) == COLL_OK);
		p->status[0] = coll_stream_wait(stream, -1);
		coll_stream_destroy(&stream);
		atomic_store(&p->over, 1);
		return;
	}
	p->status[rank] = coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, *comm, NULL);
	atomic_store(&p->over, 1);
}

TEST(log_lines, a_log_function_may_abort)
{
	const char *settings[] = {transports, "COLL_WARN_MS=100", NULL};

	for (int in_stream = 0; in_stream < 2; in_stream++) {
		coll_comm *comms[2] = {NULL, NULL};
		struct impatience p = {.waiting = &comms[0], .in_stream = in_stream};
		coll_config cfg = COLL_CONFIG_INIT;

		cfg.settings = settings;
		cfg.log = end_wait;
		cfg.log_arg = &p;
		REQUIRE(coll_comm_create_all(comms, 2, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
		each_rank(comms, 2, wait_or_stay_away, &p);
		for (int r = 0; r < 2; r++) {
			CHECK(p.status[r] == COLL_ERR_ABORTED, "rank %d: %d", r, p.status[r]);
			CHECK(strstr(coll_last_error(comms[r])->message, "said enough"), "%s",
			      coll_last_error(comms[r])->message);
		}
		CHECK(atomic_load(&p.warnings) == 1, "%d warnings", atomic_load(&p.warnings));
		for (int r = 0; r < 2; r++)
			CHECK(coll_comm_destroy(&comms[r]) == COLL_OK);
	}
}

PROGRAM(log_lines, "TRANSPORT")
{
	threads_over(argc > 1 ? argv[1] : "loop");
	return 2;
}
