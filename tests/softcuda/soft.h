/*
 * What the files of the stand-in driver share. One lock guards all state but the words that
 * memory operations wait for, the block table (memory.c) and the counters. A handle that has
 * been given out is never returned to the heap, so that a stale one can be recognised.
 */
#ifndef SOFTCUDA_SOFT_H
#define SOFTCUDA_SOFT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda_abi.h"
#include "tests/softcuda/kernel_host.h"
#include "tests/softcuda/rules.h"
#include "tests/softcuda/softcuda.h"

enum { SOFT_DEVICES_MAX = 16, SOFT_QUEUES_MAX = 32, SOFT_ARGS_MAX = 4096 };

/* ---- entry points ---- */

#define SOFT_DECLARE(name, symbol, version, parameters) SOFT_API CUresult symbol parameters;
CUDA_ABI_FUNCTIONS(SOFT_DECLARE)
#define SOFT_FN(name, symbol, version, parameters) FN_##name,
enum soft_fn { CUDA_ABI_FUNCTIONS(SOFT_FN) FN_COUNT };

/* At the start of every entry point: count the call, refuse it in a forked child and in a host
 * function, and take the lock. The caller returns the error unless it is CUDA_SUCCESS, and
 * unlocks otherwise. soft_enter_ctx also wants a current context without a sticky error. */
CUresult soft_enter(enum soft_fn fn);
CUresult soft_enter_ctx(enum soft_fn fn, CUcontext *ctx);
CUresult soft_leave(CUresult result);
/* For calls that only concern the thread: another call that holds the driver does not delay them. */
CUresult soft_enter_thread(enum soft_fn fn);
/* Count a call that takes no lock. */
CUresult soft_enter_free(enum soft_fn fn);

#define ENTER(fn)                                       \
	do {                                            \
		CUresult entered = soft_enter(FN_##fn); \
		if (entered)                            \
			return entered;                 \
	} while (0)
#define ENTER_THREAD(fn)                                       \
	do {                                                   \
		CUresult entered = soft_enter_thread(FN_##fn); \
		if (entered)                                   \
			return entered;                        \
	} while (0)
#define ENTER_CTX(fn, ctx)                                          \
	do {                                                        \
		CUresult entered = soft_enter_ctx(FN_##fn, &(ctx)); \
		if (entered)                                        \
			return entered;                             \
	} while (0)

bool soft_planted(enum soft_rule rule);
long soft_setting(const char *name, long otherwise);

/* ---- devices, contexts ---- */

struct soft_device {
	int physical; /* the same device in other processes */
	int primary_refs;
	CUcontext primary;
	size_t total, used;
	int assigned; /* streams that have been given a queue */
	struct soft_queue *queues[SOFT_QUEUES_MAX];
};

struct CUctx_st {
	CUdevice device;
	unsigned flags;
	bool primary, dead;
	_Atomic(CUresult) error; /* sticky */
	CUstream streams;        /* all of this context, living */
	CUstream legacy;
	CUcontext peers[SOFT_DEVICES_MAX]; /* access enabled to their memory */
	CUcontext next;
};

/* The whole driver. */
struct soft_driver {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* an operation is done, or exclusive has ended */
	int changed_waiters;
	_Atomic bool initialised, forked;
	bool exclusive; /* a call holds the driver while it waits */
	pthread_t exclusive_by;
	int devices;
	struct soft_device device[SOFT_DEVICES_MAX];
	CUcontext contexts;
	int queues, depth;
	uint64_t seed;
	int version;
	bool launch_blocking, eager, no_memops;
	_Atomic int blocked; /* calls that wait for work now */
	unsigned long long ids;
};

extern struct soft_driver soft;

/* The current context of the thread; NULL: none. */
CUcontext soft_current(void);
bool soft_context_lives(CUcontext ctx);
/* Set the sticky error, once, and wake all that waits. */
void soft_fault(CUcontext ctx, CUresult error);
extern __thread bool soft_in_callback __attribute__((tls_model("initial-exec")));

/* ---- memory ---- */

enum soft_kind { SOFT_ALLOC, SOFT_VMM, SOFT_IPC, SOFT_HOST, SOFT_REGISTERED, SOFT_MANAGED };

struct soft_block {
	uintptr_t lo; /* device address */
	size_t len;
	intptr_t delta; /* to where this process can touch it */
	enum soft_kind kind;
	CUcontext ctx;
	CUdevice device;
	unsigned long long id;
	unsigned flags;
	_Atomic uint32_t access; /* devices with access, VMM */
	_Atomic bool live;
	struct soft_handle *handle;         /* VMM */
	const _Atomic uint32_t *owner_live; /* IPC: the owner's mark */
	uint32_t owner_mark;
	int owner;
	bool aliased; /* registered memory whose device address is another one */
	struct soft_block *next;
};

void soft_memory_init(void);
/* The block that holds a device address or a host address; NULL: none. Any thread, no lock. */
struct soft_block *soft_block_at(uintptr_t address);
struct soft_block *soft_host_block_at(uintptr_t host);
bool soft_may_access(const struct soft_block *b, CUcontext ctx);
bool soft_is_host(const struct soft_block *b);
/* A kernel or a copy has read or written so many bytes of host memory. */
void soft_count_host(size_t bytes);
/* Where len bytes at a device address lie; NULL: not in one block which ctx may access. */
void *soft_touch(CUcontext ctx, uintptr_t address, size_t len);
/* A reservation of device addresses, and its end. 0: no room. */
uintptr_t soft_address_take(size_t len, size_t align);
void soft_address_give(uintptr_t lo, size_t len);
bool soft_address_holds(uintptr_t address);
int soft_address_fd(void);
size_t soft_address_offset(uintptr_t address);
/* Map a file where kernels find the range; NULL: its own pages again. */
bool soft_address_map(uintptr_t lo, size_t len, int fd, size_t offset);
struct soft_block *soft_block_add(enum soft_kind kind, uintptr_t lo, size_t len, intptr_t delta, CUcontext ctx);
void soft_block_remove(struct soft_block *b);
/* Return the memory of one block, and of all blocks of a context but mapped physical memory. */
void soft_memory_end(struct soft_block *b);
void soft_blocks_end(CUcontext ctx);
intptr_t soft_address_delta(void);
/* The mark of a block of this process, and its change at allocation and free. */
const _Atomic uint32_t *soft_address_mark(uintptr_t lo);
void soft_address_toggle(uintptr_t lo);

/* ---- queues, operations ---- */

/* OP_EVENT only in graphs: an external event, see graph.c. */
enum soft_op_kind { OP_NOP, OP_KERNEL, OP_COPY, OP_SET, OP_MEMOP, OP_HOST, OP_EVENT };

struct soft_launch {
	const struct soft_kernel *kernel;
	struct soft_index blocks, threads;
	unsigned shared_len;
	void *args;           /* owned, of the kernel's length */
	const bool *unloaded; /* modules stay as objects */
};

/* What an operation does; copied into graphs. */
struct soft_work {
	enum soft_op_kind kind;
	CUcontext ctx;
	union {
		struct soft_launch launch;
		struct {
			uintptr_t dst, src;
			size_t len;
			bool raw_dst, raw_src; /* host memory which is not registered */
		} copy;
		struct {
			uintptr_t dst;
			size_t len;
			unsigned char value;
		} set;
		struct {
			unsigned count;
			CUstreamBatchMemOpParams *ops; /* owned */
		} memop;
		struct {
			CUhostFn fn;
			void *arg;
		} host;
		struct {
			CUevent event;
			bool record; /* else a wait */
		} event;
	};
};

struct soft_op {
	int refs;
	bool done;
	struct soft_work work;
	struct soft_queue *queue;
	struct soft_op **deps;
	int deps_count;
	struct soft_op *next;
	CUgraphExec exec; /* the last of a graph's launch */
};

/* Take ownership of work. On a capturing stream it becomes a node, else an operation, of which *out (if
 * not NULL) gets a reference. Lock held; may wait for room. */
CUresult soft_enqueue(CUstream s, struct soft_work *work, struct soft_op **out);
/* The same on a stream that does not capture, with operations to wait for. */
struct soft_op *soft_push(CUstream s, struct soft_work *work, struct soft_op *const *deps, int deps_count);
void soft_work_clear(struct soft_work *work);
bool soft_work_copy(struct soft_work *to, const struct soft_work *from);
struct soft_op *soft_op_ref(struct soft_op *op);
void soft_op_unref(struct soft_op *op);
/* Wait for an operation; for all of a context. exclusive: other calls wait as well. Lock held. */
void soft_wait(struct soft_op *op, const char *what);
void soft_drain(CUcontext ctx, bool exclusive, const char *what);
struct soft_queue *soft_deal(CUdevice device);
void soft_changed(void);
/* pthread_cond_wait on changed; reports a wait that lasts. */
void soft_wait_changed(const char *what, uint64_t *since);
uint64_t soft_now_us(void);

/* ---- streams, events ---- */

struct soft_capture;

struct CUstream_st {
	CUcontext ctx;
	unsigned flags;
	int priority;
	bool legacy, dead, internal;
	struct soft_queue *queue;
	struct soft_op *last;
	unsigned long long id;
	struct soft_capture *capture;
	struct CUgraphNode_st **tips; /* what the next node depends on */
	int tips_count;
	CUstream next;
};

struct CUevent_st {
	CUcontext ctx;
	unsigned flags;
	bool dead;
	struct soft_op *op; /* NULL: never recorded, or as good as done */
	struct soft_capture *capture;
	struct CUgraphNode_st **tips;
	int tips_count;
	CUevent next;
};

/* The stream of a handle, in a current context; makes the default ones. Lock held. */
CUresult soft_stream(CUcontext ctx, CUstream handle, CUstream *s);
CUstream soft_stream_new(CUcontext ctx, unsigned flags);
void soft_streams_end(CUcontext ctx);
/* The operation becomes the last record of the event, which gets a reference. */
void soft_event_set(CUevent e, struct soft_op *op);

/* ---- kernels ---- */

CUresult soft_run(CUcontext ctx, const struct soft_launch *launch, uint64_t seed);
const struct soft_kernel *soft_kernel_named(const char *name, size_t len);

/* ---- capture and graphs ---- */

/* On a capturing stream: make work a node. */
CUresult soft_capture_add(CUstream s, struct soft_work *work);
/* Refuse what is unsafe during captures. Lock held. */
CUresult soft_capture_unsafe(void);
/* Refuse use of the legacy stream during a capture of a blocking stream. */
CUresult soft_capture_implicit(CUcontext ctx);
/* A call that a capturing stream does not allow: ends the capture. */
CUresult soft_capture_wrong(struct soft_capture *c, CUresult why);
CUresult soft_capture_record(CUstream s, CUevent e);
CUresult soft_capture_wait(CUstream s, CUevent e);
void soft_capture_stream_gone(CUstream s);
void soft_exec_done(CUgraphExec exec);

#endif
