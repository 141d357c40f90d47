/*
 * See dump_signal.h.
 *
 * Handler and clear(): the handler counts itself in before it looks at the table and out
 * when it has finished; clear() empties a slot, then waits until no handler is inside. All
 * of it is sequentially consistent, so either the handler finds the slot empty or clear()
 * finds the handler inside: a descriptor is never written to after clear(). A handler
 * that interrupts clear() itself ends before clear() goes on, so the wait ends.
 */
#include "inspect/dump_signal.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 256 };

static struct {
	pthread_mutex_t lock; /* guards all but what the handler uses */
	int sig;              /* handled, 0: none */
	int users;
	pid_t process;           /* a forked child does not ask for dumps of its parent */
	atomic_int slots[SLOTS]; /* descriptor + 1, 0: free */
	atomic_int inside;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler uses these");

int coll_dump_signal_parse(const char *name)
{
	if (strcmp(name, "usr1") == 0)
		return SIGUSR1;
	if (strcmp(name, "usr2") == 0)
		return SIGUSR2;
	return strcmp(name, "none") == 0 ? 0 : -1;
}

static void on_signal(int sig)
{
	const uint64_t one = 1;
	const int saved = errno;

	(void)sig;
	if (getpid() != table.process)
		return;
	atomic_fetch_add(&table.inside, 1);
	for (int i = 0; i < SLOTS; i++) {
		const int fd = atomic_load(&table.slots[i]) - 1;

		if (fd >= 0 && write(fd, &one, sizeof(one)) < 0) {
			/* Full: it has been asked already. */
		}
	}
	atomic_fetch_sub(&table.inside, 1);
	errno = saved;
}

/* The lock is held. */
static bool take_over(int sig)
{
	struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, theirs;

	if (table.users > 0)
		return table.sig == sig;
	if (sigaction(sig, NULL, &theirs) != 0 || (theirs.sa_flags & SA_SIGINFO) || theirs.sa_handler != SIG_DFL)
		return false;
	sigemptyset(&ours.sa_mask);
	table.process = getpid();
	if (sigaction(sig, &ours, NULL) != 0)
		return false;
	table.sig = sig;
	return true;
}

/* When this returns no handler will look at the slot's descriptor. */
static void clear(atomic_int *slot)
{
	atomic_store(slot, 0);
	while (atomic_load(&table.inside) > 0)
		sched_yield();
}

void coll_dump_signal_add(int sig, int fd, bool *taken)
{
	*taken = false;
	pthread_mutex_lock(&table.lock);
	for (int i = 0; i < SLOTS && !*taken; i++) {
		if (atomic_load(&table.slots[i]))
			continue;
		/* The slot first: a signal that arrives at once finds it. */
		atomic_store(&table.slots[i], fd + 1);
		*taken = take_over(sig);
		if (!*taken) {
			clear(&table.slots[i]);
			break;
		}
		table.users++;
	}
	pthread_mutex_unlock(&table.lock);
}

static void give_back(void)
{
	struct sigaction now, standard = {.sa_handler = SIG_DFL};

	if (sigaction(table.sig, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == on_signal)
		sigaction(table.sig, &standard, NULL);
	table.sig = 0;
}

void coll_dump_signal_remove(int fd)
{
	pthread_mutex_lock(&table.lock);
	for (int i = 0; i < SLOTS; i++) {
		if (atomic_load(&table.slots[i]) != fd + 1)
			continue;
		if (--table.users == 0)
			give_back();
		clear(&table.slots[i]);
		break;
	}
	pthread_mutex_unlock(&table.lock);
}
