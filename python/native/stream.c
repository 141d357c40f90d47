/*
 * The classes Stream and Event: queues of calls, and points in them. Work is in async.c.
 */
#include "binding.h"

#include "comm.h"

struct event {
	PyObject_HEAD coll_event *handle;
	struct comm *comm; /* strong */
	unsigned generation;
	int waiters;
};

static int check(const struct stream *s)
{
	if (s->handle && s->generation == coll_py_generation)
		return 0;
	coll_py_raise_argument(s->handle ? "the stream belongs to the process that forked this one"
	                                 : "the stream is closed");
	return -1;
}

/* ---- Streams ---- */

struct stream *coll_py_stream_adopt(struct comm *root, coll_stream *handle)
{
	struct stream *s = (struct stream *)PyType_GenericAlloc(coll_py_stream_type, 0);

	if (!s) {
		coll_stream_destroy(&handle);
		return NULL;
	}
	s->handle = handle;
	s->generation = coll_py_generation;
	s->comm = root;
	Py_INCREF((PyObject *)root);
	s->next = root->streams;
	root->streams = s;
	return s;
}

/* stream(comm, named): of the host, or around a stream of the device */
PyObject *coll_py_stream_new(PyObject *module, PyObject *args)
{
	PyObject *object, *named = Py_None;
	coll_stream *handle = NULL;
	struct comm *c;
	coll_status st;

	if (!PyArg_ParseTuple(args, "O|O", &object, &named))
		return NULL;
	if (!PyObject_TypeCheck(object, coll_py_comm_type))
		return PyErr_Format(PyExc_TypeError, "%R is no communicator", object);
	c = (struct comm *)object;
	if (coll_py_comm_check(c) != 0)
		return NULL;
	if (named != Py_None)
		return (PyObject *)coll_py_device_stream(c, named);
	if (coll_py_comm_enter(c, "stream") != 0)
		return NULL;
	LIBRARY(st = coll_stream_create(&handle, c->handle));
	coll_py_comm_leave(c);
	if (st != COLL_OK)
		return coll_py_raise(c, st, "stream");
	return (PyObject *)coll_py_stream_adopt(coll_py_comm_root(c), handle);
}

/* The handle goes; no unfinished work is left, or the communicator has ended. The stream itself may go meanwhile, when
 * another thread drops it: it is touched again only where a group holds it. */
static coll_status end(struct stream *s)
{
	struct stream **at = &s->comm->streams;
	coll_stream *handle = s->handle;
	coll_status st = COLL_OK;

	while (*at && *at != s)
		at = &(*at)->next;
	if (*at)
		*at = s->next;
	if (s->generation != coll_py_generation)
		return COLL_OK;
	s->handle = NULL;
	WITHOUT_GIL(st = coll_stream_destroy(&handle));
	if (handle) { /* an open group has calls on it: refused */
		s->handle = handle;
		s->next = s->comm->streams;
		s->comm->streams = s;
	}
	return st;
}

void coll_py_streams_close(struct comm *root)
{
	while (root->streams) {
		struct stream *s = root->streams;

		end(s);
		if (root->streams == s)
			break;
	}
	coll_py_reap();
}

static void stream_dealloc(PyObject *self)
{
	struct stream *s = (struct stream *)self;

	if (s->handle && s->comm)
		end(s);
	Py_XDECREF((PyObject *)s->comm);
	Py_CLEAR(s->error);
	coll_py_free(self);
}

/* The first error of the stream stays: that of a call on whichever communicator. */
static PyObject *verdict(struct stream *s)
{
	PyObject *error = s->error;
	coll_status st = COLL_OK;

	coll_py_stream_renew(s);
	LIBRARY(st = coll_stream_query(s->handle));
	if (st == COLL_OK && !error)
		Py_RETURN_NONE;
	if (!error)
		return coll_py_raise(s->comm, st, "stream");
	PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	if (st == COLL_OK) /* renewed: the program has it now */
		Py_CLEAR(s->error);
	return NULL;
}

/* The library's streams keep their first error, and so would all works that come later have it. What is in the stream
 * has ended, as the last of its works has: the new queue begins where the old one ends. */
void coll_py_stream_renew(struct stream *s)
{
	coll_stream *fresh = NULL, *old = s->handle;
	coll_status st;

	if (!s->renew || s->users || s->first || !old || s->generation != coll_py_generation || !s->comm->handle ||
	    coll_py_group_open())
		return;
	LIBRARY(st = coll_stream_query(old)); /* a wait for an event may be behind the last work */
	if (st == COLL_AGAIN || s->handle != old || s->users)
		return;
	LIBRARY(st = coll_stream_create(&fresh, s->comm->handle));
	if (st != COLL_OK)
		return; /* it stays as it is, and says why */
	if (s->handle == old && !s->users) {
		s->renew = false;
		s->handle = fresh;
		fresh = old;
	}
	LIBRARY(coll_stream_destroy(&fresh));
}

static PyObject *stream_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	struct stream *s = (struct stream *)self;
	coll_status st = COLL_AGAIN;
	PyObject *timeout;
	int left;

	if (coll_py_one("wait", "timeout", args, nargs, names, &timeout) != 0)
		return NULL;
	left = coll_py_timeout(timeout);
	if (left == -2 || check(s) != 0)
		return NULL;
	while (st == COLL_AGAIN && left != 0) {
		int slice = left < 0 || left > COLL_PY_SLICE_MS ? COLL_PY_SLICE_MS : left;

		s->users++;
		SLICE(st = coll_stream_wait(s->handle, slice));
		s->users--;
		if (PyErr_CheckSignals() != 0)
			return NULL;
		left -= left > 0 ? slice : 0;
	}
	coll_py_reap();
	if (st == COLL_AGAIN)
		LIBRARY(st = coll_stream_query(s->handle));
	if (st == COLL_AGAIN)
		return PyErr_Format(PyExc_TimeoutError, "the stream is not complete yet; it goes on");
	return verdict(s);
}

static PyObject *stream_query(PyObject *self, PyObject *unused)
{
	struct stream *s = (struct stream *)self;
	coll_status st;

	if (check(s) != 0)
		return NULL;
	coll_py_reap();
	LIBRARY(st = coll_stream_query(s->handle));
	if (st == COLL_OK || st == COLL_AGAIN)
		return PyBool_FromLong(st == COLL_OK);
	return verdict(s);
}

static PyObject *stream_close(PyObject *self, PyObject *unused)
{
	struct stream *s = (struct stream *)self;
	coll_status st;

	if (!s->handle || s->generation != coll_py_generation)
		Py_RETURN_NONE;
	if (coll_py_group_open())
		return coll_py_raise_argument("close: a group is open");
	if (coll_py_stream_finish(s, -1) < 0)
		return NULL;
	st = end(s);
	coll_py_reap();
	if (st != COLL_OK && s->error)
		PyErr_SetObject((PyObject *)Py_TYPE(s->error), s->error);
	else if (st != COLL_OK)
		coll_py_raise(s->comm, st, "stream");
	if (st != COLL_OK)
		return NULL;
	Py_RETURN_NONE;
}

/* ---- Events ---- */

static PyObject *stream_record(PyObject *self, PyObject *unused)
{
	struct stream *s = (struct stream *)self;
	struct event *e;
	coll_status st;

	if (check(s) != 0)
		return NULL;
	if (!s->comm->handle)
		return coll_py_raise_argument("record: the communicator of the stream is closed");
	e = (struct event *)PyType_GenericAlloc(coll_py_event_type, 0);
	if (!e)
		return NULL;
	e->generation = coll_py_generation;
	e->comm = s->comm;
	Py_INCREF((PyObject *)e->comm);
	LIBRARY(st = coll_event_create(&e->handle, s->comm->handle));
	if (st == COLL_OK)
		LIBRARY(st = coll_event_record(e->handle, s->handle));
	if (st == COLL_OK)
		return (PyObject *)e;
	Py_DECREF((PyObject *)e);
	return coll_py_raise(s->comm, st, "record");
}

static PyObject *stream_wait_event(PyObject *self, PyObject *object)
{
	struct stream *s = (struct stream *)self;
	const struct event *e = (struct event *)object;
	coll_status st;

	if (!PyObject_TypeCheck(object, coll_py_event_type))
		return PyErr_Format(PyExc_TypeError, "%R is no Event", object);
	if (check(s) != 0)
		return NULL;
	LIBRARY(st = coll_stream_wait_event(s->handle, e->generation == coll_py_generation ? e->handle : NULL));
	if (st != COLL_OK)
		return coll_py_raise(s->comm, st, "wait_event");
	Py_RETURN_NONE;
}

static void event_dealloc(PyObject *self)
{
	struct event *e = (struct event *)self;

	if (e->handle && e->generation == coll_py_generation)
		LIBRARY(coll_event_destroy(&e->handle));
	Py_XDECREF((PyObject *)e->comm);
	coll_py_free(self);
}

static coll_status event_look(struct event *e, int slice)
{
	coll_status st;

	SLICE(st = slice ? coll_event_wait(e->handle, slice) : coll_event_query(e->handle));
	return st;
}

static PyObject *event_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	struct event *e = (struct event *)self;
	coll_status st = COLL_AGAIN;
	PyObject *timeout;
	int left;

	if (coll_py_one("wait", "timeout", args, nargs, names, &timeout) != 0)
		return NULL;
	left = coll_py_timeout(timeout);
	if (left == -2)
		return NULL;
	if (e->generation != coll_py_generation)
		return coll_py_raise_argument("the event belongs to the process that forked this one");
	while (st == COLL_AGAIN && left != 0) {
		int slice = left < 0 || left > COLL_PY_SLICE_MS ? COLL_PY_SLICE_MS : left;

		st = event_look(e, slice);
		if (PyErr_CheckSignals() != 0)
			return NULL;
		left -= left > 0 ? slice : 0;
	}
	if (st == COLL_AGAIN)
		st = event_look(e, 0);
	coll_py_reap();
	if (st == COLL_AGAIN)
		return PyErr_Format(PyExc_TimeoutError, "the event is not reached yet");
	if (st != COLL_OK)
		return coll_py_raise(e->comm, st, "event");
	Py_RETURN_NONE;
}

static PyObject *event_query(PyObject *self, PyObject *unused)
{
	struct event *e = (struct event *)self;
	coll_status st = e->generation == coll_py_generation ? event_look(e, 0) : COLL_OK;

	coll_py_reap();
	if (st != COLL_OK && st != COLL_AGAIN)
		return coll_py_raise(e->comm, st, "event");
	return PyBool_FromLong(st == COLL_OK);
}

GUARD_NAMED(stream_wait)
GUARD_ONE(stream_query)
GUARD_ONE(stream_record)
GUARD_ONE(stream_wait_event)
GUARD_ONE(stream_close)
GUARD_NAMED(event_wait)
GUARD_ONE(event_query)
GUARD_DEALLOC(stream_dealloc)
GUARD_DEALLOC(event_dealloc)

#define FAST(name, function)                                                                       \
	{                                                                                          \
		name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS, NULL \
	}
static PyMethodDef stream_methods[] = {
        FAST("wait", stream_wait_guarded),
        {"query", stream_query_guarded, METH_NOARGS, NULL},
        {"record", stream_record_guarded, METH_NOARGS, NULL},
        {"wait_event", stream_wait_event_guarded, METH_O, NULL},
        {"close", stream_close_guarded, METH_NOARGS, NULL},
        {0},
};
static PyType_Slot stream_slots[] = {
        {Py_tp_dealloc, (void *)stream_dealloc_guarded},
        {Py_tp_methods, stream_methods},
        {0, NULL},
};
static PyType_Spec stream_spec = {"coll._coll.Stream", sizeof(struct stream), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, stream_slots};

static PyMethodDef event_methods[] = {
        FAST("wait", event_wait_guarded),
        {"query", event_query_guarded, METH_NOARGS, NULL},
        {0},
};
static PyType_Slot event_slots[] = {
        {Py_tp_dealloc, (void *)event_dealloc_guarded},
        {Py_tp_methods, event_methods},
        {0, NULL},
};
static PyType_Spec event_spec = {"coll._coll.Event", sizeof(struct event), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, event_slots};

int coll_py_stream_types(PyObject *module)
{
	coll_py_stream_type = coll_py_type(module, &stream_spec, NULL);
	coll_py_event_type = coll_py_type(module, &event_spec, NULL);
	return coll_py_stream_type && coll_py_event_type ? 0 : -1;
}
