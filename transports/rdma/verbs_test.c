/*
 * Loading and unloading librdmacm in a process where others use it, too. Needs a device; on
 * a machine without one it is skipped (tests/rdma/parts.sh runs it in an emulated one).
 */
#define PLAIN_OWN_MAIN
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/plain.h"
#include "transports/rdma/verbs.h"

/* Descriptors of devices. */
static int devices_open(void)
{
	DIR *d = opendir("/proc/self/fd");
	const struct dirent *e;
	char path[300], to[300];
	int n = 0;

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		memset(to, 0, sizeof(to));
		n += readlink(path, to, sizeof(to) - 1) > 0 && strstr(to, "/uverbs");
	}
	if (d)
		closedir(d);
	return n;
}

/* The first device, as others of the process get it from librdmacm. */
static struct ibv_context *device_of_others(void *lib)
{
	struct ibv_context **(*get)(int *) = NULL, **list;
	void (*release)(struct ibv_context **) = NULL;
	struct ibv_context *first;
	void *symbol;
	int n = 0;

	symbol = dlsym(lib, "rdma_get_devices");
	memcpy(&get, &symbol, sizeof(get));
	symbol = dlsym(lib, "rdma_free_devices");
	memcpy(&release, &symbol, sizeof(release));
	list = get && release ? get(&n) : NULL;
	first = n > 0 ? list[0] : NULL;
	if (list)
		release(list);
	return first;
}

static void a_device_that_others_use_stays_open(void)
{
	static char why[200];
	struct coll_rdma_verbs v = {0}, again = {0};
	struct ibv_port_attr port;
	struct ibv_context *device;
	void *lib;

	if (coll_rdma_verbs_load(&v, why, sizeof(why)) != COLL_OK)
		SKIP(why);
	lib = dlopen("librdmacm.so.1", RTLD_NOW);
	device = lib ? device_of_others(lib) : NULL;
	REQUIRE(device);
	coll_rdma_verbs_opened(device);
	again = v;
	coll_rdma_verbs_unload(&v);
	CHECK(devices_open() == 1, "%d devices are open", devices_open());
	REQUIRE(devices_open() == 1);
	CHECK(again.ibv_query_port(device, 1, (void *)&port) == 0);

	/* The last one closes it. */
	dlclose(lib);
	CHECK(coll_rdma_verbs_load(&v, why, sizeof(why)) == COLL_OK, "%s", why);
	coll_rdma_verbs_unload(&v);
	CHECK(devices_open() == 0, "%d devices are open", devices_open());
}

int main(void)
{
	PLAIN_RUN(a_device_that_others_use_stays_open);
	return plain_summary();
}
