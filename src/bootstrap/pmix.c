/*
 * The client side of PMIx, through libpmix found at run time: one text from rank
 * 0 to all. The few types below are those of the PMIx standard, version 4 (the
 * layout is part of its ABI and the same in 3 and 5); nothing of libpmix is
 * needed to build.
 */
#include "bootstrap/pmix.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "bootstrap/id.h"

enum { PMIX_OK = 0, PMIX_TYPE_STRING = 3, PMIX_SCOPE_GLOBAL = 3 };

struct pmix_process {
	char space[256];
	uint32_t rank;
};

struct pmix_value {
	uint16_t type;
	union {
		char *string;
		char room[56]; /* the real union is smaller */
	} data;
};

struct pmix {
	void *lib;
	int (*init)(struct pmix_process *self, void *info, size_t infos);
	int (*finalize)(const void *info, size_t infos);
	int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
	int (*commit)(void);
	int (*fence_nb)(const struct pmix_process *who, size_t n, const void *info, size_t infos,
	                void (*done)(int status, void *arg), void *arg);
	int (*get)(const struct pmix_process *who, const char *key, const void *info, size_t infos,
	           struct pmix_value **value);
	const char *(*error)(int status);
	struct pmix_process self;
};

/* A fence may outlive the caller's wait limit: who leaves last frees it. */
struct fence {
	pthread_mutex_t lock;
	pthread_cond_t passed;
	int users;
	bool done;
	int status;
};

static const char key[] = "coll.root";

static bool load(struct pmix *p)
{
	static const char *const files[] = {"libpmix.so.2", "libpmix.so"};
	const struct {
		void **to;
		const char *name;
	} symbols[] = {
	        {(void **)&p->init, "PMIx_Init"},
	        {(void **)&p->finalize, "PMIx_Finalize"},
	        {(void **)&p->put, "PMIx_Put"},
	        {(void **)&p->commit, "PMIx_Commit"},
	        {(void **)&p->fence_nb, "PMIx_Fence_nb"},
	        {(void **)&p->get, "PMIx_Get"},
	        {(void **)&p->error, "PMIx_Error_string"},
	};

	for (size_t i = 0; i < 2 && !p->lib; i++)
		p->lib = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; p->lib && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].to = dlsym(p->lib, symbols[i].name);
		if (!*symbols[i].to)
			return false;
	}
	return p->lib != NULL;
}

static coll_status refused(const struct pmix *p, const char *what, int status, struct coll_error_box *err)
{
	return coll_error_set(err, COLL_ERR_BOOTSTRAP,
	                      "%s: %s (with COLL_ROOT=host:port of rank 0, PMIx is not needed)", what,
	                      p->error(status));
}

static void fence_leave(struct fence *f)
{
	bool last;

	pthread_mutex_lock(&f->lock);
	last = --f->users == 0;
	pthread_mutex_unlock(&f->lock);
	if (!last)
		return;
	pthread_cond_destroy(&f->passed);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static void fence_passed(int status, void *arg)
{
	struct fence *f = arg;

	pthread_mutex_lock(&f->lock);
	f->done = true;
	f->status = status;
	pthread_cond_signal(&f->passed);
	pthread_mutex_unlock(&f->lock);
	fence_leave(f);
}

static bool fence_wait(struct fence *f, uint64_t deadline_ns)
{
	bool done, interrupted = false;

	pthread_mutex_lock(&f->lock);
	while (!f->done && !interrupted && coll_clock_ns() < deadline_ns) {
		const uint64_t turn_ns = coll_interrupt_turn_ns(deadline_ns);
		const struct timespec until = {(time_t)(turn_ns / 1000000000u), (long)(turn_ns % 1000000000u)};

		pthread_cond_timedwait(&f->passed, &f->lock, &until);
		pthread_mutex_unlock(&f->lock);
		interrupted = coll_interrupt_here(false);
		pthread_mutex_lock(&f->lock);
	}
	done = f->done;
	pthread_mutex_unlock(&f->lock);
	return done;
}

static struct fence *fence_new(void)
{
	struct fence *f = calloc(1, sizeof(*f));
	pthread_condattr_t attr;

	if (!f)
		return NULL;
	f->users = 2;
	pthread_mutex_init(&f->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&f->passed, &attr);
	pthread_condattr_destroy(&attr);
	return f;
}

/* Wait for every rank of the job, deadline_ns at most. */
static coll_status fence(const struct pmix *p, uint64_t deadline_ns, struct coll_error_box *err)
{
	struct fence *f = fence_new();
	coll_status st = COLL_OK;
	int status;

	if (!f)
		return coll_error_set(err, COLL_ERR_MEMORY, "no memory for PMIx_Fence");
	status = p->fence_nb(NULL, 0, NULL, 0, fence_passed, f);
	if (status != PMIX_OK) {
		f->users = 1;
		st = refused(p, "PMIx_Fence", status, err);
	} else if (!fence_wait(f, deadline_ns)) {
		st = coll_error_set(err, COLL_ERR_BOOTSTRAP, "[COLL-4201] PMIx_Fence: some ranks did not arrive");
	} else if (f->status != PMIX_OK) {
		st = refused(p, "PMIx_Fence", f->status, err);
	}
	fence_leave(f);
	return st;
}

static coll_status put(const struct pmix *p, char *text, struct coll_error_box *err)
{
	struct pmix_value v = {.type = PMIX_TYPE_STRING, .data.string = text};
	int status = p->put(PMIX_SCOPE_GLOBAL, key, &v);

	if (status == PMIX_OK)
		status = p->commit();
	return status == PMIX_OK ? COLL_OK : refused(p, "PMIx_Put", status, err);
}

static coll_status get(const struct pmix *p, char *text, size_t cap, struct coll_error_box *err)
{
	struct pmix_process root = p->self;
	struct pmix_value *v = NULL;
	int status;

	root.rank = 0;
	status = p->get(&root, key, NULL, 0, &v);
	if (status != PMIX_OK)
		return refused(p, "PMIx_Get", status, err);
	if (!v || v->type != PMIX_TYPE_STRING || !v->data.string)
		return coll_error_set(err, COLL_ERR_BOOTSTRAP, "PMIx_Get: the value is not a string");
	snprintf(text, cap, "%s", v->data.string);
	free(v->data.string);
	free(v);
	return COLL_OK;
}

/* PMIx is finalised at exit: an MPI that comes later in the same process could not
 * initialise it again, and a process that ends without it looks like a failure to
 * the launcher. Set once per process (id.c shares once, under its lock); static,
 * because atexit() passes nothing. The library stays loaded. */
static int (*finalize_at_exit)(const void *info, size_t infos);

static void finalize(void)
{
	finalize_at_exit(NULL, 0);
}

coll_status coll_pmix_share(bool root, char *text, size_t cap, uint64_t deadline_ns, struct coll_error_box *err)
{
	struct pmix p = {0};
	coll_status st = COLL_OK;
	int status;

	if (!load(&p)) {
		st = coll_error_set(err, COLL_ERR_CONFIG,
		                    "the ranks are on several hosts and libpmix was not found: set COLL_ROOT=host:port "
		                    "of rank 0");
		goto unload;
	}
	status = p.init(&p.self, NULL, 0);
	if (status != PMIX_OK) {
		st = refused(&p, "PMIx_Init", status, err);
		goto unload;
	}
	if (root)
		st = put(&p, text, err);
	if (st == COLL_OK)
		st = fence(&p, deadline_ns, err);
	if (st == COLL_OK && !root)
		st = get(&p, text, cap, err);
	if (st != COLL_OK) {
		/* It waits for the launcher's answer: not behind the program's word to end. */
		if (!coll_interrupt_here(false))
			p.finalize(NULL, 0);
		return st; /* stays loaded: its threads may still be leaving */
	}
	finalize_at_exit = p.finalize;
	atexit(finalize);
	return COLL_OK;
unload:
	if (p.lib)
		dlclose(p.lib);
	return st;
}
