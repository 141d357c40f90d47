/*
 * Communicators whose ranks have devices or none, over the stand-in driver: who has one is agreed, host memory works on
 * all, what the device cannot use is refused by name, and ranks without a device do not call the driver.
 *
 * usage: ranks FILE-OF-THE-STAND-IN [PART-OF-A-TEST'S-NAME]
 */
#include "tests/plain.h"

#include <stddef.h>
#include <string.h>

#include "coll/coll.h"
#include "core/comm.h"
#include "device/kernels.h"
#include "tests/cuda/driver.h"
#include "tests/cuda/job.h"
#include "tests/multi/thread_ranks.h"

/* ---- Processes ---- */

enum { PROCESSES = 3 };

static void has_its_device(struct job_rank *r)
{
	static const char *const names[PROCESSES] = {NULL, "cuda:1", "cuda:0"}; /* of two, by the local rank */
	const struct coll_device *d = r->comm->ctx->device;

	if ((d ? !names[r->rank] || strcmp(d->name, names[r->rank]) != 0 : names[r->rank] != NULL) ||
	    !r->comm->facts.devices)
		job_wrong(r, "its device is %s", d ? d->name : "none");
	job_ok(r, sum_once(r->comm), "a sum");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(ranks, hosts_and_devices_share_a_communicator)
{
	static const char *const environment[] = {"COLL_DEVICE", "cuda", "COLL_DEVICE@0", "host", NULL};

	job_run(PROCESSES, has_its_device, NULL, environment, 60);
}

/* ---- Threads ---- */

static bool create_on(coll_comm **comms, int n, const char *device)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_status st;

	cfg.device = device;
	st = coll_comm_create_all(comms, n, &cfg);
	CHECK(st == COLL_OK, "%s: %s", device ? device : "no device", coll_last_error(NULL)->message);
	return st == COLL_OK;
}

static void use_host(coll_comm **comm, int rank, void *arg)
{
	coll_comm *child = NULL;
	void *p = NULL;

	CHECK(!(*comm)->facts.devices && !(*comm)->ctx->device);
	CHECK(!(atomic_load(&(*comm)->attention) & COLL_ATTENTION_MEMORY));
	for (int i = 0; i < 20; i++)
		CHECK(sum_once(*comm) == COLL_OK);
	CHECK(coll_mem_alloc_on(*comm, &p, 4096, COLL_MEM_HOST) == COLL_OK && p);
	CHECK(coll_mem_free(*comm, p) == COLL_OK);
	CHECK(coll_mem_alloc_on(*comm, &p, 4096, COLL_MEM_DEVICE) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(*comm)->message, "has no device"), "%s", coll_last_error(*comm)->message);
	CHECK(coll_comm_duplicate(*comm, &child) == COLL_OK && sum_once(child) == COLL_OK);
	CHECK(coll_comm_destroy(&child) == COLL_OK);
	CHECK(coll_comm_destroy(comm) == COLL_OK);
}

/* First, while nothing has loaded it. */
static void host_ranks_load_no_driver(void)
{
	coll_comm *comms[2];
	void *file;

	if (!create_on(comms, 2, NULL))
		return;
	each_rank(comms, 2, use_host, NULL);
	file = dlopen(driver_path, RTLD_NOW | RTLD_NOLOAD);
	CHECK(!file, "somebody has loaded the driver");
}

TEST(ranks, host_ranks_call_no_driver)
{
	coll_comm *comms[2], *device = NULL;
	long before;

	REQUIRE(create_on(&device, 1, "cuda"));
	before = driver_calls(NULL);
	CHECK(before > 0);
	if (create_on(comms, 2, "host"))
		each_rank(comms, 2, use_host, NULL);
	CHECK(driver_calls(NULL) == before, "%ld calls", driver_calls(NULL) - before);
	CHECK(coll_comm_destroy(&device) == COLL_OK);
}

static void says(coll_comm *c, coll_status st, coll_status wanted, const char *what)
{
	CHECK(st == wanted && strstr(coll_last_error(c)->message, what), "%d %s, expected %s", (int)st,
	      coll_last_error(c)->message, what);
}

static void use_device(coll_comm **comm, int rank, void *arg)
{
	const char *const *names = arg;
	coll_comm *c = *comm, *child = NULL;
	int x[16] = {0};
	void *p = NULL, *q = NULL;

	CHECK(strcmp(coll_comm_device(c), names[rank]) == 0, "%s", coll_comm_device(c));
	CHECK(c->facts.devices && c->ctx->info.device == 1);
	CHECK(sum_once(c) == COLL_OK && sum_once(c) == COLL_OK);
	CHECK(coll_mem_alloc_on(c, &p, 1 << 20, COLL_MEM_DEVICE) == COLL_OK, "%s", coll_last_error(c)->message);
	CHECK((uintptr_t)p % 256 == 0);
	CHECK(coll_mem_alloc_on(c, &q, 0, COLL_MEM_DEVICE) == COLL_OK && !q);
	says(c, coll_mem_alloc_on(c, &q, 8, 2), COLL_ERR_ARGUMENT, "where is 2");
	says(c, coll_mem_alloc_on(c, NULL, 8, COLL_MEM_DEVICE), COLL_ERR_ARGUMENT, "ptr is NULL");
	says(c, coll_mem_alloc_on(c, &q, SIZE_MAX / 4, COLL_MEM_DEVICE), COLL_ERR_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
	says(c, coll_mem_register(c, p, 4096), COLL_ERR_UNSUPPORTED, "[COLL-1203]");
	/* Until freed, and not again. */
	CHECK(coll_mem_free(c, p) == COLL_OK);
	says(c, coll_mem_free(c, p), COLL_ERR_ARGUMENT, "was not returned by");
	says(c, coll_all_reduce(p, x, 16, COLL_I32, COLL_SUM, c, NULL), COLL_ERR_ARGUMENT, "in at ");
	says(c, coll_all_reduce(p, x, 16, COLL_I32, COLL_SUM, c, NULL), COLL_ERR_ARGUMENT, "freed");
	says(c, coll_all_reduce(x, p, 16, COLL_I32, COLL_SUM, c, NULL), COLL_ERR_ARGUMENT, "[COLL-1207]");
	CHECK(coll_all_reduce(p, p, 0, COLL_I32, COLL_SUM, c, NULL) == COLL_OK, "nothing is there to be read");
	CHECK(coll_comm_duplicate(c, &child) == COLL_OK && child->facts.devices && sum_once(child) == COLL_OK);
	CHECK(coll_comm_destroy(&child) == COLL_OK);
	/* It ends with the communicator. */
	CHECK(coll_mem_alloc_on(c, &q, 4096, COLL_MEM_DEVICE) == COLL_OK);
	CHECK(sum_once(c) == COLL_OK);
	CHECK(coll_comm_destroy(comm) == COLL_OK);
}

TEST(ranks, ranks_have_their_devices)
{
	static const struct {
		const char *device, *names[3];
	} cases[] = {{"cuda:1,0,1", {"cuda:1", "cuda:0", "cuda:1"}},
	             {"cuda", {"cuda:0", "cuda:1", "cuda:0"}},
	             {"cuda:1", {"cuda:1", "cuda:1", "cuda:1"}}};
	coll_comm *comms[3];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (create_on(comms, 3, cases[i].device))
			each_rank(comms, 3, use_device, (void *)(uintptr_t)cases[i].names);
}

/* All that a communicator takes of the driver comes back. */
TEST(ranks, nothing_is_left)
{
	static const char *const pairs[][2] = {{"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease"},
	                                       {"cuModuleLoadData", "cuModuleUnload"},
	                                       {"cuStreamCreate", "cuStreamDestroy"},
	                                       {"cuEventCreate", "cuEventDestroy"},
	                                       {"cuMemHostRegister", "cuMemHostUnregister"},
	                                       {"cuMemAlloc", "cuMemFree"}};
	coll_comm *comms[2];
	void *p = NULL;
	long taken[6];

	for (size_t i = 0; i < 6; i++)
		taken[i] = driver_calls(pairs[i][0]) - driver_calls(pairs[i][1]);
	REQUIRE(create_on(comms, 1, "cuda"));
	CHECK(coll_mem_alloc_on(comms[0], &p, 4096, COLL_MEM_DEVICE) == COLL_OK);
	CHECK(driver_calls("cuModuleLoadData") - driver_calls("cuModuleUnload") == taken[1] + 1);
	CHECK(coll_comm_destroy(&comms[0]) == COLL_OK);
	for (size_t i = 0; i < 6; i++)
		CHECK(driver_calls(pairs[i][0]) - driver_calls(pairs[i][1]) == taken[i], "%s", pairs[i][0]);
}

/* ---- Programs of earlier versions ---- */

static void shorter_configurations_are_accepted(void)
{
	static const size_t sizes[] = {offsetof(coll_config, interrupt), offsetof(coll_config, device)};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;

	CHECK(cfg.struct_size == sizeof(cfg) && !cfg.device);
	for (size_t i = 0; i < 2; i++) {
		cfg.device = "beyond the end";
		cfg.struct_size = sizes[i];
		CHECK(coll_comm_create(&comm, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
		CHECK(comm && !comm->ctx->device);
		CHECK(coll_comm_destroy(&comm) == COLL_OK);
		cfg.struct_size = sizes[i] + 1;
		CHECK(coll_comm_create(&comm, &cfg) == COLL_ERR_ARGUMENT);
	}
	cfg.struct_size = sizeof(cfg);
	CHECK(coll_comm_create(&comm, &cfg) == COLL_ERR_CONFIG);
}

PROGRAM(ranks, "FILE-OF-THE-STAND-IN")
{
	driver_path = argv[1];
	unsetenv("CUDA_VISIBLE_DEVICES");
	unsetenv("COLL_DEVICE");
	setenv("SOFTCUDA_DEVICES", "2", 1);
	setenv("COLL_CUDA_LIBRARY", driver_path, 1);
	setenv("COLL_DEBUG", "warn", 1);
	PLAIN_RUN(host_ranks_load_no_driver); /* first: none is loaded */
	PLAIN_RUN(shorter_configurations_are_accepted);
	return coll_kernels_ptx() ? 2 : plain_skip_all("this build has no kernels");
}
