/*
 * The harness: nodes, worlds and frames. See conform.h.
 */
#include "tests/conform/conform.h"
#include "transports/common/dummy.h"
#include "transports/loop/group.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transports/hook/hook.h"

const char *conform_name;
const struct coll_transport *conform_table;
static void *hook_state; /* the table is a wrapped one */

/* ---- What a context lends --------------------------------------------------- */

/* Every way that a transport has is to be gone; another one intranode, from the environment. */
static const char *setting(void *ctx, const char *name)
{
	const char *text = getenv(name);

	if (text)
		return text;
	return strcmp(name, "COLL_SHM_COPY") == 0 ? "cma" : "";
}

static void log_line(void *ctx, int level, const char *format, ...)
{
	const struct node *node = ctx;
	va_list ap;

	if (!getenv("CONFORM_LOG") || level > atoi(getenv("CONFORM_LOG")))
		return;
	flockfile(stderr);
	fprintf(stderr, "node %d: ", node->index);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	funlockfile(stderr);
}

static void note_down(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause)
{
	struct node *node = ctx;

	log_line(ctx, 2, "link down: %s (%s)", coll_status_string(why), cause);
	atomic_store(&node->down_at_ns, coll_clock_ns());
	atomic_store(&node->down_why, (int)why);
	atomic_store(&node->down_peer, peer->word[1]);
	atomic_fetch_add(&node->downs, 1);
}

static void *pump(void *arg)
{
	struct node *node = arg;
	struct pollfd fds[2] = {{node->stop_fd, POLLIN, 0}, {conform_table->service_fd(node->inst), POLLIN, 0}};

	for (;;) {
		if (poll(fds, fds[1].fd < 0 ? 1 : 2, -1) < 0 && errno != EINTR)
			abort();
		if (fds[0].revents)
			return NULL;
		if (fds[1].revents)
			conform_table->service(node->inst);
	}
}

static struct coll_process_id process_id(int index)
{
	static atomic_ulong serial = 1;

	return (struct coll_process_id){
	        {coll_mix64(coll_clock_ns() ^ (uint64_t)getpid() << 32) + atomic_fetch_add(&serial, 1),
	         (uint64_t)index + 1}};
}

struct node *node_open(int index, uint64_t job_key, struct coll_loop_group *group)
{
	struct node *node = calloc(1, sizeof(*node));
	coll_status status;

	node->index = index;
	node->key[0] = job_key;
	node->key[1] = ~job_key;
	node->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	node->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	node->env = (struct coll_transport_env){.size = sizeof(node->env),
	                                        .self = process_id(index),
	                                        .job_key = node->key,
	                                        .host_id = "conform-host",
	                                        .group = group,
	                                        .wake_fd = node->wake_fd,
	                                        .ctx = node,
	                                        .setting = setting,
	                                        .log = log_line,
	                                        .link_down = note_down,
	                                        .hook = hook_state};
	status = conform_table->open(&node->env, &node->inst);
	CHECK(status == COLL_OK, "open: %s", coll_status_string(status));
	if (status != COLL_OK) {
		node->inst = NULL;
		return node;
	}
	status = conform_table->address(node->inst, node->address, sizeof(node->address), &node->address_len);
	CHECK(status == COLL_OK, "address: %s", coll_status_string(status));
	if (conform_table->service_fd(node->inst) >= 0)
		node->pumping = pthread_create(&node->pump, NULL, pump, node) == 0;
	return node;
}

void node_close(struct node *node)
{
	const uint64_t one = 1;

	if (node->inst) {
		conform_table->close(node->inst);
		conform_table->close(node->inst); /* idempotent */
	}
	if (node->pumping) {
		CHECK(write(node->stop_fd, &one, sizeof(one)) == sizeof(one));
		pthread_join(node->pump, NULL);
	}
	conform_table->fini(node->inst);
	close(node->wake_fd);
	close(node->stop_fd);
	free(node);
}

/* ---- Worlds --------------------------------------------------------------------- */

static bool mine(const struct world *w, int i)
{
	return w->me < 0 || w->me == i;
}

void world_link(struct world *w, int i, int j)
{
	const struct node *peer = w->node[j];
	char why[128] = "";
	coll_status status;

	CHECK(w->t->reachable(w->node[i]->inst, peer->address, peer->address_len, why, sizeof(why)), "%s", why);
	status = w->t->link_open(w->node[i]->inst, &peer->env.self, peer->address, peer->address_len, &w->link[i][j]);
	CHECK(status == COLL_OK, "link_open: %s", coll_status_string(status));
}

static void link_all(struct world *w)
{
	for (int i = 0; i < w->n; i++) {
		for (int j = 0; j < w->n; j++) {
			if (i != j && mine(w, i))
				world_link(w, i, j);
		}
	}
}

bool world_open(struct world *w, int n, bool linked)
{
	*w = (struct world){.t = conform_table, .n = n, .me = -1, .pipe_fd = -1};
	REQUIRE_TRUE(coll_loop_group_create(&w->group) == COLL_OK);
	for (int i = 0; i < n; i++) {
		w->node[i] = node_open(i, 42, w->group);
		REQUIRE_TRUE(w->node[i]->inst != NULL);
	}
	if (linked)
		link_all(w);
	return true;
}

void world_close(struct world *w)
{
	for (int i = 0; i < w->n; i++) {
		for (int j = 0; j < w->n; j++) {
			if (w->link[i][j])
				w->t->link_close(w->link[i][j]);
		}
	}
	for (int i = 0; i < w->n; i++) {
		if (!w->node[i])
			continue;
		if (mine(w, i))
			node_close(w->node[i]);
		else
			free(w->node[i]);
	}
	coll_loop_group_destroy(&w->group);
}

int world_progress(struct world *w)
{
	int moved = 0;

	for (int i = 0; i < w->n; i++) {
		if (mine(w, i) && w->node[i] && w->node[i]->inst)
			moved += w->t->progress(w->node[i]->inst) > 0;
	}
	return moved;
}

void world_barrier(struct world *w)
{
	char c = 'b';

	if (w->barrier)
		pthread_barrier_wait(w->barrier);
	if (w->pipe_fd >= 0) {
		CHECK(write(w->pipe_fd, &c, 1) == 1);
		CHECK(read(w->pipe_fd, &c, 1) == 1, "the other process is gone");
	}
}

struct side {
	struct world w;
	side_fn body;
	void *arg;
};

static void *run_side(void *arg)
{
	struct side *s = arg;

	link_all(&s->w);
	s->body(&s->w, s->arg);
	world_barrier(&s->w);
	return NULL;
}

void world_threads(int n, side_fn body, void *arg)
{
	struct world w;
	struct side side[NODES_MAX];
	pthread_t thread[NODES_MAX];
	pthread_barrier_t barrier;

	if (!world_open(&w, n, false))
		return;
	pthread_barrier_init(&barrier, NULL, (unsigned)n);
	for (int i = 0; i < n; i++) {
		side[i] = (struct side){w, body, arg};
		side[i].w.me = i;
		side[i].w.barrier = &barrier;
		CHECK(pthread_create(&thread[i], NULL, run_side, &side[i]) == 0);
	}
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < n; i++)
		memcpy(w.link[i], side[i].w.link[i], sizeof(w.link[i]));
	world_close(&w);
	pthread_barrier_destroy(&barrier);
}

/* What the two processes tell each other. */
struct info {
	struct coll_process_id id;
	size_t address_len;
	char address[ADDRESS_MAX];
};

static bool join_other(struct world *w, int me, int fd)
{
	struct info info = {0};
	struct node *self = node_open(me, 42, NULL);
	struct node *peer = calloc(1, sizeof(*peer));

	*w = (struct world){.t = conform_table, .n = 2, .me = me, .pipe_fd = fd};
	w->node[me] = self;
	w->node[!me] = peer;
	info.id = self->env.self;
	info.address_len = self->address_len;
	memcpy(info.address, self->address, sizeof(info.address));
	REQUIRE_TRUE(write(fd, &info, sizeof(info)) == sizeof(info));
	REQUIRE_TRUE(recv(fd, &info, sizeof(info), MSG_WAITALL) == sizeof(info));
	peer->env.self = info.id;
	peer->address_len = info.address_len;
	memcpy(peer->address, info.address, sizeof(info.address));
	link_all(w);
	return true;
}

static _Noreturn void be_child(int fd, side_fn body, void *arg)
{
	struct world w;
	char c = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	atomic_store(&plain_failures, 0);
	if (join_other(&w, 1, fd))
		body(&w, arg);
	CHECK(write(fd, &c, 1) == 1);
	CHECK(read(fd, &c, 1) == 1);
	world_close(&w);
	_exit(atomic_load(&plain_failures) != 0);
}

static void skip_without_processes(void)
{
	SKIP("it stays in one process");
}

bool world_fork(struct world *w, side_fn child_body, void *arg)
{
	int fds[2];
	pid_t child;

#ifdef CONFORM_ONE_PROCESS
	const bool alone = true;
#else
	const bool alone = strcmp(conform_name, "loop") == 0;
#endif

	if (alone) {
		skip_without_processes();
		return false;
	}
	REQUIRE_TRUE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	fflush(NULL);
	child = fork();
	REQUIRE_TRUE(child >= 0);
	if (child == 0) {
		close(fds[0]);
		be_child(fds[1], child_body, arg);
	}
	close(fds[1]);
	if (!join_other(w, 0, fds[0]))
		return false;
	w->child = child;
	return true;
}

void world_reap(struct world *w, int signal_no)
{
	int status = 0;

	CHECK(waitpid(w->child, &status, 0) == w->child);
	if (signal_no)
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal_no, "wait status %#x", (unsigned)status);
	else
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed: wait status %#x",
		      (unsigned)status);
	close(w->pipe_fd);
	w->pipe_fd = -1;
}

void world_processes(side_fn body, void *arg)
{
	struct world w;
	char c = 0;

	if (!world_fork(&w, body, arg))
		return;
	body(&w, arg);
	CHECK(write(w.pipe_fd, &c, 1) == 1);
	CHECK(read(w.pipe_fd, &c, 1) == 1, "the other process is gone");
	world_reap(&w, 0);
	world_close(&w);
}

/* ---- Channels and frames --------------------------------------------------------- */

struct coll_channel_key key_of(uint64_t comm, unsigned lane, unsigned window)
{
	return (struct coll_channel_key){
	        .comm = comm, .epoch = 1, .lane = (uint16_t)lane, .window = (uint16_t)window, .rail = lane + window};
}

void *channel(struct world *w, int i, int j, enum coll_direction dir, struct coll_channel_key key, size_t slot_bytes,
              uint32_t slots)
{
	void *ch = NULL;
	coll_status status = w->t->channel_open(w->link[i][j], &key, dir, slot_bytes, slots, &ch);

	/* Nothing can be told without it; a null pointer would hide why. */
	if (status != COLL_OK) {
		fprintf(stderr, "conform: channel_open: %s\n", coll_status_string(status));
		exit(EXIT_FAILURE);
	}
	return ch;
}

static uint64_t word_of(uint64_t stream, uint64_t i, size_t at)
{
	return coll_mix64(stream * 1000003 + i) + at * 0x9e3779b97f4a7c15u;
}

void fill(void *p, uint64_t stream, uint64_t i, size_t len)
{
	char *out = p;

	for (size_t at = 0; at < len; at += 8) {
		const uint64_t word = word_of(stream, i, at);

		memcpy(out + at, &word, len - at < 8 ? len - at : 8);
	}
}

bool intact(const void *p, uint64_t stream, uint64_t i, size_t len)
{
	const char *in = p;

	for (size_t at = 0; at < len; at += 8) {
		const uint64_t word = word_of(stream, i, at);

		if (memcmp(in + at, &word, len - at < 8 ? len - at : 8) != 0)
			return false;
	}
	return true;
}

struct coll_frame head_of(uint64_t stream, uint64_t i, size_t len)
{
	return (struct coll_frame){
	        .sequence = i + 1, .signature = (uint32_t)coll_mix64(stream + i), .len_bytes = (uint32_t)len};
}

bool same_frame(const struct coll_frame *a, const struct coll_frame *b)
{
	return a->sequence == b->sequence && a->signature == b->signature && a->len_bytes == b->len_bytes;
}

bool send_one(struct world *w, void *ch, uint64_t stream, uint64_t i, size_t len)
{
	const struct coll_frame head = head_of(stream, i, len);
	coll_status status = COLL_AGAIN;
	void *p = NULL;

	AWAIT(w, (status = w->t->slot(ch, len, &p)) != COLL_AGAIN);
	CHECK(status == COLL_OK, "slot of frame %llu: %s", (unsigned long long)i, coll_status_string(status));
	if (status != COLL_OK)
		return false;
	fill(p, stream, i, len);
	status = w->t->post(ch, &head);
	CHECK(status == COLL_OK, "post of frame %llu: %s", (unsigned long long)i, coll_status_string(status));
	return status == COLL_OK;
}

bool recv_one(struct world *w, void *ch, uint64_t stream, uint64_t i, size_t len)
{
	const struct coll_frame head = head_of(stream, i, len);
	struct coll_frame got = {0};
	coll_status status = COLL_AGAIN;
	const void *p = NULL;

	AWAIT(w, (status = w->t->view(ch, &p, &got)) != COLL_AGAIN);
	CHECK(status == COLL_OK, "view of frame %llu: %s", (unsigned long long)i, coll_status_string(status));
	if (status != COLL_OK)
		return false;
	CHECK(same_frame(&got, &head), "frame %llu: head %llu %x %u", (unsigned long long)i,
	      (unsigned long long)got.sequence, got.signature, got.len_bytes);
	CHECK(intact(p, stream, i, len), "frame %llu", (unsigned long long)i);
	status = w->t->done(ch);
	CHECK(status == COLL_OK, "done: %s", coll_status_string(status));
	return status == COLL_OK;
}

bool node_sleep(struct world *w, struct node *node)
{
	struct pollfd fds[2] = {{node->wake_fd, POLLIN, 0}, {w->t->poll_fd(node->inst), POLLIN, 0}};
	uint64_t count;
	int n;

	if (w->t->arm(node->inst) != COLL_OK)
		return true;
	n = poll(fds, fds[1].fd < 0 ? 1 : 2, WAIT_S * 1000);
	w->t->disarm(node->inst);
	if (read(node->wake_fd, &count, sizeof(count)) < 0) {
		/* poll_fd woke us. */
	}
	return n > 0;
}

int main(int argc, char **argv)
{
	static struct coll_transport full;
	const struct coll_transport *t = argc > 1 ? coll_transport_find(argv[1]) : NULL;

	if (argc < 2) {
		fprintf(stderr, "usage: conform TRANSPORT [PART OF A TEST'S NAME [FAULTS]]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_DFL); /* no transport may rely on it being ignored */
	if (!t) {
		printf("no transport %s in this build\n0 passed, 0 failed, 1 skipped\n", argv[1]);
		return 0;
	}
	conform_name = argv[1];
	coll_transport_complete(t, &full);
	if (argc > 3 && coll_transport_hook_wrap(t, argv[3], 0, &full, &hook_state, NULL) != COLL_OK) {
		fprintf(stderr, "conform: cannot use '%s'\n", argv[3]);
		return 2;
	}
	conform_table = &full;
	for (struct plain_test *test = plain_first; test; test = test->next) {
		if (argc < 3 || strstr(test->name, argv[2]) || strstr(test->suite, argv[2]))
			plain_run(test->suite, test->name, test->run);
	}
	coll_transport_hook_unwrap(hook_state);
	return plain_summary();
}
