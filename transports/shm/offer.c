/*
 * shm: memory that a peer uses for longer than a frame: a region of ours is offered
 * under a key, the peer maps it and finds it by that key. Which of the two writes which part
 * of it when is theirs to agree upon.
 *
 * The owner's pages live until both have let go: the peer's mapping goes when it gives
 * the offer back, or, if it never took it, when the owner withdraws. Everything here runs
 * under inst->lock; who reads the memory needs none.
 */
#include "transports/shm/offer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "base/fork.h"
#include "transports/shm/ring.h"
#include "transports/shm/segment.h"
#include "transports/shm/wire.h"

static bool same_key(const struct coll_channel_key *a, const struct coll_channel_key *b)
{
	return a->comm == b->comm && a->epoch == b->epoch && a->lane == b->lane && a->window == b->window;
}

/* ---- Owner ------------------------------------------------------------------------ */

coll_status coll_shm_offer(void *link, const struct coll_channel_key *key, const struct coll_memory *mem)
{
	struct shm_link *l = link;
	const struct shm_region *r = mem ? mem->keys : NULL;
	struct shm_message m = coll_shm_message(SHM_OFFER);
	/* A descriptor of its own: the memory may be freed before the message is sent. */
	const int fd = r ? fcntl(r->fd, F_DUPFD_CLOEXEC, 0) : -1;
	coll_status st;

	m.offer = (struct shm_offer_note){.key = *key, .len = fd >= 0 ? r->len : 0};
	pthread_mutex_lock(&l->inst->lock);
	st = coll_shm_link_state(l) > COLL_AGAIN ? coll_shm_link_state(l) : coll_shm_enqueue(l, &m, fd, true);
	pthread_mutex_unlock(&l->inst->lock);
	if (st != COLL_OK && fd >= 0)
		coll_fd_close(fd);
	return st;
}

void coll_shm_withdraw(void *link, const struct coll_channel_key *key)
{
	struct shm_link *l = link;
	struct shm_message m = coll_shm_message(SHM_UNOFFER);

	m.offer.key = *key;
	pthread_mutex_lock(&l->inst->lock);
	if (coll_shm_link_state(l) <= COLL_AGAIN)
		coll_shm_enqueue(l, &m, -1, false);
	pthread_mutex_unlock(&l->inst->lock);
}

/* ---- Reader ------------------------------------------------------------------------- */

static struct shm_offered **find(struct shm_link *l, const struct coll_channel_key *key)
{
	struct shm_offered **at = &l->offers;

	while (*at && !same_key(&(*at)->key, key))
		at = &(*at)->next;
	return at;
}

static void drop(struct shm_offered **at)
{
	struct shm_offered *o = *at;

	*at = o->next;
	if (o->base)
		munmap(o->base, o->len);
	if (o->fd >= 0)
		coll_fd_close(o->fd);
	free(o);
}

coll_status coll_shm_on_offer(struct shm_link *l, const struct shm_offer_note *note, int fd)
{
	struct shm_offered *o;

	/* A descriptor for which there was no room here is lost on the way. */
	if ((note->len == 0 && fd >= 0) || note->len > SIZE_MAX / 2 || *find(l, &note->key))
		return COLL_ERR_CORRUPT;
	o = calloc(1, sizeof(*o));
	if (!o)
		return COLL_ERR_MEMORY;
	o->key = note->key;
	o->len = note->len;
	o->fd = -1;
	if (fd >= 0) {
		o->base = coll_shm_map(fd, o->len, true);
		if (!o->base && coll_errno_status(COLL_OK) == COLL_OK) { /* not what it says */
			free(o);
			return COLL_ERR_CORRUPT;
		}
	}
	o->next = l->offers;
	l->offers = o;
	l->inst->changed = true;
	return COLL_OK;
}

void coll_shm_on_unoffer(struct shm_link *l, const struct shm_offer_note *note)
{
	struct shm_offered **at = find(l, &note->key);

	if (*at && !(*at)->taken)
		drop(at);
}

void coll_shm_offers_free(struct shm_link *l)
{
	while (l->offers)
		drop(&l->offers);
}

coll_status coll_shm_offered(void *link, const struct coll_channel_key *key, struct coll_offer *offer)
{
	struct shm_link *l = link;
	struct shm_offered *o;
	coll_status st = COLL_OK;

	pthread_mutex_lock(&l->inst->lock);
	o = *find(l, key);
	/* What a peer offered before it ended is no use to anybody. */
	if (coll_shm_link_state(l) > COLL_AGAIN)
		st = coll_shm_link_state(l);
	else if (!o)
		st = COLL_AGAIN;
	else if (!o->base)
		st = COLL_ERR_UNSUPPORTED;
	if (st == COLL_OK) {
		o->taken = true;
		*offer = (struct coll_offer){
		        .size = sizeof(*offer),
		        .base = o->base,
		        .len_bytes = o->len,
		        .asleep = (const unsigned *)&atomic_load(&l->peer_page)->armed,
		        .fenced = atomic_load(&l->fenced),
		        .keys = o,
		};
	}
	pthread_mutex_unlock(&l->inst->lock);
	return st;
}

void coll_shm_give_back(void *link, struct coll_offer *offer)
{
	struct shm_link *l = link;
	struct shm_offered **at;

	pthread_mutex_lock(&l->inst->lock);
	at = &l->offers;
	while (*at && *at != offer->keys)
		at = &(*at)->next;
	if (*at)
		drop(at);
	pthread_mutex_unlock(&l->inst->lock);
	offer->base = NULL;
}

/* ---- Descriptors ---------------------------------------------------------------------- */

coll_status coll_shm_hand(void *link, const struct coll_channel_key *key, int fd)
{
	struct shm_link *l = link;
	struct shm_message m = coll_shm_message(SHM_HAND);
	const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	coll_status st;

	if (copy < 0)
		return COLL_ERR_SYSTEM;
	m.offer.key = *key;
	pthread_mutex_lock(&l->inst->lock);
	st = coll_shm_link_state(l) > COLL_AGAIN ? coll_shm_link_state(l) : coll_shm_enqueue(l, &m, copy, true);
	pthread_mutex_unlock(&l->inst->lock);
	if (st != COLL_OK)
		coll_fd_close(copy);
	return st;
}

/* The caller closes fd. */
coll_status coll_shm_on_hand(struct shm_link *l, const struct shm_offer_note *note, int fd)
{
	struct shm_offered *o;

	if (fd < 0 || *find(l, &note->key))
		return COLL_ERR_CORRUPT;
	o = calloc(1, sizeof(*o));
	if (!o)
		return COLL_ERR_MEMORY;
	o->key = note->key;
	o->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (o->fd < 0) {
		coll_errno_keep("fcntl");
		free(o);
		return COLL_ERR_SYSTEM;
	}
	o->next = l->offers;
	l->offers = o;
	l->inst->changed = true;
	return COLL_OK;
}

coll_status coll_shm_handed(void *link, const struct coll_channel_key *key, int *fd)
{
	struct shm_link *l = link;
	struct shm_offered **at;
	coll_status st = COLL_OK;

	pthread_mutex_lock(&l->inst->lock);
	at = find(l, key);
	if (coll_shm_link_state(l) > COLL_AGAIN)
		st = coll_shm_link_state(l);
	else if (!*at || (*at)->fd < 0)
		st = COLL_AGAIN;
	if (st == COLL_OK) {
		*fd = (*at)->fd;
		(*at)->fd = -1;
		drop(at);
	}
	pthread_mutex_unlock(&l->inst->lock);
	return st;
}

void coll_shm_nudge(void *link)
{
	wake_peer(link);
}
