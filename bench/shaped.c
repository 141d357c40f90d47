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
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/coll.h"
#include "crowd.h"

enum { BLOCKS_MAX = 31, PORT = 7771, NO_RIGHT = 77 };
static const size_t BLOCK_BYTES = (size_t)64 << 20, WARM_BYTES = (size_t)16 << 20;
static const double PAYLOAD = 0.956, BARE_MUST = 0.95, MUST = 0.93;

struct link {
	struct crowd crowd;
	int mbit;
	int to, from; /* bare sockets: the next rank's, the one before's */
	coll_comm *comm;
	char *in, *out;
};

/* ---- namespaces ------------------------------------------------------------- */

static bool shell(const char *format, ...)
{
	char command[400];
	va_list ap;

	va_start(ap, format);
	vsnprintf(command, sizeof(command), format, ap);
	va_end(ap);
	return system(command) == 0;
}

/* In rank 0, which stands beside the namespaces: a bridge, and a pair for each rank. */
static bool wire_up(const struct crowd *c, const pid_t *pid, int mbit)
{
	if (!shell("ip link add br0 type bridge && ip link set br0 up && ip link set lo up"))
		return false;
	for (int r = 0; r < c->size; r++)
		if (!shell("ip link add v%d type veth peer name e0 netns %d && ip link set v%d master br0 up", r,
		           (int)pid[r], r) ||
		    !shell("nsenter -t %d -n sh -c 'ip link set lo up; ip addr add 10.97.0.%d/24 dev e0 && "
		           "ip link set e0 up && tc qdisc add dev e0 root tbf rate %dmbit burst 256kb latency 20ms'",
		           (int)pid[r], r + 1, mbit))
			return false;
	return true;
}

/* A process that only stands for rank 0's namespace would be one more: rank 0 makes the
 * wires from the common namespace first and enters its own afterwards. */
static bool separate(struct link *l)
{
	pid_t *pid = (pid_t *)(void *)l->crowd.shared->user;
	const bool hub = l->crowd.rank == 0;
	int outside = -1, inside = -1;
	bool ok;

	if (hub) {
		inside = unshare(CLONE_NEWNET) == 0 ? open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC) : -1;
		outside = unshare(CLONE_NEWNET) == 0 ? open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC) : -1;
	} else if (unshare(CLONE_NEWNET) != 0) {
		_exit(NO_RIGHT);
	}
	pid[l->crowd.rank] = getpid();
	if (hub && inside >= 0) {
		/* Somebody must be in the namespace for ip to name it. */
		const pid_t stand_in = fork();

		if (stand_in == 0) {
			setns(inside, CLONE_NEWNET);
			pause();
			_exit(0);
		}
		pid[0] = stand_in;
		poll(NULL, 0, 50);
	}
	crowd_barrier(&l->crowd);
	ok = !hub || (inside >= 0 && outside >= 0 && wire_up(&l->crowd, pid, l->mbit));
	if (hub) {
		kill(pid[0], SIGKILL);
		setns(inside, CLONE_NEWNET);
		pid[CROWD_MAX] = ok;
	}
	crowd_barrier(&l->crowd);
	return pid[CROWD_MAX] != 0;
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

static void check(coll_status status, const char *what)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "shaped: %s: %s\n", what, coll_last_error(NULL)->message);
	exit(1);
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
		check(coll_all_reduce(l->in, l->out, bytes / sizeof(float), COLL_F32, COLL_SUM, l->comm, NULL),
		      "all_reduce");
	crowd_barrier(&l->crowd);
	return (double)sent_by_all_reduce(l->crowd.size, bytes) * times / (double)(coll_clock_ns() - t);
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
	b = crowd_median(bare, blocks);
	o = crowd_median(ours, blocks);
	r = crowd_median(ratio, blocks);
	judged = b >= BARE_MUST * room;
	printf("%5d Mbit/s  n = %d  %3zu MiB  bare %.3f GB/s (%.3f of payload rate)  ours %.3f GB/s  ratio %.3f "
	       "(%.3f .. %.3f)%s\n",
	       l->mbit, l->crowd.size, bytes >> 20, b, b / room, o, r, ratio[0], ratio[blocks - 1],
	       !judged     ? "  not judged: the bare stream misses the rate"
	       : r >= MUST ? ""
	                   : "  below 0.93");
	fflush(stdout);
	return judged && r < MUST;
}

/* One rate, one number of ranks: in processes of their own, so that their namespaces go. */
static int one_case(int mbit, int n, const size_t *sizes, int nsizes, int blocks)
{
	const size_t most = (size_t)64 << 20;
	char cc[80];
	const char *const settings[] = {"COLL_TRANSPORTS=tcp", cc, NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	struct link l = {.mbit = mbit};
	int bad = 0;

	crowd_begin(&l.crowd, n);
	if (!separate(&l)) {
		fprintf(stderr, "shaped: no right to make network namespaces, or no ip, tc, nsenter\n");
		return crowd_end(&l.crowd, NO_RIGHT);
	}
	l.in = aligned_alloc(4096, most);
	l.out = aligned_alloc(4096, most);
	memset(l.in, 0, most);
	memset(l.out, 0, most);
	snprintf(cc, sizeof(cc), "COLL_TCP_CONGESTION=%s", congestion());
	connect_ring(&l);
	cfg.rank = l.crowd.rank;
	cfg.size = n;
	cfg.exchange = crowd_exchange;
	cfg.exchange_arg = &l.crowd;
	cfg.settings = settings;
	check(coll_comm_create(&l.comm, &cfg), "create");
	for (int i = 0; i < nsizes; i++)
		bad += measure(&l, sizes[i], blocks);
	check(coll_comm_destroy(&l.comm), "destroy");
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

int main(int argc, char **argv)
{
	static const struct {
		int mbit, most;
	} cases[] = {{1000, 8}, {2500, 6}, {5000, 3}};
	const size_t all[] = {(size_t)4 << 20, (size_t)16 << 20, (size_t)64 << 20};
	const int blocks = argc > 1 ? atoi(argv[1]) : 3;
	int status = 0;

	if (blocks < 1 || blocks > BLOCKS_MAX)
		return 2;
	if (argc >= 4) {
		const size_t one = argc > 4 ? strtoull(argv[4], NULL, 0) << 20 : 0;

		return case_apart(atoi(argv[2]), atoi(argv[3]), one ? &one : all, one ? 1 : 3, blocks);
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (int n = 2; n <= cases[i].most && status != NO_RIGHT; n++) {
			const int st = case_apart(cases[i].mbit, n, all, 3, blocks);

			status = st ? st : status;
		}
	return status;
}
