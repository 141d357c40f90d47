/*
 * Persistent operations: prepare("all_reduce", x, ...) once, start() and wait() often.
 *
 * The object owns the buffers of its call. Arrays that are not contiguous are copied at each start, and written back
 * when a wait finds the operation complete.
 */
#include "binding.h"

PyTypeObject *coll_py_operation_type;

struct operation {
	PyObject_HEAD struct request request;
	coll_operation *handle;
	unsigned generation;
	bool started;
	struct stream *stream; /* strong, while started in it */
};

static enum call_kind kind_of(PyObject *name)
{
	for (int i = 0; i <= CALL_EXCLUSIVE_SCAN; i++)
		if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, coll_py_methods[i].name) == 0)
			return (enum call_kind)i;
	return CALL_COUNT;
}

/* prepare(name, ...): the arguments of the call, but stream */
PyObject *coll_py_prepare(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	struct comm *c = (struct comm *)self;
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	PyObject *values[ARG_COUNT];
	struct operation *o;
	enum call_kind kind = nargs > 0 ? kind_of(args[0]) : CALL_COUNT;
	coll_status st;

	if (kind == CALL_COUNT)
		return coll_py_raise_argument("prepare: the first argument is the name of a collective");
	if (coll_py_parse(&coll_py_methods[kind], args + 1, nargs - 1, names, values) != 0 ||
	    coll_py_comm_check(c) != 0)
		return NULL;
	if (values[ARG_STREAM])
		return coll_py_raise_argument("prepare: the stream goes to start()");
	o = (struct operation *)PyType_GenericAlloc(coll_py_operation_type, 0);
	if (!o)
		return NULL;
	o->generation = coll_py_generation;
	if (coll_py_request_make(&o->request, c, kind, values, NULL, true,
	                         c->device < 0 ? READER_NONE : READER_UNORDERED) != 0 ||
	    coll_py_comm_enter(c, "prepare") != 0)
		goto fail;
	coll_py_request_describe(&o->request, &d);
	WITHOUT_GIL(st = coll_operation_prepare(&o->handle, &d, c->handle));
	coll_py_comm_leave(c);
	if (st == COLL_OK && coll_py_interrupted() == 0)
		return (PyObject *)o;
	if (st != COLL_OK)
		coll_py_raise(c, st, "prepare");
fail:
	Py_DECREF((PyObject *)o);
	return NULL;
}

static int check(const struct operation *o)
{
	if (o->handle && o->generation == coll_py_generation)
		return coll_py_comm_check(o->request.comm);
	coll_py_raise_argument("the operation is closed, or belongs to the process that forked this one");
	return -1;
}

static int begin(struct operation *o, PyObject *stream)
{
	struct comm *c = o->request.comm;
	struct stream *s = NULL;
	coll_status st;

	if (check(o) != 0 || (stream != Py_None && !(s = coll_py_device_stream(c, stream))))
		return -1;
	if (s && (!s->handle || s->generation != coll_py_generation)) {
		coll_py_raise_argument("start: %R is no open stream", stream);
		goto fail;
	}
	if (o->started) {
		coll_py_raise_argument("start: the operation is started; wait for it first");
		goto fail;
	}
	if ((s && (coll_py_device_graph_fits(&o->request, s) != 0 || coll_py_stream_settle(s, &o->request) != 0)) ||
	    coll_py_request_pack(&o->request) != 0 || coll_py_comm_enter(c, "start") != 0)
		goto fail;
	WITHOUT_GIL(st = coll_operation_start(o->handle, s ? s->handle : NULL));
	coll_py_comm_leave(c);
	if (st != COLL_OK) {
		coll_py_raise(c, st, "start");
		goto fail;
	}
	o->started = true;
	o->stream = s;
	if (s)
		coll_py_device_mark(&o->request, s);
	return coll_py_interrupted();
fail:
	Py_XDECREF((PyObject *)s);
	return -1;
}

static PyObject *finish(struct operation *o, coll_status st)
{
	struct stream *s = o->stream;
	PyObject *result = o->request.result ? o->request.result : Py_None;
	bool first = o->started;

	o->started = false;
	o->stream = NULL;
	coll_py_device_unmark(&o->request);
	Py_XDECREF((PyObject *)s);
	if (o->request.comm->failure && o->request.op_object) {
		coll_py_comm_failure(o->request.comm);
		return NULL;
	}
	if (st != COLL_OK)
		return coll_py_raise(o->request.comm, st, coll_py_methods[o->request.kind].name);
	if (first)
		coll_py_request_unpack(&o->request);
	Py_INCREF(result);
	return result;
}

static PyObject *wait(struct operation *o, int left)
{
	struct comm *c = o->request.comm;
	coll_status st = COLL_AGAIN;

	if (!o->handle || o->generation != coll_py_generation) {
		check(o);
		return NULL;
	}
	if (coll_py_comm_enter(c, "wait") != 0)
		return NULL;
	while (st == COLL_AGAIN) {
		int slice = left < 0 || left > COLL_PY_SLICE_MS ? COLL_PY_SLICE_MS : left;

		SLICE(st = coll_operation_wait(o->handle, slice));
		if (PyErr_CheckSignals() != 0) {
			coll_py_comm_leave(c);
			return NULL;
		}
		if (left >= 0 && st == COLL_AGAIN && (left -= slice) <= 0)
			break;
	}
	coll_py_comm_leave(c);
	if (st == COLL_AGAIN)
		return PyErr_Format(PyExc_TimeoutError, "the operation is not complete yet; it goes on");
	return finish(o, st);
}

static PyObject *operation_start(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	PyObject *stream;

	if (coll_py_one("start", "stream", args, nargs, names, &stream) != 0 ||
	    begin((struct operation *)self, stream ? stream : Py_None) != 0)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *operation_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	PyObject *timeout;
	int timeout_ms;

	if (coll_py_one("wait", "timeout", args, nargs, names, &timeout) != 0)
		return NULL;
	timeout_ms = coll_py_timeout(timeout);
	return timeout_ms == -2 ? NULL : wait((struct operation *)self, timeout_ms);
}

static PyObject *operation_call(PyObject *self, PyObject *args, PyObject *words)
{
	struct operation *o = (struct operation *)self;

	if (PyTuple_Size(args) != 0 || (words && PyDict_Size(words) != 0))
		return PyErr_Format(PyExc_TypeError, "an operation is called without arguments");
	return begin(o, Py_None) == 0 ? wait(o, -1) : NULL;
}

static void end(struct operation *o)
{
	coll_operation *handle = o->handle;
	struct stream *s = o->stream;

	o->handle = NULL;
	o->stream = NULL;
	if (handle && o->generation == coll_py_generation) {
		WITHOUT_GIL(coll_operation_destroy(&handle));
	}
	Py_XDECREF((PyObject *)s);
	if (o->request.comm)
		coll_py_request_end(&o->request);
}

static PyObject *operation_close(PyObject *self, PyObject *unused)
{
	end((struct operation *)self);
	Py_RETURN_NONE;
}

static void dealloc(PyObject *self)
{
	end((struct operation *)self);
	coll_py_free(self);
}

GUARD_NAMED(operation_start)
GUARD_NAMED(operation_wait)
GUARD(operation_call, (PyObject * self, PyObject *args, PyObject *words), (self, args, words))
GUARD_ONE(operation_close)
GUARD_DEALLOC(dealloc)

#define FAST(name, function)                                                                       \
	{                                                                                          \
		name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS, NULL \
	}
static PyMethodDef methods[] = {
        FAST("start", operation_start_guarded),
        FAST("wait", operation_wait_guarded),
        {"close", operation_close_guarded, METH_NOARGS, NULL},
        {0},
};
static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)dealloc_guarded},
        {Py_tp_methods, methods},
        {Py_tp_call, (void *)operation_call_guarded},
        {0, NULL},
};
static PyType_Spec spec = {"coll._coll.Operation", sizeof(struct operation), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int coll_py_operation_init(PyObject *module)
{
	coll_py_operation_type = coll_py_type(module, &spec, NULL);
	return coll_py_operation_type ? 0 : -1;
}
