/*
 * Cases of memory that processes share. The owner is a child, forked before either process uses the
 * driver; the two talk over a socket.
 */
#include "tests/softcuda/cases.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t owner;
static int owner_socket;

static void say(int fd, const void *p, size_t len)
{
	IS(write(fd, p, len), len);
}

static void hear(int fd, void *p, size_t len)
{
	IS(read(fd, p, len), len);
}

/* Run the function as the owner: it ends when the other side says so. */
static void owner_begin(void (*run)(int fd))
{
	int fds[2];

	OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds));
	owner = fork();
	if (owner == 0) {
		char end;

		close(fds[0]);
		start();
		run(fds[1]);
		(void)!read(fds[1], &end, 1);
		_exit(0);
	}
	close(fds[1]);
	owner_socket = fds[0];
}

static void owner_end(void)
{
	int status;

	close(owner_socket);
	waitpid(owner, &status, 0);
	IS(status, 0);
}

/* A block of 8 KiB whose words are their index; its handle, asked for at an address inside. */
static CUdeviceptr shared_block(int fd)
{
	uint32_t content[2048];
	CUipcMemHandle handle;
	CUdeviceptr p = device_memory(sizeof(content));

	for (uint32_t i = 0; i < 2048; i++)
		content[i] = i + 100;
	OK(cuMemcpyHtoD(p, content, sizeof(content)));
	OK(cuIpcGetMemHandle(&handle, p + 4096));
	say(fd, &handle, sizeof(handle));
	return p;
}

static void share(int fd)
{
	shared_block(fd);
}

static void share_and_free(int fd)
{
	const CUdeviceptr p = shared_block(fd);
	char go;

	hear(fd, &go, 1);
	OK(cuMemFree(p));
	say(fd, &go, 1);
}

static CUipcMemHandle handle_of(void (*run)(int fd))
{
	CUipcMemHandle handle;

	owner_begin(run);
	start();
	hear(owner_socket, &handle, sizeof(handle));
	return handle;
}

static CUdeviceptr opened(CUipcMemHandle handle)
{
	CUdeviceptr p;

	OK(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	return p;
}

static uint32_t word_at(CUdeviceptr p)
{
	uint32_t value;

	OK(cuMemcpyDtoH(&value, p, sizeof(value)));
	return value;
}

/* By a kernel, whose faults are those of the context. */
static CUresult touch(CUdeviceptr p)
{
	const CUdeviceptr out = device_memory(64);

	OK(launch(kernel("softtest_load"), 1, 1, NULL, out, p, 4, 0));
	return cuCtxSynchronize();
}

static void ipc_self(void)
{
	CUipcMemHandle handle;
	CUdeviceptr p;

	start();
	OK(cuIpcGetMemHandle(&handle, device_memory(64)));
	IS(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
}

static void ipc_base(void)
{
	const CUipcMemHandle handle = handle_of(share);
	const CUdeviceptr p = opened(handle);
	CUdeviceptr base;
	size_t len;

	IS(word_at(p), 100);
	IS(word_at(p + 4096), 1124);
	OK(cuMemGetAddressRange(&base, &len, p + 5000));
	TRUE(base == p);
	IS(len, 8192);
	OK(touch(p + 8188));
	owner_end();
}

static void ipc_legacy_only(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h;
	CUipcMemHandle handle;
	unsigned capable;
	CUdeviceptr p;

	start();
	OK(cuMemCreate(&h, (size_t)2 << 20, &prop, 0));
	OK(cuMemAddressReserve(&p, (size_t)2 << 20, 0, 0, 0));
	OK(cuMemMap(p, (size_t)2 << 20, 0, h, 0));
	OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
	IS(capable, 0);
	IS(cuIpcGetMemHandle(&handle, p), CUDA_ERROR_INVALID_VALUE);
	IS(cuIpcGetMemHandle(&handle, on_device(words())), CUDA_ERROR_INVALID_VALUE);
	OK(cuIpcGetMemHandle(&handle, device_memory(64)));
}

static void ipc_refcount(void)
{
	const CUipcMemHandle handle = handle_of(share);
	const CUdeviceptr p = opened(handle), q = opened(handle);

	TRUE(p == q);
	OK(cuIpcCloseMemHandle(p));
	IS(word_at(p + 4), 101);
	OK(cuIpcCloseMemHandle(p));
	IS(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
	IS(touch(p), CUDA_ERROR_ILLEGAL_ADDRESS);
	owner_end();
}

static void ipc_one_context(void)
{
	const CUipcMemHandle handle = handle_of(share);
	CUcontext foreign;
	CUdeviceptr p;

	opened(handle);
	OK(cuCtxCreate(&foreign, 0, 0));
	IS(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
	owner_end();
}

static void ipc_freed(void)
{
	const CUipcMemHandle handle = handle_of(share_and_free);
	const CUdeviceptr p = opened(handle);
	char go = 1;

	OK(touch(p));
	say(owner_socket, &go, 1);
	hear(owner_socket, &go, 1);
	IS(touch(p), CUDA_ERROR_ILLEGAL_ADDRESS);
	owner_end();
}

static void ipc_dead_owner(void)
{
	const CUipcMemHandle handle = handle_of(share);
	const CUdeviceptr p = opened(handle);
	int status;

	OK(kill(owner, SIGKILL));
	waitpid(owner, &status, 0);
	IS(word_at(p + 40), 110);
	OK(touch(p));
	OK(cuIpcCloseMemHandle(p));
	TRUE(cuIpcOpenMemHandle(&(CUdeviceptr){0}, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS);
}

static void ipc_namespace(void)
{
	const CUipcMemHandle handle = handle_of(share);
	CUdeviceptr p;

	IS(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_VALUE);
	owner_end();
}

/* ---- by descriptor ---- */

#define PART ((size_t)2 << 20)

static CUdeviceptr map(CUmemGenericAllocationHandle h)
{
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr p;

	OK(cuMemAddressReserve(&p, PART, 0, 0, 0));
	OK(cuMemMap(p, PART, 0, h, 0));
	OK(cuMemSetAccess(p, PART, &access, 1));
	return p;
}

static void send_descriptor(int fd, int descriptor)
{
	char control[CMSG_SPACE(sizeof(int))] = "", byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &descriptor, sizeof(int));
	IS(sendmsg(fd, &m, 0), 1);
}

static int receive_descriptor(int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = "", byte;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	int descriptor;

	IS(recvmsg(fd, &m, 0), 1);
	memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return descriptor;
}

static void export_and_go(int fd)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                                  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h;
	uint32_t value = 4711;
	CUdeviceptr p;
	int descriptor;

	OK(cuMemCreate(&h, PART, &prop, 0));
	p = map(h);
	OK(cuMemRelease(h)); /* the mapping holds it */
	OK(cuMemcpyHtoD(p + 64, &value, sizeof(value)));
	IS(word_at(p + 64), 4711);
	OK(cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)p));
	OK(cuMemExportToShareableHandle(&descriptor, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_descriptor(fd, descriptor);
	close(descriptor);
	OK(cuMemUnmap(p, PART));
	OK(cuMemRelease(h));
	say(fd, &value, 1);
}

static void vmm_lives(void)
{
	CUmemGenericAllocationHandle h;
	int descriptor;
	CUdeviceptr p;
	char byte;

	owner_begin(export_and_go);
	start();
	descriptor = receive_descriptor(owner_socket);
	hear(owner_socket, &byte, 1);
	owner_end();
	OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(descriptor);
	p = map(h);
	OK(cuMemRelease(h));
	IS(word_at(p + 64), 4711);
	OK(cuMemUnmap(p, PART));
	IS(touch(p), CUDA_ERROR_ILLEGAL_ADDRESS);
}

const struct softcuda_case cases_processes[] = {
        {"ipc_self", ipc_self, {NULL}},
        {"ipc_base", ipc_base, {NULL}},
        {"ipc_legacy_only", ipc_legacy_only, {NULL}},
        {"ipc_refcount", ipc_refcount, {NULL}},
        {"ipc_one_context", ipc_one_context, {NULL}},
        {"ipc_freed", ipc_freed, {NULL}},
        {"ipc_dead_owner", ipc_dead_owner, {NULL}},
        {"ipc_namespace", ipc_namespace, {"SOFTCUDA_OTHER_PID_NS=1", NULL}},
        {"vmm_lives", vmm_lives, {NULL}},
        {NULL, NULL, {NULL}},
};
