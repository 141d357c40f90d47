/*
 * Streams, events and Work.
 *
 * A Work that runs owns the buffers of its call, and its stream owns the Work: a caller may drop it. Works of one
 * stream end in order, so a stream keeps a queue and looks at its head only; a stream with unfinished works holds
 * itself. Works that have ended are looked after in every call with a stream, every wait and close() (coll_py_reap()).
 *
 * The library sees copies of arrays that are not contiguous, taken in the call and written back when its end is looked
 * after: a call whose arrays meet those of an unfinished one waits for it (coll_py_stream_settle()).
 *
 * An event of the library must outlive those who wait for it, and keeps the job open: it is destroyed when the work is
 * done and its last waiter has left.
 */
#include <sched.h>

#include "binding.h"

PyTypeObject *coll_py_stream_type, *coll_py_work_type, *coll_py_event_type;

/* Streams with unfinished works. */
static struct stream *pending;

int coll_py_timeout(PyObject *seconds)
{
	double s;

	if (!seconds || seconds == Py_None)
		return -1;
	s = PyFloat_AsDouble(seconds);
	if (s == -1.0 && PyErr_Occurred())
		return -2;
	if (s != s || s < 0) {
		coll_py_raise_argument("a time limit is a number of seconds, 0 or more, or None");
		return -2;
	}
	return s * 1000 > 2000000000 ? 2000000000 : (int)(s * 1000 + 0.999);
}

/* ---- The end of a work ---- */

void coll_py_work_drop_event(struct work *w)
{
	coll_event *event = w->event;

	if (w->waiters == 0 && event) {
		w->event = NULL;
		if (w->generation == coll_py_generation)
			LIBRARY(coll_event_destroy(&event));
	}
}

/* The communicator goes on: the call was a message with a rank that is dead. */
static bool is_of_one_call(PyObject *error)
{
	PyObject *lost = PyObject_GetAttrString(error, "lost");
	const bool yes = lost && PyUnicode_Check(lost) &&
	                 (PyUnicode_CompareWithASCIIString(lost, "peer") == 0 ||
	                  PyUnicode_CompareWithASCIIString(lost, "call") == 0);

	if (!lost)
		PyErr_Clear();
	Py_XDECREF(lost);
	return yes;
}

/* The call is over: results are written back, buffers let go. */
static void finish(struct work *w, coll_status st)
{
	struct stream *s = w->stream;
	struct comm *c = w->request.comm;

	if (c->failure && w->request.op_object) {
		coll_py_comm_failure(c);
		w->error = coll_py_take_exception();
	} else if (st != COLL_OK) {
		w->error = coll_py_error_kept(c, st, coll_py_methods[w->request.kind].name);
		if (!w->error)
			w->error = coll_py_take_exception();
	} else {
		coll_py_request_unpack(&w->request);
		w->result = w->request.result ? w->request.result : Py_None;
		Py_INCREF(w->result);
	}
	if (w->error && !s->error) {
		s->error = w->error;
		Py_INCREF(s->error);
	}
	if (w->error && !s->device)
		s->renew = is_of_one_call(w->error);
	w->state = WORK_DONE;
	w->stream = NULL;
	coll_py_work_drop_event(w);
	coll_py_request_end(&w->request);
	Py_DECREF((PyObject *)s);
}

static void stop_pending(struct stream *s)
{
	struct stream **at = &pending;

	while (*at != s)
		at = &(*at)->next_pending;
	*at = s->next_pending;
	s->pending = false;
	Py_DECREF((PyObject *)s);
}

/* Its results are written back in finish(). */
static bool is_copied(const struct work *w)
{
	const struct view *v = coll_py_request_written(&w->request);

	return v && !v->contiguous;
}

static coll_status query(struct work *w)
{
	coll_status st;

	w->waiters++; /* the event stays */
	LIBRARY(st = coll_event_query(w->event));
	w->waiters--;
	if (w->state == WORK_DONE)
		coll_py_work_drop_event(w);
	return st;
}

/* False: the head has not ended. Other threads may be here, too, and take it. */
static bool reap_one(struct stream *s, struct work *w)
{
	coll_status st;

	if (w->state != WORK_RUNNING || w->generation != coll_py_generation)
		return false;
	st = query(w);
	if (st == COLL_AGAIN || s->first != w)
		return st != COLL_AGAIN;
	s->first = w->next;
	if (!s->first)
		s->last = NULL;
	s->copied -= is_copied(w);
	w->next = NULL;
	finish(w, st);
	Py_DECREF((PyObject *)w);
	return true;
}

/* finish() runs Python code, which may end up here again, in this thread or another: each round begins anew. */
static void reap_stream(struct stream *s)
{
	bool more = true;

	while (more && s->first) {
		struct work *w = s->first;

		Py_INCREF((PyObject *)w);
		more = reap_one(s, w);
		Py_DECREF((PyObject *)w);
	}
	if (!s->first && s->pending)
		stop_pending(s);
}

void coll_py_reap(void)
{
	struct stream *s = pending;

	coll_py_receives_reap();
	while (s) {
		struct stream *next;
		bool stays;

		Py_INCREF((PyObject *)s);
		reap_stream(s);
		stays = s->pending;
		next = s->next_pending;
		Py_DECREF((PyObject *)s);
		s = stays ? next : pending;
	}
}

static void queue(struct stream *s, struct work *w)
{
	Py_INCREF((PyObject *)w);
	if (s->last)
		s->last->next = w;
	else
		s->first = w;
	s->last = w;
	s->copied += is_copied(w);
	if (!s->pending) {
		s->pending = true;
		s->next_pending = pending;
		pending = s;
		Py_INCREF((PyObject *)s);
	}
}

/* ---- The start of a work ---- */

static int check_stream(const struct stream *s)
{
	if (s->handle && s->generation == coll_py_generation)
		return 0;
	coll_py_raise_argument(s->handle ? "the stream belongs to the process that forked this one"
	                                 : "the stream is closed");
	return -1;
}

/* A work that holds the request, whose contents move. */
static struct work *new_work(struct request *r, struct stream *s)
{
	struct work *w = (struct work *)PyObject_CallNoArgs(coll_py_hooks[HOOK_WORK]);

	if (!w) {
		coll_py_request_end(r);
		return NULL;
	}
	w->request = *r;
	w->generation = coll_py_generation;
	w->stream = s;
	Py_INCREF((PyObject *)s);
	w->state = WORK_NEW;
	return w;
}

void coll_py_work_begin(struct work *w, coll_status st)
{
	if (st == COLL_OK)
		LIBRARY(st = coll_event_record(w->event, w->stream->handle));
	if (st != COLL_OK) {
		finish(w, st);
		return;
	}
	w->state = WORK_RUNNING;
	queue(w->stream, w);
}

/* The stream is not renewed meanwhile. */
static PyObject *start(struct request *r, struct stream *s)
{
	struct comm *c = r->comm;
	struct work *w;
	coll_status st;

	if (check_stream(s) != 0 || coll_py_device_graph_fits(r, s) != 0 || coll_py_device_order(r, s) != 0) {
		coll_py_request_end(r);
		return NULL;
	}
	w = new_work(r, s);
	if (!w)
		return NULL;
	coll_py_device_mark(&w->request, s);
	LIBRARY(st = coll_event_create(&w->event, c->handle));
	if (st != COLL_OK) {
		coll_py_raise(c, st, "event");
		goto fail;
	}
	if (coll_py_group_open()) {
		w->state = WORK_IN_GROUP;
		if (coll_py_group_add(&w->request, w) == 0)
			return (PyObject *)w;
		goto fail;
	}
	if (coll_py_comm_enter(c, coll_py_methods[r->kind].name) != 0)
		goto fail;
	WITHOUT_GIL(st = coll_py_request_start(&w->request, s->handle));
	coll_py_comm_leave(c);
	if (st != COLL_OK) {
		coll_py_raise(c, st, coll_py_methods[r->kind].name);
		goto fail;
	}
	coll_py_work_begin(w, COLL_OK);
	if (coll_py_interrupted() == 0)
		return (PyObject *)w;
fail:
	Py_DECREF((PyObject *)w);
	return NULL;
}

PyObject *coll_py_work_start(struct request *r, PyObject *stream)
{
	struct stream *s = (struct stream *)stream;
	PyObject *work;

	coll_py_reap();
	coll_py_stream_renew(s);
	Py_INCREF(stream);
	s->users++;
	work = start(r, s);
	s->users--;
	Py_DECREF(stream);
	return work;
}

static void work_dealloc(PyObject *self)
{
	struct work *w = (struct work *)self;

	coll_py_work_drop_event(w);
	if (w->state != WORK_DONE && w->request.comm)
		coll_py_request_end(&w->request);
	Py_XDECREF((PyObject *)w->stream);
	Py_CLEAR(w->result);
	Py_CLEAR(w->error);
	coll_py_free(self);
}

/* ---- Waiting ---- */

int coll_py_work_wait(struct work *w, int timeout_ms)
{
	coll_status st = COLL_AGAIN;

	if (w->state != WORK_DONE && w->generation != coll_py_generation) {
		coll_py_raise_argument("the work belongs to the process that forked this one");
		return -1;
	}
	if (w->state == WORK_IN_GROUP || w->state == WORK_NEW) {
		coll_py_raise_argument("wait: the group of this call is still open");
		return -1;
	}
	while (w->state == WORK_RUNNING && st == COLL_AGAIN) {
		int slice = timeout_ms < 0 || timeout_ms > COLL_PY_SLICE_MS ? COLL_PY_SLICE_MS : timeout_ms;
		coll_event *event = w->event;

		w->waiters++;
		SLICE(st = coll_event_wait(event, slice));
		w->waiters--;
		if (PyErr_CheckSignals() != 0)
			return -1;
		if (timeout_ms >= 0 && st == COLL_AGAIN && (timeout_ms -= slice) <= 0)
			break;
	}
	coll_py_reap();
	/* Another thread may be at finishing it. */
	while (st != COLL_AGAIN && w->state == WORK_RUNNING) {
		if (PyErr_CheckSignals() != 0)
			return -1;
		WITHOUT_GIL(sched_yield());
		coll_py_reap();
	}
	if (w->state == WORK_DONE)
		coll_py_work_drop_event(w);
	return w->state == WORK_DONE;
}

static PyObject *give_result(struct work *w)
{
	if (w->error) {
		coll_py_log_raised(NULL);
		PyErr_SetObject((PyObject *)Py_TYPE(w->error), w->error);
		return NULL;
	}
	Py_INCREF(w->result);
	return w->result;
}

PyObject *coll_py_work_await(PyObject *work)
{
	struct work *w = (struct work *)work;
	struct comm *c = w->request.comm;
	PyObject *result = NULL, *cause;

	if (!c) /* it has ended */
		return give_result(w);
	Py_INCREF((PyObject *)c);
	if (coll_py_work_wait(w, -1) == 1) {
		result = give_result(w);
	} else {
		cause = coll_py_take_exception();
		if (c->handle && c->generation == coll_py_generation)
			LIBRARY(coll_comm_abort(c->handle, "interrupted"));
		if (coll_py_work_wait(w, -1) < 0)
			PyErr_Clear();
		PyErr_SetObject((PyObject *)Py_TYPE(cause), cause);
		Py_DECREF(cause);
	}
	Py_DECREF((PyObject *)c);
	return result;
}

/* What wait(), result() and exception() have in common. NULL with an exception set, TimeoutError among them. */
static struct work *after(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	struct work *w = (struct work *)self;
	int timeout_ms = coll_py_timeout(nargs > 0 ? args[0] : NULL), done;

	if (nargs > 1)
		PyErr_SetString(PyExc_TypeError, "one argument at most: timeout");
	if (nargs > 1 || timeout_ms == -2)
		return NULL;
	done = coll_py_work_wait(w, timeout_ms);
	if (done == 0)
		PyErr_Format(PyExc_TimeoutError, "%s is not complete yet; it goes on",
		             coll_py_methods[w->request.kind].name);
	return done == 1 ? w : NULL;
}

static PyObject *work_result(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	struct work *w = after(self, args, nargs);

	return w ? give_result(w) : NULL;
}

static PyObject *work_exception(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	const struct work *w = after(self, args, nargs);
	PyObject *error = w && w->error ? w->error : Py_None;

	if (!w)
		return NULL;
	if (w->error)
		coll_py_log_raised(NULL);
	Py_INCREF(error);
	return error;
}

/* As far as was looked. */
static PyObject *get_done(PyObject *self, void *unused)
{
	return PyBool_FromLong(((struct work *)self)->state == WORK_DONE);
}

static PyObject *get_failed(PyObject *self, void *unused)
{
	return PyBool_FromLong(((struct work *)self)->error != NULL);
}

static PyObject *work_done(PyObject *self, PyObject *unused)
{
	coll_py_reap();
	return PyBool_FromLong(((struct work *)self)->state == WORK_DONE);
}

GUARD_FAST(work_result)
GUARD_FAST(work_exception)
GUARD_ONE(work_done)
GUARD_DEALLOC(work_dealloc)

#define FAST(name, function)                                                       \
	{                                                                          \
		name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, NULL \
	}
static PyMethodDef work_methods[] = {
        FAST("_result", work_result_guarded),
        FAST("_exception", work_exception_guarded),
        {"done", work_done_guarded, METH_NOARGS, NULL},
        {0},
};
static PyGetSetDef work_properties[] = {
        {"_is_done", get_done, NULL, NULL, NULL},
        {"_failed", get_failed, NULL, NULL, NULL},
        {0},
};
static PyType_Slot work_slots[] = {
        {Py_tp_dealloc, (void *)work_dealloc_guarded},
        {Py_tp_methods, work_methods},
        {Py_tp_getset, work_properties},
        {0, NULL},
};
static PyType_Spec work_spec = {"coll._coll.Work", sizeof(struct work), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                work_slots};

int coll_py_async_init(PyObject *module)
{
	coll_py_work_type = coll_py_type(module, &work_spec, NULL);
	return coll_py_work_type && coll_py_stream_types(module) == 0 ? 0 : -1;
}

/* Whether the call would read or write too early while the work goes on. */
static bool is_in_the_way(const struct work *w, const struct request *r)
{
	const struct view *written = coll_py_request_written(&w->request);

	if (!written)
		return false;
	if (r->has_in && (!written->contiguous || !r->in.contiguous) && coll_py_view_overlaps(written, &r->in))
		return true;
	return r->has_out && !written->contiguous && coll_py_view_overlaps(written, &r->out);
}

int coll_py_stream_settle(struct stream *s, const struct request *r)
{
	struct work *last = NULL;
	int rc;

	if (s->copied == 0 && (!r->has_in || r->in.contiguous))
		return 0;
	for (struct work *w = s->first; w; w = w->next)
		if (is_in_the_way(w, r))
			last = w;
	if (!last || last->generation != coll_py_generation)
		return 0;
	Py_INCREF((PyObject *)last);
	rc = coll_py_work_wait(last, -1);
	Py_DECREF((PyObject *)last);
	return rc < 0 ? -1 : 0;
}

int coll_py_stream_finish(struct stream *s, int timeout_ms)
{
	struct work *last = s->last;
	int rc = 1;

	if (last) {
		Py_INCREF((PyObject *)last);
		rc = coll_py_work_wait(last, timeout_ms);
		Py_DECREF((PyObject *)last);
	}
	return rc;
}
