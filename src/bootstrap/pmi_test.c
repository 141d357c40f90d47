/*
 * PMI-1 against a small key-value server of our own, which is stingy (short
 * values) or broken in the ways a launcher can be. The real mpirun is in
 * tools/launch_test.c.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "bootstrap/id.h"
#include "bootstrap/job_test.h"
#include "bootstrap/listeners.h"
#include "bootstrap/pmi.h"

#include "tests/holdings.h"
#include "tests/multi/starved.h"
#include "tests/plain.h"

enum { CLIENTS = 3, PAIRS = 64 };

enum fault { NONE, REFUSE_PUT, NO_BARRIER, HANG_UP, NONSENSE };

struct server {
	int fd[CLIENTS];
	int clients;
	int waiting; /* in the barrier */
	int finalized;
	int value_max;
	enum fault fault;
	char key[PAIRS][32], value[PAIRS][300];
	int pairs;
	int longest; /* value seen */
};

static void say(int fd, const char *text)
{
	(void)!write(fd, text, strlen(text));
}

static void serve_line(struct server *s, int i, char *line)
{
	char a[300], b[300], out[512];

	if (s->fault == NONSENSE) {
		say(s->fd[i], "cmd=what\n");
	} else if (strstr(line, "cmd=init")) {
		say(s->fd[i], "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
	} else if (strstr(line, "cmd=get_maxes")) {
		snprintf(out, sizeof(out), "cmd=maxes kvsname_max=64 keylen_max=32 vallen_max=%d\n", s->value_max);
		say(s->fd[i], out);
	} else if (strstr(line, "cmd=get_my_kvsname")) {
		say(s->fd[i], "cmd=my_kvsname kvsname=kvs_7\n");
	} else if (sscanf(line, "cmd=put kvsname=kvs_7 key=%31s value=%299s", a, b) == 2) {
		snprintf(s->key[s->pairs], 32, "%.31s", a);
		snprintf(s->value[s->pairs++], 300, "%s", b);
		if ((int)strlen(b) > s->longest)
			s->longest = (int)strlen(b);
		say(s->fd[i],
		    s->fault == REFUSE_PUT ? "cmd=put_result rc=-1 msg=no\n" : "cmd=put_result rc=0 msg=success\n");
	} else if (strstr(line, "cmd=barrier_in")) {
		if (++s->waiting == s->clients && s->fault != NO_BARRIER)
			for (int k = 0; k < s->clients; k++)
				say(s->fd[k], "cmd=barrier_out rc=0\n");
	} else if (sscanf(line, "cmd=get kvsname=kvs_7 key=%31s", a) == 1) {
		const char *found = "";

		for (int k = 0; k < s->pairs; k++)
			if (strcmp(s->key[k], a) == 0)
				found = s->value[k];
		snprintf(out, sizeof(out),
		         *found ? "cmd=get_result rc=0 msg=success value=%s\n" : "cmd=get_result rc=-1%s\n", found);
		say(s->fd[i], out);
	} else if (strstr(line, "cmd=finalize")) {
		s->finalized++;
		say(s->fd[i], "cmd=finalize_ack\n");
	}
}

/* Until every client has hung up. */
static void serve(struct server *s)
{
	char line[CLIENTS][600];
	size_t len[CLIENTS] = {0};
	int open = s->clients;

	while (open > 0) {
		struct pollfd p[CLIENTS];

		for (int i = 0; i < s->clients; i++)
			p[i] = (struct pollfd){.fd = s->fd[i], .events = POLLIN};
		poll(p, (nfds_t)s->clients, -1);
		for (int i = 0; i < s->clients; i++) {
			if (!p[i].revents)
				continue;
			if (read(s->fd[i], &line[i][len[i]], 1) != 1 || s->fault == HANG_UP) {
				close(s->fd[i]);
				s->fd[i] = -1;
				open--;
			} else if (line[i][len[i]++] == '\n') {
				line[i][len[i]] = 0;
				serve_line(s, i, line[i]);
				len[i] = 0;
			}
		}
	}
}

/* The hook of each client: it ends the wait the third time. */
static bool hooked;
static int asked;
static uint64_t word_ns;

static int third_time(void *arg)
{
	if (++asked == 3)
		word_ns = coll_clock_ns();
	return asked == 3;
}

/* From the word on it may take 200 ms; and the hook is not asked again. */
static coll_status interrupted(coll_status st, struct coll_error_box *err)
{
	const uint64_t took = coll_clock_ns() - word_ns;

	if (st == COLL_OK || asked != 3 || took > 200000000u + starved_ns())
		return coll_error_set(err, COLL_ERR_INTERNAL, "status %d, asked %d times, ended after %llu ns", st,
		                      asked, (unsigned long long)took);
	return st;
}

static const char text_of_root[] = "0123456789abcdef0123456789abcdef0123456789abcdef-THE-END";

static void begin(const int *fds, int rank)
{
	char number[16];

	for (int i = 0; i < CLIENTS; i++)
		if (i != rank)
			close(fds[i]);
	snprintf(number, sizeof(number), "%d", fds[rank]);
	setenv("PMI_FD", number, 1);
}

static coll_status share(struct job *j, int rank, struct coll_error_box *err)
{
	char text[sizeof(text_of_root)] = "";
	coll_status st;

	begin(j->arg, rank);
	if (rank == 0)
		strcpy(text, text_of_root);
	if (hooked)
		coll_interrupt_enter(&(struct coll_interrupt){.fn = third_time});
	st = coll_pmi_share(rank == 0, text, sizeof(text), coll_clock_ns() + (hooked ? 60000000000u : 1500000000u),
	                    err);
	if (hooked)
		return interrupted(st, err);
	if (st == COLL_OK && strcmp(text, text_of_root) != 0)
		st = coll_error_set(err, COLL_ERR_CORRUPT, "got %s", text);
	return st;
}

/* The first meeting, a second one, and one whose places somebody else has taken before. */
static coll_status meet_thrice(struct job *j, int rank, struct coll_error_box *err)
{
	struct coll_rendezvous_listeners taken = {.count = 0};
	struct coll_places places = {.count = 0};
	coll_unique_id id;
	uint64_t key[2];
	int held;
	coll_status st;

	begin(j->arg, rank);
	strcpy(j->id.publish, "pmi");
	st = gather_200(j, rank, err);
	held = holdings_descriptors();
	if (st == COLL_OK)
		st = gather_200(j, rank, err);
	if (st == COLL_OK && holdings_descriptors() != held)
		return coll_error_set(err, COLL_ERR_INTERNAL, "%d descriptors, %d before", holdings_descriptors(),
		                      held);
	if (st == COLL_OK)
		st = coll_id_publish(&j->settings, &j->id, 0, &id, err);
	if (st == COLL_OK)
		st = coll_id_read(&id, &places, key, err);
	for (int i = 0; rank == 0 && st == COLL_OK && i < places.count; i++) {
		const struct coll_address *a = &places.place[i];
		uint16_t port = coll_address_port(a);
		const int fd = a->at.ss_family == AF_UNIX ? coll_listen_unix_at(a) : coll_listen_tcp(a, port, &port);

		if (!coll_rendezvous_add(&taken, fd))
			return coll_error_set(err, COLL_ERR_INTERNAL, "place %d of rank 0 is still taken", i);
	}
	if (st == COLL_OK)
		st = gather_200(j, rank, err);
	coll_rendezvous_unlisten(&taken);
	return st;
}

static void run_as(struct server *s, struct job *j, coll_status (*what)(struct job *, int, struct coll_error_box *))
{
	int theirs[CLIENTS], pair[2];

	s->clients = CLIENTS;
	job_init(j, CLIENTS, what);
	j->arg = theirs;
	for (int i = 0; i < CLIENTS; i++) {
		REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
		s->fd[i] = pair[0];
		theirs[i] = pair[1];
	}
	for (int i = 0; i < CLIENTS; i++)
		job_start(j, i);
	for (int i = 0; i < CLIENTS; i++)
		close(theirs[i]);
	serve(s);
	job_wait(j);
}

static void run(struct server *s, struct job *j)
{
	run_as(s, j, share);
}

/* The launcher carries one id for the life of a process; rank 0 listens only while it meets the others. */
TEST(pmi, later_meetings_have_listeners_of_their_own)
{
	struct server s = {.value_max = 1024};
	struct job j;

	run_as(&s, &j, meet_thrice);
	for (int r = 0; r < CLIENTS; r++)
		CHECK(j.result[r].status == COLL_OK, "rank %d: %s", r, j.result[r].message);
	job_free(&j);
}

TEST(pmi, long_values_go_in_pieces)
{
	struct server s = {.value_max = 10};
	struct job j;

	run(&s, &j);
	for (int r = 0; r < CLIENTS; r++)
		CHECK(j.result[r].status == COLL_OK, "rank %d: %s", r, j.result[r].message);
	CHECK(s.longest == 9, "%d", s.longest);
	CHECK(s.pairs == ((int)sizeof(text_of_root) - 1 + 8) / 9, "%d", s.pairs);
	CHECK(s.finalized == CLIENTS);
	job_free(&j);
}

TEST(pmi, short_ones_in_one)
{
	struct server s = {.value_max = 1024};
	struct job j;

	run(&s, &j);
	for (int r = 0; r < CLIENTS; r++)
		CHECK(j.result[r].status == COLL_OK, "rank %d: %s", r, j.result[r].message);
	CHECK(s.pairs == 1);
	job_free(&j);
}

static void expect_fault(enum fault fault, const char *text)
{
	struct server s = {.value_max = 1024, .fault = fault};
	struct job j;

	signal(SIGPIPE, SIG_IGN);
	run(&s, &j);
	CHECK(j.result[0].status == COLL_ERR_BOOTSTRAP);
	CHECK(strstr(j.result[0].message, text) != NULL, "%s", j.result[0].message);
	job_free(&j);
}

TEST(pmi, faults_are_told)
{
	expect_fault(REFUSE_PUT, "rc=-1");
	expect_fault(NO_BARRIER, "some ranks did not reach the barrier");
	expect_fault(HANG_UP, "PMI over PMI_FD");
	expect_fault(NONSENSE, "cmd=what");
}

/* The deadline is far away. */
TEST(pmi, the_hook_ends_a_barrier)
{
	struct server s = {.value_max = 1024, .fault = NO_BARRIER};
	struct job j;

	hooked = true;
	run(&s, &j);
	hooked = false;
	for (int r = 0; r < CLIENTS; r++)
		CHECK(j.result[r].status == COLL_ERR_BOOTSTRAP, "rank %d: %s", r, j.result[r].message);
	job_free(&j);
}
