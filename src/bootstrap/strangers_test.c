/*
 * Strangers at the door of a rendezvous: silent ones that stay, garbage, half
 * handshakes, thousands of them, while the last rank is still missing. The job
 * must finish, with the right table.
 */
#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/proof.h"
#include "bootstrap/job_test.h"
#include "bootstrap/rendezvous.h"
#include "tests/plain.h"

enum { SILENT = 900, JOB_MS = 12000 };

static int stranger_connects(const struct coll_address *a)
{
	int fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)&a->at, a->len) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Connections that say too much, too little, or half of the right thing. */
static void stranger_speaks(int fd, int kind, struct coll_rng *rng)
{
	static const char hello[24] = "COLLmee20123456789abcdef";
	char garbage[4096];

	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (char)coll_rng_next(rng);
	switch (kind % 4) {
	case 0: (void)!send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL); break;
	case 1: (void)!send(fd, hello, 7, MSG_NOSIGNAL); break;
	case 2: (void)!send(fd, hello, sizeof(hello), MSG_NOSIGNAL); break;
	case 3:
		(void)!send(fd, hello, sizeof(hello), MSG_NOSIGNAL);
		(void)!send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
		break;
	}
}

/* Many that stay and say nothing or half a handshake, then count that come and go.
 * With a place for each, or a deadline for each in turn, the job would be late. */
static _Noreturn void flood(const struct coll_address *a, int count, int ready_fd)
{
	struct coll_rng rng = {77};
	int silent = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(100);
	while (silent < SILENT) {
		int fd = stranger_connects(a);

		if (fd < 0)
			continue;
		if (silent % 2)
			stranger_speaks(fd, 1 + silent / 2 % 2, &rng);
		silent++; /* stays open */
	}
	(void)!write(ready_fd, "x", 1);
	for (int i = 0; i < count; i++) {
		int fd = stranger_connects(a);

		if (fd < 0)
			break; /* the job is over */
		stranger_speaks(fd, i, &rng);
		close(fd);
	}
	_exit(0);
}

/* All but one rank come; then strangers; then the last. door NULL: on one host. */
static void run_with_strangers(struct job *j, const struct coll_address *door, int count)
{
	struct coll_address place;
	int ready[2];
	pid_t pid;
	char c;

	j->settings.create_timeout_ms = JOB_MS;
	REQUIRE(pipe(ready) == 0);
	start_all_but(j, j->n - 1);
	place = door ? *door : meeting_place(j);
	pid = fork();
	if (pid == 0)
		flood(&place, count, ready[1]);
	REQUIRE(read(ready[0], &c, 1) == 1);
	job_start(j, j->n - 1);
	job_wait(j);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(ready[0]);
	close(ready[1]);
	all_ok(j);
	job_free(j);
}

TEST(strangers, strangers_do_not_matter)
{
	struct coll_address door;
	struct job j;

	job_init(&j, 5, gather_200);
	over_tcp(&j);
	coll_address_numeric(&door, "127.0.0.1", j.id.root_port);
	run_with_strangers(&j, &door, 10000);
	job_init(&j, 12, gather_200);
	over_unix(&j);
	run_with_strangers(&j, NULL, 10000);
}

static coll_status gather_with_few_descriptors(struct job *j, int rank, struct coll_error_box *err)
{
	const int next = dup(0);
	const struct rlimit few = {(rlim_t)next + 8, (rlim_t)next + 8};

	close(next);
	if (rank == 0 && setrlimit(RLIMIT_NOFILE, &few) < 0)
		return COLL_ERR_SYSTEM;
	return gather(j, rank, 200, err);
}

TEST(strangers, running_out_of_descriptors_is_survived)
{
	struct coll_address door;
	struct job j;

	job_init(&j, 5, gather_with_few_descriptors); /* 1 listener, 4 children, room for 3 */
	over_tcp(&j);
	coll_address_numeric(&door, "127.0.0.1", j.id.root_port);
	run_with_strangers(&j, &door, 1000);
}

/* ---- Candidate ports that others hold ------------------------------------------------------ */

enum { HELD = 12, HELD_S = 30 };

static void over_candidate_ports(struct job *j, uint16_t *ports)
{
	uint16_t first, last;

	over_tcp(j);
	j->id.root_port = 0;
	j->id.root_ports = true;
	CHECK(coll_random(j->id.job_key, sizeof(j->id.job_key)));
	j->id.port_seed = j->id.job_key[1];
	CHECK(coll_port_range(&j->settings, &first, &last, NULL) == COLL_OK);
	coll_rendezvous_ports(j->id.port_seed, 0, first, last, ports);
}

/* What has come is read. */
static bool has_ended(int fd)
{
	char bytes[256];
	ssize_t got;

	do
		got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	while (got > 0);
	return got == 0 || (errno != EAGAIN && errno != EINTR);
}

/* At so many of the listeners a connection is open; *fd: that of each, -1: none. */
static int open_at(const int *listener, int *fd)
{
	int open = 0;

	for (int i = 0; i < HELD; i++) {
		if (fd[i] >= 0 && has_ended(fd[i])) {
			close(fd[i]);
			fd[i] = -1;
		}
		if (fd[i] < 0)
			fd[i] = accept4(listener[i], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		open += fd[i] >= 0;
	}
	return open;
}

/* They hold the first ports and say nothing, while rank 0 has not started: the waits of a rank do not add up. */
TEST(strangers, silent_ports_are_waited_for_at_the_same_time)
{
	const uint64_t until_ns = coll_clock_ns() + HELD_S * (uint64_t)1000000000;
	int listener[HELD], fd[HELD], open = 0, most = 0;
	uint16_t ports[COLL_RENDEZVOUS_PORTS], real;
	struct coll_address a;
	struct job j;

	job_init(&j, 2, gather_200);
	over_candidate_ports(&j, ports);
	for (int i = 0; i < HELD; i++) {
		coll_address_numeric(&a, j.id.root_host, ports[i]);
		listener[i] = coll_listen_tcp(&a, ports[i], &real);
		fd[i] = -1;
		CHECK(listener[i] >= 0);
	}
	job_start(&j, 1);
	while (most < HELD && coll_clock_ns() < until_ns) {
		open = open_at(listener, fd);
		most = open > most ? open : most;
		usleep(1000);
	}
	CHECK(most == HELD, "%d of %d", most, HELD);
	for (int i = 1; i < HELD; i++)
		close(listener[i]);
	/* Rank 0 takes the first that is free, and is found. */
	job_start(&j, 0);
	job_wait(&j);
	all_ok(&j);
	job_free(&j);
	for (int i = 0; i < HELD; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	close(listener[0]);
}
