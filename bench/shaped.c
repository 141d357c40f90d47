/*
 * All-reduce over shaped links beside a bare ring stream: n processes, each in a network
 * namespace of its own, joined by a bridge; what leaves a namespace passes tbf (burst 256 kb,
 * at most 20 ms in its queue). Blocks in turn, A B A B:
 *
 *   A   every rank streams to the next one and reads from the one before, plain sockets
 *   B   all-reduces back to back, which send 2(n-1)/n of the vector each
 *
 * with the same congestion control (cubic, or COLL_TCP_CONGESTION), at least 64 MiB of vectors
 * in a block. The ratio is that of the rates of bytes out of the busiest rank; median of the
 * blocks. A link whose bare stream misses 0.95 of the payload its rate has room for
 * (0.956 of it) is reported, not judged.
 *
 *   shaped [blocks [Mbit/s n [MiB]]]    default: 3 blocks of all cases that are judged
 *
 * BENCH_SHAPED=broadcast: broadcasts instead, which nobody can do faster than the stream
 * carries the vector once; reported, not judged (COLL_ALGO=broadcast:tree ... to compare).
 *
 * Needs the right to make namespaces, and the tools ip, tc and nsenter. Everything it makes
 * ends with it. Exit status 1: a ratio below 0.93; 77: no right.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "crowd.h"
#include "median.h"
#include "tests/shell.h"

enum { BLOCKS_MAX = 31, PORT = 7771, NO_RIGHT = 77 };
static const size_t BLOCK_BYTES = (size_t)64 << 20, WARM_BYTES = (size_t)16 << 20, MOST_BYTES = (size_t)64 << 20;
static const double PAYLOAD = 0.956, BARE_MUST = 0.95, MUST = 0.93;

struct link {
	struct crowd crowd;
	int mbit;
	int to, from; /* bare sockets: the next rank's, the one before's */
	coll_comm *comm;
	char *in, *out;
};

/* ---- namespaces ------------------------------------------------------------- */

/* In rank 0, which stands beside the namespaces: a bridge, and a pair for each rank. */
static bool wire_up(const struct crowd *c, const pid_t *pid, int mbit)
{
	if (!shell_run("ip link add br0 type bridge && ip link set br0 up && ip link set lo up"))
		return false;
	for (int r = 0; r < c->size; r++)
		if (!shell_run("ip link add v%d type veth peer name e0 netns %d && ip link set v%d master br0 up", r,
		               (int)pid[r], r) ||
		    !shell_run(
		            "nsenter -t %d -n sh -c 'ip link set lo up; ip addr add 10.97.0.%d/24 dev e0 && "
		            "ip link set e0 up && tc qdisc add dev e0 root tbf rate %dmbit burst 256kb latency 20ms'",
		            (int)pid[r], r + 1, mbit))
			return false;
	return true;
}

/* What the ranks tell each other while they part. */
struct parting {
	pid_t pid[CROWD_MAX];
	bool apart[CROWD_MAX], wired;
};

/* ip names a namespace by a process in it: the stand-in, until rank 0 goes there itself. */
static pid_t stand_in(int space)
{
	int entered[2];
	char c;
	pid_t pid;

	if (space < 0 || pipe2(entered, O_CLOEXEC))
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setns(space, CLONE_NEWNET) == 0 && write(entered[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(entered[1]);
	if (pid > 0 && read(entered[0], &c, 1) != 1) {
		waitpid(pid, NULL, 0);
		pid = -1;
	}
	close(entered[0]);
	return pid;
}

static int own_space(void)
{
	return unshare(CLONE_NEWNET) == 0 ? open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC) : -1;
}

/* A process that only stands for rank 0's namespace would be one more: rank 0 makes the
 * wires from the common namespace first and enters its own afterwards. The common one lives as long as its descriptor,
 * which is never closed. */
static bool separate(struct link *l)
{
	struct parting *all = (struct parting *)(void *)l->crowd.shared->user;
	const int me = l->crowd.rank, mine = own_space();
	const pid_t here = me == 0 ? stand_in(mine) : getpid();
	bool apart = true;

	all->pid[me] = here;
	all->apart[me] = mine >= 0 && here > 0 && (me > 0 || own_space() >= 0);
	crowd_barrier(&l->crowd);
	for (int r = 0; r < l->crowd.size; r++)
		apart = apart && all->apart[r];
	if (me == 0) {
		all->wired = apart && wire_up(&l->crowd, all->pid, l->mbit);
		if (here > 0) {
			kill(here, SIGKILL);
			waitpid(here, NULL, 0);
		}
		all->wired = all->wired && setns(mine, CLONE_NEWNET) == 0;
	}
	crowd_barrier(&l->crowd);
	close(mine);
	return all->wired;
}

/* ---- the bare ring stream ------------------------------------------------------ */

static const char *congestion(void)
{
	const char *cc = getenv("COLL_TCP_CONGESTION");

	return cc && cc[0] ? cc : "cubic";
}

static int plain_socket(void)
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion(), (socklen_t)strlen(congestion()));
	return fd;
}

static struct sockaddr_in place_of(int rank)
{
	return (struct sockaddr_in){
	        .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(0x0a610001u + (unsigned)rank)};
}

static void connect_ring(struct link *l)
{
	const int listener = plain_socket();
	struct sockaddr_in me = place_of(l->crowd.rank), next = place_of((l->crowd.rank + 1) % l->crowd.size);

	if (bind(listener, (struct sockaddr *)&me, sizeof(me)) || listen(listener, 1))
		perror("listen"), exit(1);
	crowd_barrier(&l->crowd);
	l->to = plain_socket();
	if (connect(l->to, (struct sockaddr *)&next, sizeof(next)))
		perror("connect"), exit(1);
	l->from = accept(listener, NULL, NULL);
	close(listener);
	fcntl(l->to, F_SETFL, O_NONBLOCK);
	fcntl(l->from, F_SETFL, O_NONBLOCK);
	crowd_barrier(&l->crowd);
}

static void stream(struct link *l, size_t bytes)
{
	const size_t piece = 1 << 20;
	size_t sent = 0, got = 0;

	while (sent < bytes || got < bytes) {
		struct pollfd p[2] = {{got < bytes ? l->from : -1, POLLIN, 0}, {sent < bytes ? l->to : -1, POLLOUT, 0}};
		ssize_t k;

		poll(p, 2, 1000);
		if (p[0].revents && (k = recv(l->from, l->out, bytes - got < piece ? bytes - got : piece, 0)) > 0)
			got += (size_t)k;
		if (p[1].revents &&
		    (k = send(l->to, l->in, bytes - sent < piece ? bytes - sent : piece, MSG_NOSIGNAL)) > 0)
			sent += (size_t)k;
	}
}

/* ---- blocks ----------------------------------------------------------------------- */

static bool broadcasts(void)
{
	const char *kind = getenv("BENCH_SHAPED");

	return kind && strcmp(kind, "broadcast") == 0;
}

static size_t sent_by_all_reduce(int n, size_t bytes)
{
	return bytes / (size_t)n * 2 * (size_t)(n - 1);
}

/* GB/s out of each rank. */
static double bare_block(struct link *l, size_t bytes)
{
	uint64_t t;

	crowd_barrier(&l->crowd);
	t = coll_clock_ns();
	stream(l, bytes);
	crowd_barrier(&l->crowd);
	return (double)bytes / (double)(coll_clock_ns() - t);
}

static double our_block(struct link *l, size_t bytes, size_t total)
{
	const int times = (int)((total + bytes - 1) / bytes);
	uint64_t t;

	crowd_barrier(&l->crowd);
	t = coll_clock_ns();
	for (int i = 0; i < times; i++)
		crowd_check(l->comm,
		            broadcasts()
		                    ? coll_broadcast(l->out, l->out, bytes / sizeof(float), COLL_F32, 0, l->comm, NULL)
		                    : coll_all_reduce(l->in, l->out, bytes / sizeof(float), COLL_F32, COLL_SUM, l->comm,
		                                      NULL),
		            "call");
	crowd_barrier(&l->crowd);
	return (double)(broadcasts() ? bytes : sent_by_all_reduce(l->crowd.size, bytes)) * times /
	       (double)(coll_clock_ns() - t);
}

/* 1: below what must be. */
static int measure(struct link *l, size_t bytes, int blocks)
{
	const size_t stream_bytes = sent_by_all_reduce(l->crowd.size, BLOCK_BYTES);
	const double room = (double)l->mbit / 8e3 * PAYLOAD;
	double bare[BLOCKS_MAX], ours[BLOCKS_MAX], ratio[BLOCKS_MAX], b, o, r;
	bool judged;

	bare_block(l, WARM_BYTES);
	our_block(l, bytes, WARM_BYTES);
	for (int i = 0; i < blocks; i++) {
		bare[i] = bare_block(l, stream_bytes);
		ours[i] = our_block(l, bytes, BLOCK_BYTES);
		ratio[i] = ours[i] / bare[i];
	}
	if (l->crowd.rank != 0)
		return 0;
	b = median_of(bare, blocks);
	o = median_of(ours, blocks);
	r = median_of(ratio, blocks);
	judged = b >= BARE_MUST * room && !broadcasts();
	printf("%5d Mbit/s  n = %d  %3zu MiB  bare %.3f GB/s (%.3f of payload rate)  ours %.3f GB/s  ratio %.3f "
	       "(%.3f .. %.3f)%s\n",
	       l->mbit, l->crowd.size, bytes >> 20, b, b / room, o, r, ratio[0], ratio[blocks - 1],
	       broadcasts() ? "  broadcast"
	       : !judged    ? "  not judged: the bare stream misses the rate"
	       : r >= MUST  ? ""
	                    : "  below 0.93");
	fflush(stdout);
	return judged && r < MUST;
}

/* One rate, one number of ranks: in processes of their own, so that their namespaces go. */
static int one_case(int mbit, int n, const size_t *sizes, int nsizes, int blocks)
{
	char cc[80];
	const char *const settings[] = {"COLL_TRANSPORTS=tcp", cc, NULL};
	struct link l = {.mbit = mbit};
	int bad = 0;

	crowd_begin(&l.crowd, n);
	if (!separate(&l)) {
		fprintf(stderr, "shaped: no right to make network namespaces, or no ip, tc, nsenter\n");
		return crowd_end(&l.crowd, NO_RIGHT);
	}
	l.in = aligned_alloc(4096, MOST_BYTES);
	l.out = aligned_alloc(4096, MOST_BYTES);
	memset(l.in, 0, MOST_BYTES);
	memset(l.out, 0, MOST_BYTES);
	snprintf(cc, sizeof(cc), "COLL_TCP_CONGESTION=%s", congestion());
	connect_ring(&l);
	l.comm = crowd_create(&l.crowd, settings);
	for (int i = 0; i < nsizes; i++)
		bad += measure(&l, sizes[i], blocks);
	crowd_check(NULL, coll_comm_destroy(&l.comm), "destroy");
	return crowd_end(&l.crowd, bad > 0);
}

static int case_apart(int mbit, int n, const size_t *sizes, int nsizes, int blocks)
{
	int status = 0;
	const pid_t pid = fork();

	if (pid == 0)
		exit(one_case(mbit, n, sizes, nsizes, blocks));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static const size_t SIZES[] = {(size_t)4 << 20, (size_t)16 << 20, (size_t)64 << 20};

static int all_cases(int blocks)
{
	static const struct {
		int mbit, most;
	} cases[] = {{1000, 8}, {2500, 6}, {5000, 3}};
	int status = 0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (int n = 2; n <= cases[i].most && status != NO_RIGHT; n++) {
			const int st = case_apart(cases[i].mbit, n, SIZES, 3, blocks);

			status = st ? st : status;
		}
	return status;
}

int main(int argc, char **argv)
{
	const int blocks = argc > 1 ? atoi(argv[1]) : 3, mbit = argc > 2 ? atoi(argv[2]) : 1;
	const int n = argc > 3 ? atoi(argv[3]) : 2;
	const size_t one = argc > 4 ? strtoull(argv[4], NULL, 0) << 20 : SIZES[0];

	if (blocks < 1 || blocks > BLOCKS_MAX || mbit < 1 || n < 2 || n > CROWD_MAX || one == 0 || one > MOST_BYTES ||
	    argc == 3 || argc > 5) {
		fprintf(stderr,
		        "usage: shaped [blocks [Mbit/s n [MiB]]]: 1 to %d blocks, 2 to %d ranks, 1 to %zu MiB\n",
		        BLOCKS_MAX, CROWD_MAX, MOST_BYTES >> 20);
		return 2;
	}
	if (argc <= 3)
		return all_cases(blocks);
	return case_apart(mbit, n, argc > 4 ? &one : SIZES, argc > 4 ? 1 : 3, blocks);
}
