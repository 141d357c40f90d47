/*
 * Two processes in two network namespaces, joined by a veth pair: what a link
 * between hosts does when the other end is late, stopped, or out of reach. Needs
 * the right to make namespaces, and the ip tool; is skipped without.
 */
#define PLAIN_OWN_MAIN
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/delay.h"
#include "tests/shell.h"
#include "transports/tcp/raw_peer_test.h"

enum { SLOT = 1 << 20, SLOTS = 64, AWAIT_S = 60, LONGEST_GAP_MS = 2500 };

enum order { ORDER_NONE, ORDER_OPEN, ORDER_DRAIN, ORDER_LEAVE };

/* Shared by the two processes. */
struct stage {
	_Atomic int ready;
	_Atomic int order;
	_Atomic int drained;
	_Atomic int child_downs;
	_Atomic bool heard; /* the control plane hears the other host */
	char address[2][400];
	size_t len[2];
};

struct half {
	struct stage *stage;
	int me;
	struct station s;
	pthread_t service;
	_Atomic bool stop;
	void *link, *ch;
};

static void *serve(void *arg)
{
	struct half *h = arg;
	struct pollfd p = {h->s.t->service_fd(h->s.in), POLLIN, 0};

	while (!atomic_load(&h->stop))
		if (poll(&p, 1, 20) > 0)
			h->s.t->service(h->s.in);
	return NULL;
}

/* The other half may have died: this one ends, too. */
static void await(_Atomic int *word, int value)
{
	const uint64_t until = coll_clock_ns() + AWAIT_S * UINT64_C(1000000000);

	while (atomic_load(word) < value) {
		if (coll_clock_ns() > until) {
			fprintf(stderr, "the other half does not come\n");
			_exit(5);
		}
		poll(NULL, 0, 1);
	}
}

static struct stage *shared_stage;

static uint64_t heard_ns(void *ctx, const struct coll_process_id *peer)
{
	return atomic_load(&shared_stage->heard) ? coll_clock_ns() : 0;
}

static bool half_open(struct half *h)
{
	const struct coll_channel_key key = {.comm = 1};
	const struct coll_process_id peer = {{2 - (uint64_t)h->me, ~(2 - (uint64_t)h->me)}};

	h->s.unreachable_ms = "1500";
	if (station_open(&h->s, 1 + (uint64_t)h->me) != COLL_OK)
		return false;
	shared_stage = h->stage;
	h->s.in->env.heard_ns = heard_ns;
	if (h->s.t->address(h->s.in, h->stage->address[h->me], 400, &h->stage->len[h->me]) != COLL_OK)
		return false;
	atomic_fetch_add(&h->stage->ready, 1);
	await(&h->stage->ready, 2);
	if (pthread_create(&h->service, NULL, serve, h) != 0)
		return false;
	return h->s.t->link_open(h->s.in, &peer, h->stage->address[!h->me], h->stage->len[!h->me], &h->link) ==
	               COLL_OK &&
	       h->s.t->channel_open(h->link, &key, h->me ? COLL_DIR_RECV : COLL_DIR_SEND, SLOT, SLOTS, &h->ch) ==
	               COLL_OK;
}

static void half_close(struct half *h)
{
	h->s.t->channel_close(h->ch);
	h->s.t->link_close(h->link);
	atomic_store(&h->stop, true);
	pthread_join(h->service, NULL);
	station_close(&h->s);
}

/* The receiver reads nothing until told. */
static _Noreturn void child(struct stage *stage)
{
	struct half h = {.stage = stage, .me = 1};
	struct coll_frame f;
	const void *p;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	await(&stage->order, ORDER_OPEN);
	if (!half_open(&h))
		_exit(3);
	while (atomic_load(&stage->order) != ORDER_LEAVE) {
		atomic_store(&stage->child_downs, h.s.downs);
		if (atomic_load(&stage->order) != ORDER_DRAIN) {
			poll(NULL, 0, 1);
			continue;
		}
		h.s.t->progress(h.s.in);
		if (h.s.t->view(h.ch, &p, &f) == COLL_OK) {
			if (((const char *)p)[0] != (char)f.sequence || ((const char *)p)[SLOT - 1] != (char)f.sequence)
				_exit(4);
			h.s.t->done(h.ch);
			atomic_fetch_add(&stage->drained, 1);
		}
	}
	half_close(&h);
	_exit(0);
}

/* The child lives in a namespace of its own; v0 here, v1 there. */
static pid_t two_hosts(struct stage *stage)
{
	int sync[2];
	char c;
	pid_t pid;

	if (unshare(CLONE_NEWNET) != 0 || pipe(sync) != 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		const bool ok = unshare(CLONE_NEWNET) == 0 && write(sync[1], "x", 1) == 1;

		if (!ok)
			_exit(2);
		child(stage);
	}
	close(sync[1]);
	if (read(sync[0], &c, 1) != 1)
		return -1;
	close(sync[0]);
	if (shell_run("ip link add v0 type veth peer name v1 netns %d 2>/dev/null", (int)pid) &&
	    shell_run("ip addr add 10.9.8.1/24 dev v0 && ip link set v0 up") &&
	    shell_run("nsenter -t %d -n sh -c 'ip addr add 10.9.8.2/24 dev v1 && ip link set v1 up'", (int)pid))
		return pid;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return -1;
}

/* Post until credits or slots are out: far more than the socket holds. */
static int post_all(struct half *h, uint64_t *next)
{
	int n = 0;

	for (; n < SLOTS; n++) {
		const struct coll_frame f = {*next, 1, SLOT};
		void *p;

		if (!UNTIL(&h->s, h->s.downs > 0 || h->s.t->slot(h->ch, SLOT, &p) == COLL_OK) || h->s.downs > 0)
			break;
		memset(p, (int)*next & 255, SLOT);
		h->s.t->post(h->ch, &f);
		++*next;
	}
	return n;
}

static void turn_for(struct half *h, unsigned ms)
{
	const uint64_t until = coll_clock_ns() + ms * UINT64_C(1000000);

	while (coll_clock_ns() < until) {
		h->s.t->progress(h->s.in);
		poll(NULL, 0, 1);
	}
}

static void play(struct half *h, pid_t pid)
{
	uint64_t next = 0, cut_at;

	REQUIRE(half_open(h));
	REQUIRE(UNTIL(&h->s, h->s.t->link_status(h->link) != COLL_AGAIN));
	REQUIRE(h->s.t->link_status(h->link) == COLL_OK, "%s", h->s.cause);
	CHECK(!((struct tcp_link *)h->link)->near);

	/* 64 MiB to a peer that is not in a call: it is late, not dead. */
	CHECK(post_all(h, &next) == SLOTS);
	turn_for(h, 3500);
	CHECK(h->s.downs == 0 && atomic_load(&h->stage->child_downs) == 0, "a late peer is no dead peer: %s",
	      h->s.cause);
	atomic_store(&h->stage->order, ORDER_DRAIN);
	CHECK(UNTIL(&h->s, atomic_load(&h->stage->drained) == SLOTS));

	/* The same to a stopped process: its window closes, its kernel answers. */
	kill(pid, SIGSTOP);
	CHECK(post_all(h, &next) == SLOTS);
	turn_for(h, 3500);
	CHECK(h->s.downs == 0, "a stopped peer is no dead peer: %s", h->s.cause);
	kill(pid, SIGCONT);
	CHECK(UNTIL(&h->s, atomic_load(&h->stage->drained) == 2 * SLOTS));

	/* Away for longer than the limit, as TCP sees it, while other connections hear the host. */
	atomic_store(&h->stage->heard, true);
	CHECK(shell_run("ip link set v0 down"));
	cut_at = coll_clock_ns();
	turn_for(h, 2100);
	CHECK(shell_run("ip link set v0 up"));
	if (coll_clock_ns() - cut_at > LONGEST_GAP_MS * COLL_NS_PER_MS) {
		printf("     not judged: other programs kept this one from ending the outage\n");
		return;
	}
	CHECK(post_all(h, &next) == SLOTS);
	CHECK(UNTIL(&h->s, h->s.downs > 0 || atomic_load(&h->stage->drained) == 3 * SLOTS));
	CHECK(h->s.downs == 0 && atomic_load(&h->stage->child_downs) == 0, "its host is heard: %s", h->s.cause);
	atomic_store(&h->stage->heard, false);

	/* Idle, then out of reach. */
	turn_for(h, 1000);
	CHECK(h->s.downs == 0);
	CHECK(shell_run("ip link set v0 down"));
	cut_at = coll_clock_ns();
	CHECK(UNTIL(&h->s, h->s.downs == 1));
	printf("     unreachable: told after %.0f ms (%s)\n", (double)(coll_clock_ns() - cut_at) * 1e-6, h->s.cause);
	/* By our own watch (at most 2 s on an idle machine), not by the slower one of the kernel. */
	CHECK(strstr(h->s.cause, "no acknowledgement") != NULL, "%s", h->s.cause);
	CHECK(h->s.why == COLL_ERR_PEER_SILENT);
	await(&h->stage->child_downs, 1);
}

static void late_stopped_and_out_of_reach(void)
{
	struct stage *stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct half h = {.stage = stage};
	const pid_t pid = two_hosts(stage);
	int status = 0;

	if (pid < 0)
		SKIP("no right to make network namespaces, or no ip tool");
	atomic_store(&stage->order, ORDER_OPEN);
	play(&h, pid);
	atomic_store(&stage->order, ORDER_LEAVE);
	kill(pid, SIGCONT);
	half_close(&h);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: %#x",
	      (unsigned)status);
}

int main(void)
{
	PLAIN_RUN(late_stopped_and_out_of_reach);
	return plain_summary();
}
