/*
 * Communicators: creation, the rule of one thread at a time, the end.
 *
 * `busy` names the call that a thread is in; another thread that enters gets an ArgumentError, never a mixture. The
 * handle outlives close() while arrays in its memory (empty()) are alive: it is destroyed with the last of them, or at
 * the end of the interpreter, when other code that runs at exit can no longer look at them.
 */
#include "comm.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *coll_py_comm_type;

unsigned long coll_py_thread(void)
{
	static atomic_ulong last;
	static _Thread_local unsigned long number; /* identifiers of threads are used again */

	if (number == 0)
		number = atomic_fetch_add(&last, 1) + 1;
	return number;
}

/* ---- May a call be made? ---- */

int coll_py_comm_check(struct comm *c)
{
	if (c->handle && c->generation == coll_py_generation && !c->closed)
		return 0;
	if (c->handle && c->generation != coll_py_generation)
		coll_py_raise_argument(
		        "the communicator belongs to the process that forked this one; create another here");
	else
		coll_py_raise_argument("the communicator is closed");
	return -1;
}

/* What a destructor is in; it may run in any thread, and others wait for it. */
static const char freeing[] = "free";

int coll_py_comm_enter(struct comm *c, const char *name)
{
	const char *other = NULL;

	/* Acquire: what the thread that left wrote to the communicator is visible to this one. */
	while (!atomic_compare_exchange_strong_explicit(&c->busy, &other, name, memory_order_acquire,
	                                                memory_order_relaxed)) {
		if (other == freeing) {
			WITHOUT_GIL(sched_yield());
			other = NULL;
			continue;
		}
		coll_py_raise_argument(
		        "%s: another thread is in %s on this communicator; give each thread one of its own "
		        "(duplicate())",
		        name, other);
		return -1;
	}
	if (name != freeing)
		atomic_store_explicit(&c->thread, coll_py_thread(), memory_order_relaxed);
	return 0;
}

void coll_py_comm_leave(struct comm *c)
{
	atomic_store_explicit(&c->busy, NULL, memory_order_release);
}

static char *text_of(PyObject *object)
{
	PyObject *text = PyObject_Str(object), *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
	char *copy = bytes ? strdup(PyBytes_AsString(bytes)) : NULL;

	Py_XDECREF(text);
	Py_XDECREF(bytes);
	if (!copy && !PyErr_Occurred())
		PyErr_NoMemory();
	return copy;
}

/* Another thread may be at destroying it, and waits for this one. */
static void abort_with(struct comm *c, int exit_status, const char *reason)
{
	coll_comm *handle;

	atomic_fetch_add(&c->aborting, 1);
	handle = c->handle;
	if (handle && c->generation == coll_py_generation)
		WITHOUT_GIL(coll_comm_abort_with(handle, exit_status, reason));
	atomic_fetch_sub(&c->aborting, 1);
}

void coll_py_comm_abort_for(struct comm *c, PyObject *error)
{
	PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(error), "__name__");
	PyObject *reason = type ? PyUnicode_FromFormat("%U: %S", type, error) : NULL;
	char *text = reason ? text_of(reason) : NULL;

	PyErr_Clear();
	abort_with(c, 0, text ? text : "an operation in Python raised an exception");
	free(text);
	Py_XDECREF(type);
	Py_XDECREF(reason);
}

int coll_py_comm_failure(struct comm *c)
{
	PyObject *failure = atomic_exchange(&c->failure, NULL);

	if (failure)
		PyErr_SetObject((PyObject *)Py_TYPE(failure), failure);
	else /* another thread has taken it */
		coll_py_raise(c, COLL_ERR_ABORTED, "op");
	Py_XDECREF(failure);
	return -1;
}

/* ---- Creation ---- */

struct comm *coll_py_comm_root(struct comm *c)
{
	return c->root ? c->root : c;
}

static void adopt(struct comm *c, coll_comm *handle, struct comm *root)
{
	c->handle = handle;
	c->generation = coll_py_generation;
	c->rank = coll_comm_rank(handle);
	c->size = coll_comm_size(handle);
	c->device = coll_py_device_number(handle);
	c->thread = coll_py_thread();
	c->root = root;
	Py_XINCREF((PyObject *)root);
	coll_py_comm_root(c)->members++;
}

PyObject *coll_py_comm_child(struct comm *parent, coll_comm *handle)
{
	PyObject *child = handle ? PyObject_CallNoArgs((PyObject *)Py_TYPE((PyObject *)parent)) : Py_None;

	if (child == Py_None)
		Py_INCREF(child);
	else if (child)
		adopt((struct comm *)child, handle, coll_py_comm_root(parent));
	return child;
}

/* What the library needs to call an exchange in Python. */
struct exchange {
	PyObject *function, *failure;
	int size;
};

/* bytes, or a list with the bytes of each rank. */
static int copy_answer(PyObject *answer, char *all, size_t len_bytes, int size)
{
	PyObject *empty = PyBytes_FromString(""), *joined;
	int rc = -1;

	if (PyBytes_Check(answer)) {
		joined = answer;
		Py_INCREF(joined);
	} else {
		joined = empty ? PyObject_CallMethod(empty, "join", "O", answer) : NULL;
	}
	if (joined && (size_t)PyBytes_Size(joined) == len_bytes * (size_t)size) {
		memcpy(all, PyBytes_AsString(joined), len_bytes * (size_t)size);
		rc = 0;
	} else if (joined) {
		coll_py_raise_argument("exchange: %zd bytes came back, %zu from each of %d ranks are needed",
		                       PyBytes_Size(joined), len_bytes, size);
	}
	Py_XDECREF(joined);
	Py_XDECREF(empty);
	return rc;
}

static int call_exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	PyGILState_STATE held = PyGILState_Ensure();
	struct exchange *e = arg;
	PyObject *answer = PyObject_CallFunction(e->function, "y#", (const char *)mine, (Py_ssize_t)len_bytes);
	int rc = answer ? copy_answer(answer, all, len_bytes, e->size) : -1;

	Py_XDECREF(answer);
	if (rc != 0) {
		Py_XDECREF(e->failure);
		e->failure = coll_py_take_exception();
	}
	PyGILState_Release(held);
	return rc;
}

/* A list of str "COLL_NAME=value": what coll_config.settings wants. The strings belong to *keep. */
static const char **settings_of(PyObject *list, PyObject **keep)
{
	Py_ssize_t n = PyList_Size(list);
	const char **settings = n < 0 ? NULL : calloc((size_t)n + 1, sizeof(*settings));

	*keep = PyList_New(0);
	if (!settings || !*keep) {
		free((void *)settings);
		PyErr_NoMemory();
		return NULL;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *bytes = PyUnicode_AsUTF8String(PyList_GetItem(list, i));

		if (!bytes || PyList_Append(*keep, bytes) != 0 || !(settings[i] = PyBytes_AsString(bytes))) {
			Py_XDECREF(bytes);
			free((void *)settings);
			return NULL;
		}
		Py_DECREF(bytes); /* the list has it */
	}
	return settings;
}

static int id_of(PyObject *object, coll_unique_id *id)
{
	if (PyBytes_Size(object) != COLL_UNIQUE_ID_BYTES) {
		PyErr_Clear();
		coll_py_raise_argument("id is no UniqueId: %d bytes", COLL_UNIQUE_ID_BYTES);
		return -1;
	}
	memcpy(id->bytes, PyBytes_AsString(object), COLL_UNIQUE_ID_BYTES);
	return 0;
}

/* _open(rank, size, id, exchange, settings, log): log: lines of the log come to log.c, and not to a file */
PyObject *coll_py_comm_open(PyObject *self, PyObject *args)
{
	struct comm *c = (struct comm *)self;
	struct exchange exchange = {0};
	coll_config cfg = COLL_CONFIG_INIT;
	PyObject *id, *list, *keep = NULL;
	coll_comm *handle = NULL;
	const char **settings;
	coll_unique_id plain;
	coll_status st;
	int log;

	if (!PyArg_ParseTuple(args, "iiOOO!p", &cfg.rank, &cfg.size, &id, &exchange.function, &PyList_Type, &list,
	                      &log))
		return NULL;
	if (c->handle)
		return coll_py_raise_argument("the communicator is open");
	if (id != Py_None && id_of(id, &plain) != 0)
		return NULL;
	settings = settings_of(list, &keep);
	if (!settings) {
		Py_XDECREF(keep);
		return NULL;
	}
	exchange.size = cfg.size;
	cfg.settings = settings;
	cfg.id = id == Py_None ? NULL : &plain;
	cfg.exchange = exchange.function == Py_None ? NULL : call_exchange;
	cfg.exchange_arg = &exchange;
	cfg.interrupt = coll_py_interrupt;
	cfg.log = log ? coll_py_log : NULL;
	WITHOUT_GIL(st = coll_comm_create(&handle, &cfg));
	free((void *)settings);
	Py_XDECREF(keep);
	if (exchange.failure) {
		PyErr_SetObject((PyObject *)Py_TYPE(exchange.failure), exchange.failure);
		Py_DECREF(exchange.failure);
		return NULL;
	}
	if (st != COLL_OK)
		return coll_py_raise(NULL, st, "init");
	adopt(c, handle, NULL);
	if (coll_py_interrupted() != 0) { /* made meanwhile, and nobody gets it */
		abort_with(c, 0, "interrupted");
		return NULL;
	}
	Py_RETURN_NONE;
}

/* open_all(class, n, settings, log): n ranks of one process */
PyObject *coll_py_comm_open_all(PyObject *module, PyObject *args)
{
	coll_config cfg = COLL_CONFIG_INIT;
	PyObject *class, *list, *keep = NULL, *made;
	const char **settings;
	coll_comm **handles;
	coll_status st;
	int n, log;

	if (!PyArg_ParseTuple(args, "O!iO!p", &PyType_Type, &class, &n, &PyList_Type, &list, &log))
		return NULL;
	if (!PyType_IsSubtype((PyTypeObject *)class, coll_py_comm_type))
		return PyErr_Format(PyExc_TypeError, "%R is no class of communicators", class);
	if (n < 1)
		return coll_py_raise_argument("init_all: %d ranks", n);
	settings = settings_of(list, &keep);
	handles = settings ? calloc((size_t)n, sizeof(*handles)) : NULL;
	cfg.settings = settings;
	cfg.interrupt = coll_py_interrupt;
	cfg.log = log ? coll_py_log : NULL;
	st = handles ? COLL_OK : COLL_ERR_MEMORY;
	if (handles) {
		WITHOUT_GIL(st = coll_comm_create_all(handles, n, &cfg));
	}
	free((void *)settings);
	Py_XDECREF(keep);
	if (st != COLL_OK) {
		free(handles);
		return PyErr_Occurred() ? NULL : coll_py_raise(NULL, st, "init_all");
	}
	made = PyList_New(0);
	for (int i = 0; made && i < n; i++) {
		PyObject *c = PyObject_CallNoArgs(class);

		if (!c || PyList_Append(made, c) != 0)
			Py_CLEAR(made);
		else
			adopt((struct comm *)c, handles[i], NULL);
		Py_XDECREF(c);
	}
	free(handles);
	return made;
}

/* ---- The end ---- */

/* Memory of an array that was dropped while another thread was in a call. */
struct dropped {
	struct dropped *next;
	void *data;
};

static void free_memory(struct comm *c, void *data)
{
	/* The driver may wait for calls of the device, which may wait for ranks that are threads of this process. */
	WITHOUT_GIL(coll_mem_free(c->handle, data));
}

static void drop(struct comm *c, void *data)
{
	struct dropped *d = malloc(sizeof(*d));

	if (!d) /* the end of the communicator frees it */
		return;
	d->data = data;
	d->next = c->dropped;
	c->dropped = d;
}

/* The communicator ends, and frees it. */
static void forget_dropped(struct comm *c)
{
	while (c->dropped) {
		struct dropped *d = c->dropped;

		c->dropped = d->next;
		free(d);
	}
}

void coll_py_comm_free_dropped(struct comm *c)
{
	while (c->dropped) {
		struct dropped *d = c->dropped;

		c->dropped = d->next;
		free_memory(c, d->data);
		free(d);
	}
}

/* What hangs on the communicator ends first. Its handle, which is nobody's then. */
static coll_comm *detach(struct comm *c)
{
	struct comm *root = coll_py_comm_root(c);
	coll_comm *handle = c->handle;

	if (root->members == 1) {
		Py_CLEAR(root->wrapped);
		coll_py_streams_close(root);
	}
	forget_dropped(c);
	c->handle = NULL;
	root->members--;
	while (atomic_load(&c->aborting) > 0)
		WITHOUT_GIL(sched_yield());
	return handle;
}

static coll_status destroy(struct comm *c)
{
	coll_comm *handle = detach(c);
	coll_status st;

	WITHOUT_GIL(st = coll_comm_destroy(&handle));
	if (handle) { /* refused: an open group has calls on it */
		c->handle = handle;
		coll_py_comm_root(c)->members++;
	}
	coll_py_reap();
	return st;
}

/* ---- Left to the end of the interpreter ---- */

/* Handles in the order in which they are to be destroyed, when no Python code is left that could touch their memory. */
static struct left {
	struct left *next;
	coll_comm *handle;
} * left_first, **left_end = &left_first;
static unsigned left_generation;

static void destroy_left(void)
{
	while (left_first && left_generation == coll_py_generation) {
		struct left *l = left_first;

		left_first = l->next;
		coll_comm_destroy(&l->handle);
		free(l);
	}
}

/* Those that come after one that was left are left, too: ranks end theirs in one order. False: it cannot be. */
static bool leave_to_end(struct comm *c)
{
	struct left *l;

	if (!c->blocks && !left_first)
		return false;
	if (!left_first && Py_AtExit(destroy_left) != 0)
		return false;
	l = calloc(1, sizeof(*l));
	if (!l)
		return false;
	left_generation = coll_py_generation;
	coll_py_waits_alone();
	l->handle = detach(c);
	*left_end = l;
	left_end = &l->next;
	coll_py_reap();
	return true;
}

/* _close(when) */
PyObject *coll_py_comm_close(PyObject *self, PyObject *when)
{
	enum { ASKED, AT_EXIT, IN_WORKER, UNHEARD }; /* but for the first, nobody gets its error: the log has it */
	struct comm *c = (struct comm *)self;
	const long how = PyLong_AsLong(when);
	coll_status st = COLL_OK;

	if (how == -1 && PyErr_Occurred())
		return NULL;
	if (!c->handle || c->generation != coll_py_generation || (c->closed && (how == ASKED || how == UNHEARD)))
		Py_RETURN_NONE;
	if (coll_py_group_open())
		return coll_py_raise_argument("close: a group is open");
	if (coll_py_comm_enter(c, "close") != 0)
		return NULL;
	c->closed = true;
	coll_py_receives_cancel(c, false);
	if (c->blocks && (how == ASKED || how == UNHEARD)) {
		coll_py_comm_leave(c);
		Py_RETURN_NONE;
	}
	if (how != AT_EXIT || !leave_to_end(c))
		st = destroy(c);
	coll_py_comm_leave(c);
	Py_CLEAR(c->ops);
	if (coll_py_interrupted() != 0)
		return NULL;
	if (st != COLL_OK && how == ASKED)
		return coll_py_raise(NULL, st, "close");
	Py_RETURN_NONE;
}

static void block_freed(struct comm *c, void *data)
{
	PyObject *type, *value, *trace;

	c->blocks--;
	if (!c->handle || c->generation != coll_py_generation)
		return;
	PyErr_Fetch(&type, &value, &trace);
	if (coll_py_comm_enter(c, freeing) != 0) {
		drop(c, data);
	} else {
		free_memory(c, data);
		if (c->closed && c->blocks == 0)
			destroy(c);
		coll_py_comm_leave(c);
	}
	PyErr_Restore(type, value, trace);
}

void coll_py_comm_block_freed(struct comm *c, void *data)
{
	GUARDED(block_freed(c, data));
}

/* _abort(reason, exit_status=0) */
PyObject *coll_py_comm_abort(PyObject *self, PyObject *args)
{
	struct comm *c = (struct comm *)self;
	PyObject *reason;
	int exit_status = 0;
	char *text;

	if (!PyArg_ParseTuple(args, "O|i", &reason, &exit_status))
		return NULL;
	if (!c->handle || c->generation != coll_py_generation)
		Py_RETURN_NONE;
	text = text_of(reason);
	if (!text)
		return NULL;
	abort_with(c, exit_status, text);
	free(text);
	Py_RETURN_NONE;
}

void coll_py_comm_dealloc(PyObject *self)
{
	struct comm *c = (struct comm *)self;

	Py_CLEAR(c->ops);
	Py_XDECREF(atomic_exchange(&c->failure, NULL));
	Py_CLEAR(c->wrapped);
	forget_dropped(c);
	if (c->root)
		Py_DECREF((PyObject *)c->root);
	coll_py_free(self);
}
