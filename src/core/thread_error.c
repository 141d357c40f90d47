/*
 * See thread_error.h. One per thread, allocated by its first failure and freed with the
 * thread. It is not a _Thread_local object: other objects of the library need the cheapest
 * access, which puts all of them in static TLS. That space is small and shared by all libraries that a
 * program loads while it runs ("cannot allocate memory in static TLS block").
 */
#include "core/thread_error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/messages.h"

struct told {
	struct coll_error_box box;
	coll_error error;
	char message[1024];
};

static struct {
	pthread_once_t once;
	pthread_key_t key;
	bool usable;
} creation = {.once = PTHREAD_ONCE_INIT};

static void make_key(void)
{
	creation.usable = pthread_key_create(&creation.key, free) == 0;
}

/* The library is unloaded. What threads hold is theirs until they end. */
__attribute__((destructor)) static void delete_key(void)
{
	if (creation.usable)
		pthread_key_delete(creation.key);
}

/* This thread's, or NULL. */
static struct told *mine(bool wanted)
{
	struct told *t;

	pthread_once(&creation.once, make_key);
	if (!creation.usable)
		return NULL;
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

void coll_thread_error_keep(const struct coll_error_box *box, const char *message)
{
	struct told *t = mine(true);

	if (!t)
		return;
	t->box = *box;
	snprintf(t->message, sizeof(t->message), "%s", message);
	t->error = (coll_error){.status = box->status,
	                        .rank = box->rank,
	                        .host = t->box.host,
	                        .operation = box->operation,
	                        .kind = t->box.kind,
	                        .step = box->step,
	                        .link = t->box.link,
	                        .elapsed_s = box->elapsed_s,
	                        .message = t->message};
}

coll_status coll_thread_error_failed(coll_status st, const struct coll_error_box *box, const coll_config *cfg)
{
	/* There is no context yet, but the caller's log may be known. */
	const bool readable = cfg && cfg->struct_size == sizeof(*cfg);
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
	const struct told *t = mine(false);

	return t ? &t->error : NULL;
}
