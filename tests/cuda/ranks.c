/*
 * Communicators whose ranks have devices or none, over the stand-in driver: who has one is agreed, host memory works on
 * all, what the device cannot use is refused by name, and ranks without a device do not call the driver.
 *
 * usage: ranks FILE-OF-THE-STAND-IN [PART-OF-A-TEST'S-NAME]
 */
#define PLAIN_OWN_MAIN
#include "tests/plain.h"

#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll/coll.h"
#include "core/comm.h"
#include "device/kernels.h"
#include "tests/cuda/driver.h"
#include "tests/multi/thread_ranks.h"

enum { PROCESSES = 3, INFO_MAX = 8192 };

/* ---- Processes ---- */

/* What the processes of a job share. */
struct board {
	atomic_int come, right;
	char info[PROCESSES][INFO_MAX];
};

struct place {
	struct board *board;
	int rank;
};

static int exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	struct place *p = arg;

	if (len_bytes > INFO_MAX)
		return 1;
	memcpy(p->board->info[p->rank], mine, len_bytes);
	atomic_fetch_add(&p->board->come, 1);
	for (int i = 0; i < 60000 && atomic_load(&p->board->come) < PROCESSES; i++)
		poll(NULL, 0, 1);
	for (size_t r = 0; r < PROCESSES; r++)
		memcpy((char *)all + r * len_bytes, p->board->info[r], len_bytes);
	return 0;
}

/* 0: as expected. */
static int be_rank(struct place p, const char *device, const char *name)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;
	const struct coll_device *d;
	bool right;

	cfg.rank = p.rank;
	cfg.size = PROCESSES;
	cfg.exchange = exchange;
	cfg.exchange_arg = &p;
	cfg.device = device;
	if (coll_comm_create(&comm, &cfg) != COLL_OK)
		return 1;
	d = comm->ctx->device;
	right = (d ? strcmp(d->name, name) == 0 : !name) && comm->facts.devices && sum_once(comm) == COLL_OK;
	right = coll_comm_destroy(&comm) == COLL_OK && right;
	return !right;
}

static void hosts_and_devices_share_a_communicator(void)
{
	static const char *const devices[PROCESSES] = {"host", "cuda", "cuda"};
	static const char *const names[PROCESSES] = {NULL, "cuda:1", "cuda:0"}; /* of two, by the local rank */
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child[PROCESSES];

	REQUIRE(board != MAP_FAILED);
	fflush(NULL);
	for (int r = 0; r < PROCESSES; r++) {
		child[r] = fork();
		if (child[r] == 0)
			_exit(be_rank((struct place){board, r}, devices[r], names[r]));
	}
	for (int r = 0; r < PROCESSES; r++) {
		int status = -1;

		waitpid(child[r], &status, 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d: %d", r, status);
	}
	munmap(board, sizeof(*board));
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

static void host_ranks_call_no_driver(void)
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

static void ranks_have_their_devices(void)
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
static void nothing_is_left(void)
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

int main(int argc, char **argv)
{
	static const struct plain_case host[] = {PLAIN_CASE(host_ranks_load_no_driver),
	                                         PLAIN_CASE(shorter_configurations_are_accepted)};
	static const struct plain_case cases[] = {PLAIN_CASE(hosts_and_devices_share_a_communicator),
	                                          PLAIN_CASE(host_ranks_call_no_driver),
	                                          PLAIN_CASE(ranks_have_their_devices), PLAIN_CASE(nothing_is_left)};

	if (argc < 2)
		return 2;
	driver_path = argv[1];
	unsetenv("CUDA_VISIBLE_DEVICES");
	unsetenv("COLL_DEVICE");
	setenv("SOFTCUDA_DEVICES", "2", 1);
	setenv("COLL_CUDA_LIBRARY", driver_path, 1);
	setenv("COLL_DEBUG", "warn", 1);
	plain_run_cases("ranks", host, sizeof(host) / sizeof(host[0]), argv[2]);
	if (coll_kernels_ptx())
		plain_run_cases("ranks", cases, sizeof(cases) / sizeof(cases[0]), argv[2]);
	else
		plain_skip_all("this build has no kernels");
	return plain_summary();
}
