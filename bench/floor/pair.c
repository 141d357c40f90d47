/*
 * Two processes that take turns on one device, and two streams of one process: what a word that one of them writes and
 * the other waits for costs. All waits are by the device's streams; the host enqueues everything first.
 */
#include <stdio.h>

#include "other.h"

enum { X, Y, GO, READY, TURN };
enum { ROUNDS = 32 };

static bool wait_for(CUstream s, int word, uint32_t value)
{
	return OK(cu.cuStreamWaitValue32(s, floor_word_address(word), value, CU_STREAM_WAIT_VALUE_GEQ));
}

static bool store(CUstream s, int word, uint32_t value)
{
	return OK(cu.cuStreamWriteValue32(s, floor_word_address(word), value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

/* One side of n rounds: waits for its word, writes the other's. */
static bool enqueue(CUstream s, int mine, int other, int n, bool with_kernel)
{
	for (int i = 1; i <= n; i++)
		if (!wait_for(s, mine, (uint32_t)i) || (with_kernel && !floor_launch_nothing(s)) ||
		    !store(s, other, (uint32_t)i))
			return false;
	return true;
}

static void reset(void)
{
	for (int i = X; i <= TURN; i++)
		atomic_store(floor_word(i), 0);
}

/* The first side: y answers x. The host begins with a store, and each x needs the y before it, so the second side
 * writes x one ahead. */
static bool second(CUstream s, int n, bool with_kernel)
{
	for (int i = 1; i <= n; i++)
		if (!wait_for(s, Y, (uint32_t)i) || (with_kernel && !floor_launch_nothing(s)) ||
		    !store(s, X, (uint32_t)i + 1))
			return false;
	return true;
}

static void one_process(const char *what, bool with_kernel)
{
	double us[64];
	int n = 0;

	if (with_kernel && !fs.kernel[COLL_KERNEL_COPY]) {
		printf("  %-50s the build has no kernels\n", what);
		return;
	}
	for (int k = 0; k < 64 && k < fs.iters; k++) {
		double begin;

		reset();
		if (!enqueue(fs.a, X, Y, ROUNDS, with_kernel) || !second(fs.b, ROUNDS, with_kernel))
			break;
		begin = floor_now_us();
		atomic_store(floor_word(X), 1);
		if (!OK(cu.cuStreamSynchronize(fs.b)))
			break;
		us[n++] = (floor_now_us() - begin) / (2 * ROUNDS);
	}
	n ? floor_row(what, 0, us, n) : floor_failed(what);
}

/* ---- The other process ---- */

static bool other_ping(const struct floor_order *o)
{
	bool ok = second(fs.a, o->n, o->with_kernel);

	atomic_store(floor_word(READY), 1);
	return ok && OK(cu.cuStreamSynchronize(fs.a));
}

/* The host hands the turn over: no stream waits while the other one works. */
static bool take_turns(int me, int n)
{
	for (int i = 0; i < n; i++) {
		while ((int)atomic_load(floor_word(TURN)) != 2 * i + me)
			;
		if (!floor_launch_nothing(fs.a) || !OK(cu.cuStreamSynchronize(fs.a)))
			return false;
		atomic_store(floor_word(TURN), (uint32_t)(2 * i + me + 1));
	}
	return true;
}

bool floor_pair_other(const struct floor_order *o)
{
	return o->task == FLOOR_PING ? other_ping(o) : take_turns(1, o->n);
}

static void two_processes(const char *what, bool with_kernel)
{
	struct floor_order o = {.task = FLOOR_PING, .n = ROUNDS, .with_kernel = with_kernel};
	struct floor_answer a;
	double us[64];
	int n = 0;

	if (with_kernel && !fs.kernel[COLL_KERNEL_COPY]) {
		printf("  %-50s the build has no kernels\n", what);
		return;
	}
	for (int k = 0; k < 64 && k < fs.iters; k++) {
		double begin;

		reset();
		if (!enqueue(fs.a, X, Y, ROUNDS, with_kernel) || !floor_tell(&o, -1))
			break;
		while (!atomic_load(floor_word(READY)))
			;
		begin = floor_now_us();
		atomic_store(floor_word(X), 1);
		/* The last word that the other process writes. */
		while (atomic_load(floor_word(X)) != ROUNDS + 1)
			;
		us[n++] = (floor_now_us() - begin) / (2 * ROUNDS);
		if (!OK(cu.cuStreamSynchronize(fs.a)) || !floor_hear(&a) || !a.done)
			break;
	}
	n ? floor_row(what, 0, us, n) : floor_failed(what);
}

static void turns(const char *what, const char *alone)
{
	struct floor_order o = {.task = FLOOR_TURNS, .n = ROUNDS};
	struct floor_answer a;
	double us[64], own[64];
	int n = 0;

	if (!fs.kernel[COLL_KERNEL_COPY]) {
		printf("  %-50s the build has no kernels\n", what);
		return;
	}
	for (int k = 0; k < 64 && k < fs.iters; k++) {
		double begin = floor_now_us();

		for (int i = 0; i < ROUNDS; i++)
			if (!floor_launch_nothing(fs.a) || !OK(cu.cuStreamSynchronize(fs.a)))
				break;
		own[n] = (floor_now_us() - begin) / ROUNDS;
		reset();
		begin = floor_now_us();
		if (!floor_tell(&o, -1) || !take_turns(0, ROUNDS) || !floor_hear(&a) || !a.done)
			break;
		us[n++] = (floor_now_us() - begin) / (2 * ROUNDS);
	}
	if (n == 0) {
		floor_failed(what);
		return;
	}
	floor_row(alone, 0, own, n);
	floor_row(what, 0, us, n);
}

void floor_pair_rows(void)
{
	floor_head("ping-pong, one hop");
	if (!HAS("all of them", cuStreamWaitValue32) || !HAS("all of them", cuStreamWriteValue32))
		return;
	one_process("two streams: wait, write", false);
	one_process("two streams: wait, kernel, write", true);
	two_processes("two processes: wait, write (a wait pends in each)", false);
	two_processes("two processes: wait, kernel, write", true);
	turns("two processes: kernel, sync, by turns (none pends)", "one process: kernel, sync");
}
