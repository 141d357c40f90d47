/*
 * Device memory that another process maps, and host memory that the device maps: what each step costs.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "other.h"

enum { TIMES = 16 };

/* ---- The other process ---- */

static bool open_legacy(const struct floor_order *o, double us[3])
{
	const double begin = floor_now_us();
	CUdeviceptr p;

	if (!OK(cu.cuIpcOpenMemHandle(&p, o->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)))
		return false;
	us[0] = floor_now_us() - begin;
	if (!OK(cu.cuIpcCloseMemHandle(p)))
		return false;
	us[1] = floor_now_us() - begin - us[0];
	return true;
}

static bool import(const struct floor_order *o, int descriptor, double us[3])
{
	const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, fs.device},
	                                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	const double begin = floor_now_us();
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p = 0;
	bool ok;

	if (!OK(cu.cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)descriptor,
	                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)))
		return false;
	us[0] = floor_now_us() - begin;
	ok = OK(cu.cuMemAddressReserve(&p, o->bytes, 0, 0, 0)) && OK(cu.cuMemMap(p, o->bytes, 0, handle, 0)) &&
	     OK(cu.cuMemSetAccess(p, o->bytes, &access, 1));
	us[1] = floor_now_us() - begin - us[0];
	if (ok)
		ok = OK(cu.cuMemUnmap(p, o->bytes));
	if (p)
		ok &= OK(cu.cuMemAddressFree(p, o->bytes));
	ok &= OK(cu.cuMemRelease(handle));
	us[2] = floor_now_us() - begin - us[0] - us[1];
	return ok;
}

void floor_mapped_other(const struct floor_order *o, int descriptor, struct floor_answer *a)
{
	a->done = o->task == FLOOR_OPEN_LEGACY ? open_legacy(o, a->us) : import(o, descriptor, a->us);
}

/* ---- This one ---- */

static void rows(const char *const names[], int parts, double us[][TIMES], int n)
{
	for (int i = 0; i < parts; i++)
		n ? floor_row(names[i], 0, us[i], n) : floor_failed(names[i]);
}

static void legacy(size_t bytes)
{
	char title[3][64];
	const char *names[] = {title[0], title[1], title[2]};
	struct floor_order o = {.task = FLOOR_OPEN_LEGACY, .bytes = bytes};
	double us[3][TIMES];
	CUdeviceptr p = 0;
	int n = 0;

	snprintf(title[0], sizeof(title[0]), "legacy handle of %zu MiB: make", bytes >> 20);
	snprintf(title[1], sizeof(title[1]), "legacy handle of %zu MiB: open", bytes >> 20);
	snprintf(title[2], sizeof(title[2]), "legacy handle of %zu MiB: close", bytes >> 20);
	if (!HAS(title[1], cuIpcGetMemHandle) || !HAS(title[1], cuIpcOpenMemHandle) ||
	    !HAS(title[1], cuIpcCloseMemHandle))
		return;
	if (!OK(cu.cuMemAlloc(&p, bytes))) {
		floor_failed(title[1]);
		return;
	}
	for (int k = 0; k < TIMES && k < fs.iters; k++) {
		const double begin = floor_now_us();
		struct floor_answer a;

		if (!OK(cu.cuIpcGetMemHandle(&o.handle, p)))
			break;
		us[0][n] = floor_now_us() - begin;
		if (!floor_tell(&o, -1) || !floor_hear(&a) || !a.done)
			break;
		us[1][n] = a.us[0];
		us[2][n++] = a.us[1];
	}
	OK(cu.cuMemFree(p));
	rows(names, 3, us, n);
}

static const char *missing_vmm(void)
{
	if (!cu.cuMemGetAllocationGranularity)
		return "cuMemGetAllocationGranularity";
	if (!cu.cuMemCreate || !cu.cuMemRelease)
		return "cuMemCreate";
	if (!cu.cuMemExportToShareableHandle)
		return "cuMemExportToShareableHandle";
	if (!cu.cuMemImportFromShareableHandle)
		return "cuMemImportFromShareableHandle";
	if (!cu.cuMemMap || !cu.cuMemUnmap || !cu.cuMemAddressReserve || !cu.cuMemAddressFree || !cu.cuMemSetAccess)
		return "cuMemMap";
	return NULL;
}

static void vmm(size_t bytes)
{
	static const char *const names[] = {"descriptor: create", "descriptor: export", "descriptor: import",
	                                    "descriptor: reserve, map, give access", "descriptor: unmap, free"};
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                                  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, fs.device}};
	struct floor_order o = {.task = FLOOR_IMPORT};
	size_t unit = 0;
	double us[5][TIMES];
	int n = 0;

	if (missing_vmm()) {
		floor_lacks("memory by descriptor", missing_vmm());
		return;
	}
	if (!OK(cu.cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM)))
		return;
	o.bytes = (bytes + unit - 1) / unit * unit;
	printf("  memory of %zu MiB, created by cuMemCreate\n", o.bytes >> 20);
	for (int k = 0; k < TIMES && k < fs.iters; k++) {
		CUmemGenericAllocationHandle handle;
		struct floor_answer a = {.done = false};
		double begin = floor_now_us();
		int descriptor = -1;
		bool ok;

		if (!OK(cu.cuMemCreate(&handle, o.bytes, &prop, 0)))
			break;
		us[0][n] = floor_now_us() - begin;
		begin = floor_now_us();
		ok = OK(cu.cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		                                        0));
		us[1][n] = floor_now_us() - begin;
		ok = ok && floor_tell(&o, descriptor) && floor_hear(&a) && a.done;
		if (descriptor >= 0)
			close(descriptor);
		OK(cu.cuMemRelease(handle));
		if (!ok)
			break;
		for (int i = 0; i < 3; i++)
			us[2 + i][n] = a.us[i];
		n++;
	}
	rows(names, 5, us, n);
}

static void pin(size_t bytes)
{
	char title[2][64];
	const char *names[] = {title[0], title[1]};
	const int file = memfd_create("cuda_floor", MFD_CLOEXEC);
	double us[2][TIMES];
	void *p = MAP_FAILED;
	int n = 0;

	snprintf(title[0], sizeof(title[0]), "cuMemHostRegister, memory file of %zu MiB", bytes >> 20);
	snprintf(title[1], sizeof(title[1]), "cuMemHostUnregister, the same");
	if (file >= 0 && ftruncate(file, (off_t)bytes) == 0)
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
	for (int k = 0; p != MAP_FAILED && k < TIMES && k < fs.iters; k++) {
		const double begin = floor_now_us();

		if (!OK(cu.cuMemHostRegister(p, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)))
			break;
		us[0][n] = floor_now_us() - begin;
		if (!OK(cu.cuMemHostUnregister(p)))
			break;
		us[1][n] = floor_now_us() - begin - us[0][n];
		n++;
	}
	rows(names, 2, us, n);
	if (p != MAP_FAILED)
		munmap(p, bytes);
	if (file >= 0)
		close(file);
}

void floor_mapped_rows(void)
{
	const size_t small = (size_t)2 << 20;

	floor_head("memory of another process");
	legacy(small);
	if (fs.max_bytes > small)
		legacy(fs.max_bytes);
	vmm(small);
	if (fs.max_bytes > small)
		vmm(fs.max_bytes);
	floor_head("memory of the host");
	pin(small);
	if (fs.max_bytes > small)
		pin(fs.max_bytes);
}
