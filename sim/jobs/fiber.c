/*
 * Fibers: see fiber.h. It owns stacks and the copies of thread-local memory. Invariant: the block of
 * the system's thread holds the objects of the fiber that runs. It decides nothing: machine.c does.
 */
#include "sim/jobs/fiber.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK_BYTES = 8 << 20, GUARD_BYTES = 64 << 10, SPARE_MAX = 64 };

struct sim_fiber {
	ucontext_t context;
	char *stack; /* with the guard; NULL: the program's own */
	char *objects;
	void (*run)(void *arg);
	void *arg;
};

/* Thread-local memory of the program: where it is for this thread, and how it begins. */
static struct {
	char *at;
	const char *image;
	size_t image_bytes, len_bytes;
} local;

static char *spare[SPARE_MAX];
static int spares;

static int find_local(struct dl_phdr_info *info, size_t len_bytes, void *arg)
{
	(void)len_bytes, (void)arg;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data) {
			local.at = info->dlpi_tls_data;
			local.image = (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
			local.image_bytes = info->dlpi_phdr[i].p_filesz;
			local.len_bytes = info->dlpi_phdr[i].p_memsz;
		}
	return 1; /* the program is the first; what it loads has no objects that fibers share wrongly */
}

static void *must(void *p)
{
	if (!p || p == MAP_FAILED) {
		fprintf(stderr, "simulator: out of memory\n");
		abort();
	}
	return p;
}

static char *objects_new(void)
{
	char *p = must(calloc(1, local.len_bytes + 1));

	memcpy(p, local.image, local.image_bytes);
	return p;
}

struct sim_fiber *sim_fiber_main(void)
{
	struct sim_fiber *f = must(calloc(1, sizeof(*f)));

	dl_iterate_phdr(find_local, NULL);
	f->objects = must(calloc(1, local.len_bytes + 1));
	return f;
}

static void enter(unsigned low, unsigned high)
{
	struct sim_fiber *f = (struct sim_fiber *)((unsigned long)low | (unsigned long)high << 32);

	f->run(f->arg);
	abort();
}

struct sim_fiber *sim_fiber_new(void (*run)(void *arg), void *arg)
{
	struct sim_fiber *f = must(calloc(1, sizeof(*f)));
	const unsigned long at = (unsigned long)f;

	f->run = run;
	f->arg = arg;
	f->objects = objects_new();
	if (spares > 0) {
		f->stack = spare[--spares];
	} else {
		f->stack = must(mmap(NULL, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
		                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
		mprotect(f->stack, GUARD_BYTES, PROT_NONE);
	}
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = f->stack + GUARD_BYTES;
	f->context.uc_stack.ss_size = STACK_BYTES;
	makecontext(&f->context, (void (*)(void))enter, 2, (unsigned)at, (unsigned)(at >> 32));
	return f;
}

void sim_fiber_free(struct sim_fiber *f)
{
	if (f->stack && spares < SPARE_MAX)
		spare[spares++] = f->stack;
	else if (f->stack)
		munmap(f->stack, STACK_BYTES + GUARD_BYTES);
	free(f->objects);
	free(f);
}

void sim_fiber_switch(struct sim_fiber *from, struct sim_fiber *to)
{
	const int e = errno;

	memcpy(from->objects, local.at, local.len_bytes);
	memcpy(local.at, to->objects, local.len_bytes);
	swapcontext(&from->context, &to->context);
	errno = e;
}
