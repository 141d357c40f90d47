/*
 * Receive: a posted receive of a message with a tag (coll_irecv()).
 *
 * It owns the array until it has ended. One that is dropped before is cancelled; if that is too late, since its message
 * is under way, it goes to a list and ends there. The end of the communicator cancels those that are left, and the end
 * of the process also those for which another thread waits: that thread cancels, since the handle is its own.
 */
#include <time.h>

#include "binding.h"

static PyTypeObject *receive_type;

struct receive {
	PyObject_HEAD struct request request;
	coll_request *handle; /* NULL: it has ended */
	unsigned generation;
	bool waiting;                             /* a thread is */
	bool withdrawn;                           /* by the end of the communicator */
	bool ending;                              /* by the end of the process */
	PyObject *result, *error;                 /* of one that has ended */
	struct receive *next;                     /* in the list of dropped ones, which holds it */
	struct receive *next_posted, **posted_at; /* in the list of those that have not ended, which does not */
};

static struct receive *dropped, *posted;

static void post(struct receive *v)
{
	v->next_posted = posted;
	v->posted_at = &posted;
	if (posted)
		posted->posted_at = &v->next_posted;
	posted = v;
}

static void unpost(struct receive *v)
{
	if (!v->posted_at)
		return;
	*v->posted_at = v->next_posted;
	if (v->next_posted)
		v->next_posted->posted_at = v->posted_at;
	v->posted_at = NULL;
}

/* ---- The end ---- */

static PyObject *error_of(const struct receive *v, coll_status st)
{
	if (v->ending && st == COLL_ERR_CANCELLED)
		return coll_py_error_text(st, "irecv", "irecv: the receive was taken back: the process is ending");
	/* That of the call: the communicator may have none, or that of another death. */
	return coll_py_error(NULL, st, "irecv");
}

static void finish(struct receive *v, coll_status st, const coll_message_info *info)
{
	const struct request *r = &v->request;
	size_t unit = r->count && r->in.items ? r->count / r->in.items : 1;

	unpost(v);
	if (st == COLL_OK) {
		coll_py_request_unpack(&v->request);
		v->result = PyObject_CallFunction(coll_py_hooks[HOOK_MESSAGE], "iin", info->source, info->tag,
		                                  (Py_ssize_t)(info->count / unit));
	} else {
		v->error = error_of(v, st);
	}
	if (!v->result && !v->error)
		v->error = coll_py_take_exception();
	coll_py_request_end(&v->request);
	v->handle = NULL; /* last: before, other threads see one that is waited for */
}

static bool test(struct receive *v)
{
	coll_request *handle = v->handle;
	coll_message_info info = {0};
	coll_status st;

	if (!v->handle)
		return true;
	if (v->waiting)
		return false;
	v->waiting = true;
	LIBRARY(st = coll_request_test(&handle, &info));
	if (st != COLL_AGAIN)
		finish(v, st, &info);
	v->waiting = false;
	return st != COLL_AGAIN;
}

void coll_py_receives_reap(void)
{
	struct receive *list = dropped;

	/* Destructors, and other threads, have a list of their own meanwhile. */
	dropped = NULL;
	while (list) {
		struct receive *v = list;

		list = v->next;
		if (v->generation == coll_py_generation && !test(v)) {
			v->next = dropped;
			dropped = v;
			continue;
		}
		v->handle = NULL;
		Py_DECREF((PyObject *)v);
	}
}

static struct receive *first_posted(const struct comm *c)
{
	for (struct receive *v = posted; v; v = v->next_posted)
		if (v->request.comm == c && !v->withdrawn && !v->waiting && v->generation == coll_py_generation)
			return v;
	return NULL;
}

void coll_py_receives_cancel(struct comm *c, bool ending)
{
	struct receive *v;

	for (v = posted; v && ending; v = v->next_posted)
		v->ending |= v->request.comm == c;
	while ((v = first_posted(c)) != NULL) {
		v->withdrawn = true;
		Py_INCREF((PyObject *)v);
		LIBRARY(coll_request_cancel(v->handle));
		test(v);
		Py_DECREF((PyObject *)v);
	}
}

/* Take it back. False: too late. It may be dropped while an exception is on its way, which the end of a receive, that
 * runs Python code, would lose. */
static bool take_back(struct receive *v)
{
	PyObject *type, *value, *trace;
	bool ended;

	PyErr_Fetch(&type, &value, &trace);
	LIBRARY(coll_request_cancel(v->handle));
	ended = test(v);
	PyErr_Restore(type, value, trace);
	return ended;
}

static void dealloc(PyObject *self)
{
	struct receive *v = (struct receive *)self;

	if (v->handle && v->generation == coll_py_generation && !take_back(v)) {
		Py_INCREF(self); /* it lives on in the list */
		v->next = dropped;
		dropped = v;
		return;
	}
	unpost(v);
	if (v->request.comm)
		coll_py_request_end(&v->request);
	Py_CLEAR(v->result);
	Py_CLEAR(v->error);
	coll_py_free(self);
}

/* ---- Methods ---- */

/* _irecv(x, source, tag) */
PyObject *coll_py_irecv(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	struct comm *c = (struct comm *)self;
	PyObject *values[ARG_COUNT] = {NULL};
	const struct request *r;
	struct receive *v;
	coll_status st;

	if (nargs != 3)
		return PyErr_Format(PyExc_TypeError, "_irecv: three arguments");
	if (coll_py_comm_check(c) != 0)
		return NULL;
	v = (struct receive *)PyType_GenericAlloc(receive_type, 0);
	if (!v)
		return NULL;
	v->generation = coll_py_generation;
	values[ARG_X] = args[0] == Py_None ? NULL : args[0];
	values[ARG_PEER] = args[1];
	values[ARG_TAG] = args[2];
	r = &v->request;
	if (coll_py_receive_make(&v->request, c, values) != 0 || coll_py_comm_enter(c, "irecv") != 0)
		goto fail;
	WITHOUT_GIL(st = coll_irecv(r->out_address, r->count, r->type, r->root, r->tag, c->handle, &v->handle));
	coll_py_comm_leave(c);
	if (st == COLL_OK)
		post(v);
	coll_py_reap();
	if (st == COLL_OK && coll_py_interrupted() == 0)
		return (PyObject *)v;
	if (st != COLL_OK)
		coll_py_raise(c, st, "irecv");
fail:
	Py_DECREF((PyObject *)v);
	return NULL;
}

static int check(const struct receive *v)
{
	if (v->handle && v->generation != coll_py_generation)
		coll_py_raise_argument("the receive belongs to the process that forked this one");
	else if (v->handle && v->waiting)
		coll_py_raise_argument("another thread waits for this receive");
	else
		return 0;
	return -1;
}

static PyObject *outcome(struct receive *v)
{
	PyObject *what = v->error ? v->error : v->result;

	if (v->error) {
		PyErr_SetObject((PyObject *)Py_TYPE(v->error), v->error);
		return NULL;
	}
	Py_INCREF(what);
	return what;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A wait is cut in slices so that Ctrl-C comes through, and the end of the process. To the library they are one wait.
 */
static coll_status wait_in_slices(struct receive *v, int timeout_ms, coll_message_info *info)
{
	const int64_t until = now_ms() + timeout_ms;
	coll_request *handle = v->handle;
	int left = timeout_ms;
	coll_status st;

	for (;;) {
		int slice = left < 0 || left > COLL_PY_SLICE_MS ? COLL_PY_SLICE_MS : left;

		if (v->ending && !v->withdrawn) {
			v->withdrawn = true;
			LIBRARY(coll_request_cancel(handle));
		}
		SLICE(st = coll_request_wait(&handle, slice, info));
		if (st != COLL_AGAIN || PyErr_CheckSignals() != 0)
			return st;
		if (timeout_ms >= 0) {
			const int64_t rest = until - now_ms();

			if (rest <= 0)
				return st;
			left = (int)rest;
		}
	}
}

static PyObject *receive_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	struct receive *v = (struct receive *)self;
	coll_message_info info = {0};
	PyObject *timeout;
	coll_status st;
	int limit;

	if (coll_py_one("wait", "timeout", args, nargs, names, &timeout) != 0 ||
	    (limit = coll_py_timeout(timeout)) == -2 || check(v) != 0)
		return NULL;
	if (!v->handle)
		return outcome(v);
	v->waiting = true;
	st = wait_in_slices(v, limit, &info);
	if (st != COLL_AGAIN)
		finish(v, st, &info);
	v->waiting = false;
	if (st == COLL_AGAIN)
		return PyErr_Occurred() ? NULL
		                        : PyErr_Format(PyExc_TimeoutError, "no message yet; the receive goes on");
	return outcome(v);
}

static PyObject *receive_done(PyObject *self, PyObject *unused)
{
	struct receive *v = (struct receive *)self;

	return check(v) == 0 ? PyBool_FromLong(test(v)) : NULL;
}

/* True: it has ended without a message. False: too late. */
static PyObject *receive_cancel(PyObject *self, PyObject *unused)
{
	struct receive *v = (struct receive *)self;
	coll_status st;

	if (check(v) != 0)
		return NULL;
	if (!v->handle)
		Py_RETURN_FALSE;
	LIBRARY(st = coll_request_cancel(v->handle));
	if (st != COLL_OK && st != COLL_AGAIN)
		return coll_py_raise(v->request.comm, st, "cancel");
	test(v);
	return PyBool_FromLong(st == COLL_OK);
}

GUARD_NAMED(receive_wait)
GUARD_ONE(receive_done)
GUARD_ONE(receive_cancel)
GUARD_DEALLOC(dealloc)

static PyMethodDef methods[] = {
        {"wait", (PyCFunction)(void (*)(void))receive_wait_guarded, METH_FASTCALL | METH_KEYWORDS, NULL},
        {"done", receive_done_guarded, METH_NOARGS, NULL},
        {"cancel", receive_cancel_guarded, METH_NOARGS, NULL},
        {0},
};
static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)dealloc_guarded},
        {Py_tp_methods, methods},
        {0, NULL},
};
static PyType_Spec spec = {"coll._coll.Receive", sizeof(struct receive), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int coll_py_receive_init(PyObject *module)
{
	receive_type = coll_py_type(module, &spec, NULL);
	return receive_type ? 0 : -1;
}
