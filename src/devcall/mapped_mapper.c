/*
 * The mapper of a communicator: a thread that maps regions which peers announce, and lets go of those that they
 * retract. A mapping may take long, and the driver may keep its caller while streams are busy: so no call does it, and
 * no call waits for it. See records.h.
 *
 * It sleeps until drivers of calls see that a peer has announced something. An announcement belongs to a call that all
 * ranks make, so they look soon.
 */
#include "devcall/mapped_mapper.h"

#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/fork.h"
#include "base/thread.h"

/* ---- One region ---- */

/* Memory of this process. Another context needs a mapping of its own where access is given by mapping. */
static coll_status map_here(struct coll_mapped *d, const struct mapped_note *note, struct coll_device_import *import)
{
	if (note->export.ordinal == d->device->ordinal ||
	    note->export.share == COLL_DEVICE_SHARE_HANDLE) { /* peers are enabled: the slots are mapped */
		*import = (struct coll_device_import){.address = note->export.address,
		                                      .len_bytes = note->export.len_bytes};
		return COLL_OK;
	}
	if (note->export.share != COLL_DEVICE_SHARE_DESCRIPTOR)
		return COLL_ERR_UNSUPPORTED;
	return d->device->table->region_import(d->device, &note->export, note->fd, import);
}

/* AGAIN: its descriptor is on its way. */
static coll_status map_there(struct coll_mapped *d, int rank, int place, uint32_t generation,
                             const struct mapped_note *note, struct coll_device_import *import)
{
	const struct coll_channel_key key = coll_mapped_region_key(d, place, generation);
	const struct mapped_peer *p = &d->peers[rank];
	coll_status st;
	int fd = -1;

	/* A legacy handle is not opened: its owner may free the memory at any time. */
	if (note->export.share != COLL_DEVICE_SHARE_DESCRIPTOR)
		return COLL_ERR_UNSUPPORTED;
	st = p->transport->shared->handed(p->link, &key, &fd);
	if (st != COLL_OK)
		return st;
	st = import ? d->device->table->region_import(d->device, &note->export, fd, import) : COLL_OK;
	coll_fd_close(fd);
	return st;
}

/* True: it is on its way. */
static bool look_at(struct coll_mapped *d, int rank, int place)
{
	struct mapped_their *their = &d->mapper.theirs[rank][place];
	const struct mapped_peer *p = &d->peers[rank];
	const struct mapped_note *note = &p->page->notes[place];
	const uint32_t g = atomic_load_explicit(&note->generation, memory_order_acquire);
	coll_status st = COLL_OK;

	if (g == their->generation)
		return false;
	if (their->import.address)
		d->device->table->region_close(d->device, &their->import);
	their->import = (struct coll_device_import){.address = 0};
	if (g % 2 == 1)
		st = p->here ? map_here(d, note, &their->import) : map_there(d, rank, place, g, note, &their->import);
	else if (their->generation != g - 1 && !p->here) /* it has come and gone: its descriptor is not wanted */
		st = map_there(d, rank, place, g - 1, note, NULL);
	if (st == COLL_AGAIN)
		return true;
	their->generation = g;
	atomic_store_explicit(&d->page->bases[rank][place], st == COLL_OK ? their->import.address : 0,
	                      memory_order_relaxed);
	atomic_store_explicit(&d->page->answered[rank][place], g | (g % 2 && st != COLL_OK ? MAPPED_REFUSED : 0),
	                      memory_order_release);
	return false;
}

static bool look_at_all(struct coll_mapped *d)
{
	bool coming = false;

	for (int r = 0; r < d->size; r++)
		for (int i = 0; i < MAPPED_REGIONS && r != d->rank; i++)
			coming |= look_at(d, r, i);
	return coming;
}

/* ---- The thread ---- */

/* False: it is to end. */
static bool wait_for_call(struct mapped_mapper *m, bool coming)
{
	bool go_on;

	if (coming)
		nanosleep(&(struct timespec){.tv_nsec = (long)COLL_DELAY_NS(KERNELS_LOOK)}, NULL);
	pthread_mutex_lock(&m->lock);
	while (!m->called && !m->stopping && !coming)
		pthread_cond_wait(&m->wanted, &m->lock);
	m->called = false;
	go_on = !m->stopping;
	pthread_mutex_unlock(&m->lock);
	return go_on;
}

static void *work(void *arg)
{
	struct coll_mapped *d = arg;
	bool coming;

	do
		coming = look_at_all(d);
	while (wait_for_call(&d->mapper, coming));
	return NULL;
}

void coll_mapper_start(struct coll_mapped *d)
{
	if (d->mapper.started)
		return;
	/* Without it nothing is answered, so all goes through slots. */
	d->mapper.made = coll_thread_start(&d->mapper.thread, COLL_THREAD_STACK_BYTES, work, d) == 0;
	d->mapper.started = true;
}

void coll_mapper_look(struct coll_mapped *d)
{
	struct mapped_mapper *m = &d->mapper;
	uint32_t sum = 0;

	for (int r = 0; r < d->size; r++)
		sum += r == d->rank ? 0 : atomic_load_explicit(&d->peers[r].page->announced, memory_order_relaxed);
	if (sum == atomic_load_explicit(&m->seen, memory_order_relaxed))
		return;
	atomic_store_explicit(&m->seen, sum, memory_order_relaxed);
	pthread_mutex_lock(&m->lock);
	m->called = true;
	pthread_cond_signal(&m->wanted);
	pthread_mutex_unlock(&m->lock);
}

bool coll_mapper_stop(struct coll_mapped *d)
{
	struct mapped_mapper *m = &d->mapper;
	const uint64_t until = coll_clock_ns() + COLL_DELAY_NS(DEVICE_DRAIN) * 2;
	int busy;

	if (!m->made)
		return true;
	pthread_mutex_lock(&m->lock);
	m->stopping = true;
	pthread_cond_signal(&m->wanted);
	pthread_mutex_unlock(&m->lock);
	/* ThreadSanitizer does not know a join with a clock. */
	while ((busy = pthread_tryjoin_np(m->thread, NULL)) != 0 && coll_clock_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = (long)COLL_DELAY_NS(KERNELS_LOOK)}, NULL);
	if (busy)
		return false;
	m->made = false;
	for (int r = 0; r < d->size; r++)
		for (int i = 0; i < MAPPED_REGIONS && r != d->rank; i++)
			if (m->theirs[r][i].import.address)
				d->device->table->region_close(d->device, &m->theirs[r][i].import);
	return true;
}
