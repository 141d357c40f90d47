/*
 * Loading of the driver, over the stand-in: what cannot be used is refused with an error that names the file or
 * what it lacks, before a peer is involved. A process loads one driver, so each case is a child.
 *
 * usage: load FILE-OF-THE-STAND-IN [PART-OF-A-TEST'S-NAME]
 */
#include "tests/plain.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll/coll.h"
#include "device/kernels.h"
#include "tests/cuda/driver.h"

/* What a child finds out, in shared words or through its pipe. */
struct result {
	int status; /* coll_status of the creation; -1: the child died */
	char text[600];
};

static struct result in_child(const char *const *environment, void (*fn)(struct result *r, const char *device),
                              const char *device)
{
	struct result r = {.status = -1};
	int ends[2];
	pid_t child;

	if (pipe(ends) != 0)
		return r;
	fflush(NULL);
	child = fork();
	if (child == 0) {
		if (!freopen("/dev/null", "w", stderr)) /* the errors that are wanted */
			_exit(1);
		for (; *environment; environment += 2)
			setenv(environment[0], environment[1], 1);
		fn(&r, device);
		_exit(write(ends[1], &r, sizeof(r)) != sizeof(r));
	}
	close(ends[1]);
	if (child < 0 || read(ends[0], &r, sizeof(r)) != sizeof(r))
		r.status = -1;
	close(ends[0]);
	if (child > 0)
		waitpid(child, NULL, 0);
	return r;
}

static void create(struct result *r, const char *device)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;

	cfg.device = device;
	r->status = (int)coll_comm_create(&comm, &cfg);
	snprintf(r->text, sizeof(r->text), "%s", coll_last_error(NULL)->message);
	coll_comm_destroy(&comm);
}

static void create_all(struct result *r, const char *device)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comms[2] = {NULL, NULL};

	cfg.device = device;
	r->status = (int)coll_comm_create_all(comms, 2, &cfg);
	snprintf(r->text, sizeof(r->text), "%s", coll_last_error(NULL)->message);
	for (int i = 0; i < 2 && r->status == COLL_OK; i++)
		coll_comm_destroy(&comms[i]);
}

struct refusal {
	const char *environment[5]; /* beside COLL_CUDA_LIBRARY, which may be among them */
	const char *device;
	const char *says[3];
};

static void refused(const struct refusal *f, void (*fn)(struct result *, const char *))
{
	const char *environment[8] = {"COLL_CUDA_LIBRARY", driver_path};
	struct result r;

	memcpy(environment + 2, f->environment, sizeof(f->environment));
	r = in_child(environment, fn, f->device);
	CHECK(r.status == COLL_ERR_CONFIG, "%s: %d %s", f->device, r.status, r.text);
	for (int i = 0; i < 3 && f->says[i]; i++)
		CHECK(strstr(r.text, f->says[i]), "'%s' lacks '%s'", r.text, f->says[i]);
}

TEST(load, bad_drivers)
{
	const struct refusal cases[] = {
	        {{"COLL_CUDA_LIBRARY", "/nowhere/libcuda.so.1"}, "cuda", {"/nowhere/libcuda.so.1", "[COLL-1114]"}},
	        {{"COLL_CUDA_LIBRARY", "/etc/hostname"}, "cuda", {"/etc/hostname", "[COLL-1114]"}},
	        {{"COLL_CUDA_LIBRARY", "libm.so.6"}, "cuda", {"libm.so.6 is not a CUDA driver", "[COLL-1115]"}},
	        {{"SOFTCUDA_DRIVER_VERSION", "11040"},
	         "cuda",
	         {driver_path, "CUDA 11.4: 11.7 or later", "[COLL-1115]"}},
	        {{"SOFTCUDA_MISSING", "cuStreamWaitValue32"},
	         "cuda",
	         {"has no cuStreamWaitValue32", driver_path, "[COLL-1115]"}},
	        {{"SOFTCUDA_MISSING", "cuEventRecord,cuCtxGetDevice"},
	         "cuda",
	         {"has no cuCtxGetDevice", "[COLL-1115]"}},
	        {{"SOFTCUDA_DEVICES", "0"}, "cuda", {driver_path, "has no device", "[COLL-1116]"}},
	        {{"CUDA_VISIBLE_DEVICES", ""}, "cuda", {"has no device", "[COLL-1116]"}},
	        {{"CUDA_VISIBLE_DEVICES", "7"}, "cuda", {"CUDA_VISIBLE_DEVICES=7", "[COLL-1116]"}},
	        {{"SOFTCUDA_DEVICES", "3", "CUDA_VISIBLE_DEVICES", "0,1"},
	         "cuda:2",
	         {"no cuda:2", "2 devices", "[COLL-1116]"}},
	        {{"SOFTCUDA_DEVICES", "1"}, "cuda:1", {"no cuda:1", "1 device ", "[COLL-1116]"}},
	        {{"SOFTCUDA_SM", "70"}, "cuda", {"compute capability 7.0", "[COLL-1116]"}},
	        {{NULL}, "cuda:0,1", {"lists are for coll_comm_create_all()", "[COLL-1106]"}},
	        {{NULL}, "gpu", {"device gpu: expected host, cuda", "[COLL-1106]"}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		refused(&cases[i], create);
}

TEST(load, bad_lists)
{
	const struct refusal cases[] = {
	        {{"SOFTCUDA_DEVICES", "2"}, "cuda:0,2", {"no cuda:2", "[COLL-1116]"}},
	        {{"SOFTCUDA_DEVICES", "2"}, "cuda:0,", {"device cuda:0,: expected", "[COLL-1106]"}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		refused(&cases[i], create_all);
}

/* NULL: COLL_DEVICE decides, which is host if it is unset. */
TEST(load, who_decides)
{
	static const struct {
		const char *environment[7], *device;
		bool loads;
	} cases[] = {{{NULL}, NULL, false},
	             {{"COLL_DEVICE", "cuda"}, NULL, true},
	             {{"COLL_DEVICE", "cuda"}, "host", false},
	             {{"COLL_DEVICE", "host"}, "cuda", true}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *environment[10] = {"COLL_CUDA_LIBRARY", "/nowhere/libcuda.so.1"};
		struct result r;

		memcpy(environment + 2, cases[i].environment, sizeof(cases[i].environment));
		r = in_child(environment, create, cases[i].device);
		CHECK(r.status == (cases[i].loads ? COLL_ERR_CONFIG : COLL_OK), "case %zu: %d %s", i, r.status, r.text);
	}
}

static bool newer_ptx(void)
{
	const char *version = strstr(coll_kernels_ptx(), ".version ");

	return version && strtod(version + strlen(".version "), NULL) > 7.7;
}

TEST(load, good_drivers)
{
	static const char *const with[][5] = {
	        {NULL}, {"SOFTCUDA_MISSING", "cuStreamWriteValue32"}, {"SOFTCUDA_DRIVER_VERSION", "11070"}};

	for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++) {
		const char *environment[8] = {"COLL_CUDA_LIBRARY", driver_path};
		struct result r;

		memcpy(environment + 2, with[i], sizeof(with[i]));
		r = in_child(environment, create, "cuda");
		/* A driver of CUDA 11.7 has cuGetProcAddress in an older form; the symbols serve. It takes PTX up
		 * to 7.7, which newer compilers do not make. */
		if (i == 2 && newer_ptx())
			CHECK(r.status != COLL_OK && strstr(r.text, "UNSUPPORTED_PTX_VERSION"), "%d %s", r.status,
			      r.text);
		else
			CHECK(r.status == COLL_OK, "%s: %d %s", with[i][0] ? with[i][1] : "", r.status, r.text);
	}
}

static void one_driver(struct result *r, const char *device)
{
	const char *settings[] = {"COLL_CUDA_LIBRARY=/nowhere/other.so", NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;

	create(r, device);
	if (r->status != COLL_OK)
		return;
	cfg.device = device;
	cfg.settings = settings;
	r->status = (int)coll_comm_create(&comm, &cfg);
	snprintf(r->text, sizeof(r->text), "%s", coll_last_error(NULL)->message);
}

TEST(load, a_process_has_one_driver)
{
	const struct refusal f = {{NULL}, "cuda", {"/nowhere/other.so", driver_path, "[COLL-1114]"}};

	refused(&f, one_driver);
}

/* An error of loading is none of the next attempt's. */
static void again(struct result *r, const char *device)
{
	setenv("COLL_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
	create(r, device);
	if (r->status != COLL_ERR_CONFIG)
		return;
	setenv("COLL_CUDA_LIBRARY", driver_path, 1);
	create(r, device);
}

TEST(load, a_failed_load_can_be_repeated)
{
	static const char *const none[] = {NULL};
	const struct result r = in_child(none, again, "cuda");

	CHECK(r.status == COLL_OK, "%d %s", r.status, r.text);
}

static void without_kernels(void)
{
	const struct refusal f = {{NULL}, "cuda", {"this build has no kernels", "[COLL-1117]"}};

	refused(&f, create);
}

PROGRAM(load, "FILE-OF-THE-STAND-IN")
{
	driver_path = argv[1];
	unsetenv("COLL_DEVICE");
	unsetenv("CUDA_VISIBLE_DEVICES");
	if (coll_kernels_ptx())
		return 2;
	PLAIN_RUN(without_kernels);
	return plain_skip_all("this build has no kernels");
}
