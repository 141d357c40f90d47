/*
 * The handles of communicators (handle.h). A handle that was destroyed is found out by its absence in the list, before
 * anything of it is read. Freed when the last thread inside has left.
 */
#include "compat/nccl/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "compat/nccl/error.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;
static struct ncclComm *handles; /* lock */
static unsigned serials;         /* lock */

ncclComm_t nccl_handle_new(int rank, int size, int device)
{
	ncclComm_t h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->rank = rank;
	h->size = size;
	h->device = device;
	h->users = 1;
	pthread_mutex_lock(&lock);
	h->serial = ++serials;
	h->next = handles;
	handles = h;
	pthread_mutex_unlock(&lock);
	return h;
}

static ncclComm_t *find(const struct ncclComm *h)
{
	ncclComm_t *at = &handles;

	while (*at && *at != h)
		at = &(*at)->next;
	return at;
}

/* lock is held. */
static void unlist(ncclComm_t h)
{
	ncclComm_t *at = find(h);

	if (*at)
		*at = h->next;
}

bool nccl_handle_drop(ncclComm_t h)
{
	bool ending;

	pthread_mutex_lock(&lock);
	ending = h->ending;
	h->users--;
	if (!ending)
		unlist(h);
	pthread_cond_broadcast(&left);
	pthread_mutex_unlock(&lock);
	return !ending;
}

void nccl_handle_ready(ncclComm_t h, coll_comm *comm)
{
	pthread_mutex_lock(&lock);
	h->comm = comm;
	h->ready = true;
	h->users--;
	pthread_cond_broadcast(&left);
	pthread_mutex_unlock(&lock);
}

static ncclResult_t enter(ncclComm_t h, bool any, int busy, const char *function)
{
	ncclResult_t r = ncclSuccess;

	if (!h)
		return nccl_fail(ncclInvalidArgument, "%s: the communicator is NULL", function);
	pthread_mutex_lock(&lock);
	if (!*find(h) || h->ending)
		r = nccl_fail(ncclInvalidArgument, "%s: %p is no communicator, or was destroyed", function, (void *)h);
	else if (!any && !h->ready)
		r = nccl_fail(ncclInvalidArgument, "%s: the communicator is still being created", function);
	else
		h->users++, h->busy += busy;
	pthread_mutex_unlock(&lock);
	return r;
}

ncclResult_t nccl_enter(ncclComm_t h, const char *function)
{
	return enter(h, false, 0, function);
}

ncclResult_t nccl_enter_any(ncclComm_t h, const char *function)
{
	return enter(h, true, 0, function);
}

ncclResult_t nccl_enter_busy(ncclComm_t h, const char *function)
{
	return enter(h, false, 1, function);
}

static void leave(ncclComm_t h, int busy)
{
	pthread_mutex_lock(&lock);
	h->users--;
	h->busy -= busy;
	if (h->ending)
		pthread_cond_broadcast(&left);
	pthread_mutex_unlock(&lock);
}

void nccl_leave(ncclComm_t h)
{
	leave(h, 0);
}

void nccl_leave_busy(ncclComm_t h)
{
	leave(h, 1);
}

bool nccl_is_ready(ncclComm_t h)
{
	bool ready;

	pthread_mutex_lock(&lock);
	ready = h->ready;
	pthread_mutex_unlock(&lock);
	return ready;
}

/* From here on no thread may enter. */
static ncclResult_t begin_end(ncclComm_t h, const char *function, bool *alone)
{
	ncclResult_t r = nccl_enter_any(h, function);

	if (r != ncclSuccess)
		return r;
	pthread_mutex_lock(&lock);
	if (h->ending) { /* since */
		h->users--;
		pthread_cond_broadcast(&left);
		r = nccl_fail(ncclInvalidArgument, "%s: another thread is ending the communicator", function);
	}
	h->ending = true;
	*alone = h->busy == 0 && h->ready;
	pthread_mutex_unlock(&lock);
	return r;
}

/* Wait until all have left. */
static void finish_end(ncclComm_t h)
{
	pthread_mutex_lock(&lock);
	while (h->users > 1)
		pthread_cond_wait(&left, &lock);
	unlist(h);
	pthread_mutex_unlock(&lock);
}

ncclResult_t nccl_handle_end(ncclComm_t h, const char *function)
{
	bool alone;
	ncclResult_t r = begin_end(h, function, &alone);

	if (r == ncclSuccess)
		finish_end(h);
	return r;
}

static bool is_idle(const struct ncclComm *h)
{
	bool idle = true;

	for (struct nccl_stream *s = h->streams; s; s = s->next)
		idle = idle && coll_stream_query(s->stream) == COLL_OK;
	return idle;
}

ncclResult_t nccl_handle_abort(ncclComm_t h, bool *idle, const char *function)
{
	ncclResult_t r = begin_end(h, function, idle);
	coll_comm *comm;

	if (r != ncclSuccess)
		return r;
	*idle = *idle && is_idle(h);
	if (!*idle) {
		pthread_mutex_lock(&lock);
		atomic_store(&h->ended, true);
		comm = h->comm;
		pthread_mutex_unlock(&lock);
		if (comm)
			coll_comm_abort(comm, function);
	}
	finish_end(h);
	if (!*idle && h->comm)
		coll_comm_abort(h->comm, function); /* one that became ready meanwhile */
	return ncclSuccess;
}

/* ---- Streams ---- */

ncclResult_t nccl_stream_of(ncclComm_t h, cudaStream_t raw, coll_stream **stream, const char *function)
{
	struct nccl_stream *s = h->streams;
	coll_status st;

	*stream = NULL;
	if (h->device < 0)
		return ncclSuccess;
	while (s && s->raw != raw)
		s = s->next;
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return nccl_fail(ncclSystemError, "%s: out of memory", function);
		s->raw = raw;
		st = coll_stream_wrap_cuda(&s->stream, h->comm, raw);
		if (st != COLL_OK) {
			free(s);
			return nccl_from(st, h->comm, function);
		}
		s->next = h->streams;
		h->streams = s;
	}
	*stream = s->stream;
	return ncclSuccess;
}

/* By an event, for which the library checks that both are in one capture, or none is. */
static coll_status order(ncclComm_t h, coll_stream *earlier, coll_stream *later)
{
	coll_event *e = NULL;
	coll_status st = coll_event_create(&e, h->comm);

	if (st == COLL_OK)
		st = coll_event_record(e, earlier);
	if (st == COLL_OK)
		st = coll_stream_wait_event(later, e);
	coll_event_destroy(&e);
	return st;
}

ncclResult_t nccl_stream_order(ncclComm_t h, cudaStream_t earlier, cudaStream_t later, const char *function)
{
	coll_stream *a = NULL, *b = NULL;
	ncclResult_t r;
	coll_status st;

	if (h->device < 0 || earlier == later)
		return ncclSuccess;
	r = nccl_stream_of(h, earlier, &a, function);
	if (r == ncclSuccess)
		r = nccl_stream_of(h, later, &b, function);
	if (r != ncclSuccess)
		return r;
	st = order(h, a, b);
	return st == COLL_OK ? ncclSuccess
	                     : nccl_fail(nccl_code(st), "%s: its stream cannot follow that of its partner: %s",
	                                 function, coll_status_string(st));
}

ncclResult_t nccl_flush(ncclComm_t h, const char *function)
{
	ncclResult_t r = ncclSuccess;

	for (struct nccl_stream *s = h->streams; s; s = s->next) {
		const coll_status st = coll_stream_wait(s->stream, -1);

		if (r == ncclSuccess)
			r = nccl_from(st, h->comm, function);
	}
	return r;
}

/* ---- Jobs ---- */

struct nccl_job {
	struct nccl_job *next;
	uint64_t key[2];
	int ranks; /* in this process */
	int live;  /* communicators that were not destroyed yet, children included */
	struct ending *endings;
};

struct ending {
	struct ending *next;
	struct nccl_job *job; /* to be freed, after all others of it; NULL: no */
	pthread_t thread;
	struct ncclComm *handle;
	coll_status status;
	char text[512]; /* of the error */
};

static struct nccl_job *jobs; /* lock */

struct nccl_job *nccl_job_join(const void *key, size_t len_bytes, int ranks)
{
	uint64_t k[2] = {0};
	struct nccl_job *j;

	memcpy(k, key, len_bytes < sizeof(k) ? len_bytes : sizeof(k));
	pthread_mutex_lock(&lock);
	for (j = jobs; j && memcmp(j->key, k, sizeof(k)) != 0;)
		j = j->next;
	if (!j && (j = calloc(1, sizeof(*j)))) {
		memcpy(j->key, k, sizeof(k));
		j->next = jobs;
		jobs = j;
	}
	if (j) {
		j->ranks += ranks;
		j->live += ranks;
	}
	pthread_mutex_unlock(&lock);
	return j;
}

void nccl_job_retain(struct nccl_job *job)
{
	pthread_mutex_lock(&lock);
	job->live++;
	pthread_mutex_unlock(&lock);
}

static coll_status destroy(struct ncclComm *h)
{
	coll_status st = COLL_OK;

	for (struct nccl_registration *r = h->registrations, *next; r; r = next) {
		next = r->next;
		free(r);
	}
	for (struct nccl_stream *s = h->streams, *next; s; s = next) {
		const coll_status of = coll_stream_destroy(&s->stream);

		next = s->next;
		st = st == COLL_OK && !atomic_load(&h->ended) ? of : st;
		free(s);
	}
	if (h->comm) {
		const coll_status of = coll_comm_destroy(&h->comm);

		st = st == COLL_OK ? of : st;
	}
	free(h);
	return st;
}

/* The last one of the job: wait for those that end in threads. Says the first error of them. */
static ncclResult_t join_all(struct nccl_job *job, const char *function)
{
	ncclResult_t r = ncclSuccess;

	for (struct ending *e = job->endings, *next; e; e = next) {
		next = e->next;
		pthread_join(e->thread, NULL);
		if (r == ncclSuccess && e->status != COLL_OK)
			r = nccl_fail(nccl_code(e->status), "%s: %s", function, e->text);
		free(e);
	}
	free(job);
	return r;
}

static void *destroy_apart(void *arg)
{
	struct ending *e = arg;

	e->status = destroy(e->handle);
	if (e->status != COLL_OK)
		snprintf(e->text, sizeof(e->text), "%s", coll_last_error(NULL)->message);
	if (e->job) {
		join_all(e->job, "");
		pthread_detach(pthread_self());
		free(e);
	}
	return NULL;
}

/* Destroy in a thread. lock is held. */
static bool start_apart(struct nccl_job *job, ncclComm_t h, bool last)
{
	struct ending *e = calloc(1, sizeof(*e));

	if (!e)
		return false;
	e->handle = h;
	e->job = last ? job : NULL;
	e->next = job->endings;
	if (coll_thread_start(&e->thread, NCCL_STACK_BYTES, destroy_apart, e) != 0) {
		free(e);
		return false;
	}
	if (!last)
		job->endings = e;
	return true;
}

ncclResult_t nccl_job_leave(ncclComm_t h, bool apart, const char *function)
{
	struct nccl_job *job = h->job;
	ncclResult_t of_others = ncclSuccess;
	coll_status st;
	bool last;

	pthread_mutex_lock(&lock);
	last = !job || --job->live == 0;
	for (struct nccl_job **j = &jobs; last && *j; j = &(*j)->next)
		if (*j == job) {
			*j = job->next;
			break;
		}
	apart = job && (apart || (!last && job->ranks > 1)) && start_apart(job, h, last);
	pthread_mutex_unlock(&lock);
	if (apart)
		return ncclSuccess;
	st = destroy(h);
	if (last && job)
		of_others = join_all(job, function);
	return st == COLL_OK ? of_others : nccl_from(st, NULL, function);
}
