/*
 * Methods of a communicator that move no data of users: children, memory, queries.
 */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

#include "comm.h"

/* A call of the library on an open communicator, without the GIL. */
#define CALL(c, name, st, expression)                                               \
	do {                                                                        \
		if (coll_py_comm_check(c) != 0 || coll_py_comm_enter(c, name) != 0) \
			return NULL;                                                \
		WITHOUT_GIL((st) = (expression));                                   \
		coll_py_comm_leave(c);                                              \
	} while (0)

static PyObject *child(struct comm *c, coll_status st, coll_comm *handle, const char *name)
{
	PyObject *made = st == COLL_OK ? coll_py_comm_child(c, handle) : coll_py_raise(c, st, name);

	/* Made, and a signal handler raised meanwhile: nobody gets it, and it goes with the process. */
	if (st == COLL_OK && made && coll_py_interrupted() != 0)
		Py_CLEAR(made);
	return made;
}

static PyObject *split(PyObject *self, PyObject *args)
{
	struct comm *c = (struct comm *)self;
	coll_comm *handle = NULL;
	int colour, key = 0;
	coll_status st;

	if (!PyArg_ParseTuple(args, "i|i", &colour, &key))
		return NULL;
	CALL(c, "split", st, coll_comm_split(c->handle, colour, key, &handle));
	return child(c, st, handle, "split");
}

static PyObject *duplicate(PyObject *self, PyObject *unused)
{
	struct comm *c = (struct comm *)self;
	coll_comm *handle = NULL;
	coll_status st;

	CALL(c, "duplicate", st, coll_comm_duplicate(c->handle, &handle));
	return child(c, st, handle, "duplicate");
}

/* A sequence of ranks. *n: how many; NULL with an exception set. */
static int *ranks_of(PyObject *object, int *n)
{
	PyObject *list = PySequence_List(object);
	Py_ssize_t count = list ? PyList_Size(list) : -1;
	int *ranks = count < 0 || count > INT32_MAX ? NULL : malloc(((size_t)count + 1) * sizeof(*ranks));

	if (list && !ranks)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; ranks && i < count; i++) {
		long rank = PyLong_AsLong(PyList_GetItem(list, i));

		if (rank < 0 || rank > INT32_MAX) {
			if (!PyErr_Occurred())
				coll_py_raise_argument("%ld is no rank", rank);
			free(ranks);
			ranks = NULL;
		} else {
			ranks[i] = (int)rank;
		}
	}
	*n = (int)count;
	Py_XDECREF(list);
	return ranks;
}

/* tag NULL: the whole communicator makes the call. */
static PyObject *choose(struct comm *c, PyObject *list, const uint64_t *tag, const char *name)
{
	coll_comm *handle = NULL;
	coll_status st;
	int n, *ranks;

	if (coll_py_comm_check(c) != 0 || !(ranks = ranks_of(list, &n)))
		return NULL;
	if (coll_py_comm_enter(c, name) != 0) {
		free(ranks);
		return NULL;
	}
	WITHOUT_GIL(st = tag ? coll_comm_create_group(c->handle, ranks, n, *tag, &handle)
	                     : coll_comm_create_from_ranks(c->handle, ranks, n, &handle));
	coll_py_comm_leave(c);
	free(ranks);
	return child(c, st, handle, name);
}

static PyObject *sub(PyObject *self, PyObject *list)
{
	return choose((struct comm *)self, list, NULL, "sub");
}

/* _group(ranks, tag) */
static PyObject *group(PyObject *self, PyObject *args)
{
	unsigned long long number;
	PyObject *list;
	uint64_t tag;

	if (!PyArg_ParseTuple(args, "OK", &list, &number))
		return NULL;
	tag = number;
	return choose((struct comm *)self, list, &tag, "group");
}

/* (ranks of this communicator that are missing,) as a tuple with the child in front. */
static PyObject *shrunk(PyObject *child, const int *lost, int n)
{
	PyObject *list = PyList_New(0), *made;

	for (int i = 0; list && i < n; i++) {
		PyObject *rank = PyLong_FromLong(lost[i]);

		if (!rank || PyList_Append(list, rank) != 0)
			Py_CLEAR(list);
		Py_XDECREF(rank);
	}
	made = list ? PyTuple_Pack(2, child, list) : NULL;
	Py_XDECREF(list);
	Py_DECREF(child);
	return made;
}

static PyObject *shrink(PyObject *self, PyObject *unused)
{
	struct comm *c = (struct comm *)self;
	int *lost = malloc(((size_t)c->size + 1) * sizeof(*lost)), n = 0;
	PyObject *made = NULL;
	coll_comm *handle = NULL;
	coll_status st;

	if (!lost)
		return PyErr_NoMemory();
	if (coll_py_comm_check(c) == 0 && coll_py_comm_enter(c, "shrink") == 0) {
		WITHOUT_GIL(st = coll_comm_shrink(c->handle, &handle, lost, &n));
		coll_py_comm_leave(c);
		if (st == COLL_AGAIN)
			PyErr_SetString(PyExc_TimeoutError,
			                "shrink: too few members answer for a decision; make the call again");
		else
			made = child(c, st, handle, "shrink");
		made = made ? shrunk(made, lost, n) : NULL;
	}
	free(lost);
	return made;
}

/* _set_name(str) */
static PyObject *set_name(PyObject *self, PyObject *args)
{
	struct comm *c = (struct comm *)self;
	const char *name;
	coll_status st;

	if (!PyArg_ParseTuple(args, "s", &name))
		return NULL;
	CALL(c, "set_name", st, coll_comm_set_name(c->handle, name));
	if (st != COLL_OK)
		return coll_py_raise(c, st, "set_name");
	Py_RETURN_NONE;
}

/* _set_timeout(seconds or None, seconds or None) */
static PyObject *set_timeout(PyObject *self, PyObject *args)
{
	struct comm *c = (struct comm *)self;
	PyObject *answer, *arrival;
	int answer_ms, arrival_ms;
	coll_status st;

	if (!PyArg_ParseTuple(args, "OO", &answer, &arrival) || (answer_ms = coll_py_timeout(answer)) == -2 ||
	    (arrival_ms = coll_py_timeout(arrival)) == -2)
		return NULL;
	CALL(c, "set_timeout", st, coll_comm_set_timeout(c->handle, answer_ms, arrival_ms));
	if (st != COLL_OK)
		return coll_py_raise(c, st, "set_timeout");
	if (coll_py_interrupted() != 0)
		return NULL;
	Py_RETURN_NONE;
}

/* ---- Memory ---- */

static PyObject *empty(PyObject *self, PyObject *args)
{
	struct comm *c = (struct comm *)self;
	const struct element *element;
	const char *type = "f32";
	PyObject *shape, *made;
	int on_device = 0;

	if (!PyArg_ParseTuple(args, "O!|sp", &PyTuple_Type, &shape, &type, &on_device) || coll_py_comm_check(c) != 0)
		return NULL;
	element = coll_py_element_by_name(type);
	if (!element)
		return coll_py_raise_argument("empty: there is no type '%s'", type);
	if (on_device)
		return coll_py_device_array_new(c, shape, element);
	if (coll_py_comm_enter(c, "empty") != 0)
		return NULL;
	made = coll_py_block_new(c, shape, element);
	coll_py_comm_leave(c);
	return made;
}

/* _register(x, on) */
static PyObject *announce(PyObject *self, PyObject *args)
{
	struct comm *c = (struct comm *)self;
	coll_status st;
	PyObject *x;
	struct view v;
	int on;

	if (!PyArg_ParseTuple(args, "Op", &x, &on) || coll_py_comm_check(c) != 0 ||
	    coll_py_view_take(&v, x, "x", false, coll_py_device_reader(c, NULL) ? READER_UNORDERED : READER_NONE) != 0)
		return NULL;
	if (!v.contiguous) {
		coll_py_view_release(&v);
		return coll_py_raise_argument("register: x is not contiguous");
	}
	if (coll_py_comm_enter(c, "register") != 0) {
		coll_py_view_release(&v);
		return NULL;
	}
	LIBRARY(st = on ? coll_mem_register(c->handle, v.data, v.items * v.item_bytes)
	                : coll_mem_deregister(c->handle, v.data));
	coll_py_comm_leave(c);
	coll_py_view_release(&v);
	if (st != COLL_OK)
		return coll_py_raise(c, st, "register");
	Py_RETURN_NONE;
}

/* ---- Queries ---- */

static PyObject *text_or_none(const char *text)
{
	if (text)
		return PyUnicode_FromString(text);
	Py_RETURN_NONE;
}

static PyObject *host(PyObject *self, PyObject *rank)
{
	struct comm *c = (struct comm *)self;
	long r = PyLong_AsLong(rank);
	const char *name;

	if ((r == -1 && PyErr_Occurred()) || coll_py_comm_check(c) != 0)
		return NULL;
	name = r < 0 || r >= c->size ? NULL : coll_comm_host(c->handle, (int)r);
	return name ? PyUnicode_FromString(name) : coll_py_raise_argument("host: there is no rank %ld", r);
}

static PyObject *transport(PyObject *self, PyObject *rank)
{
	struct comm *c = (struct comm *)self;
	long r = PyLong_AsLong(rank);
	const char *name;

	if ((r == -1 && PyErr_Occurred()) || coll_py_comm_check(c) != 0)
		return NULL;
	name = r < 0 || r >= c->size ? NULL : coll_comm_transport(c->handle, (int)r);
	return name ? PyUnicode_FromString(name) : coll_py_raise_argument("transport: there is no rank %ld", r);
}

static PyObject *explain(PyObject *self, PyObject *args)
{
	struct comm *c = (struct comm *)self;
	const char *collective, *type = "f32";
	const struct element *element;
	Py_ssize_t count;
	char line[2048];
	coll_status st;

	if (!PyArg_ParseTuple(args, "sn|s", &collective, &count, &type))
		return NULL;
	if (count < 0)
		return coll_py_raise_argument("explain: count is %zd", count);
	element = coll_py_element_by_name(type);
	if (!element)
		return coll_py_raise_argument("explain: there is no type '%s'", type);
	CALL(c, "explain", st,
	     coll_comm_explain(c->handle, collective, (size_t)count * (size_t)element->per, element->wire, line,
	                       sizeof(line)));
	return st == COLL_OK ? PyUnicode_FromString(line) : coll_py_raise(c, st, "explain");
}

/* True: something is pending. */
static PyObject *progress(PyObject *self, PyObject *unused)
{
	struct comm *c = (struct comm *)self;
	coll_status st;

	CALL(c, "progress", st, coll_progress(c->handle));
	coll_py_reap();
	if (st != COLL_OK && st != COLL_AGAIN)
		return coll_py_raise(c, st, "progress");
	if (coll_py_interrupted() != 0)
		return NULL;
	return PyBool_FromLong(st == COLL_AGAIN);
}

/* The process ends: take back posted receives, which are no reason to wait. */
static PyObject *withdraw(PyObject *self, PyObject *unused)
{
	struct comm *c = (struct comm *)self;

	if (c->handle && c->generation == coll_py_generation)
		coll_py_receives_cancel(c, true);
	Py_RETURN_NONE;
}

static PyObject *get_rank(PyObject *self, void *unused)
{
	return PyLong_FromLong(((struct comm *)self)->rank);
}

static PyObject *get_size(PyObject *self, void *unused)
{
	return PyLong_FromLong(((struct comm *)self)->size);
}

static PyObject *get_local_rank(PyObject *self, void *unused)
{
	struct comm *c = (struct comm *)self;

	return coll_py_comm_check(c) == 0 ? PyLong_FromLong(coll_comm_local_rank(c->handle)) : NULL;
}

static PyObject *get_local_size(PyObject *self, void *unused)
{
	struct comm *c = (struct comm *)self;

	return coll_py_comm_check(c) == 0 ? PyLong_FromLong(coll_comm_local_size(c->handle)) : NULL;
}

static PyObject *get_closed(PyObject *self, void *unused)
{
	const struct comm *c = (struct comm *)self;

	return PyBool_FromLong(!c->handle || c->closed || c->generation != coll_py_generation);
}

/* coll_comm *, for C libraries that are linked with the same libcoll. */
static PyObject *get_handle(PyObject *self, void *unused)
{
	struct comm *c = (struct comm *)self;

	return coll_py_comm_check(c) == 0 ? PyLong_FromVoidPtr(c->handle) : NULL;
}

/* Still to be destroyed at exit. */
static PyObject *get_held(PyObject *self, void *unused)
{
	const struct comm *c = (struct comm *)self;

	return PyBool_FromLong(c->handle && c->generation == coll_py_generation);
}

static PyObject *get_busy(PyObject *self, void *unused)
{
	return text_or_none(atomic_load_explicit(&((struct comm *)self)->busy, memory_order_relaxed));
}

static PyObject *get_thread(PyObject *self, void *unused)
{
	return PyLong_FromUnsignedLong(((struct comm *)self)->thread);
}

static PyObject *get_device(PyObject *self, void *unused)
{
	struct comm *c = (struct comm *)self;

	return coll_py_comm_check(c) == 0 ? PyUnicode_FromString(coll_comm_device(c->handle)) : NULL;
}

static PyObject *get_last_way(PyObject *self, void *unused)
{
	struct comm *c = (struct comm *)self;

	return coll_py_comm_check(c) == 0 ? text_or_none(coll_comm_last_way(c->handle)) : NULL;
}

/* A list of dicts. */
static PyObject *get_stats(PyObject *self, void *unused)
{
	enum { ROOM = 64 };
	struct comm *c = (struct comm *)self;
	coll_stats rows[ROOM] = {COLL_STATS_INIT};
	int n = ROOM;
	PyObject *list;
	coll_status st;

	if (coll_py_comm_check(c))
		return NULL;
	st = coll_comm_stats(c->handle, rows, &n);
	if (st != COLL_OK)
		return coll_py_raise(c, st, "stats");
	list = PyList_New(0);
	for (int i = 0; list && i < n && i < ROOM; i++) {
		PyObject *row = Py_BuildValue("{s:s,s:s,s:K,s:K,s:d}", "transport", rows[i].transport, "way",
		                              rows[i].way, "calls", (unsigned long long)rows[i].calls, "bytes",
		                              (unsigned long long)rows[i].bytes, "waited_s", rows[i].waited_s);

		if (!row || PyList_Append(list, row))
			Py_CLEAR(list);
		Py_XDECREF(row);
	}
	return list;
}

static PyObject *get_last_error(PyObject *self, void *unused)
{
	struct comm *c = (struct comm *)self;
	const coll_error *e;

	if (!c->handle || c->generation != coll_py_generation || !(e = coll_last_error(c->handle)) ||
	    e->status == COLL_OK)
		Py_RETURN_NONE;
	return coll_py_error(c, e->status, e->kind ? e->kind : "");
}

GUARD_ONE(coll_py_comm_close)
GUARD_ONE(split)
GUARD_ONE(duplicate)
GUARD_ONE(sub)
GUARD_ONE(group)
GUARD_ONE(shrink)
GUARD_ONE(set_timeout)
GUARD_ONE(set_name)
GUARD_ONE(empty)
GUARD_ONE(announce)
GUARD_ONE(host)
GUARD_ONE(transport)
GUARD_ONE(explain)
GUARD_ONE(progress)
GUARD_ONE(withdraw)
GUARD_FAST(coll_py_irecv)
GUARD_ONE(coll_py_probe)
GUARD_FAST(coll_py_op_create)
GUARD_FAST(coll_py_op_premul_sum)
GUARD_NAMED(coll_py_prepare)
GUARD_ONE(coll_py_comm_open)
GUARD_GET(get_local_rank)
GUARD_GET(get_local_size)
GUARD_GET(get_device)
GUARD_GET(get_last_way)
GUARD_GET(get_stats)
GUARD_GET(get_last_error)

#define FAST(name, function)                                                       \
	{                                                                          \
		name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, NULL \
	}
static PyMethodDef other_methods[] = {
        {"_open", coll_py_comm_open_guarded, METH_VARARGS, NULL},
        {"_close", coll_py_comm_close_guarded, METH_O, NULL},
        {"_abort", coll_py_comm_abort, METH_VARARGS, NULL},
        {"_split", split_guarded, METH_VARARGS, NULL},
        {"_duplicate", duplicate_guarded, METH_NOARGS, NULL},
        {"_sub", sub_guarded, METH_O, NULL},
        {"_group", group_guarded, METH_VARARGS, NULL},
        {"_shrink", shrink_guarded, METH_NOARGS, NULL},
        {"_set_timeout", set_timeout_guarded, METH_VARARGS, NULL},
        {"_set_name", set_name_guarded, METH_VARARGS, NULL},
        {"_empty", empty_guarded, METH_VARARGS, NULL},
        {"_register", announce_guarded, METH_VARARGS, NULL},
        {"host", host_guarded, METH_O, NULL},
        {"transport", transport_guarded, METH_O, NULL},
        {"_explain", explain_guarded, METH_VARARGS, NULL},
        {"progress", progress_guarded, METH_NOARGS, NULL},
        {"_withdraw", withdraw_guarded, METH_NOARGS, NULL},
        FAST("_irecv", coll_py_irecv_guarded),
        {"_probe", coll_py_probe_guarded, METH_VARARGS, NULL},
        FAST("_op", coll_py_op_create_guarded),
        FAST("_premul_sum", coll_py_op_premul_sum_guarded),
        {"prepare", (PyCFunction)(void (*)(void))coll_py_prepare_guarded, METH_FASTCALL | METH_KEYWORDS, NULL},
};
enum { OTHERS = sizeof(other_methods) / sizeof(other_methods[0]) };

static PyMethodDef methods[CALL_COUNT + OTHERS + 1];

static PyGetSetDef properties[] = {
        {"rank", get_rank, NULL, NULL, NULL},
        {"size", get_size, NULL, NULL, NULL},
        {"local_rank", get_local_rank_guarded, NULL, NULL, NULL},
        {"local_size", get_local_size_guarded, NULL, NULL, NULL},
        {"closed", get_closed, NULL, NULL, NULL},
        {"device", get_device_guarded, NULL, NULL, NULL},
        {"last_way", get_last_way_guarded, NULL, NULL, NULL},
        {"_stats", get_stats_guarded, NULL, NULL, NULL},
        {"last_error", get_last_error_guarded, NULL, NULL, NULL},
        {"handle", get_handle, NULL, NULL, NULL},
        {"_held", get_held, NULL, NULL, NULL},
        {"_busy", get_busy, NULL, NULL, NULL},
        {"_thread", get_thread, NULL, NULL, NULL},
        {0},
};

static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)coll_py_comm_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, properties},
        {0, NULL},
};
static PyType_Spec spec = {"coll._coll.Comm", sizeof(struct comm), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

int coll_py_comm_init(PyObject *module)
{
	memcpy(methods, coll_py_call_methods, sizeof(coll_py_call_methods));
	memcpy(methods + CALL_COUNT, other_methods, sizeof(other_methods));
	coll_py_comm_type = coll_py_type(module, &spec, NULL);
	return coll_py_comm_type ? 0 : -1;
}
