/*
 * Legacy IPC handles of cuMemAlloc blocks. A handle names the owner's process, its file and the place
 * of the block in it; the importer opens the file through /proc. The importer also maps the
 * owner's marks, and looks at the block's before each access: a block that its owner has
 * freed faults. A killed owner changes no mark, and its pages live on in the mapping.
 */
#include "tests/softcuda/soft.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x6164756374666f73ull

struct handle {
	uint64_t magic;
	uint32_t pid, fd;
	uint64_t offset, len;
	uint64_t id; /* of the block, in its process */
	uint32_t mark, mark_index;
	uint32_t physical; /* device */
	uint32_t pid_namespace;
};

_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "fits a handle");

struct import {
	struct handle handle;
	CUcontext ctx;
	struct soft_block *block;
	int refs;
	struct import *next;
};

enum { MARKS_LEN = 2 << 20 }; /* a mark per granule of the arena */

static struct import *imports;

static uint32_t pid_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) ? 0 : (uint32_t)st.st_ino;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr ptr)
{
	struct handle h = {.magic = MAGIC, .pid = (uint32_t)getpid(), .fd = (uint32_t)soft_address_fd()};
	struct soft_block *b;
	CUcontext ctx;

	ENTER_CTX(cuIpcGetMemHandle, ctx);
	b = soft_block_at(ptr);
	if (!out || !b || (b->kind != SOFT_ALLOC && !soft_planted(RULE_ipc_legacy_only)))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	h.offset = soft_address_offset(soft_planted(RULE_ipc_base) ? ptr & ~(CUdeviceptr)4095 : b->lo);
	h.len = b->len;
	h.id = b->id;
	h.mark_index = (uint32_t)(soft_address_mark(b->lo) - soft_address_mark(b->lo - soft_address_offset(b->lo)));
	h.mark = *soft_address_mark(b->lo);
	h.physical = (uint32_t)soft.device[b->device].physical;
	h.pid_namespace = pid_namespace();
	memset(out, 0, sizeof(*out));
	memcpy(out, &h, sizeof(h));
	return soft_leave(CUDA_SUCCESS);
}

static CUresult open_handle(const struct handle *h, CUcontext ctx, struct import *import)
{
	const _Atomic uint32_t *marks;
	char path[64];
	uintptr_t lo;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/fd/%u", h->pid, h->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	marks = mmap(NULL, MARKS_LEN, PROT_READ, MAP_SHARED, fd, 0);
	if (marks == MAP_FAILED) {
		close(fd);
		return CUDA_ERROR_MAP_FAILED;
	}
	lo = soft_address_take(h->len, 1 << 16);
	if (!lo || marks[h->mark_index] != h->mark || !soft_address_map(lo, h->len, fd, h->offset)) {
		if (lo)
			soft_address_give(lo, h->len);
		munmap((void *)marks, MARKS_LEN);
		close(fd);
		return CUDA_ERROR_INVALID_VALUE;
	}
	close(fd);
	import->handle = *h;
	import->ctx = ctx;
	import->refs = 1;
	import->block = soft_block_add(SOFT_IPC, lo, h->len, soft_address_delta(), ctx);
	import->block->owner_live = marks + h->mark_index;
	import->block->owner_mark = h->mark;
	import->block->owner = (int)h->pid;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
	struct import *import;
	struct handle h;
	CUcontext ctx;
	CUresult result;
	bool visible = false;

	ENTER_CTX(cuIpcOpenMemHandle, ctx);
	memcpy(&h, &handle, sizeof(h));
	if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (h.magic != MAGIC)
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	if ((soft_setting("SOFTCUDA_OTHER_PID_NS", 0) || h.pid_namespace != pid_namespace()) &&
	    !soft_planted(RULE_ipc_namespace))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (h.pid == (uint32_t)getpid() && !soft_planted(RULE_ipc_self))
		return soft_leave(CUDA_ERROR_INVALID_CONTEXT);
	for (int i = 0; i < soft.devices; i++)
		visible |= soft.device[i].physical == (int)h.physical;
	if (!visible)
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	for (import = imports; import; import = import->next) {
		if (!import->refs || import->handle.pid != h.pid)
			continue;
		if (import->ctx->device == ctx->device && import->ctx != ctx && !soft_planted(RULE_ipc_one_context))
			return soft_leave(CUDA_ERROR_INVALID_CONTEXT);
		if (import->ctx == ctx && import->handle.id == h.id && !soft_planted(RULE_ipc_refcount)) {
			import->refs++;
			*out = import->block->lo;
			return soft_leave(CUDA_SUCCESS);
		}
	}
	import = calloc(1, sizeof(*import));
	if (!import)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	result = open_handle(&h, ctx, import);
	if (result) {
		free(import);
		return soft_leave(result);
	}
	import->next = imports;
	imports = import;
	*out = import->block->lo;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	struct import *import;
	CUcontext ctx;

	ENTER_CTX(cuIpcCloseMemHandle, ctx);
	for (import = imports; import && !(import->refs && import->block->lo == ptr); import = import->next)
		;
	if (!import)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (--import->refs == 0) {
		struct soft_block *b = import->block;

		soft_drain(ctx, false, "cuIpcCloseMemHandle");
		soft_block_remove(b);
		soft_address_map(b->lo, b->len, -1, 0);
		soft_address_give(b->lo, b->len);
		munmap((void *)(b->owner_live - import->handle.mark_index), MARKS_LEN);
	}
	return soft_leave(CUDA_SUCCESS);
}
