/*
 * The all-gather of bootstrap among real processes: every size that changes the
 * tree, over Unix sockets and TCP; ranks that never come, come twice, come with
 * another idea of the job, die on the way; strangers at the door.
 */
#define PLAIN_OWN_MAIN
#include "tests/plain.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "bootstrap/address.h"
#include "bootstrap/job_test.h"

enum { PAYLOAD_MAX = 5000 };

static unsigned char pattern(int rank, size_t i)
{
	return (unsigned char)coll_mix64((uint64_t)rank * 7919 + i);
}

static bool table_is_right(const unsigned char *all, int n, size_t len_bytes)
{
	for (int r = 0; r < n; r++)
		for (size_t i = 0; i < len_bytes; i++)
			if (all[(size_t)r * len_bytes + i] != pattern(r, i))
				return false;
	return true;
}

static coll_status gather(struct job *j, int rank, size_t len_bytes, struct coll_error_box *err)
{
	unsigned char *mine = calloc(1, len_bytes + 1), *all = calloc((size_t)j->n, len_bytes + 1);
	coll_status st;

	for (size_t i = 0; i < len_bytes; i++)
		mine[i] = pattern(rank, i);
	st = coll_bootstrap_exchange(NULL, &j->settings, &j->id, mine, all, len_bytes, err);
	if (st == COLL_OK && !table_is_right(all, j->n, len_bytes))
		st = coll_error_set(err, COLL_ERR_CORRUPT, "wrong table");
	free(mine);
	free(all);
	return st;
}

static coll_status gather_200(struct job *j, int rank, struct coll_error_box *err)
{
	return gather(j, rank, 200, err);
}

static coll_status gather_much(struct job *j, int rank, struct coll_error_box *err)
{
	return gather(j, rank, PAYLOAD_MAX, err);
}

static coll_status gather_nothing(struct job *j, int rank, struct coll_error_box *err)
{
	return gather(j, rank, 0, err);
}

static int names;

static void over_unix(struct job *j)
{
	snprintf(j->id.unix_name, sizeof(j->id.unix_name), "coll-test-%d-%d", (int)getpid(), names++);
	j->id.job_key[0] = 11;
	j->id.job_key[1] = 12;
}

/* A port that was free a moment ago. */
static void over_tcp(struct job *j)
{
	uint16_t port = 0;
	struct coll_address a;
	int fd;

	coll_address_numeric(&a, "127.0.0.1", 0);
	fd = coll_listen_tcp(&a, 0, &port);
	close(fd);
	snprintf(j->id.root_host, sizeof(j->id.root_host), "127.0.0.1");
	j->id.root_port = port;
	j->id.job_key[0] = 13;
	j->id.job_key[1] = 14;
}

static void all_ok(struct job *j)
{
	for (int r = 0; r < j->n; r++)
		CHECK(j->result[r].status == COLL_OK, "rank %d of %d: %d %s", r, j->n, j->result[r].status,
		      j->result[r].message);
}

static void run_all(struct job *j, void (*way)(struct job *))
{
	way(j);
	for (int r = 0; r < j->n; r++)
		job_start(j, r);
	job_wait(j);
	all_ok(j);
	job_free(j);
}

static const int sizes[] = {1, 2, 3, 5, 8, 9, 10, 16, 64};

static void every_size_over_unix(void)
{
	struct job j;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		job_init(&j, sizes[i], gather_200);
		run_all(&j, over_unix);
	}
}

static void every_size_over_tcp(void)
{
	struct job j;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		job_init(&j, sizes[i], gather_200);
		run_all(&j, over_tcp);
	}
}

static void empty_and_large_payloads(void)
{
	struct job j;

	job_init(&j, 12, gather_nothing);
	run_all(&j, over_tcp);
	job_init(&j, 20, gather_much);
	run_all(&j, over_unix);
	job_init(&j, 20, gather_much);
	run_all(&j, over_tcp);
}

int main(void)
{
	signal(SIGPIPE, SIG_DFL);
	PLAIN_RUN(every_size_over_unix);
	PLAIN_RUN(every_size_over_tcp);
	PLAIN_RUN(empty_and_large_payloads);
	return plain_summary();
}
