/*
 * Cases of loading, devices, contexts, modules, memory, and the virtual memory of one process.
 */
#include "tests/softcuda/cases.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- loading ---- */

static void visible_devices(void)
{
	CUuuid uuid, second;
	CUdevice d;
	int count;

	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	IS(count, 2); /* 3, 1, and nothing behind the entry that is no device */
	OK(cuDeviceGetUuid(&uuid, 0));
	OK(cuDeviceGetUuid(&second, 1));
	IS(uuid.bytes[15], 'A' + 3);
	IS(second.bytes[15], 'A' + 1);
	IS(cuDeviceGet(&d, 2), CUDA_ERROR_INVALID_DEVICE);
}

static void driver_version(void)
{
	CUdriverProcAddressQueryResult status;
	int version;
	void *p;

	OK(cuDriverGetVersion(&version));
	IS(version, 11060);
	OK(cuGetProcAddress("cuGraphInstantiateWithFlags", &p, 13000, 0, &status));
	IS(status, CU_GET_PROC_ADDRESS_SUCCESS);
	IS(cuGetProcAddress("cuStreamWaitValue32", &p, 13000, 0, &status), CUDA_ERROR_NOT_FOUND); /* 11.7 */
	IS(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	IS((long)(uintptr_t)p, 0);
	IS(cuGetProcAddress("cuMemCreate", &p, 10010, 0, &status), CUDA_ERROR_NOT_FOUND);
	IS(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	IS(cuGetProcAddress("cuNoSuchThing", &p, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	IS(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

static void missing(void)
{
	CUdriverProcAddressQueryResult status;
	void *p;

	IS(cuGetProcAddress("cuMemCreate", &p, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	IS(cuGetProcAddress("cuIpcGetMemHandle", &p, 13000, 0, NULL), CUDA_ERROR_NOT_FOUND);
	OK(cuGetProcAddress("cuMemMap", &p, 13000, 0, &status));
}

static void counts(void)
{
	char path[] = "/tmp/softcuda-counts-XXXXXX", text[4096] = "", line[64];
	const int fd = mkstemp(path);
	CUdeviceptr p;
	pid_t pid;
	int status;

	TRUE(fd >= 0);
	setenv("SOFTCUDA_COUNTS", path, 1);
	reset_counts();
	pid = fork();
	if (pid == 0) {
		start();
		for (int i = 0; i < 3; i++)
			IS(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE);
		IS(count_of("cuMemAlloc"), 3);
		IS(count_of("cuMemFree"), 0);
		IS(count_of("no such function"), -1);
		IS(count_of(NULL), 6);
		exit(0);
	}
	waitpid(pid, &status, 0);
	IS(status, 0);
	TRUE(read(fd, text, sizeof(text) - 1) > 0);
	unlink(path);
	unsetenv("SOFTCUDA_COUNTS");
	snprintf(line, sizeof(line), "%d cuMemAlloc 3\n", (int)pid);
	TRUE(strstr(text, line) != NULL);
	TRUE(strstr(text, "cuMemFree") == NULL);
}

static void no_fork(void)
{
	pid_t pid;
	int status, count;

	start();
	pid = fork();
	if (pid == 0)
		_exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED
		              ? 0
		              : 1);
	waitpid(pid, &status, 0);
	IS(status, 0);
	OK(cuDeviceGetCount(&count));
}

static void no_context(void)
{
	CUdeviceptr p;
	CUcontext ctx, is;
	CUstream s;

	IS(cuDeviceGetCount(&(int){0}), CUDA_ERROR_NOT_INITIALIZED);
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	IS(cuMemAlloc(&p, 64), CUDA_ERROR_INVALID_CONTEXT);
	IS(cuStreamCreate(&s, 0), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxPushCurrent(ctx));
	OK(cuMemAlloc(&p, 64));
	OK(cuCtxPopCurrent(&is));
	TRUE(is == ctx);
	IS(cuMemFree(p), CUDA_ERROR_INVALID_CONTEXT);
}

static void context_end(void)
{
	CUcontext ctx = start(), again;
	size_t free_bytes, total;
	CUdeviceptr base;
	int active;
	uint32_t *w = words();
	CUdeviceptr p = device_memory(1 << 20);

	OK(cuDevicePrimaryCtxGetState(0, &(unsigned){0}, &active));
	IS(active, 1);
	OK(cuDevicePrimaryCtxRelease(0));
	OK(cuDevicePrimaryCtxGetState(0, &(unsigned){0}, &active));
	IS(active, 0);
	IS(cuMemGetInfo(&free_bytes, &total), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	TRUE(again != ctx);
	OK(cuCtxSetCurrent(again));
	OK(cuMemGetInfo(&free_bytes, &total));
	IS(free_bytes, total);
	IS(cuMemGetAddressRange(&base, NULL, p), CUDA_ERROR_NOT_FOUND);
	OK(cuMemHostRegister(w, 4096, 0));
}

static void module_entries(void)
{
	static const char other[] = ".version 6.0\n.target sm_70\n.visible .entry softtest_addition(\n)\n";
	CUfunction f;
	CUmodule m;

	start();
	OK(cuModuleLoadData(&m, other));
	IS(cuModuleGetFunction(&f, m, "softtest_add"), CUDA_ERROR_NOT_FOUND);
	OK(cuModuleGetFunction(&f, load(), "softtest_add"));
	IS(cuModuleLoadData(&m, "no PTX at all"), CUDA_ERROR_INVALID_IMAGE);
}

static void ptx_version(void)
{
	CUmodule m;

	start();
	OK(cuModuleLoadData(&m, ".version 7.8\n.target sm_70\n"));
	IS(cuModuleLoadData(&m, ".version 9.0\n.target sm_70\n"), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
	IS(cuModuleLoadData(&m, ".version 7.8\n.target sm_99\n"), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

/* ---- addresses ---- */

static void untouchable(void)
{
	int status;
	CUdeviceptr p = device_memory(4096);
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile char *)(uintptr_t)p = 1;
		_exit(0);
	}
	waitpid(pid, &status, 0);
	TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void copy_range(void)
{
	char host[256] = "";
	CUdeviceptr p = device_memory(128), q = device_memory(128);

	IS(cuMemcpyHtoD(p, host, 129), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemcpyDtoH(host, p + 100, 64), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemcpyDtoDAsync(p, q + 128, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)host, host + 128, 16), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree(q));
	IS(cuMemcpyDtoDAsync(p, q, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemcpyHtoD(p, host, 128));
}

struct facts {
	unsigned type, managed;
	int device;
	CUcontext ctx;
	CUdeviceptr device_pointer;
	void *host_pointer;
	unsigned long long id;
	unsigned legacy;
};

static struct facts facts_of(CUdeviceptr p)
{
	CUpointer_attribute which[] = {
	        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
	        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
	        CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
	        CU_POINTER_ATTRIBUTE_BUFFER_ID,      CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
	struct facts f;
	void *data[] = {&f.type, &f.managed, &f.device, &f.ctx, &f.device_pointer, &f.host_pointer, &f.id, &f.legacy};

	memset(&f, 0xff, sizeof(f));
	OK(cuPointerGetAttributes(8, which, data, p));
	return f;
}

static void attributes(void)
{
	static char pageable[64];
	CUcontext ctx = start();
	CUdeviceptr managed;
	struct facts f;
	unsigned type;
	void *pinned;
	CUdeviceptr p = device_memory(4096);
	uint32_t *w = words();

	OK(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemHostAlloc(&pinned, 4096, 0));
	f = facts_of((CUdeviceptr)(uintptr_t)pageable);
	IS(f.type, 0);
	IS(f.device, CU_DEVICE_INVALID);
	TRUE(!f.ctx && !f.host_pointer);
	IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pageable),
	   CUDA_ERROR_INVALID_VALUE);
	f = facts_of(p + 1000);
	IS(f.type, CU_MEMORYTYPE_DEVICE);
	IS(f.device, 0);
	IS(f.legacy, 1);
	TRUE(f.ctx == ctx && f.device_pointer == p + 1000 && !f.managed && !f.host_pointer);
	IS(f.id, facts_of(p).id);
	IS(facts_of(p + 4096).type, 0);
	f = facts_of((CUdeviceptr)(uintptr_t)(w + 5));
	IS(f.type, CU_MEMORYTYPE_HOST);
	TRUE(f.host_pointer == w + 5 && f.device_pointer == on_device(w) + 20 && !f.legacy);
	IS(facts_of((CUdeviceptr)(uintptr_t)pinned + 7).type, CU_MEMORYTYPE_HOST);
	f = facts_of(managed);
	TRUE(f.managed && f.type == CU_MEMORYTYPE_DEVICE);
	OK(cuMemFree(p));
	IS(facts_of(p).type, 0);
}

static void address_range(void)
{
	CUdeviceptr base;
	size_t len;
	CUdeviceptr p = device_memory(5000);

	OK(cuMemGetAddressRange(&base, &len, p + 4999));
	TRUE(base == p);
	IS(len, 5000);
	IS(cuMemGetAddressRange(&base, &len, p + 5000), CUDA_ERROR_NOT_FOUND);
	OK(cuMemFree(p));
	IS(cuMemGetAddressRange(&base, &len, p), CUDA_ERROR_NOT_FOUND);
}

static void host_pointer(void)
{
	CUdeviceptr p;
	char *page;
	uint32_t *w;

	start();
	page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	IS(cuMemHostGetDevicePointer(&p, page, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemHostRegister(page, 4096, 0));
	IS(cuMemHostGetDevicePointer(&p, page, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemHostRegister(page + 100, 8, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	IS(cuMemHostUnregister(page + 100), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	OK(cuMemHostUnregister(page));
	IS(cuMemHostUnregister(page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	/* By the settings of this case, the device's address is another one, which the CPU cannot touch. */
	w = words();
	p = on_device(w + 3);
	TRUE(p != (CUdeviceptr)(uintptr_t)(w + 3));
	OK(cuStreamWriteValue32(NULL, p, 9, 0));
	OK(cuMemcpyAsync(p + 4, (CUdeviceptr)(uintptr_t)(w + 3), 4, NULL));
	OK(cuStreamSynchronize(NULL));
	IS(w[3], 9);
	IS(w[4], 9);
}

static void poison(void)
{
	uint32_t *w = words();
	CUdeviceptr p = device_memory(64);

	OK(cuMemcpyDtoH(w, p, 64));
	for (int i = 0; i < 16; i++)
		TRUE(w[i] != 0);
	put(&w[0], 0);
	OK(launch(kernel("softtest_shared"), 1, 1, NULL, on_device(w), 0, 0, 0));
	OK(cuCtxSynchronize());
	TRUE(w[0] != 0);
}

/* ---- virtual memory ---- */

#define PART ((size_t)2 << 20)

static CUmemGenericAllocationHandle physical(size_t len, CUmemAllocationHandleType type)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                                  .requestedHandleTypes = type,
	                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h;

	OK(cuMemCreate(&h, len, &prop, 0));
	return h;
}

static void vmm_access(void)
{
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	uint32_t *w = words();

	put(&w[0], 1234);
	h = physical(PART, CU_MEM_HANDLE_TYPE_NONE);
	OK(cuMemAddressReserve(&p, 2 * PART, 0, 0, 0));
	OK(cuMemMap(p + PART, PART, 0, h, 0));
	IS(cuMemcpyHtoD(p + PART, w, 64), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemSetAccess(p + PART, PART, &access, 1));
	OK(cuMemcpyHtoD(p + PART, w, 64));
	OK(launch(kernel("softtest_add"), 1, 1, NULL, on_device(w), p + PART, 1, 1));
	OK(cuCtxSynchronize());
	IS(w[0], 1235);
}

static void vmm_rules(void)
{
	CUmemGenericAllocationHandle h, again;
	CUmemAllocationProp prop;
	size_t granularity;
	CUdeviceptr p;

	start();
	h = physical(PART, CU_MEM_HANDLE_TYPE_NONE);
	OK(cuMemGetAllocationPropertiesFromHandle(&prop, h));
	OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	IS(granularity, PART);
	IS(cuMemCreate(&again, PART / 2, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAddressReserve(&p, 2 * PART, 0, 0, 0));
	IS(cuMemMap(p, PART / 2, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemMap(p + 2 * PART, PART, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemMap(p, PART, 0, h, 0));
	IS(cuMemMap(p, PART, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(p + 100)));
	TRUE(again == h);
	OK(cuMemRelease(again));
	IS(cuMemAddressFree(p, 2 * PART), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemUnmap(p, PART / 2), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemUnmap(p, PART));
	OK(cuMemAddressFree(p, 2 * PART));
	OK(cuMemRelease(h));
	IS(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
}

static void vmm_export(void)
{
	CUmemGenericAllocationHandle h;
	int fd;

	start();
	h = physical(PART, CU_MEM_HANDLE_TYPE_NONE);
	IS(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
	h = physical(PART, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	TRUE(fd >= 0);
	IS(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
	   CUDA_ERROR_INVALID_DEVICE);
}

const struct softcuda_case cases_memory[] = {
        {"visible_devices", visible_devices, {"SOFTCUDA_DEVICES=4", "CUDA_VISIBLE_DEVICES=3,1,9,0", NULL}},
        {"driver_version", driver_version, {"SOFTCUDA_DRIVER_VERSION=11060", NULL}},
        {"missing", missing, {"SOFTCUDA_MISSING=cuIpcGetMemHandle,cuMemCreate", NULL}},
        {"counts", counts, {NULL}},
        {"no_fork", no_fork, {NULL}},
        {"no_context", no_context, {NULL}},
        {"context_end", context_end, {NULL}},
        {"module_entries", module_entries, {NULL}},
        {"ptx_version", ptx_version, {"SOFTCUDA_DRIVER_VERSION=11080", NULL}},
        {"untouchable", untouchable, {NULL}},
        {"copy_range", copy_range, {NULL}},
        {"attributes", attributes, {NULL}},
        {"address_range", address_range, {NULL}},
        {"host_pointer", host_pointer, {"SOFTCUDA_HOST_ALIAS=1", NULL}},
        {"poison", poison, {NULL}},
        {"vmm_access", vmm_access, {NULL}},
        {"vmm_rules", vmm_rules, {NULL}},
        {"vmm_export", vmm_export, {NULL}},
        {NULL, NULL, {NULL}},
};
