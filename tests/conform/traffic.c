/*
 * Frames both ways at once, of all sizes, by value and by reference, between threads and
 * between processes; and memory of the transport, loaned piece by piece.
 */
#include <stdlib.h>

#include "tests/conform/conform.h"

enum { SLOTS_MAX = 8 };

struct traffic {
	uint64_t frames;
	uint32_t slots;
	size_t slot_bytes;
	bool sleepy;
	uint64_t seed;
};

struct flow {
	struct world *w;
	const struct traffic *t;
	void *ch;
	uint64_t stream;
	uint64_t at;      /* next frame to send, or to receive */
	uint64_t settled; /* completion words seen complete */
	char *memory[SLOTS_MAX];
	struct coll_completion completion[SLOTS_MAX];
	int announced;
};

static size_t len_of(const struct flow *f, uint64_t i)
{
	const uint64_t h = coll_mix64(f->t->seed * 31 + f->stream * 7 + i);

	switch (h % 8) {
	case 0: return 0;
	case 1: return f->t->slot_bytes;
	case 2:
	case 3: return (h >> 8) % (f->t->slot_bytes + 1);
	default: return (h >> 8) % (f->t->slot_bytes < 200 ? f->t->slot_bytes + 1 : 200);
	}
}

static bool by_ref_wanted(const struct flow *f, uint64_t i)
{
	return coll_mix64(f->t->seed + f->stream * 3 + i) % 3 == 0;
}

static bool into_wanted(const struct flow *f, uint64_t i)
{
	return coll_mix64(f->t->seed + f->stream * 5 + i) % 3 == 0;
}

static bool try_send(struct flow *f)
{
	const struct coll_transport *t = f->w->t;
	const unsigned k = (unsigned)(f->at % f->t->slots);
	const size_t len = len_of(f, f->at);
	const struct coll_frame head = head_of(f->stream, f->at, len);
	coll_status status = COLL_ERR_UNSUPPORTED;
	void *p;

	if (f->at == f->t->frames || coll_completion_pending(&f->completion[k]))
		return false;
	CHECK(f->completion[k].status == COLL_OK);
	if (by_ref_wanted(f, f->at)) {
		fill(f->memory[k], f->stream, f->at, len);
		status = t->post_ref(f->ch, f->memory[k], NULL, &head, &f->completion[k]);
	}
	if (status == COLL_ERR_UNSUPPORTED) {
		f->completion[k] = (struct coll_completion){0, COLL_OK};
		status = t->slot(f->ch, len, &p);
		if (status == COLL_OK) {
			fill(p, f->stream, f->at, len);
			status = t->post(f->ch, &head);
			CHECK(status == COLL_OK);
		}
	}
	if (status == COLL_AGAIN)
		return false;
	CHECK(status == COLL_OK, "send %llu: %s", (unsigned long long)f->at, coll_status_string(status));
	f->at++;
	return true;
}

static bool try_into(struct flow *f, size_t len, const struct coll_frame *head)
{
	coll_status status = COLL_OK;

	if (!f->announced) {
		status = f->w->t->recv_into(f->ch, f->memory[0], NULL, head, &f->completion[0]);
		f->announced = status == COLL_OK;
	}
	if (status == COLL_ERR_UNSUPPORTED)
		return false;
	if (!f->announced || coll_completion_pending(&f->completion[0]))
		return true;
	CHECK(f->completion[0].status == COLL_OK, "%s", coll_status_string(f->completion[0].status));
	CHECK(intact(f->memory[0], f->stream, f->at, len), "frame %llu", (unsigned long long)f->at);
	f->announced = 0;
	f->at++;
	return true;
}

static bool try_recv(struct flow *f)
{
	const uint64_t before = f->at;
	const size_t len = len_of(f, f->at);
	const struct coll_frame head = head_of(f->stream, f->at, len);
	struct coll_frame got;
	coll_status status;
	const void *p;

	if (f->at == f->t->frames)
		return false;
	if ((f->announced || into_wanted(f, f->at)) && try_into(f, len, &head))
		return f->at != before;
	status = f->w->t->view(f->ch, &p, &got);
	if (status == COLL_AGAIN)
		return false;
	CHECK(status == COLL_OK, "view %llu: %s", (unsigned long long)f->at, coll_status_string(status));
	if (status != COLL_OK)
		return false;
	CHECK(same_frame(&head, &got), "frame %llu", (unsigned long long)f->at);
	CHECK(intact(p, f->stream, f->at, len), "frame %llu", (unsigned long long)f->at);
	CHECK(f->w->t->done(f->ch) == COLL_OK);
	f->at++;
	return true;
}

static bool flow_ended(const struct flow *f)
{
	if (f->at < f->t->frames)
		return false;
	for (uint32_t k = 0; k < f->t->slots; k++) {
		if (coll_completion_pending(&f->completion[k]))
			return false;
	}
	return true;
}

static void flow_open(struct flow *f, struct world *w, const struct traffic *t, bool sends)
{
	const int me = w->me, peer = !w->me;

	*f = (struct flow){.w = w, .t = t, .stream = (uint64_t)(sends ? me : peer) + 100};
	for (uint32_t k = 0; k < t->slots; k++)
		f->memory[k] = malloc(t->slot_bytes + 8);
	f->ch = channel(w, me, peer, sends ? COLL_DIR_SEND : COLL_DIR_RECV, key_of(11, 3, 1), t->slot_bytes, t->slots);
}

static void flow_close(struct flow *f)
{
	f->w->t->channel_close(f->ch);
	for (uint32_t k = 0; k < f->t->slots; k++)
		free(f->memory[k]);
}

static void both_ways(struct world *w, void *arg)
{
	const struct traffic *t = arg;
	struct flow out, in;
	uint64_t moved_at = coll_clock_ns();
	int idle = 0;

	flow_open(&out, w, t, true);
	flow_open(&in, w, t, false);
	while (!flow_ended(&out) || !flow_ended(&in)) {
		bool moved = try_send(&out);

		moved |= try_recv(&in);
		moved |= world_progress(w) > 0;
		if (moved) {
			moved_at = coll_clock_ns();
			idle = 0;
			continue;
		}
		if (atomic_load(&plain_failures) > 20 || coll_clock_ns() - moved_at > WAIT_S * 1000000000ull) {
			CHECK(false, "node %d stands still at frames %llu and %llu of seed %llu", w->me,
			      (unsigned long long)out.at, (unsigned long long)in.at, (unsigned long long)t->seed);
			break;
		}
		if (t->sleepy && ++idle > 3)
			CHECK(node_sleep(w, w->node[w->me]), "nothing woke node %d at frames %llu and %llu", w->me,
			      (unsigned long long)out.at, (unsigned long long)in.at);
		else
			sched_yield();
	}
	world_barrier(w);
	flow_close(&out);
	flow_close(&in);
}

static const struct traffic traffics[] = {
        {3000, 2, 64, false, 1},   {1500, 2, 5000, false, 2}, {400, 3, 200000, false, 3}, {1500, 2, 300, true, 4},
        {300, 2, 100000, true, 5}, {60, 2, 1 << 20, true, 6}, {3000, 8, 4096, false, 7},
};

TEST(traffic, both_ways_between_threads)
{
	for (size_t k = 0; k < sizeof(traffics) / sizeof(traffics[0]); k++)
		world_threads(2, both_ways, (void *)&traffics[k]);
}

TEST(traffic, both_ways_between_processes)
{
	for (size_t k = 0; k < sizeof(traffics) / sizeof(traffics[0]); k++)
		world_processes(both_ways, (void *)&traffics[k]);
}

/* Memory of the transport is ordinary memory that may be loaned piece by piece, freed and
 * allocated again. */
enum { PIECE = 20000, PIECES = 40, LENDINGS = 12 };

static void lend_piece(struct world *w, void *ch, const struct coll_memory *mem, uint64_t i,
                       struct coll_completion *completion)
{
	const struct coll_frame head = head_of(12, i, PIECE);
	char *from = mem->base + i * PIECE;
	coll_status status = COLL_AGAIN;

	CHECK(AWAIT(w, !coll_completion_pending(completion)));
	fill(from, 12, i, PIECE);
	AWAIT(w, (status = w->t->post_ref(ch, from, mem, &head, completion)) != COLL_AGAIN);
	if (status != COLL_ERR_UNSUPPORTED)
		return;
	completion->pending = 0;
	send_one(w, ch, 12, i, PIECE);
}

static void lend_pieces(struct world *w, void *ch)
{
	struct coll_completion completion[2] = {{0, COLL_OK}, {0, COLL_OK}};
	struct coll_memory mem = {.size = sizeof(mem)};
	const coll_status status = w->t->mem_alloc(w->node[0]->inst, PIECE * PIECES, &mem);

	CHECK(status == COLL_OK || status == COLL_ERR_UNSUPPORTED);
	if (status != COLL_OK)
		mem.base = calloc(PIECES, PIECE);
	REQUIRE(mem.base);
	CHECK((uintptr_t)mem.base % 16 == 0);
	for (uint64_t i = 0; i < PIECES; i++)
		lend_piece(w, ch, &mem, i, &completion[i % 2]);
	CHECK(AWAIT(w, !coll_completion_pending(&completion[0]) && !coll_completion_pending(&completion[1])));
	if (status == COLL_OK)
		w->t->mem_free(w->node[0]->inst, &mem);
	else
		free(mem.base);
}

/* Every other one where it is announced. */
static void take_pieces(struct world *w, void *ch, char *to)
{
	for (uint64_t i = 0; i < PIECES; i++) {
		const struct coll_frame head = head_of(12, i, PIECE);
		struct coll_completion completion = {0, COLL_OK};

		if (i % 2 || w->t->recv_into(ch, to, NULL, &head, &completion) != COLL_OK) {
			recv_one(w, ch, 12, i, PIECE);
			continue;
		}
		CHECK(AWAIT(w, !coll_completion_pending(&completion)));
		CHECK(completion.status == COLL_OK && intact(to, 12, i, PIECE));
	}
}

static void pieces(struct world *w, void *arg)
{
	void *ch = channel(w, w->me, !w->me, w->me ? COLL_DIR_RECV : COLL_DIR_SEND, key_of(12, 0, 0), PIECE, 2);
	char *to = malloc(PIECE);

	for (int i = 0; i < LENDINGS; i++) {
		if (w->me == 0)
			lend_pieces(w, ch);
		else
			take_pieces(w, ch, to);
	}
	world_barrier(w);
	w->t->channel_close(ch);
	free(to);
}

TEST(traffic, memory_of_the_transport_between_threads)
{
	world_threads(2, pieces, NULL);
}

TEST(traffic, memory_of_the_transport_between_processes)
{
	world_processes(pieces, NULL);
}
