/*
 * Hosts of unique ids (id_host.h). An id is made before any context exists, and its ranks may live in any processes. So
 * the process that made it has a thread for each id, which is the root of the meeting and ends with it.
 *
 * Owns the list of these threads, which cannot hang on a context either: it is short and under a lock. Each host is
 * awaited first; then either its first rank comes and the meeting has begun, or it is given up. Whoever changes the
 * word has decided. A fork has no threads, so its copy of the list is dropped.
 */
#include "bootstrap/id_host.h"
#include "bootstrap/rendezvous_roles.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/thread.h"

struct host {
	struct host *next; /* an older one */
	uint64_t key[2];
	struct coll_rendezvous_listeners listeners;
	atomic_int phase; /* enum coll_meeting_phase */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t one_ended; /* by the monotonic clock: see prepare() */
/* Under lock. */
static struct host *hosts;
static uint64_t ended[COLL_ID_ENDED_MAX][2];
static unsigned ended_count;

static pthread_once_t prepared = PTHREAD_ONCE_INIT;

static void free_host(struct host *h)
{
	coll_rendezvous_unlisten(&h->listeners);
	free(h);
}

/* A fork has none of the threads. The lock is free in it, since whoever forks takes it first. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_the_fork(void)
{
	while (hosts) {
		struct host *h = hosts;

		hosts = h->next;
		free_host(h);
	}
	pthread_mutex_unlock(&lock);
}

/* Not pthread_cond_clockwait(), which needs glibc 2.30: wheels run on 2.28. */
static void prepare(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&one_ended, &attr);
	pthread_condattr_destroy(&attr);
	pthread_atfork(before_fork, after_fork, in_the_fork);
}

static struct host **find(const uint64_t key[2])
{
	struct host **h = &hosts;

	while (*h && memcmp((*h)->key, key, sizeof((*h)->key)) != 0)
		h = &(*h)->next;
	return h;
}

static bool give_up(struct host *h)
{
	int awaited = COLL_MEETING_AWAITED;

	if (!atomic_compare_exchange_strong(&h->phase, &awaited, COLL_MEETING_GIVEN_UP))
		return false;
	for (int i = 0; i < h->listeners.count; i++)
		shutdown(h->listeners.fd[i], SHUT_RDWR); /* wakes its thread */
	return true;
}

static void *meet(void *arg)
{
	struct host *h = arg;
	struct coll_rendezvous_point how = {
	        .rank = COLL_RENDEZVOUS_HOST,
	        .hosted = true,
	        .keyed = true,
	        .key = {h->key[0], h->key[1]},
	        .phase = &h->phase,
	        .listeners = h->listeners,
	        .root_text = "coll_config.id",
	};

	coll_rendezvous_host(&how);
	pthread_mutex_lock(&lock);
	memcpy(ended[ended_count++ % COLL_ID_ENDED_MAX], h->key, sizeof(h->key));
	*find(h->key) = h->next;
	free_host(h);
	pthread_cond_broadcast(&one_ended);
	pthread_mutex_unlock(&lock);
	return NULL;
}

static int start_thread(struct host *h)
{
	pthread_t thread;
	const int e = coll_thread_start(&thread, COLL_THREAD_STACK_BYTES, meet, h);

	if (e == 0)
		pthread_detach(thread);
	return e;
}

/* lock is held. */
static void limit_waiting(void)
{
	struct host *oldest = NULL;
	int waiting = 0;

	for (struct host *h = hosts; h; h = h->next) {
		if (atomic_load(&h->phase) != COLL_MEETING_AWAITED)
			continue;
		oldest = h;
		waiting++;
	}
	if (waiting >= COLL_ID_WAITING_MAX)
		give_up(oldest);
}

coll_status coll_id_host_start(const uint64_t key[2], const struct coll_rendezvous_listeners *listeners,
                               struct coll_error_box *err)
{
	struct host *h = calloc(1, sizeof(*h));
	int e;

	if (!h)
		return coll_error_set(err, COLL_ERR_MEMORY, "no memory for a unique id");
	memcpy(h->key, key, sizeof(h->key));
	h->listeners = *listeners;
	pthread_once(&prepared, prepare);
	pthread_mutex_lock(&lock);
	limit_waiting();
	h->next = hosts;
	hosts = h;
	e = start_thread(h);
	if (e) {
		hosts = h->next;
		free(h);
	}
	pthread_mutex_unlock(&lock);
	if (e)
		return coll_error_set(err, COLL_ERR_SYSTEM, "cannot start the thread that hosts a unique id: %s",
		                      coll_errno_thread(e).text);
	return COLL_OK;
}

bool coll_id_host_ended(const uint64_t key[2])
{
	bool yes = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < ended_count && i < COLL_ID_ENDED_MAX; i++)
		yes = yes || memcmp(ended[i], key, sizeof(ended[i])) == 0;
	pthread_mutex_unlock(&lock);
	return yes;
}

void coll_id_host_await(const uint64_t key[2], uint64_t deadline_ns)
{
	pthread_once(&prepared, prepare);
	pthread_mutex_lock(&lock);
	while (*find(key) && coll_clock_ns() < deadline_ns) {
		const uint64_t left = deadline_ns - coll_clock_ns();
		struct timespec t;

		clock_gettime(CLOCK_MONOTONIC, &t);
		t.tv_sec += (time_t)(left / 1000000000u) + 1;
		pthread_cond_timedwait(&one_ended, &lock, &t);
	}
	pthread_mutex_unlock(&lock);
}

void coll_id_host_give_up(const uint64_t key[2])
{
	struct host *h;

	pthread_mutex_lock(&lock);
	h = *find(key);
	if (h)
		give_up(h);
	pthread_mutex_unlock(&lock);
}
