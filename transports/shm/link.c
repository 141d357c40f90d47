/*
 * shm: links as such: made, found, broken, freed, and the table's three entries.
 *
 * The process with the lower id connects to the other's listening socket; so two
 * simultaneous opens are one connection. A link that a peer made before our side needs it
 * is parked until our side opens it. A broken link stays broken; the next step of the service
 * calls link_down, without the lock.
 *
 * Everything but the table's entries runs under inst->lock.
 */
#include "transports/shm/link.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "transports/shm/offer.h"
#include "transports/shm/region.h"
#include "transports/shm/segment.h"
#include "transports/shm/shm.h"
#include "transports/shm/wire.h"

enum { PAGE_BYTES = 4096 };

/* An earlier appointment stands, or a flood of events would put it off for ever. */
void coll_shm_timer(struct shm_inst *in, long ms)
{
	const struct itimerspec t = {.it_value = {ms / 1000, ms % 1000 * 1000000 + 1}};

	if (ms > 0 && in->timer_set)
		return;
	in->timer_set = true;
	timerfd_settime(in->timer.fd, 0, &t, NULL);
}

bool coll_shm_watch(struct shm_inst *in, struct shm_source *source, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = source};

	return epoll_ctl(in->epoll_fd, EPOLL_CTL_ADD, source->fd, &e) == 0;
}

bool coll_shm_we_connect(const struct shm_link *l)
{
	const struct coll_process_id *a = &l->inst->env.self, *b = &l->peer;

	return a->word[0] != b->word[0] ? a->word[0] < b->word[0] : a->word[1] < b->word[1];
}

/* ---- Breaking and freeing ------------------------------------------------------ */

void coll_shm_conn_end(struct shm_inst *in, struct shm_conn *c)
{
	if (c->state == SHM_DEAD)
		return;
	if (c->state != SHM_JOINED)
		in->strangers--;
	if (c->link) {
		c->link->conn = NULL;
		c->link->since_ns = coll_clock_ns();
	}
	c->link = NULL;
	c->state = SHM_DEAD;
	coll_fd_close(c->source.fd);
	c->source.fd = -1;
}

const char *coll_shm_lack(struct shm_inst *in, const char *what)
{
	snprintf(in->lack, sizeof(in->lack), "%s: %s", what, coll_errno_take("out of memory").text);
	return in->lack;
}

/* Whoever steps next calls link_down. */
static void tell(struct shm_link *l)
{
	l->untold = true;
	l->inst->untold++;
	coll_shm_timer(l->inst, 0);
}

void coll_shm_link_break(struct shm_link *l, coll_status why, const char *cause)
{
	struct shm_inst *in = l->inst;

	if (coll_shm_link_state(l) > COLL_AGAIN)
		return;
	atomic_store(&l->status, (int)why);
	l->cause = cause;
	in->changed = true;
	if (l->opened && !l->bye)
		tell(l);
	if (l->conn)
		coll_shm_conn_end(in, l->conn);
	coll_shm_unwatch_process(l);
	coll_shm_drop_queue(l);
}

/* Out of the list already. */
void coll_shm_link_free(struct shm_link *l)
{
	const struct shm_page *page = atomic_load(&l->peer_page);

	assert(!l->channels);
	coll_shm_drop_queue(l);
	coll_shm_segments_free(&l->own);
	coll_shm_segments_free(&l->theirs);
	coll_shm_mappings_free(l);
	coll_shm_offers_free(l);
	while (l->rings) {
		struct shm_ring *r = l->rings;

		l->rings = r->next;
		free(r);
	}
	while (l->grants) {
		struct shm_pending_grant *g = l->grants;

		l->grants = g->next;
		free(g);
	}
	if (page)
		munmap((void *)(uintptr_t)page, PAGE_BYTES);
	if (l->peer_wake_fd >= 0)
		coll_fd_close(l->peer_wake_fd);
	if (l->pid.fd >= 0)
		coll_fd_close(l->pid.fd);
	free(l);
}

static void unlist(struct shm_link *l)
{
	struct shm_link **at = &l->inst->links;

	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
}

struct shm_link *coll_shm_link_new(struct shm_inst *in, const struct coll_process_id *peer)
{
	struct shm_link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->inst = in;
	l->peer = *peer;
	l->pid = (struct shm_source){SHM_PID, -1};
	l->peer_wake_fd = -1;
	l->out_tail = &l->out;
	atomic_store(&l->status, COLL_AGAIN);
	l->next = in->links;
	in->links = l;
	return l;
}

/* One to it that broke for a lack of this process before it was opened. */
static struct shm_link *lacking(struct shm_inst *in, const struct coll_process_id *peer)
{
	struct shm_link *l = in->links;

	while (l && !(coll_same_process(&l->peer, peer) && coll_shm_parked_lacks(l)))
		l = l->next;
	return l;
}

/* A link to this process that has not broken. */
struct shm_link *coll_shm_link_find(struct shm_inst *in, const struct coll_process_id *peer)
{
	for (struct shm_link *l = in->links; l; l = l->next) {
		if (coll_same_process(&l->peer, peer) && coll_shm_link_state(l) <= COLL_AGAIN)
			return l;
	}
	return NULL;
}

void coll_shm_sweep(struct shm_inst *in)
{
	struct shm_conn **at = &in->conns;

	while (*at) {
		struct shm_conn *c = *at;

		if (c->state != SHM_DEAD) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free(c);
	}
}

/* ---- Death by process ------------------------------------------------------------ */

/* False: no such process. */
bool coll_shm_watch_process(struct shm_link *l, uint32_t pid)
{
	if (l->pid.fd >= 0 || pid == 0 || pid == (uint32_t)getpid())
		return true;
	l->pid.fd = COLL_FD((int)syscall(__NR_pidfd_open, (pid_t)pid, 0));
	if (l->pid.fd < 0)
		return errno != ESRCH;
	coll_shm_watch(l->inst, &l->pid, EPOLLIN);
	return true;
}

void coll_shm_unwatch_process(struct shm_link *l)
{
	if (l->pid.fd < 0)
		return;
	epoll_ctl(l->inst->epoll_fd, EPOLL_CTL_DEL, l->pid.fd, NULL);
	coll_fd_close(l->pid.fd);
	l->pid.fd = -1;
}

/* ---- The table's entries --------------------------------------------------------------- */

coll_status coll_shm_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                               void **link)
{
	struct shm_inst *in = inst;
	struct shm_link *l;

	if (len_bytes != sizeof(struct shm_address))
		return COLL_ERR_ARGUMENT;
	if (atomic_load(&in->closed))
		return COLL_ERR_ABORTED;
	pthread_mutex_lock(&in->lock);
	l = coll_shm_link_find(in, peer);
	if (!l)
		l = lacking(in, peer);
	if (!l || l->opened)
		l = coll_shm_link_new(in, peer);
	if (!l) {
		pthread_mutex_unlock(&in->lock);
		return COLL_ERR_MEMORY;
	}
	l->opened = true;
	if (coll_shm_link_state(l) > COLL_AGAIN)
		tell(l);
	memcpy(&l->address, address, sizeof(l->address));
	/* One that has joined tells by its socket. */
	if (!l->conn && l->address.pids != 0 && l->address.pids == in->self.pids &&
	    !coll_shm_watch_process(l, l->address.pid))
		coll_shm_link_break(l, COLL_ERR_PEER_DEAD, "the process has ended");
	if (coll_shm_link_state(l) == COLL_AGAIN && coll_shm_we_connect(l))
		coll_shm_timer(in, 0);
	pthread_mutex_unlock(&in->lock);
	*link = l;
	return COLL_OK;
}

void coll_shm_link_close(void *link)
{
	struct shm_link *l = link;
	struct shm_inst *in = l->inst;
	const struct shm_message bye = coll_shm_message(SHM_BYE);
	const int none[2] = {-1, -1};

	pthread_mutex_lock(&in->lock);
	if (l->untold)
		in->untold--;
	if (l->conn) {
		struct shm_conn *c = l->conn;

		coll_shm_flush(l);
		if (c->state == SHM_JOINED)
			coll_shm_transmit(c->source.fd, &bye, none);
		coll_shm_conn_end(in, c);
		coll_shm_sweep(in);
	}
	unlist(l);
	coll_shm_link_free(l);
	pthread_mutex_unlock(&in->lock);
}

coll_status coll_shm_link_status(void *link)
{
	struct shm_link *l = link;
	coll_status status;

	if (coll_shm_link_state(l) == COLL_AGAIN)
		atomic_store(&l->wanted, true);
	status = coll_shm_link_state(l);
	if (status != COLL_AGAIN)
		atomic_store(&l->wanted, false);
	return status;
}
