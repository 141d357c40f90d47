/*
 * See refusing.h. Needs glibc, whose own names for the functions behind it uses, and no sanitizer.
 */
#include "refusing.h"

#include <execinfo.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
extern char __executable_start[], etext[];

static atomic_long live; /* blocks */
static bool traced;
static _Thread_local struct {
	unsigned countdown; /* 0: nothing is refused */
	enum refusing mode;
	unsigned refused;
} refusal;

/* Only what this program, the library in it, asks for. */
static bool refuse(const void *caller)
{
	if (refusal.countdown == 0 || (const char *)caller < __executable_start || (const char *)caller >= etext)
		return false;
	if (refusal.countdown > 1) {
		refusal.countdown--;
		return false;
	}
	if (refusal.mode == REFUSING_ONE)
		refusal.countdown = 0;
	if (refusal.refused++ == 0 && traced) {
		void *frames[12];

		backtrace_symbols_fd(frames, backtrace(frames, 12), STDERR_FILENO);
	}
	return true;
}

static void *counted(void *p)
{
	if (p)
		atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
	return p;
}

#define REFUSED refuse(__builtin_return_address(0))

void *malloc(size_t n)
{
	return REFUSED ? NULL : counted(__libc_malloc(n));
}

void *calloc(size_t n, size_t m)
{
	return REFUSED ? NULL : counted(__libc_calloc(n, m));
}

void *realloc(void *p, size_t n)
{
	void *q;

	if (REFUSED)
		return NULL;
	q = __libc_realloc(p, n);
	return p ? q : counted(q);
}

void *aligned_alloc(size_t a, size_t n)
{
	return REFUSED ? NULL : counted(__libc_memalign(a, n));
}

int posix_memalign(void **p, size_t a, size_t n)
{
	void *q = REFUSED ? NULL : counted(__libc_memalign(a, n));

	if (!q)
		return 12;
	*p = q;
	return 0;
}

void free(void *p)
{
	if (p)
		atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
	__libc_free(p);
}

/* ---- Interface ---- */

void refusing_begin(void)
{
	void *frames[2];

	traced = getenv("REFUSED_TRACE") != NULL;
	backtrace(frames, 2); /* allocates when first called */
}

void refusing_arm(unsigned k, enum refusing mode)
{
	refusal.mode = mode;
	refusal.refused = 0;
	refusal.countdown = k;
}

unsigned refusing_disarm(void)
{
	refusal.countdown = 0;
	return refusal.refused;
}

long refusing_live(void)
{
	return atomic_load_explicit(&live, memory_order_relaxed);
}

int *refusing_ints(size_t n)
{
	int *p = __libc_calloc(n, sizeof(*p));

	if (!p)
		abort();
	return p;
}

void refusing_free(void *p)
{
	__libc_free(p);
}
