/*
 * Calls that differ between ranks, every kind of difference: one rank of N processes
 * calls something else than the others. Every rank must end with COLL_ERR_MISMATCH within
 * 2 s, those that had returned at their next call, with a message that names two ranks
 * that differ and what each of them called; and no call after the difference succeeds.
 *
 * usage: mismatch TRANSPORT [CASE|all [SIZE [TIMES]]]
 */
#define PLAIN_OWN_MAIN
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/coll.h"
#include "plain.h"

enum { RANKS_MAX = 5, CARD_MAX = 8192, BUFFER = 1 << 20, WARM_UP = 3, LIMIT_MS = 2000 };

struct shared {
	atomic_int arrived, ready;
	_Atomic uint64_t begun_ns; /* when the last rank began to differ */
	struct result {
		atomic_int done;
		coll_status status;
		int culprit, after; /* calls that succeeded after the difference */
		uint64_t ns;
		char message[1024];
	} result[RANKS_MAX];
	char cards[RANKS_MAX][CARD_MAX];
};

static struct shared *shared;
static const char *transport;
static char in[BUFFER * 4], out[BUFFER * 4];

/* ---- The calls ---- */

static size_t counts[RANKS_MAX], other_counts[RANKS_MAX];

static coll_status all_reduce(coll_comm *c, size_t count)
{
	return coll_all_reduce(in, out, count, COLL_F32, COLL_SUM, c, NULL);
}
static coll_status all_reduce_0(coll_comm *c)
{
	return all_reduce(c, 0);
}
static coll_status all_reduce_8(coll_comm *c)
{
	return all_reduce(c, 8);
}
static coll_status all_reduce_9(coll_comm *c)
{
	return all_reduce(c, 9);
}
static coll_status all_reduce_large(coll_comm *c)
{
	return all_reduce(c, 100000);
}
static coll_status all_reduce_larger(coll_comm *c)
{
	return all_reduce(c, 100001);
}
static coll_status all_reduce_i32(coll_comm *c)
{
	return coll_all_reduce(in, out, 8, COLL_I32, COLL_SUM, c, NULL);
}
static coll_status all_reduce_max(coll_comm *c)
{
	return coll_all_reduce(in, out, 8, COLL_F32, COLL_MAX, c, NULL);
}
static coll_status broadcast_from_0(coll_comm *c)
{
	return coll_broadcast(in, out, 8, COLL_F32, 0, c, NULL);
}
static coll_status broadcast_from_1(coll_comm *c)
{
	return coll_broadcast(in, out, 8, COLL_F32, 1, c, NULL);
}
static coll_status broadcast_0(coll_comm *c)
{
	return coll_broadcast(in, out, 0, COLL_F32, 0, c, NULL);
}
static coll_status reduce_to_0(coll_comm *c)
{
	return coll_reduce(in, out, 8, COLL_F32, COLL_SUM, 0, c, NULL);
}
static coll_status reduce_to_1(coll_comm *c)
{
	return coll_reduce(in, out, 8, COLL_F32, COLL_SUM, 1, c, NULL);
}
static coll_status barrier(coll_comm *c)
{
	return coll_barrier(c, NULL);
}
static coll_status all_gather(coll_comm *c)
{
	return coll_all_gather(in, out, 8, COLL_F32, c, NULL);
}
static coll_status all_to_all(coll_comm *c)
{
	return coll_all_to_all(in, out, 8, COLL_F32, c, NULL);
}
static coll_status gather(coll_comm *c)
{
	return coll_gather(in, out, 8, COLL_F32, 0, c, NULL);
}
static coll_status scatter(coll_comm *c)
{
	return coll_scatter(in, out, 8, COLL_F32, 0, c, NULL);
}
static coll_status scan(coll_comm *c)
{
	return coll_scan(in, out, 8, COLL_F32, COLL_SUM, c, NULL);
}
static coll_status reduce_scatter(coll_comm *c)
{
	return coll_reduce_scatter(in, out, 8, COLL_F32, COLL_SUM, c, NULL);
}
static coll_status all_gatherv(coll_comm *c)
{
	return coll_all_gatherv(in, out, counts, NULL, COLL_F32, c, NULL);
}
static coll_status all_gatherv_other(coll_comm *c)
{
	return coll_all_gatherv(in, out, other_counts, NULL, COLL_F32, c, NULL);
}
static coll_status barrier_then_8(coll_comm *c)
{
	coll_status st = barrier(c);

	return st == COLL_OK ? all_reduce_8(c) : st;
}
static coll_status eight_then_barrier(coll_comm *c)
{
	coll_status st = all_reduce_8(c);

	return st == COLL_OK ? barrier(c) : st;
}
static coll_status nine_then_8(coll_comm *c)
{
	coll_status st = all_reduce_9(c);

	return st == COLL_OK ? all_reduce_8(c) : st;
}
/* A root that is calls ahead before anybody notices. */
static coll_status broadcasts(coll_comm *c)
{
	coll_status st = broadcast_from_0(c);

	for (int i = 0; i < 3 && st == COLL_OK; i++)
		st = coll_broadcast(in, out, 9, COLL_F32, 0, c, NULL);
	return st;
}
/* Never waits for anybody: must be told all the same. */
static coll_status busy(coll_comm *c)
{
	const uint64_t until = coll_clock_ns() + 10000 * 1000000ull;
	coll_status st = COLL_OK;

	while (st == COLL_OK && coll_clock_ns() < until)
		st = all_reduce_0(c);
	return st;
}

/* Between ranks 0 and 1: what rank 0 sends, and what rank 1 takes it for. */
static coll_status message(coll_comm *c, size_t sent, size_t received, coll_dtype type)
{
	if (coll_comm_rank(c) == 0)
		return coll_send(in, sent, COLL_F32, 1, c, NULL);
	return coll_comm_rank(c) == 1 ? coll_recv(out, received, type, 0, c, NULL) : COLL_OK;
}
static coll_status message_count(coll_comm *c)
{
	return message(c, 8, 9, COLL_F32);
}
static coll_status message_type(coll_comm *c)
{
	return message(c, 8, 8, COLL_I32);
}
static coll_status message_long(coll_comm *c)
{
	return message(c, 300000, 300001, COLL_F32);
}
static coll_status message_none_sent(coll_comm *c)
{
	return message(c, 0, 9, COLL_F32);
}
static coll_status message_none_taken(coll_comm *c)
{
	return message(c, 300000, 0, COLL_F32);
}

/* One rank (odd) calls what the others do not. Messages say that rank 0 and 1 differ. */
static const struct kase {
	const char *name;
	coll_status (*most)(coll_comm *c), (*odd)(coll_comm *c);
	const char *most_says, *odd_says;
	bool pair;
} cases[] = {
        {"kind", all_reduce_8, broadcast_from_0, "all_reduce(count=8", "broadcast(count=8", false},
        {"type", all_reduce_8, all_reduce_i32, "f32", "i32", false},
        {"op", all_reduce_8, all_reduce_max, "sum", "max", false},
        {"count", all_reduce_8, all_reduce_9, "count=8,", "count=9,", false},
        {"count_large", all_reduce_large, all_reduce_larger, "count=100000,", "count=100001,", false},
        {"root_broadcast", broadcast_from_0, broadcast_from_1, "root=0", "root=1", false},
        {"root_reduce", reduce_to_0, reduce_to_1, "root=0", "root=1", false},
        {"order", eight_then_barrier, barrier_then_8, "all_reduce(count=8", "barrier", false},
        {"skipped", nine_then_8, all_reduce_8, "count=9", "count=8", false},
        {"barrier_broadcast", barrier, broadcast_from_0, "barrier", "broadcast", false},
        {"broadcast_barrier", broadcast_from_0, barrier, "broadcast", "barrier", false},
        {"none_or_some", all_reduce_8, all_reduce_0, "count=8,", "count=0,", false},
        {"some_or_none", all_reduce_0, all_reduce_8, "count=0,", "count=8,", false},
        {"none_either", all_reduce_0, broadcast_0, "all_reduce(count=0", "broadcast(count=0", false},
        {"ahead", all_reduce_8, broadcasts, "all_reduce(count=8", "broadcast(count=8", false},
        {"busy", all_reduce_8, busy, "count=8,", "count=0,", false},
        {"all_gather_all_to_all", all_gather, all_to_all, "all_gather(", "all_to_all(", false},
        {"gather_scatter", gather, scatter, "gather(", "scatter(", false},
        {"scatter_gather", scatter, gather, "scatter(", "gather(", false},
        {"scan", scan, all_reduce_8, "scan(", "all_reduce(", false},
        {"reduce_scatter", reduce_scatter, all_reduce_8, "reduce_scatter(", "all_reduce(", false},
        {"blocks", all_gatherv, all_gatherv_other, "all_gather", "all_gather", false},
        {"message_count", message_count, message_count, "send(count=8,", "recv(count=9,", true},
        {"message_type", message_type, message_type, "f32", "i32", true},
        {"message_long", message_long, message_long, "send(count=300000,", "recv(count=300001,", true},
        {"message_none_sent", message_none_sent, message_none_sent, "send(count=0,", "recv(count=9,", true},
        {"message_none_taken", message_none_taken, message_none_taken, "send(count=300000,", "recv(count=0,", true},
};

/* ---- Ranks ---- */

struct mine {
	int rank, size;
};

/* Caller's all-gather through the shared page. */
static int exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	const struct mine *m = arg;

	if (len_bytes > CARD_MAX)
		return 1;
	memcpy(shared->cards[m->rank], mine, len_bytes);
	atomic_fetch_add(&shared->arrived, 1);
	while (atomic_load(&shared->arrived) < m->size)
		usleep(100);
	for (int r = 0; r < m->size; r++)
		memcpy((char *)all + (size_t)r * len_bytes, shared->cards[r], len_bytes);
	return 0;
}

static void report(int rank, coll_status st, const coll_error *e, int after)
{
	struct result *r = &shared->result[rank];

	r->ns = coll_clock_ns();
	r->status = st;
	r->culprit = e->rank;
	r->after = after;
	snprintf(r->message, sizeof(r->message), "%s", e->message);
	atomic_store(&r->done, 1);
}

/* All ranks begin at once, so that the time counts from there. */
static void line_up(int size)
{
	if (atomic_fetch_add(&shared->ready, 1) == size - 1)
		atomic_store(&shared->begun_ns, coll_clock_ns());
	while (atomic_load(&shared->begun_ns) == 0)
		usleep(100);
}

static void run_rank(const struct kase *k, int size, int rank, int odd)
{
	char transports[64];
	const char *settings[] = {transports, "COLL_DEBUG=error", NULL};
	struct mine m = {rank, size};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;
	coll_status st;
	int after = -1;

	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", transport);
	cfg.rank = rank;
	cfg.size = size;
	cfg.exchange = exchange;
	cfg.exchange_arg = &m;
	cfg.settings = settings;
	if (!freopen("/dev/null", "w", stderr))
		_exit(9);
	for (int r = 0; r < size; r++) {
		counts[r] = (size_t)r + 3;
		other_counts[r] = (size_t)(size - r) + 2;
	}
	st = coll_comm_create(&comm, &cfg);
	if (st != COLL_OK) {
		report(rank, st, coll_last_error(NULL), 0);
		_exit(1);
	}
	for (int i = 0; st == COLL_OK && i < WARM_UP; i++)
		st = all_reduce(comm, 100);
	line_up(size);
	if (st == COLL_OK)
		st = (rank == odd ? k->odd : k->most)(comm);
	/* Whoever has returned hears of it now. */
	for (; st == COLL_OK && after < 3; after++)
		st = all_reduce(comm, 7);
	report(rank, st, coll_last_error(comm), after);
	coll_comm_destroy(&comm);
	_exit(0);
}

/* ---- Checks ---- */

/* Two ranks and their calls: "calls differ: rank A calls X, rank B calls Y". */
static void names_both(const struct kase *k, int rank, int odd, const char *message)
{
	const char *first = strstr(message, "calls differ: rank "), *second = first ? strstr(first, ", rank ") : NULL;
	int a = -1, b = -1;

	CHECK(first && second && sscanf(first, "calls differ: rank %d", &a) == 1 &&
	              sscanf(second, ", rank %d", &b) == 1,
	      "%s: rank %d: %s", k->name, rank, message);
	if (a < 0 || b < 0)
		return;
	char of_a[512];

	snprintf(of_a, sizeof(of_a), "%.*s", (int)(second - first), first);
	if (k->pair)
		odd = 1;
	CHECK((a == odd) != (b == odd), "%s: rank %d names ranks %d and %d, odd is %d: %s", k->name, rank, a, b, odd,
	      message);
	CHECK(strstr(of_a, a == odd ? k->odd_says : k->most_says) &&
	              strstr(second, b == odd ? k->odd_says : k->most_says),
	      "%s: rank %d (odd is %d): %s", k->name, rank, odd, message);
}

static uint64_t slowest_ns;

static void one(const struct kase *k, int size, int odd)
{
	pid_t pids[RANKS_MAX];

	memset(shared, 0, sizeof(*shared));
	fflush(stdout);
	for (int r = 0; r < size; r++) {
		pids[r] = fork();
		if (pids[r] == 0)
			run_rank(k, size, r, odd);
	}
	for (int r = 0; r < size; r++) {
		const struct result *res = &shared->result[r];

		for (int tick = 0; !atomic_load(&res->done) && tick < 20000; tick++)
			usleep(1000);
		CHECK(atomic_load(&res->done), "%s: size %d odd %d: rank %d hangs", k->name, size, odd, r);
		if (!atomic_load(&res->done))
			continue;
		CHECK(res->status == COLL_ERR_MISMATCH && res->after <= 0,
		      "%s: size %d odd %d: rank %d: status %d, %d calls succeeded after it: %s", k->name, size, odd, r,
		      res->status, res->after, res->message);
		if (res->status == COLL_ERR_MISMATCH) {
			names_both(k, r, odd, res->message);
			CHECK(res->ns - shared->begun_ns < LIMIT_MS * 1000000ull,
			      "%s: size %d odd %d: rank %d took %.3f s", k->name, size, odd, r,
			      (double)(res->ns - shared->begun_ns) * 1e-9);
			if (res->ns - shared->begun_ns > slowest_ns)
				slowest_ns = res->ns - shared->begun_ns;
		}
	}
	for (int r = 0; r < size; r++) {
		for (int tick = 0; tick < 10000 && waitpid(pids[r], NULL, WNOHANG) != pids[r]; tick++)
			usleep(1000);
		kill(pids[r], SIGKILL); /* if it hangs; else it is gone already */
		waitpid(pids[r], NULL, 0);
	}
}

static const struct kase *current;
static int only_size;

static void all_sizes(void)
{
	for (int size = 2; size <= RANKS_MAX; size++) {
		if (only_size && size != only_size)
			continue;
		one(current, size, size - 1);
		if (!current->pair)
			one(current, size, 0);
	}
}

/* What the suite runs: each case at one size, another from case to case. */
static void some_sizes(void)
{
	const int n = (int)(current - cases);

	one(current, 2 + n % (RANKS_MAX - 1), n % 2);
}

int main(int argc, char **argv)
{
	const char *which = argc > 2 ? argv[2] : NULL;
	const bool all = which && strcmp(which, "all") == 0;
	char name[64];

	transport = argc > 1 ? argv[1] : "tcp";
	only_size = argc > 3 ? atoi(argv[3]) : 0;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	for (int times = argc > 4 ? atoi(argv[4]) : 1; times > 0; times--)
		for (current = cases; current < cases + sizeof(cases) / sizeof(*cases); current++)
			if (!which || all || strcmp(which, current->name) == 0) {
				snprintf(name, sizeof(name), "%s", current->name);
				plain_run(transport, name, which ? all_sizes : some_sizes);
			}
	printf("the slowest rank took %.3f s\n", (double)slowest_ns * 1e-9);
	return plain_summary();
}
