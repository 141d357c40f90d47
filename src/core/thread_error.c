/*
 * The last failure of a thread: see thread_error.h.
 *
 * Each thread has one object. The thread's first failure allocates it, and it is freed when the
 * thread ends. It is not a _Thread_local object. Other thread-local variables of the library use
 * the fastest access model, which puts all of them in the static TLS block. That block is small,
 * and all libraries that a program loads at run time share it ("cannot allocate memory in static
 * TLS block").
 */
#include "core/thread_error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/messages.h"
#include "base/sized.h"

static struct {
	pthread_once_t once;
	pthread_key_t key;
	/* Release behind the key: the thread that unloads the library has not met the one that made it. */
	atomic_bool usable;
} creation = {.once = PTHREAD_ONCE_INIT};

static void end(void *failure)
{
	struct coll_failure *f = failure;

	free(f->late);
	free(f);
}

static void make_key(void)
{
	if (pthread_key_create(&creation.key, end) == 0)
		atomic_store_explicit(&creation.usable, true, memory_order_release);
}

/* Runs when the library is unloaded. Objects of threads remain until the threads end. */
__attribute__((destructor)) static void delete_key(void)
{
	if (atomic_exchange_explicit(&creation.usable, false, memory_order_acquire))
		pthread_key_delete(creation.key);
}

/* The object of this thread, or NULL. */
static struct coll_failure *mine(bool wanted)
{
	struct coll_failure *t;

	pthread_once(&creation.once, make_key);
	if (!atomic_load_explicit(&creation.usable, memory_order_relaxed))
		return NULL; /* pthread_once() has ordered the rest */
	t = pthread_getspecific(creation.key);
	if (!t && wanted) {
		t = calloc(1, sizeof(*t));
		if (t && pthread_setspecific(creation.key, t) != 0) {
			free(t);
			t = NULL;
		}
	}
	return t;
}

void coll_thread_error_copy(const coll_error *e)
{
	struct coll_failure *t = mine(true);

	if (t && e != &t->error)
		coll_failure_copy(t, e);
}

void coll_thread_error_keep(const struct coll_error_box *box, const char *message)
{
	coll_thread_error_copy(&(coll_error){.status = box->status,
	                                     .rank = box->rank,
	                                     .host = box->host,
	                                     .operation = box->operation,
	                                     .kind = box->kind,
	                                     .step = box->step,
	                                     .exit_status = box->exit_status,
	                                     .link = box->link,
	                                     .elapsed_s = box->elapsed_s,
	                                     .message = message});
}

coll_status coll_thread_error_say(const char *kind, coll_status status, const char *why)
{
	const struct coll_message_text m = coll_message_split(status, why ? why : coll_status_string(status));
	char message[sizeof((struct coll_failure){0}.message)];

	snprintf(message, sizeof(message), "%s: %s%s", kind, m.text, m.tag);
	coll_thread_error_copy(&(coll_error){
	        .status = status, .rank = -1, .host = "", .kind = kind, .step = -1, .link = "", .message = message});
	return status;
}

coll_status coll_thread_error_of(const struct coll_failure *why, coll_status status, const char *kind)
{
	if (!why || why->error.status != status)
		return coll_thread_error_say(kind, status, NULL);
	coll_thread_error_copy(&why->error);
	return status;
}

coll_status coll_thread_error_failed(coll_status st, const struct coll_error_box *box, const coll_config *cfg)
{
	/* There is no context yet, but the configuration may name a log function. */
	const bool readable = cfg && coll_sized_of(cfg, COLL_SIZED_FIRST(coll_config, log_arg));
	const struct coll_logger logger = {.level = COLL_LOG_WARN,
	                                   .rank = -1,
	                                   .fn = readable ? cfg->log : NULL,
	                                   .arg = readable ? cfg->log_arg : NULL};
	const struct coll_message_text m =
	        coll_message_split(st, box->message[0] ? box->message : coll_status_string(st));
	struct coll_error_box told = *box;
	char message[sizeof(told.message) + 32];

	coll_log(&logger, COLL_LOG_ERROR, "create: %s%s", m.text, m.tag);
	told.status = st;
	told.step = -1;
	snprintf(told.kind, sizeof(told.kind), "create");
	snprintf(message, sizeof(message), "create: %s%s", m.text, m.tag);
	coll_thread_error_keep(&told, message);
	return st;
}

const coll_error *coll_thread_error_error(void)
{
	const struct coll_failure *t = mine(false);

	return t ? &t->error : NULL;
}
