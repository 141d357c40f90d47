/*
 * coll._coll: libcoll for Python, on the limited API of Python 3.11.
 *
 * What each file owns: element.c the types of elements; view.c arrays of other libraries; block.c the class Buffer;
 * error.c exceptions; comm.c the life of communicators; request.c one call from its arguments to its end, with counts.c
 * and start.c; calls.c the methods; async.c Work; ended.c works whose end is told; stream.c streams, events; group.c
 * groups; operation.c persistent operations; op.c operations in Python; device.c streams of devices, and the order of
 * calls with their memory; cuda_array.c __cuda_array_interface__ of others; device_array.c the class DeviceArray; log.c
 * log lines.
 *
 * Invariants. All structs below are touched with the GIL held; calls of the library that may wait run without it. In a
 * free-threaded Python, which has no limited API, a lock of this module stands for the GIL: methods and destructors
 * that touch what threads share hold it (GUARD_..., GUARDED()), and Python lets go of it where the GIL would be let go
 * of. A call that moves data takes it only for streams and groups: its communicator belongs to one thread at a time.
 * Each struct that holds a handle of the library remembers the generation of the process in which it was made: a forked
 * child has another one, and never touches the handles of its parent.
 */
#ifndef COLL_PYTHON_BINDING_H
#define COLL_PYTHON_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <pyconfig.h>
#if !defined(Py_LIMITED_API) && !defined(Py_GIL_DISABLED)
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>

#include <coll/coll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A call of the library that may wait, or take long. */
#define WITHOUT_GIL(...)                                     \
	do {                                                 \
		PyThreadState *saved_ = PyEval_SaveThread(); \
		__VA_ARGS__;                                 \
		PyEval_RestoreThread(saved_);                \
	} while (0)

/* The same for a short call that takes a lock of the library: its holder may be at an operation in Python, and wait for
 * the GIL. Without such operations nothing is gained by letting others have it. */
extern atomic_bool coll_py_functions;
#define LIBRARY(...)                                                                \
	do {                                                                        \
		if (atomic_load_explicit(&coll_py_functions, memory_order_relaxed)) \
			WITHOUT_GIL(__VA_ARGS__);                                   \
		else                                                                \
			__VA_ARGS__;                                                \
	} while (0)

/* The lock of a free-threaded Python. */
extern PyObject *coll_py_shared;
#ifdef Py_GIL_DISABLED
#define GUARDED(...)                                       \
	do {                                               \
		Py_BEGIN_CRITICAL_SECTION(coll_py_shared); \
		__VA_ARGS__;                               \
		Py_END_CRITICAL_SECTION();                 \
	} while (0)
#else
#define GUARDED(...) __VA_ARGS__
#endif
/* name_guarded(): a method of each form of arguments, with the lock held. */
#define GUARD(name, parameters, arguments)         \
	static PyObject *name##_guarded parameters \
	{                                          \
		PyObject *result_;                 \
                                                   \
		GUARDED(result_ = name arguments); \
		return result_;                    \
	}
#define GUARD_ONE(name)  GUARD(name, (PyObject * self, PyObject * argument), (self, argument))
#define GUARD_FAST(name) GUARD(name, (PyObject * self, PyObject *const *args, Py_ssize_t nargs), (self, args, nargs))
#define GUARD_NAMED(name)                                                                        \
	GUARD(name, (PyObject * self, PyObject *const *args, Py_ssize_t nargs, PyObject *names), \
	      (self, args, nargs, names))
#define GUARD_GET(name) GUARD(name, (PyObject * self, void *unused), (self, unused))
#define GUARD_DEALLOC(name)                        \
	static void name##_guarded(PyObject *self) \
	{                                          \
		GUARDED(name(self));               \
	}

/* ---- Elements ---------------------------------------------------------- */

enum element_class { CLASS_INT, CLASS_FLOAT, CLASS_BOOL, CLASS_COMPLEX, CLASS_OPAQUE };

/* A type of elements of arrays, and how the library moves it: `per` elements of type `wire`. */
struct element {
	const char *name;
	enum element_class class;
	coll_dtype wire;
	int per, bytes;
	char format[4]; /* of the buffer protocol */
	int dl_code;
};

extern const struct element coll_py_opaque;
const struct element *coll_py_element_by_name(const char *name);
const struct element *coll_py_element_by_format(const char *format, Py_ssize_t item_bytes);
const struct element *coll_py_element_by_dlpack(int code, int bits);
const struct element *coll_py_element_of(coll_dtype type);
/* Whether memoryviews read the type as it is: Python's own types, but f16. */
bool coll_py_element_is_plain(const struct element *e);
/* The element at this address, of a type that is not plain, as a float or complex number. */
PyObject *coll_py_element_number(const struct element *e, const char *at);

/* ---- Arrays ------------------------------------------------------------- */

/* Where an array of another library lies. Its memory stays valid until coll_py_view_release(). */
struct view {
	PyObject *owner, *storage; /* strong; storage: NULL, or what holds the memory if the owner may let go of it */
	Py_buffer buffer;
	void *managed; /* a DLPack tensor of ours to delete */
	bool has_buffer, managed_versioned;
	bool readonly, contiguous, dims_mine;
	bool device, has_stream; /* memory of a device; its data are ready when `stream` (CUstream) has done its work */
	void *stream;
	char *data;
	const struct element *element;
	size_t item_bytes, items;
	int ndim;
	const int64_t *shape, *strides; /* valid until the view is moved, unless dims_mine */
	int64_t stride_unit;            /* bytes per unit of strides */
	char *packed;                   /* the contiguous copy of one that is not contiguous */
};

/* The stream of a device in which memory will be read, in DLPack's numbers: READER_NONE: there is no device, and its
 * memory is refused; 1: the legacy default stream; others: a CUstream. */
enum { READER_NONE = 0, READER_UNORDERED = -1, READER_LEGACY = 1 };
/* Describe an array, named `what` in errors. kept: it is used longer than this call of a method, while the program may
 * do anything with the object. 0, or -1 with an exception set. */
int coll_py_view_take(struct view *v, PyObject *object, const char *what, bool kept, intptr_t reader);
/* The end of taking: from its shape, the number of elements, and whether it is contiguous. 0, or -1 with an exception
 * set. */
int coll_py_view_measure(struct view *v, const char *what);
void coll_py_view_release(struct view *v);
/* The address that the library is given: of the array, or of a contiguous copy, filled if `filled`. NULL: MemoryError.
 */
int coll_py_view_pack(struct view *v, bool filled, void **address);
void coll_py_view_unpack(const struct view *v);
/* Whether they may have an element's memory in common. */
bool coll_py_view_overlaps(const struct view *v, const struct view *w);

/* ---- Communicators -------------------------------------------------------- */

struct comm {
	PyObject_HEAD _Atomic(coll_comm *) handle; /* NULL: not open */
	unsigned generation;
	atomic_bool closed;
	_Atomic(const char *) busy;    /* the call that a thread is in */
	_Atomic(unsigned long) thread; /* of the last call: coll_py_thread() */
	atomic_int aborting;           /* threads that are at aborting it */
	int rank, size;
	int device;                  /* number of this rank's CUDA device; -1: none */
	size_t blocks;               /* Buffers and DeviceArrays in memory of the communicator */
	PyObject *ops;               /* list of operations in Python, alive with it */
	_Atomic(PyObject *) failure; /* what an operation in Python raised; strong */
	struct comm *root;           /* of the job; strong; NULL: this one */
	size_t members;              /* at the root: open communicators of the job */
	struct stream *streams;      /* at the root: those that are open */
	PyObject *wrapped;       /* at the root: a list of streams of the device that calls named by their handles */
	struct dropped *dropped; /* memory to free: its arrays went while another thread was in a call */
};

/* A number of this thread, which no other one gets. */
unsigned long coll_py_thread(void);

extern PyTypeObject *coll_py_comm_type;
extern unsigned coll_py_generation;

/* Whether calls may be made. 0, or -1 with an exception set. */
int coll_py_comm_check(struct comm *c);
/* The same, and no other thread is in a call; then this one is, until coll_py_comm_leave(). */
int coll_py_comm_enter(struct comm *c, const char *name);
void coll_py_comm_leave(struct comm *c);
/* Abort the communicator, with an exception as the reason. */
void coll_py_comm_abort_for(struct comm *c, PyObject *error);
/* The exception of an operation in Python, which has aborted the communicator. -1: it is set. */
int coll_py_comm_failure(struct comm *c);
struct comm *coll_py_comm_root(struct comm *c);
PyObject *coll_py_comm_child(struct comm *parent, coll_comm *handle);
/* The array of this memory is gone: it is freed, later if another thread is in a call. */
void coll_py_comm_block_freed(struct comm *c, void *data);
/* This thread is in a call: free what was kept for later. */
void coll_py_comm_free_dropped(struct comm *c);

/* ---- Calls ---------------------------------------------------------------- */

struct stream;

enum call_kind {
	CALL_ALL_REDUCE,
	CALL_REDUCE,
	CALL_BROADCAST,
	CALL_ALL_GATHER,
	CALL_REDUCE_SCATTER,
	CALL_ALL_TO_ALL,
	CALL_GATHER,
	CALL_SCATTER,
	CALL_SCAN,
	CALL_BARRIER,
	CALL_EXCLUSIVE_SCAN,
	CALL_SEND,
	CALL_RECV,
	CALL_SEND_RECV,
	CALL_COUNT,
};

enum argument {
	ARG_X,
	ARG_OP,
	ARG_ROOT,
	ARG_OUT,
	ARG_COUNTS,
	ARG_IN_COUNTS,
	ARG_OUT_COUNTS,
	ARG_PEER,
	ARG_DEST,
	ARG_SOURCE,
	ARG_TAG,
	ARG_STREAM,
	ARG_COUNT,
};

struct method {
	const char *name;
	int required, positional, total;
	enum argument order[7];
};

extern const struct method coll_py_methods[CALL_COUNT];
extern const PyMethodDef coll_py_call_methods[CALL_COUNT];
int coll_py_calls_init(void);
int coll_py_parse(const struct method *m, PyObject *const *args, Py_ssize_t nargs, PyObject *names, PyObject **values);

/* One call. Owns what the library reads and writes until coll_py_request_end(). */
struct request {
	struct comm *comm; /* strong */
	enum call_kind kind;
	coll_op op;
	coll_dtype type;
	int root, dest; /* root also: peer, source */
	size_t count, out_count;
	struct view in, out;
	bool has_in, has_out, same; /* same: in is also where the result goes */
	bool ragged, tagged;
	bool kept;   /* see coll_py_view_take() */
	bool marked; /* its result is a DeviceArray that a stream writes */
	int tag;     /* of a message; -1: any */
	size_t *in_counts, *out_counts;
	void *in_address, *out_address;
	intptr_t reader;     /* see coll_py_view_take() */
	PyObject *op_object; /* strong; NULL: one of the library */
	PyObject *result;    /* strong; what the call returns */
};

/* Fill a request from the arguments of a call. 0, or -1 with an exception set and nothing to end. s: the stream of the
 * call, or NULL; kept, reader: see coll_py_view_take(). */
int coll_py_request_make(struct request *r, struct comm *c, enum call_kind kind, PyObject *const *values,
                         struct stream *s, bool kept, intptr_t reader);
/* The same for irecv(), which a group may hold. */
int coll_py_receive_make(struct request *r, struct comm *c, PyObject *const *values);
/* A rank and a tag, each at least `least` (-1: any is one of them). 0, or -1 with an exception set. */
int coll_py_read_envelope(const struct comm *c, const char *name, long least, PyObject *peer, PyObject *tag, int *from,
                          int *number);
/* Copies of arrays that are not contiguous, before the start. */
int coll_py_request_pack(struct request *r);
coll_status coll_py_request_start(const struct request *r, coll_stream *s);
void coll_py_request_describe(const struct request *r, coll_operation_desc *d);
/* Write results back to arrays that are not contiguous. */
void coll_py_request_unpack(struct request *r);
/* The array that the call writes; NULL: none. */
const struct view *coll_py_request_written(const struct request *r);
void coll_py_request_end(struct request *r);
const char *coll_py_name_of(const struct request *r);
/* The operation of a call whose input is known; NULL: the sum. 0, or -1 with an exception set. */
int coll_py_request_reduce(struct request *r, PyObject *op);
/* Elements per rank, to be freed, and their sum. row: elements in a row of the input. NULL with an exception set. */
size_t *coll_py_counts_read(const struct request *r, PyObject *object, size_t row, const char *what, size_t *total);
size_t *coll_py_counts_ask(struct request *r, size_t row, size_t *total);
/* Blocking, with the GIL released. */
PyObject *coll_py_request_run(struct request *r);

/* ---- Streams, Work, groups ------------------------------------------------- */

struct stream {
	PyObject_HEAD coll_stream *handle;
	bool device; /* of a device: cuda is its CUstream */
	void *cuda;
	struct comm *comm; /* strong: the root of its job */
	unsigned generation;
	struct work *first, *last; /* unfinished, in order; strong. If there are any, the stream holds itself. */
	struct stream *next, *next_pending; /* streams of the job; streams with unfinished work */
	bool pending;
	size_t copied;   /* unfinished works whose results are still to be written back */
	PyObject *error; /* of its first work that failed, until the program has it from the stream */
	bool renew;      /* that work took nothing with it but itself: those that come later are made in a new queue */
	int users;       /* threads that are in the library with the handle */
};

extern PyTypeObject *coll_py_stream_type, *coll_py_work_type, *coll_py_event_type;

struct work {
	PyObject_HEAD struct request request;
	struct stream *stream; /* strong while running */
	struct work *next, *next_ended;
	coll_event *event;
	unsigned generation;
	int waiters;
	enum { WORK_NEW, WORK_IN_GROUP, WORK_RUNNING, WORK_DONE } state;
	PyObject *result, *error;
};

PyObject *coll_py_work_start(struct request *r, PyObject *stream);
/* Wait for it with no limit, as a call without a stream does: Ctrl-C aborts its communicator. Its result. */
PyObject *coll_py_work_await(PyObject *work);
/* A new stream object around a stream of the library, whose ownership passes. */
struct stream *coll_py_stream_adopt(struct comm *root, coll_stream *handle);
/* Before a call in it, or its error is given: a failed message leaves the stream as it was. */
void coll_py_stream_renew(struct stream *s);
/* After the start of its call: the work is in its stream, or has failed with an error. */
void coll_py_work_begin(struct work *w, coll_status st);
/* 1: done, 0: the time has passed, -1: an exception is set. */
int coll_py_work_wait(struct work *w, int timeout_ms);
/* The event of one that is done goes, unless somebody waits for it. */
void coll_py_work_drop_event(struct work *w);
int coll_py_ended_init(PyObject *module);
/* In the child of a fork. */
void coll_py_ended_reset(void);
/* Look after all works that have ended. */
void coll_py_reap(void);
/* Wait for all works of a stream. 1: done; 0: the time has passed; -1: an exception is set. */
int coll_py_stream_finish(struct stream *s, int timeout_ms);
/* Before a call in the stream: what is copied in the call, and written back after it, is not out of order. 0, or -1
 * with an exception set. */
int coll_py_stream_settle(struct stream *s, const struct request *r);
/* Before the last communicator of a job ends: its streams go. */
void coll_py_streams_close(struct comm *root);

bool coll_py_group_open(void);
/* Takes the request (w NULL) or the work: 0. Else -1 with an exception set, and a request has been ended. */
int coll_py_group_add(struct request *r, struct work *w);
PyObject *coll_py_stream_new(PyObject *module, PyObject *args);
PyObject *coll_py_comm_open_all(PyObject *module, PyObject *args);
int coll_py_reduce_init(void);

/* ---- Operations in Python --------------------------------------------------- */

struct op {
	PyObject_HEAD coll_op value;
	struct comm *comm; /* strong until it is closed */
	PyObject *function;
	bool made;
};

extern PyTypeObject *coll_py_op_type, *coll_py_operation_type, *coll_py_block_type;
PyObject *coll_py_op_create(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *coll_py_op_premul_sum(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *coll_py_irecv(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *coll_py_probe(PyObject *self, PyObject *args);
/* Receives that were dropped before they ended. */
void coll_py_receives_reap(void);
/* Take back those that are posted, before the communicator ends. ending: the process ends, too; then those for which
 * another thread waits follow in a moment. */
void coll_py_receives_cancel(struct comm *c, bool ending);
int coll_py_receive_init(PyObject *module);
PyObject *coll_py_prepare(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names);

/* ---- Buffers ------------------------------------------------------------------ */

struct block {
	PyObject_HEAD void *data;
	const struct element *element;
	int ndim;
	Py_ssize_t *shape, *strides;
	size_t items;
	struct comm *comm; /* strong: memory of this communicator */
	PyObject *owner;   /* strong: memory of that object */
	bool mine;
	unsigned generation;
};

/* A number that is not negative, of Python or of an array library. SIZE_MAX: it is none; another exception may be set.
 */
size_t coll_py_size(PyObject *object);
/* One without memory, of this shape (a tuple of sizes), and what the class DeviceArray shares. */
struct block *coll_py_block_start(PyTypeObject *type, PyObject *shape, const struct element *element);
void coll_py_block_dealloc(PyObject *self);
PyObject *coll_py_block_shape(PyObject *self, void *unused);
PyObject *coll_py_block_dtype(PyObject *self, void *unused);
PyObject *coll_py_block_address(PyObject *self, void *unused);
PyObject *coll_py_block_bytes(PyObject *self, void *unused);
/* A new one. */
PyObject *coll_py_block_new(struct comm *c, PyObject *shape, const struct element *element);
PyObject *coll_py_block_raw(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

/* ---- Devices ------------------------------------------------------------------ */

/* The stream that a caller names: a Stream, the number of a CUstream, or an object that has one (__cuda_stream__(),
 * cuda_stream, ptr, handle). Strong; NULL with an exception set. */
struct stream *coll_py_device_stream(struct comm *c, PyObject *named);
/* What cannot run at each launch of a graph, in a stream that is being captured: -1 with an exception set. fits: the
 * arrays of a call. allocates: a new result of it. */
int coll_py_device_graph_fits(const struct request *r, const struct stream *s);
int coll_py_device_graph_allocates(const struct request *r);
/* The number by which DLPack calls the stream of a call; NULL: it has none. */
intptr_t coll_py_device_reader(const struct comm *c, const struct stream *s);
/* The stream, which is one of a device, begins what follows when the data of the request are ready. */
int coll_py_device_order(const struct request *r, struct stream *s);
/* Whether a call without a stream must wait for a stream that an array names. */
bool coll_py_device_waits(const struct request *r);
/* Run such a call, in that stream, and wait for it. */
PyObject *coll_py_device_run(struct request *r);
/* `later` does what follows when `earlier` has done what it holds now. */
int coll_py_device_follow(struct comm *c, void *earlier, void *later);
int coll_py_device_number(const coll_comm *handle);

/* From x.__cuda_array_interface__. */
int coll_py_view_cuda(struct view *v, PyObject *object, const char *what);

/* A new array in memory of the device. */
PyObject *coll_py_device_array_new(struct comm *c, PyObject *shape, const struct element *element);
bool coll_py_is_device_array(PyObject *object);
/* A call in a stream writes it: its data are ready when the stream has done its work. Then the call has ended. */
void coll_py_device_array_begin(PyObject *array, const struct stream *s);
void coll_py_device_array_end(PyObject *array);
/* The same for what a request writes. */
void coll_py_device_mark(struct request *r, const struct stream *s);
void coll_py_device_unmark(struct request *r);
void coll_py_view_device_array(struct view *v, PyObject *array);
int coll_py_device_array_init(PyObject *module);

/* The argument dl_device of __dlpack__(): unchanged for None. 0, or -1 with an exception set. */
int coll_py_dlpack_device(PyObject *device, int *kind, int *number);
/* A capsule for DLPack of a contiguous array that `owner` keeps. version, copy: as in __dlpack__(). */
struct dl_tensor;
PyObject *coll_py_dlpack_export(PyObject *owner, const struct dl_tensor *tensor, PyObject *version, PyObject *may_copy);

/* ---- Errors ---------------------------------------------------------------------- */

/* What coll/__init__.py hands over: classes and functions in Python. */
enum hook {
	HOOK_ERROR,
	HOOK_ARGUMENT,
	HOOK_UNSUPPORTED,
	HOOK_LIKE,
	HOOK_DESCRIBE,
	HOOK_ADVICE,
	HOOK_WORK,
	HOOK_MESSAGE,
	HOOK_COUNT
};
extern PyObject *coll_py_hooks[HOOK_COUNT];

/* All set an exception. */
PyObject *coll_py_raise(struct comm *c, coll_status st, const char *name);
PyObject *coll_py_raise_argument(const char *format, ...);
PyObject *coll_py_raise_unsupported(const char *format, ...);
/* The exception itself, not set; NULL with one set. */
PyObject *coll_py_error(struct comm *c, coll_status st, const char *name);
/* The same, with a text of this module. */
PyObject *coll_py_error_text(coll_status st, const char *name, const char *text);
/* Take the exception that is set. */
PyObject *coll_py_take_exception(void);

/* The same for somebody who may never look at it: its line of the log waits on. */
PyObject *coll_py_error_kept(struct comm *c, coll_status st, const char *name);

/* ---- Log lines ---------------------------------------------------------- */

/* coll_config.log. */
void coll_py_log(void *arg, int level, const char *line);
/* The program has this error (NULL: one of a Work): no line on stderr is to repeat it. */
void coll_py_log_raised(const char *message);
void coll_py_log_forked(void);
PyObject *coll_py_log_attach(PyObject *module, PyObject *on);
PyObject *coll_py_log_wait(PyObject *module, PyObject *wait);
PyObject *coll_py_log_flush(PyObject *module, PyObject *written);
PyObject *coll_py_log_ending(PyObject *module, PyObject *unused);

/* For coll_config.interrupt: a signal handler that raises ends the wait. */
int coll_py_interrupt(void *arg);
/* From now on it does nothing. */
void coll_py_waits_alone(void);
/* What it raised becomes the exception of this thread: -1. 0: nothing. */
int coll_py_interrupted(void);
/* This thread looks after signals itself, between slices of a wait: what it waits for is not to be aborted. */
extern _Thread_local bool coll_py_signals_wait;
#define SLICE(...)                            \
	do {                                  \
		coll_py_signals_wait = true;  \
		WITHOUT_GIL(__VA_ARGS__);     \
		coll_py_signals_wait = false; \
	} while (0)

/* ---- Module ------------------------------------------------------------------------ */

PyTypeObject *coll_py_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base);
/* docs.c: give methods and properties their docstrings; returns that of the type, or NULL. */
const char *coll_py_document(const PyType_Spec *spec);
int coll_py_comm_init(PyObject *module);
int coll_py_async_init(PyObject *module);
int coll_py_stream_types(PyObject *module);
int coll_py_block_init(PyObject *module);
int coll_py_operation_init(PyObject *module);
int coll_py_op_init(PyObject *module);
PyObject *coll_py_group_begin(PyObject *module, PyObject *unused);
PyObject *coll_py_group_end(PyObject *module, PyObject *reason);

/* Objects of classes made by PyType_FromSpec hold their class. */
void coll_py_free(PyObject *object);

/* The one argument, which may be left out, of a method: its value, NULL if there is none. -1: an exception is set. */
int coll_py_one(const char *method, const char *name, PyObject *const *args, Py_ssize_t nargs, PyObject *names,
                PyObject **value);

/* A wait is cut in slices so that Ctrl-C comes through. */
enum { COLL_PY_SLICE_MS = 50 };

/* seconds, or None: no limit. Milliseconds, -1 for none; -2 with an exception set. */
int coll_py_timeout(PyObject *seconds);

#endif
