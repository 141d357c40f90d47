/*
 * The group of loop, and the bells that wake its instances: how they begin and end, and with them what they hold.
 * Whose turn it is to end them is said in loop.c.
 */
#include "transports/loop/group.h"

#include <assert.h>
#include <stdlib.h>

#include "net/net.h"
#include "transports/loop/loop.h"

/* ---- Bells ---------------------------------------------------------------- */

void coll_loop_ring(struct loop_bell *bell)
{
	const uint64_t one = 1;

	pthread_mutex_lock(&bell->lock);
	if (!bell->dead && bell->wake_fd >= 0 && coll_net->write(bell->wake_fd, &one, sizeof(one)) < 0) {
		/* The counter is full: the sleeper is awake already. */
	}
	pthread_mutex_unlock(&bell->lock);
}

struct loop_bell *coll_loop_bell_new(int wake_fd)
{
	struct loop_bell *bell = calloc(1, sizeof(*bell));

	if (!bell)
		return NULL;
	bell->refs = 1;
	bell->wake_fd = wake_fd;
	pthread_mutex_init(&bell->lock, NULL);
	return bell;
}

/* Group lock. */
void coll_loop_bell_put(struct loop_bell *bell)
{
	if (!bell || --bell->refs)
		return;
	pthread_mutex_destroy(&bell->lock);
	free(bell);
}

/* ---- The group ---------------------------------------------------------------- */

coll_status coll_loop_group_create(struct coll_loop_group **group)
{
	struct coll_loop_group *h = calloc(1, sizeof(*h));

	if (!h)
		return COLL_ERR_MEMORY;
	pthread_mutex_init(&h->lock, NULL);
	*group = h;
	return COLL_OK;
}

void coll_loop_pipe_free(struct loop_pipe *p)
{
	free(p->cells);
	free(p->slot_memory);
	free(p);
}

void coll_loop_pair_free(struct loop_pair *pair)
{
	while (pair->pipes) {
		struct loop_pipe *p = pair->pipes;

		pair->pipes = p->next;
		coll_loop_pipe_free(p);
	}
	coll_loop_bell_put(pair->bell[0]);
	coll_loop_bell_put(pair->bell[1]);
	free(pair);
}

void coll_loop_group_destroy(struct coll_loop_group **group)
{
	struct coll_loop_group *h = *group;

	if (!h)
		return;
	assert(!h->insts);
	for (int b = 0; b < LOOP_BUCKETS; b++) {
		while (h->pairs[b]) {
			struct loop_pair *pair = h->pairs[b];

			h->pairs[b] = pair->next;
			coll_loop_pair_free(pair);
		}
	}
	while (h->graves) {
		struct loop_grave *g = h->graves;

		h->graves = g->next;
		free(g);
	}
	pthread_mutex_destroy(&h->lock);
	free(h);
	*group = NULL;
}

bool coll_loop_buried(const struct coll_loop_group *h, const struct coll_process_id *id)
{
	for (const struct loop_grave *g = h->graves; g; g = g->next) {
		if (coll_same_process(&g->id, id))
			return true;
	}
	return false;
}

bool coll_loop_alive(const struct coll_loop_group *h, const struct coll_process_id *id)
{
	for (const struct loop_inst *in = h->insts; in; in = in->next) {
		if (coll_same_process(&in->env.self, id))
			return true;
	}
	return false;
}
