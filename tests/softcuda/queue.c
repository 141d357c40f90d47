/*
 * Hardware queues. Each belongs to a device of this process and is run by one thread, which
 * takes operations in the order of enqueueing: one that must wait, for a word or for
 * another operation, blocks all that is behind it. An operation depends only on earlier ones,
 * so that the earliest unfinished one can always run: queues alone do not deadlock.
 *
 * By seed, the thread pauses before operations, now and then for long.
 */
#include "tests/softcuda/soft.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct soft_queue {
	CUdevice device;
	int index;
	struct soft_op *head, *tail;
	int depth;
	pthread_cond_t work;
	uint64_t random;
};

static _Atomic long enqueued, completed;

long softcuda_enqueued(void)
{
	return enqueued;
}

long softcuda_done(void)
{
	return completed;
}

uint64_t soft_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void pause_us(uint64_t us)
{
	const struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

	nanosleep(&t, NULL);
}

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* ---- waiting inside the driver ---- */

void soft_changed(void)
{
	if (soft.changed_waiters)
		pthread_cond_broadcast(&soft.changed);
}

static void report_queue(const struct soft_queue *q)
{
	static const char *const kinds[] = {"nothing", "a kernel",          "a copy",
	                                    "a fill",  "memory operations", "a host function"};
	const struct soft_op *op = q->head;

	if (!op)
		return;
	fprintf(stderr, "softcuda:   device %d queue %d: %d operations, first %s%s\n", q->device, q->index, q->depth,
	        kinds[op->work.kind], op->deps_count ? ", behind other queues" : "");
	for (unsigned i = 0; op->work.kind == OP_MEMOP && i < op->work.memop.count && i < 4; i++) {
		const CUstreamBatchMemOpParams *m = &op->work.memop.ops[i];
		const uint32_t *word = soft_touch(op->work.ctx, (uintptr_t)m->waitValue.address, 4);

		fprintf(stderr, "softcuda:     %s %#llx, value %#x, flags %#x; it is %#x\n",
		        m->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ? "wait" : "other", m->waitValue.address,
		        m->waitValue.value, m->waitValue.flags, word ? __atomic_load_n(word, __ATOMIC_RELAXED) : 0);
	}
}

static void report(const char *what)
{
	fprintf(stderr, "softcuda: %s has waited for %ld ms: work before it does not end\n", what,
	        soft_setting("SOFTCUDA_REPORT_MS", 20000));
	for (int d = 0; d < soft.devices; d++)
		for (int i = 0; i < SOFT_QUEUES_MAX; i++)
			if (soft.device[d].queues[i])
				report_queue(soft.device[d].queues[i]);
}

/* A call that waits for long is reported once: it shows where a program hangs. */
void soft_wait_changed(const char *what, uint64_t *since)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	if (!*since)
		*since = soft_now_us();
	soft.blocked++;
	soft.changed_waiters++;
	pthread_cond_timedwait(&soft.changed, &soft.lock, &until);
	soft.changed_waiters--;
	soft.blocked--;
	if (*since != 1 && soft_now_us() - *since > (uint64_t)soft_setting("SOFTCUDA_REPORT_MS", 20000) * 1000) {
		report(what);
		*since = 1;
	}
}

void soft_wait(struct soft_op *op, const char *what)
{
	uint64_t since = 0;

	while (!op->done)
		soft_wait_changed(what, &since);
}

void soft_drain(CUcontext ctx, bool exclusive, const char *what)
{
	struct soft_op **last;
	int count = 0;

	for (CUstream s = ctx->streams; s; s = s->next)
		count++;
	last = calloc((size_t)count + 1, sizeof(*last));
	if (!last)
		abort();
	count = 0;
	for (CUstream s = ctx->streams; s; s = s->next)
		if (s->last && !s->last->done)
			last[count++] = soft_op_ref(s->last);
	if (exclusive) {
		soft.exclusive = true;
		soft.exclusive_by = pthread_self();
	}
	for (int i = 0; i < count; i++) {
		soft_wait(last[i], what);
		soft_op_unref(last[i]);
	}
	if (exclusive) {
		soft.exclusive = false;
		soft_changed();
	}
	free(last);
}

/* ---- operations ---- */

struct soft_op *soft_op_ref(struct soft_op *op)
{
	op->refs++;
	return op;
}

void soft_op_unref(struct soft_op *op)
{
	if (!op || --op->refs)
		return;
	for (int i = 0; i < op->deps_count; i++)
		soft_op_unref(op->deps[i]);
	free(op->deps);
	soft_work_clear(&op->work);
	free(op);
}

void soft_work_clear(struct soft_work *work)
{
	if (work->kind == OP_KERNEL)
		free(work->launch.args);
	else if (work->kind == OP_MEMOP)
		free(work->memop.ops);
	work->kind = OP_NOP;
}

bool soft_work_copy(struct soft_work *to, const struct soft_work *from)
{
	*to = *from;
	if (from->kind == OP_KERNEL) {
		to->launch.args = malloc(from->launch.kernel->args_len);
		if (to->launch.args)
			memcpy(to->launch.args, from->launch.args, from->launch.kernel->args_len);
		return to->launch.args != NULL;
	}
	if (from->kind == OP_MEMOP) {
		to->memop.ops = malloc(from->memop.count * sizeof(*to->memop.ops));
		if (to->memop.ops)
			memcpy(to->memop.ops, from->memop.ops, from->memop.count * sizeof(*to->memop.ops));
		return to->memop.ops != NULL;
	}
	return true;
}

static bool satisfied(const CUstreamBatchMemOpParams *op, const void *word)
{
	const unsigned how = op->waitValue.flags & 3;

	if (op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
		const uint64_t is = __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE);
		const uint64_t value = op->waitValue.value64;

		return how == CU_STREAM_WAIT_VALUE_GEQ   ? (int64_t)(is - value) >= 0
		       : how == CU_STREAM_WAIT_VALUE_EQ  ? is == value
		       : how == CU_STREAM_WAIT_VALUE_AND ? (is & value) != 0
		                                         : ~(is | value) != 0;
	}
	const uint32_t is = __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE);
	const uint32_t value = op->waitValue.value;

	if (soft_planted(RULE_wait_cyclic) && how == CU_STREAM_WAIT_VALUE_GEQ)
		return is >= value;
	if (soft_planted(RULE_wait_flags) && how != CU_STREAM_WAIT_VALUE_GEQ)
		return is == value;
	return how == CU_STREAM_WAIT_VALUE_GEQ   ? (int32_t)(is - value) >= 0
	       : how == CU_STREAM_WAIT_VALUE_EQ  ? is == value
	       : how == CU_STREAM_WAIT_VALUE_AND ? (is & value) != 0
	                                         : ~(is | value) != 0;
}

static CUresult run_memop(CUcontext ctx, const CUstreamBatchMemOpParams *op)
{
	const bool wide =
	        op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
	void *word;

	if (op->operation == CU_STREAM_MEM_OP_BARRIER || op->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES)
		return CUDA_SUCCESS;
	word = soft_touch(ctx, (uintptr_t)op->waitValue.address, wide ? 8 : 4);
	if (!word)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
		__atomic_store_n((uint32_t *)word, op->writeValue.value, __ATOMIC_RELEASE);
	} else if (op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64) {
		__atomic_store_n((uint64_t *)word, op->writeValue.value64, __ATOMIC_RELEASE);
	} else {
		for (int tries = 0; !satisfied(op, word); tries++) {
			if (ctx->error && !soft_planted(RULE_sticky_drains))
				return CUDA_SUCCESS;
			if (tries < 20)
				sched_yield();
			else
				pause_us(tries < 200 ? 10 : 100);
		}
	}
	return CUDA_SUCCESS;
}

/* Do the work; without the lock. */
static CUresult run(const struct soft_work *w, uint64_t seed)
{
	CUresult result = CUDA_SUCCESS;
	char *dst, *src;

	switch (w->kind) {
	case OP_NOP:
	case OP_EVENT: break;
	case OP_KERNEL:
		if (*w->launch.unloaded && !soft_planted(RULE_unloaded))
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		return soft_run(w->ctx, &w->launch, seed);
	case OP_COPY:
		dst = w->copy.raw_dst ? (char *)w->copy.dst : soft_touch(w->ctx, w->copy.dst, w->copy.len);
		src = w->copy.raw_src ? (char *)w->copy.src : soft_touch(w->ctx, w->copy.src, w->copy.len);
		if (!dst || !src)
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		memmove(dst, src, w->copy.len);
		if (w->copy.raw_dst || soft_is_host(soft_block_at(w->copy.dst)))
			soft_count_host(w->copy.len);
		if (w->copy.raw_src || soft_is_host(soft_block_at(w->copy.src)))
			soft_count_host(w->copy.len);
		break;
	case OP_SET:
		dst = soft_touch(w->ctx, w->set.dst, w->set.len);
		if (!dst)
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		memset(dst, w->set.value, w->set.len);
		break;
	case OP_MEMOP:
		for (unsigned i = 0; i < w->memop.count && !result; i++) {
			const unsigned at = soft_planted(RULE_memop_batch) ? w->memop.count - 1 - i : i;

			result = run_memop(w->ctx, &w->memop.ops[at]);
		}
		break;
	case OP_HOST:
		soft_in_callback = true;
		w->host.fn(w->host.arg);
		soft_in_callback = false;
		break;
	}
	return result;
}

/* ---- the thread of a queue ---- */

static void delay(struct soft_queue *q)
{
	const uint64_t r = next_random(&q->random);

	if (!soft.seed)
		return;
	if (r % 64 == 0)
		pause_us(1000 + (r >> 8) % 3000);
	else if (r % 4 == 0)
		pause_us((r >> 8) % 150);
}

static bool skipped(const struct soft_op *op)
{
	if (!op->work.ctx || !op->work.ctx->error)
		return false;
	return op->work.kind == OP_HOST ? !soft_planted(RULE_no_callback) : !soft_planted(RULE_sticky_drains);
}

static void *queue_main(void *arg)
{
	struct soft_queue *q = arg;

	pthread_mutex_lock(&soft.lock);
	for (;;) {
		struct soft_op *op;
		CUresult result = CUDA_SUCCESS;

		while (!q->head)
			pthread_cond_wait(&q->work, &soft.lock);
		op = q->head;
		pthread_mutex_unlock(&soft.lock);
		delay(q);
		pthread_mutex_lock(&soft.lock);
		for (int i = 0; i < op->deps_count; i++) {
			while (!op->deps[i]->done) {
				soft.changed_waiters++;
				pthread_cond_wait(&soft.changed, &soft.lock);
				soft.changed_waiters--;
			}
		}
		if (op->work.kind != OP_NOP && !skipped(op)) {
			pthread_mutex_unlock(&soft.lock);
			result = run(&op->work, soft.seed ? next_random(&q->random) : 0);
			if (result)
				soft_fault(op->work.ctx, result);
			pthread_mutex_lock(&soft.lock);
		}
		op->done = true;
		completed++;
		q->head = op->next;
		if (!q->head)
			q->tail = NULL;
		q->depth--;
		if (op->exec)
			soft_exec_done(op->exec);
		soft_op_unref(op);
		soft_changed();
	}
	return NULL;
}

static struct soft_queue *queue_new(CUdevice device, int index)
{
	struct soft_queue *q = calloc(1, sizeof(*q));
	pthread_attr_t attr;
	pthread_t thread;

	if (!q)
		abort();
	q->device = device;
	q->index = index;
	q->random = soft.seed * 1000003 + (uint64_t)index * 7919 + (uint64_t)device;
	pthread_cond_init(&q->work, NULL);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, queue_main, q))
		abort();
	pthread_attr_destroy(&attr);
	return q;
}

struct soft_queue *soft_deal(CUdevice device)
{
	struct soft_device *d = &soft.device[device];
	int index = d->assigned++ % soft.queues;

	if (soft_planted(RULE_own_queue))
		index = 0;
	if (soft_planted(RULE_shared_queue))
		index = (d->assigned - 1) % SOFT_QUEUES_MAX;
	if (!d->queues[index])
		d->queues[index] = queue_new(device, index);
	return d->queues[index];
}

int softcuda_queue(void *stream)
{
	CUcontext ctx;
	CUstream s;
	int index = -1;

	pthread_mutex_lock(&soft.lock);
	ctx = soft_current();
	if (ctx && !soft_stream(ctx, stream, &s))
		index = s->queue->index;
	pthread_mutex_unlock(&soft.lock);
	return index;
}

/* ---- enqueueing ---- */

static void op_depend(struct soft_op *op, struct soft_op *on)
{
	struct soft_op **deps;

	if (!on || on->done || on->queue == op->queue)
		return;
	deps = realloc(op->deps, (size_t)(op->deps_count + 1) * sizeof(*deps));
	if (!deps)
		abort();
	op->deps = deps;
	deps[op->deps_count++] = soft_op_ref(on);
}

struct soft_op *soft_push(CUstream s, struct soft_work *work, struct soft_op *const *deps, int deps_count)
{
	struct soft_queue *q = s->queue;
	struct soft_op *op;
	uint64_t since = 0;

	while (q->depth >= soft.depth && !soft_planted(RULE_queue_depth))
		soft_wait_changed("an enqueueing call, since its queue is full,", &since);
	op = calloc(1, sizeof(*op));
	if (!op)
		abort();
	op->refs = 2; /* the queue's and the stream's */
	op->work = *work;
	work->kind = OP_NOP;
	op->queue = q;
	for (int i = 0; i < deps_count; i++)
		op_depend(op, deps[i]);
	if (s->legacy) {
		for (CUstream other = s->ctx->streams; other; other = other->next)
			if (other != s && !(other->flags & CU_STREAM_NON_BLOCKING) && !soft_planted(RULE_legacy))
				op_depend(op, other->last);
	} else if (!(s->flags & CU_STREAM_NON_BLOCKING) && s->ctx->legacy && !soft_planted(RULE_legacy)) {
		op_depend(op, s->ctx->legacy->last);
	}
	soft_op_unref(s->last);
	s->last = op;
	if (q->tail && soft_planted(RULE_fifo) && q->head != q->tail) {
		op->next = q->head->next; /* ahead of all that has not begun */
		q->head->next = op;
	} else {
		if (q->tail)
			q->tail->next = op;
		else
			q->head = op;
		q->tail = op;
	}
	q->depth++;
	enqueued++;
	pthread_cond_signal(&q->work);
	return op;
}

CUresult soft_enqueue(CUstream s, struct soft_work *work, struct soft_op **out)
{
	CUresult result = CUDA_SUCCESS;

	work->ctx = s->ctx;
	if (s->ctx->error && !soft_planted(RULE_sticky))
		result = s->ctx->error;
	else if (s->legacy)
		result = soft_capture_implicit(s->ctx);
	if (!result && s->capture) {
		result = soft_capture_add(s, work);
	} else if (!result) {
		struct soft_op *op = soft_push(s, work, NULL, 0);

		if (out)
			*out = soft_op_ref(op);
		if (soft_planted(RULE_async)) {
			soft_op_ref(op);
			soft_wait(op, "planted");
			soft_op_unref(op);
		}
	}
	soft_work_clear(work);
	return result;
}
