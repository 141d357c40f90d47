/*
 * The methods of a communicator that move data: their names, arguments and what happens to one call.
 *
 * This is the path of a blocking all_reduce of four floats, where each tenth of a microsecond counts: arguments are
 * found by comparing pointers of interned names, and nothing is allocated for a contiguous array with out= given.
 */
#include <string.h>

#include "binding.h"

static const char *const argument_names[ARG_COUNT] = {
        [ARG_X] = "x",
        [ARG_OP] = "op",
        [ARG_ROOT] = "root",
        [ARG_OUT] = "out",
        [ARG_PEER] = "peer",
        [ARG_DEST] = "dest",
        [ARG_SOURCE] = "source",
        [ARG_TAG] = "tag",
        [ARG_STREAM] = "stream",
        [ARG_COUNTS] = "counts",
        [ARG_IN_COUNTS] = "in_counts",
        [ARG_OUT_COUNTS] = "out_counts",
};
static PyObject *interned[ARG_COUNT];

/* name, how many must be given, may be given by position, are there in all; which */
const struct method coll_py_methods[CALL_COUNT] = {
        [CALL_ALL_REDUCE] = {"all_reduce", 1, 2, 4, {ARG_X, ARG_OP, ARG_OUT, ARG_STREAM}},
        [CALL_REDUCE] = {"reduce", 1, 3, 5, {ARG_X, ARG_OP, ARG_ROOT, ARG_OUT, ARG_STREAM}},
        [CALL_BROADCAST] = {"broadcast", 1, 2, 3, {ARG_X, ARG_ROOT, ARG_STREAM}},
        [CALL_ALL_GATHER] = {"all_gather", 1, 1, 4, {ARG_X, ARG_OUT, ARG_COUNTS, ARG_STREAM}},
        [CALL_REDUCE_SCATTER] = {"reduce_scatter", 1, 2, 5, {ARG_X, ARG_OP, ARG_OUT, ARG_COUNTS, ARG_STREAM}},
        [CALL_ALL_TO_ALL] = {"all_to_all", 1, 1, 5, {ARG_X, ARG_OUT, ARG_IN_COUNTS, ARG_OUT_COUNTS, ARG_STREAM}},
        [CALL_GATHER] = {"gather", 1, 2, 5, {ARG_X, ARG_ROOT, ARG_OUT, ARG_COUNTS, ARG_STREAM}},
        [CALL_SCATTER] = {"scatter", 1, 2, 5, {ARG_X, ARG_ROOT, ARG_OUT, ARG_COUNTS, ARG_STREAM}},
        [CALL_SCAN] = {"scan", 1, 2, 4, {ARG_X, ARG_OP, ARG_OUT, ARG_STREAM}},
        [CALL_EXCLUSIVE_SCAN] = {"exclusive_scan", 1, 2, 4, {ARG_X, ARG_OP, ARG_OUT, ARG_STREAM}},
        [CALL_BARRIER] = {"barrier", 0, 0, 1, {ARG_STREAM}},
        [CALL_SEND] = {"send", 2, 2, 4, {ARG_X, ARG_PEER, ARG_TAG, ARG_STREAM}},
        [CALL_RECV] = {"recv", 2, 2, 4, {ARG_X, ARG_PEER, ARG_TAG, ARG_STREAM}},
        [CALL_SEND_RECV] = {"send_recv", 4, 4, 5, {ARG_X, ARG_DEST, ARG_OUT, ARG_SOURCE, ARG_STREAM}},
};

int coll_py_calls_init(void)
{
	for (int i = 0; i < ARG_COUNT; i++)
		if (!(interned[i] = PyUnicode_InternFromString(argument_names[i])))
			return -1;
	return 0;
}

static int find(const struct method *m, PyObject *name)
{
	for (int i = 0; i < m->total; i++)
		if (interned[m->order[i]] == name)
			return i;
	for (int i = 0; i < m->total; i++)
		if (PyUnicode_Compare(interned[m->order[i]], name) == 0)
			return i;
	return -1;
}

/* values[]: borrowed, NULL: not given or None where there is a default. */
int coll_py_parse(const struct method *m, PyObject *const *args, Py_ssize_t nargs, PyObject *names, PyObject **values)
{
	Py_ssize_t named = names ? PyTuple_Size(names) : 0;

	memset(values, 0, sizeof(*values) * ARG_COUNT);
	if (nargs > m->positional) {
		PyErr_Format(PyExc_TypeError, "%s() takes %d positional arguments but %zd were given", m->name,
		             m->positional, nargs);
		return -1;
	}
	for (Py_ssize_t i = 0; i < nargs; i++)
		values[m->order[i]] = args[i];
	for (Py_ssize_t i = 0; i < named; i++) {
		PyObject *name = PyTuple_GetItem(names, i);
		int at = find(m, name);

		if (at < 0 || values[m->order[at]]) {
			PyErr_Format(PyExc_TypeError, at < 0 ? "%s() has no argument %R" : "%s() got argument %R twice",
			             m->name, name);
			return -1;
		}
		values[m->order[at]] = args[nargs + i];
	}
	for (int i = 0; i < m->required; i++)
		if (!values[m->order[i]]) {
			PyErr_Format(PyExc_TypeError, "%s() misses argument '%s'", m->name,
			             argument_names[m->order[i]]);
			return -1;
		}
	for (int i = 0; i < m->total; i++)
		if (values[m->order[i]] == Py_None)
			values[m->order[i]] = NULL;
	return 0;
}

int coll_py_one(const char *method, const char *name, PyObject *const *args, Py_ssize_t nargs, PyObject *names,
                PyObject **value)
{
	Py_ssize_t named = names ? PyTuple_Size(names) : 0;

	*value = nargs + named ? args[0] : NULL;
	if (nargs + named <= 1 && (!named || PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), name) == 0))
		return 0;
	PyErr_Format(PyExc_TypeError, "%s() takes one argument: %s", method, name);
	return -1;
}

static PyObject *call_in_stream(struct comm *c, enum call_kind kind, PyObject *const *values)
{
	struct stream *s = coll_py_device_stream(c, values[ARG_STREAM]);
	PyObject *work = NULL;
	struct request r;

	if (s && coll_py_request_make(&r, c, kind, values, s, true, coll_py_device_reader(c, s)) == 0)
		work = coll_py_work_start(&r, (PyObject *)s);
	Py_XDECREF((PyObject *)s);
	return work;
}

static PyObject *call(PyObject *self, enum call_kind kind, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	struct comm *c = (struct comm *)self;
	PyObject *values[ARG_COUNT];
	struct request r;

	if (coll_py_parse(&coll_py_methods[kind], args, nargs, names, values) != 0 || coll_py_comm_check(c) != 0)
		return NULL;
	if (values[ARG_STREAM]) {
		PyObject *work;

		GUARDED(work = call_in_stream(c, kind, values));
		return work;
	}
	if (coll_py_request_make(&r, c, kind, values, NULL, coll_py_group_open(), coll_py_device_reader(c, NULL)) != 0)
		return NULL;
	if (coll_py_device_waits(&r)) {
		PyObject *result;

		GUARDED(result = coll_py_device_run(&r));
		return result;
	}
	if (coll_py_group_open()) {
		PyObject *result = r.result ? r.result : Py_None;

		Py_INCREF(result);
		if (coll_py_group_add(&r, NULL) == 0)
			return result;
		Py_DECREF(result);
		return NULL;
	}
	return coll_py_request_run(&r);
}

#define METHOD(name, kind)                                                                              \
	static PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names) \
	{                                                                                               \
		return call(self, kind, args, nargs, names);                                            \
	}
METHOD(all_reduce, CALL_ALL_REDUCE)
METHOD(reduce, CALL_REDUCE)
METHOD(broadcast, CALL_BROADCAST)
METHOD(all_gather, CALL_ALL_GATHER)
METHOD(reduce_scatter, CALL_REDUCE_SCATTER)
METHOD(all_to_all, CALL_ALL_TO_ALL)
METHOD(gather, CALL_GATHER)
METHOD(scatter, CALL_SCATTER)
METHOD(scan, CALL_SCAN)
METHOD(exclusive_scan, CALL_EXCLUSIVE_SCAN)
METHOD(barrier, CALL_BARRIER)
METHOD(send, CALL_SEND)
METHOD(recv, CALL_RECV)
METHOD(send_recv, CALL_SEND_RECV)

#define ROW(name)                                                                               \
	{                                                                                       \
#name, (PyCFunction)(void (*)(void))(name), METH_FASTCALL | METH_KEYWORDS, NULL \
	}
const PyMethodDef coll_py_call_methods[CALL_COUNT] = {
        ROW(all_reduce), ROW(reduce), ROW(broadcast), ROW(all_gather), ROW(reduce_scatter),
        ROW(all_to_all), ROW(gather), ROW(scatter),   ROW(scan),       ROW(exclusive_scan),
        ROW(barrier),    ROW(send),   ROW(recv),      ROW(send_recv),
};
