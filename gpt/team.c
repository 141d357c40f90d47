/*
 * A team sleeps on a condition between passes and spins, then yields, where its
 * threads meet within one: a pass has hundreds of meetings microseconds apart.
 */
#include "gpt/team.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define SPINS 4000

struct member {
	struct gpt_team *team;
	int index;
	pthread_t thread;
};

struct gpt_team {
	int count, started;
	struct member *members; /* 1 .. count-1; 0 is the caller */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	unsigned round; /* of work handed out; under the lock */
	bool closing;
	gpt_team_fn fn;
	void *arg;
	atomic_int here;     /* who has come to the meeting */
	atomic_uint meeting; /* its number */
};

/* The last to come empties the count and then, with release, opens the next
 * meeting; the others leave when they see, with acquire, that it is open. The
 * increments are acquire and release, so the last one has seen what all wrote. */
void gpt_team_meet(struct gpt_team *t)
{
	unsigned now;

	if (!t || t->count == 1)
		return;
	now = atomic_load_explicit(&t->meeting, memory_order_relaxed);
	if (atomic_fetch_add_explicit(&t->here, 1, memory_order_acq_rel) + 1 == t->count) {
		atomic_store_explicit(&t->here, 0, memory_order_relaxed);
		atomic_store_explicit(&t->meeting, now + 1, memory_order_release);
		return;
	}
	for (int i = 0; atomic_load_explicit(&t->meeting, memory_order_acquire) == now; i++)
		if (i > SPINS)
			sched_yield();
}

static void *work(void *arg)
{
	struct member *me = arg;
	struct gpt_team *t = me->team;
	unsigned seen = 0;
	bool closing;

	for (;;) {
		pthread_mutex_lock(&t->lock);
		while (t->round == seen && !t->closing)
			pthread_cond_wait(&t->wake, &t->lock);
		seen = t->round;
		closing = t->closing;
		pthread_mutex_unlock(&t->lock);
		if (closing)
			return NULL;
		t->fn(t->arg, me->index);
		gpt_team_meet(t);
	}
}

void gpt_team_run(struct gpt_team *t, gpt_team_fn fn, void *arg)
{
	if (!t || t->count == 1) {
		fn(arg, 0);
		return;
	}
	pthread_mutex_lock(&t->lock);
	t->fn = fn;
	t->arg = arg;
	t->round++;
	pthread_cond_broadcast(&t->wake);
	pthread_mutex_unlock(&t->lock);
	fn(arg, 0);
	gpt_team_meet(t);
}

struct gpt_team *gpt_team_create(int n)
{
	struct gpt_team *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->wake, NULL);
	t->count = n;
	t->started = 1;
	t->members = calloc((size_t)n, sizeof(*t->members));
	for (int i = 1; t->members && i < n; i++) {
		t->members[i] = (struct member){.team = t, .index = i};
		if (pthread_create(&t->members[i].thread, NULL, work, &t->members[i]))
			break;
		t->started++;
	}
	if (t->started < n || !t->members)
		gpt_team_destroy(&t);
	return t;
}

void gpt_team_destroy(struct gpt_team **team)
{
	struct gpt_team *t = *team;

	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->closing = true;
	pthread_cond_broadcast(&t->wake);
	pthread_mutex_unlock(&t->lock);
	for (int i = 1; i < t->started; i++)
		pthread_join(t->members[i].thread, NULL);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t->members);
	free(t);
	*team = NULL;
}
