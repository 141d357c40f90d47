/*
 * Finding libibverbs and librdmacm. libibverbs stays loaded (its providers do not unload
 * well). librdmacm goes with the last instance of the process: it never closes a device,
 * and a process forked later could not use what its parent opened (the kernel refuses).
 * Its devices outlive it and are closed here; if others of the process use the library, with
 * the last instance after they have ceased to. This is the one place that counts per
 * process, because the state counted is librdmacm's, and that is per process.
 * Without a device in /sys they are not loaded at all: they would print warnings of
 * their own.
 */
#include "verbs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/ib_ports.h"

enum { DEVICES_MAX = 32 };

static struct {
	pthread_mutex_t lock;
	unsigned users; /* instances with librdmacm loaded */
	struct ibv_context *opened[DEVICES_MAX];
	unsigned count;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool any_device(void)
{
	struct coll_ib_port port;

	return coll_ib_ports_list(COLL_IB_SYS, &port, 1) > 0;
}

static void *open_library(const char *name, int keep, char *why, size_t why_bytes)
{
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL | keep);

	if (!lib)
		snprintf(why, why_bytes, "%s cannot be loaded: %s", name, dlerror());
	return lib;
}

/* A function's address through memory: C has no cast from void * to a function. */
static bool find(void *lib, const char *name, void *member, char *why, size_t why_bytes)
{
	void *symbol = dlsym(lib, name);

	memcpy(member, &symbol, sizeof(symbol));
	if (!symbol)
		snprintf(why, why_bytes, "the library has no %s", name);
	return symbol != NULL;
}

coll_status coll_rdma_verbs_load(struct coll_rdma_verbs *v, char *why, size_t why_bytes)
{
	bool all = true;

	if (!any_device()) {
		snprintf(why, why_bytes, "no RDMA device on this machine");
		return COLL_ERR_UNSUPPORTED;
	}
	if (access("/dev/infiniband/rdma_cm", R_OK | W_OK) != 0) {
		snprintf(why, why_bytes, "/dev/infiniband/rdma_cm cannot be opened (module rdma_ucm, permissions)");
		return COLL_ERR_UNSUPPORTED;
	}
	pthread_mutex_lock(&process.lock);
	v->ibverbs = open_library("libibverbs.so.1", RTLD_NODELETE, why, why_bytes);
	v->rdmacm = v->ibverbs ? open_library("librdmacm.so.1", 0, why, why_bytes) : NULL;
	process.users += v->rdmacm != NULL;
	pthread_mutex_unlock(&process.lock);
	if (!v->rdmacm) {
		coll_rdma_verbs_unload(v);
		return COLL_ERR_UNSUPPORTED;
	}
#define FIND_VERBS(name) all = all && find(v->ibverbs, #name, &v->name, why, why_bytes);
#define FIND_CM(name)    all = all && find(v->rdmacm, #name, &v->name, why, why_bytes);
	COLL_RDMA_VERBS(FIND_VERBS)
	COLL_RDMA_CM(FIND_CM)
	if (all)
		return COLL_OK;
	coll_rdma_verbs_unload(v);
	return COLL_ERR_UNSUPPORTED;
}

void coll_rdma_verbs_opened(struct ibv_context *device)
{
	unsigned i = 0;

	pthread_mutex_lock(&process.lock);
	while (i < process.count && process.opened[i] != device)
		i++;
	if (i == process.count && i < DEVICES_MAX)
		process.opened[process.count++] = device;
	pthread_mutex_unlock(&process.lock);
}

/* Still loaded: another part of this process uses the library and its devices. */
static bool others_use(const char *name)
{
	void *lib = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);

	if (lib)
		dlclose(lib);
	return lib != NULL;
}

void coll_rdma_verbs_unload(struct coll_rdma_verbs *v)
{
	pthread_mutex_lock(&process.lock);
	if (v->rdmacm) {
		dlclose(v->rdmacm);
		if (--process.users == 0 && !others_use("librdmacm.so.1"))
			while (process.count > 0)
				v->ibv_close_device(process.opened[--process.count]);
	}
	if (v->ibverbs)
		dlclose(v->ibverbs);
	pthread_mutex_unlock(&process.lock);
	v->rdmacm = v->ibverbs = NULL;
}
