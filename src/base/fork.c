/*
 * The mark of a process and its descriptors: see fork.h. Owns the page of the mark, the set of descriptors and the
 * handlers of fork().
 */
#include "base/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/errno_text.h"

enum { FDS_MAX = 1 << 20, WORDS = FDS_MAX / 64, STDIO = 3, TRIES = 10000 };

static _Atomic uint32_t plain_word; /* before the first mark, or without memory for a page */
_Atomic uint32_t *coll_fork_word = &plain_word;

static uint32_t marks; /* given so far, in this process and in those that it descends from */
static _Atomic uint64_t kept[WORDS];
static atomic_int words; /* that were ever in use */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool locked; /* by before() */
static pthread_once_t watched = PTHREAD_ONCE_INIT;

/* ---- Handlers ---- */

/* A signal handler may fork, also one that interrupts who has the lock. Then a descriptor may be missed. */
static void before(void)
{
	locked = false;
	for (int i = 0; i < TRIES && !locked; i++) {
		locked = pthread_mutex_trylock(&lock) == 0;
		if (!locked)
			sched_yield();
	}
}

static void after(void)
{
	if (locked)
		pthread_mutex_unlock(&lock);
}

static void disown(void)
{
	const int used = atomic_load_explicit(&words, memory_order_relaxed);

	for (int w = 0; w < used; w++) {
		uint64_t bits = atomic_exchange_explicit(&kept[w], 0, memory_order_relaxed);

		for (; bits; bits &= bits - 1)
			close(w * 64 + __builtin_ctzll(bits));
	}
	atomic_store_explicit(coll_fork_word, 0, memory_order_relaxed);
}

static void in_child(void)
{
	const int saved = errno;

	disown();
	if (locked)
		pthread_mutex_unlock(&lock);
	else
		pthread_mutex_init(&lock, NULL);
	errno = saved;
}

static void watch(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p != MAP_FAILED) {
		madvise(p, page, MADV_WIPEONFORK);
		coll_fork_word = p;
	}
	pthread_atfork(before, after, in_child);
}

void coll_fd_begin(void)
{
	pthread_once(&watched, watch);
	pthread_mutex_lock(&lock);
	if (atomic_load_explicit(coll_fork_word, memory_order_relaxed) != 0)
		return;
	/* A child that clone() made has run no handler. */
	if (marks > 0)
		disown();
	atomic_store_explicit(coll_fork_word, ++marks, memory_order_relaxed);
}

uint32_t coll_fork_mark(void)
{
	uint32_t mark;

	coll_fd_begin();
	mark = atomic_load_explicit(coll_fork_word, memory_order_relaxed);
	pthread_mutex_unlock(&lock);
	return mark;
}

/* ---- Descriptors ---- */

static void keep(int fd)
{
	const int w = fd / 64;

	if (fd >= FDS_MAX)
		return;
	atomic_fetch_or_explicit(&kept[w], (uint64_t)1 << fd % 64, memory_order_relaxed);
	if (atomic_load_explicit(&words, memory_order_relaxed) <= w)
		atomic_store_explicit(&words, w + 1, memory_order_relaxed);
}

/* Of a program that was started without them: its output must not land in a socket. */
static int above_stdio(int fd)
{
	const int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDIO), saved = errno;

	close(fd);
	errno = saved;
	return higher;
}

int coll_fd_keep(int fd, const char *call)
{
	int saved;

	if (fd >= 0 && fd < STDIO)
		fd = above_stdio(fd);
	saved = errno;
	if (fd >= 0)
		keep(fd);
	pthread_mutex_unlock(&lock);
	errno = saved;
	if (fd < 0 && errno != EAGAIN && errno != EINTR)
		coll_errno_keep(call);
	return fd;
}

int coll_fd_close(int fd)
{
	const int saved = errno;
	int result;

	if (fd < 0)
		return -1;
	pthread_mutex_lock(&lock);
	if (fd < FDS_MAX)
		atomic_fetch_and_explicit(&kept[fd / 64], ~((uint64_t)1 << fd % 64), memory_order_relaxed);
	result = close(fd);
	pthread_mutex_unlock(&lock);
	errno = saved;
	return result;
}
