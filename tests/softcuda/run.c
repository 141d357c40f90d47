/*
 * Runs a kernel: blocks one after another, the threads of a block as fibres on the queue's thread.
 * A fibre runs until it ends or reaches a barrier; when all have, those at the barrier go on. A
 * kernel without barriers needs one stack for all threads. The order of blocks and threads is
 * turned by seed. A fault leaves the kernel at once; abandoned fibres hold nothing.
 *
 * The switch saves what the calling convention wants kept. ASan and TSan are told of it. For TSan the fibres of a queue
 * are one: only one runs at a time, in any case, and a clock of its own for each would make the others' clocks long.
 */
#include "tests/softcuda/soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#elif __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WITH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#ifdef WITH_ASAN
enum { STACK_LEN = 256 << 10 };
#else
enum { STACK_LEN = 64 << 10 };
#endif
enum { GUARD_LEN = 4096, THREADS_MAX = 1024, SHARED_LEN = 256 << 10, SHARED_ARRAYS = 32, GARBAGE = 0xa7 };

enum state { READY, AT_BARRIER, ENDED, FAULTED };

struct fibre {
	struct soft_thread self; /* first: soft_self is the fibre */
	void *sp;
	char *stack;
	enum state state;
	struct fibre *next;
#ifdef WITH_ASAN
	void *fake_stack;
#endif
};

/* What a queue's thread needs to run kernels. */
struct runner {
	CUcontext ctx;
	const struct soft_launch *launch;
	void *sp; /* of the scheduler */
	struct fibre *pool;
	struct fibre *block[THREADS_MAX];
	struct soft_range ranges[SOFT_RANGES];
	CUresult fault;
	char *shared;
	size_t shared_used;
	struct {
		const void *key;
		char *at;
	} arrays[SHARED_ARRAYS];
	int arrays_count;
#ifdef WITH_ASAN
	void *fake_stack;
	const void *bottom;
	size_t size;
#endif
#ifdef WITH_TSAN
	void *tsan, *tsan_fibre; /* the scheduler, all fibres */
#endif
};

__thread struct soft_thread *soft_self __attribute__((tls_model("initial-exec")));
static __thread struct runner *runner __attribute__((tls_model("initial-exec")));

/* Push the registers that a callee keeps, store the stack pointer at *save, load the other one, pop, return. */
void soft_switch(void **save, void *load) __attribute__((visibility("hidden")));
void soft_fibre_main(void) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
enum { SAVED_WORDS = 7, RETURN_WORD = 6 };
__asm__(".text\n.globl soft_switch\n.hidden soft_switch\n.type soft_switch, @function\nsoft_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size soft_switch, .-soft_switch\n");
#elif defined(__aarch64__)
enum { SAVED_WORDS = 20, RETURN_WORD = 11 };
__asm__(".text\n.globl soft_switch\n.hidden soft_switch\n.type soft_switch, %function\nsoft_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n"
        ".size soft_switch, .-soft_switch\n");
#else
#error "the stand-in driver switches stacks on x86-64 and aarch64 only"
#endif

static struct fibre *current(void)
{
	return (struct fibre *)soft_self;
}

/* From a fibre to the scheduler; returns when it is resumed. */
static void leave(enum state state)
{
	struct fibre *f = current();

	f->state = state;
#ifdef WITH_ASAN
	__sanitizer_start_switch_fiber(&f->fake_stack, runner->bottom, runner->size);
#endif
#ifdef WITH_TSAN
	__tsan_switch_to_fiber(runner->tsan, 0);
#endif
	soft_switch(&f->sp, runner->sp);
#ifdef WITH_ASAN
	__sanitizer_finish_switch_fiber(f->fake_stack, NULL, NULL);
#endif
}

void soft_fibre_main(void)
{
#ifdef WITH_ASAN
	__sanitizer_finish_switch_fiber(NULL, &runner->bottom, &runner->size);
#endif
	for (;;) {
		runner->launch->kernel->call(runner->launch->args);
		leave(ENDED); /* and the next thread begins on this stack */
	}
}

static void resume(struct fibre *f)
{
	soft_self = &f->self;
#ifdef WITH_ASAN
	__sanitizer_start_switch_fiber(&runner->fake_stack, f->stack, STACK_LEN);
#endif
#ifdef WITH_TSAN
	__tsan_switch_to_fiber(runner->tsan_fibre, 0);
#endif
	soft_switch(&runner->sp, f->sp);
#ifdef WITH_ASAN
	__sanitizer_finish_switch_fiber(runner->fake_stack, NULL, NULL);
#endif
}

static void stack_reset(struct fibre *f)
{
	/* Left free at the top: tops at the same place of every page would share few lines of a cache. */
	const size_t unused = (uintptr_t)f->stack / GUARD_LEN % 16 * 256;
	void **sp = (void **)(f->stack + STACK_LEN - unused) - SAVED_WORDS - 3;

#ifdef WITH_ASAN
	__asan_unpoison_memory_region(f->stack, STACK_LEN);
	f->fake_stack = NULL;
#endif
	/* At the first instruction the stack is as after a call: a multiple of 16, less 8 on x86-64. */
	while (((uintptr_t)(sp + SAVED_WORDS) & 15) != (SAVED_WORDS == 7 ? 8 : 0))
		sp--;
	memset(sp, 0, SAVED_WORDS * sizeof(*sp));
	sp[RETURN_WORD] = (void *)soft_fibre_main;
	f->sp = sp;
	f->state = READY;
}

static struct fibre *fibre_take(void)
{
	struct fibre *f = runner->pool;

	if (f) {
		runner->pool = f->next;
		return f;
	}
	f = calloc(1, sizeof(*f));
	if (!f)
		abort();
	f->stack = mmap(NULL, STACK_LEN + GUARD_LEN, PROT_READ | PROT_WRITE,
	                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (f->stack == MAP_FAILED || mprotect(f->stack, GUARD_LEN, PROT_NONE))
		abort();
	f->stack += GUARD_LEN;
	stack_reset(f);
	return f;
}

static void fibre_give(struct fibre *f)
{
	f->next = runner->pool;
	runner->pool = f;
}

/* ---- what kernels call ---- */

static void fault(CUresult why)
{
	runner->fault = why;
	leave(FAULTED);
	abort(); /* never resumed */
}

static void count_host(struct soft_range *r)
{
	if (r->host)
		soft_count_host(r->bytes);
	r->bytes = 0;
}

void *soft_find(const void *address, unsigned len)
{
	const uintptr_t a = (uintptr_t)address;
	struct soft_range *range;
	struct soft_block *b;
	void *at;

	if ((a & (len - 1)) && !soft_planted(RULE_misaligned))
		fault(CUDA_ERROR_MISALIGNED_ADDRESS);
	at = soft_touch(runner->ctx, a, len);
	if (!at && soft_planted(RULE_wild)) {
		static _Thread_local char nowhere[16];

		return nowhere;
	}
	if (!at)
		fault(CUDA_ERROR_ILLEGAL_ADDRESS);
	b = soft_block_at(a);
	range = &runner->ranges[soft_range_of(a)];
	count_host(range);
	*range = (struct soft_range){.host = soft_is_host(b)};
	if (b->kind != SOFT_IPC) { /* whose owner may free it at any time */
		range->lo = b->lo;
		range->hi = b->lo + b->len;
		range->delta = b->delta;
	}
	return at;
}

void soft_barrier(void)
{
	if (!soft_planted(RULE_block_order))
		leave(AT_BARRIER);
}

void *soft_shared(const void *key, size_t len)
{
	char *at;

	for (int i = 0; i < runner->arrays_count; i++)
		if (runner->arrays[i].key == key)
			return runner->arrays[i].at;
	if (runner->arrays_count == SHARED_ARRAYS || runner->shared_used + len + 16 > SHARED_LEN)
		fault(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	at = runner->shared + runner->shared_used;
	memset(at, soft_planted(RULE_poison) ? 0 : GARBAGE, len);
	runner->shared_used += (len + 15) & ~(size_t)15;
	runner->arrays[runner->arrays_count].key = key;
	runner->arrays[runner->arrays_count++].at = at;
	return at;
}

/* ---- the scheduler ---- */

/* The i-th of n in the order of this seed. */
static unsigned turned(unsigned i, unsigned n, uint64_t seed)
{
	const unsigned from = (unsigned)(seed & 0x7fffffff) % n;
	const unsigned at = i + from < n ? i + from : i + from - n;

	return seed >> 32 & 1 ? n - 1 - at : at;
}

static struct soft_index index_of(unsigned i, struct soft_index n)
{
	return (struct soft_index){i % n.x, i / n.x % n.y, i / n.x / n.y};
}

static void run_block(struct soft_index block, uint64_t seed)
{
	const struct soft_launch *l = runner->launch;
	const unsigned n = l->threads.x * l->threads.y * l->threads.z;
	unsigned waiting = 0, ran;

	runner->shared_used = 0;
	runner->arrays_count = 0;
	for (unsigned i = 0; i < n && !runner->fault; i++) {
		struct fibre *f = fibre_take();

		f->self = (struct soft_thread){index_of(turned(i, n, seed), l->threads), block, l->threads, l->blocks,
		                               runner->ranges};
		resume(f);
		if (f->state == ENDED)
			fibre_give(f);
		else
			runner->block[waiting++] = f;
	}
	do {
		ran = waiting;
		waiting = 0;
		for (unsigned i = 0; i < ran; i++) {
			struct fibre *f = runner->block[i];

			if (!runner->fault)
				resume(f);
			if (f->state == ENDED) {
				fibre_give(f);
			} else if (runner->fault) {
				stack_reset(f);
				fibre_give(f);
			} else {
				runner->block[waiting++] = f;
			}
		}
	} while (waiting);
}

static struct runner *runner_new(void)
{
	struct runner *r = calloc(1, sizeof(*r));

	if (!r || !(r->shared = aligned_alloc(16, SHARED_LEN)))
		abort();
#ifdef WITH_TSAN
	r->tsan = __tsan_get_current_fiber();
	r->tsan_fibre = __tsan_create_fiber(0);
#endif
	return r;
}

CUresult soft_run(CUcontext ctx, const struct soft_launch *launch, uint64_t seed)
{
	const unsigned blocks = launch->blocks.x * launch->blocks.y * launch->blocks.z;

	if (!runner)
		runner = runner_new();
	runner->ctx = ctx;
	runner->launch = launch;
	runner->fault = CUDA_SUCCESS;
	memset(runner->ranges, 0, sizeof(runner->ranges));
	for (unsigned i = 0; i < blocks && !runner->fault; i++)
		run_block(index_of(turned(i, blocks, seed >> 8), launch->blocks), seed);
	for (int i = 0; i < SOFT_RANGES; i++)
		count_host(&runner->ranges[i]);
	soft_self = NULL;
#ifdef WITH_TSAN
	if (runner->fault) { /* it has calls that never return */
		__tsan_destroy_fiber(runner->tsan_fibre);
		runner->tsan_fibre = __tsan_create_fiber(0);
	}
#endif
	return runner->fault;
}
