/*
 * Host names to addresses with a deadline. getaddrinfo() may block for as long as
 * name servers are silent, so it runs in a thread of its own which shares one
 * counted block with the caller; who leaves last frees it. The caller never waits
 * for the thread, only for the answer.
 */
#include "bootstrap/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/thread.h"
#include "bootstrap/address.h"

/* getaddrinfo() runs modules of the system. */
enum { STACK_BYTES = 1024 * 1024 };

struct question {
	pthread_mutex_t lock;
	pthread_cond_t answered;
	int users; /* under lock */
	bool done; /* under lock; the members below are the caller's once it is set */
	int error;
	struct addrinfo *list;
	char host[256];
};

static void leave(struct question *q)
{
	bool last;

	pthread_mutex_lock(&q->lock);
	last = --q->users == 0;
	pthread_mutex_unlock(&q->lock);
	if (!last)
		return;
	if (q->list)
		freeaddrinfo(q->list);
	pthread_cond_destroy(&q->answered);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

static void *ask(void *arg)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct question *q = arg;
	struct addrinfo *list = NULL;
	int error = getaddrinfo(q->host, NULL, &hints, &list);

	/* "localhost" is the loopback by definition (RFC 6761), with or without /etc/hosts. */
	if (error && strcasecmp(q->host, "localhost") == 0)
		error = getaddrinfo("127.0.0.1", NULL, &hints, &list);
	pthread_mutex_lock(&q->lock);
	q->error = error;
	q->list = error ? NULL : list;
	q->done = true;
	pthread_cond_signal(&q->answered);
	pthread_mutex_unlock(&q->lock);
	leave(q);
	return NULL;
}

static struct question *question_new(const char *host)
{
	struct question *q = calloc(1, sizeof(*q));
	pthread_condattr_t attr;

	if (!q)
		return NULL;
	snprintf(q->host, sizeof(q->host), "%s", host);
	q->users = 1;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&q->answered, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&q->lock, NULL);
	return q;
}

/* Start the thread; it holds one of the two uses. */
static bool question_ask(struct question *q)
{
	pthread_t thread;
	int e;

	q->users = 2;
	e = coll_thread_start(&thread, STACK_BYTES, ask, q);
	if (e)
		q->users = 1;
	else
		pthread_detach(thread);
	return e == 0;
}

static bool wait_answer(struct question *q, uint64_t deadline_ns)
{
	bool done, interrupted = false;

	pthread_mutex_lock(&q->lock);
	while (!q->done && !interrupted && coll_clock_ns() < deadline_ns) {
		const uint64_t turn_ns = coll_interrupt_turn_ns(deadline_ns);
		const struct timespec until = {(time_t)(turn_ns / 1000000000u), (long)(turn_ns % 1000000000u)};

		pthread_cond_timedwait(&q->answered, &q->lock, &until);
		pthread_mutex_unlock(&q->lock);
		interrupted = coll_interrupt_here(false);
		pthread_mutex_lock(&q->lock);
	}
	done = q->done;
	pthread_mutex_unlock(&q->lock);
	return done;
}

static void collect(const struct addrinfo *list, uint16_t port, struct coll_places *p)
{
	struct coll_address a;

	for (const struct addrinfo *i = list; i; i = i->ai_next) {
		if (i->ai_addrlen > sizeof(a.at))
			continue;
		memset(&a, 0, sizeof(a));
		memcpy(&a.at, i->ai_addr, i->ai_addrlen);
		a.len = i->ai_addrlen;
		coll_address_set_port(&a, port);
		coll_places_add(p, &a);
	}
}

bool coll_resolve(const char *host, uint16_t port, uint64_t deadline_ns, struct coll_places *p, char *why,
                  size_t why_bytes)
{
	struct coll_address numeric;
	struct question *q;
	bool found = false;

	p->count = 0;
	if (coll_address_numeric(&numeric, host, port)) {
		coll_places_add(p, &numeric);
		return true;
	}
	q = question_new(host);
	if (!q || !question_ask(q)) {
		snprintf(why, why_bytes, "cannot look up host %s: out of memory or threads", host);
	} else if (!wait_answer(q, deadline_ns)) {
		snprintf(why, why_bytes, "looking up host %s: the name server does not answer", host);
	} else if (q->error) {
		snprintf(why, why_bytes, "looking up host %s: %s", host, gai_strerror(q->error));
	} else {
		collect(q->list, port, p);
		found = p->count > 0;
		snprintf(why, why_bytes, "host %s has no usable address", host);
	}
	if (q)
		leave(q);
	return found;
}
