/*
 * Streams of devices, and the order of calls with their memory.
 *
 * A caller names a stream of its device by a handle, or by an object of another library. The coll_stream around it is
 * kept at the root of the job, since it must outlive its calls; it is found again by the handle. One that has failed
 * is not used again: a coll_stream keeps its first error.
 *
 * The rule of order. An array of another library may name the stream whose work makes its data. A call in a stream
 * begins behind that work. A call without a stream is made in the stream that the array names, and waited for. Arrays
 * that name none are ready.
 */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

/* So many streams are kept; then those without unfinished calls go. */
enum { KEPT = 32 };

int coll_py_device_number(const coll_comm *handle)
{
	const char *name = coll_comm_device(handle);

	return name && strncmp(name, "cuda:", 5) == 0 ? (int)strtol(name + 5, NULL, 10) : -1;
}

/* The legacy default stream has two names. */
static void *plain(void *cuda)
{
	return (uintptr_t)cuda == READER_LEGACY ? NULL : cuda;
}

/* ---- Streams by their handles ---- */

static struct stream *kept(PyObject *list, Py_ssize_t i)
{
	return (struct stream *)PyList_GetItem(list, i);
}

static bool usable(const struct stream *s)
{
	return s->handle && s->generation == coll_py_generation && !s->error;
}

static int drop_idle(PyObject *list)
{
	for (Py_ssize_t i = PyList_Size(list) - 1; i >= 0; i--)
		if (!kept(list, i)->first && PyList_SetSlice(list, i, i + 1, NULL) != 0)
			return -1;
	return 0;
}

static struct stream *wrap(struct comm *c, PyObject *list, void *cuda)
{
	coll_stream *handle = NULL;
	struct stream *s;
	coll_status st;

	if (PyList_Size(list) >= KEPT && drop_idle(list) != 0)
		return NULL;
	if (coll_py_comm_enter(c, "stream") != 0)
		return NULL;
	WITHOUT_GIL(st = coll_stream_wrap_cuda(&handle, c->handle, cuda));
	coll_py_comm_leave(c);
	if (st != COLL_OK) {
		coll_py_raise(c, st, "stream");
		return NULL;
	}
	s = coll_py_stream_adopt(coll_py_comm_root(c), handle);
	if (!s)
		return NULL;
	s->device = true;
	s->cuda = cuda;
	if (PyList_Append(list, (PyObject *)s) != 0) {
		Py_DECREF((PyObject *)s);
		return NULL;
	}
	return s;
}

/* Strong. */
static struct stream *stream_at(struct comm *c, void *cuda)
{
	struct comm *root = coll_py_comm_root(c);

	cuda = plain(cuda);
	if (!root->wrapped && !(root->wrapped = PyList_New(0)))
		return NULL;
	for (Py_ssize_t i = PyList_Size(root->wrapped) - 1; i >= 0; i--) {
		struct stream *s = kept(root->wrapped, i);

		if (s->cuda != cuda)
			continue;
		if (usable(s)) {
			Py_INCREF((PyObject *)s);
			return s;
		}
		if (PyList_SetSlice(root->wrapped, i, i + 1, NULL) != 0)
			return NULL;
	}
	return wrap(c, root->wrapped, cuda);
}

/* ---- Streams as callers name them ---- */

/* A number, or an object that has one as its value (ctypes); None is 0. -1 with an exception set. */
static int number_of(PyObject *object, void **cuda)
{
	PyObject *value = PyLong_Check(object) ? NULL : PyObject_GetAttrString(object, "value");

	if (!value)
		PyErr_Clear();
	*cuda = NULL;
	if (object != Py_None && value != Py_None)
		*cuda = PyLong_AsVoidPtr(value ? value : object);
	Py_XDECREF(value);
	return PyErr_Occurred() ? -1 : 0;
}

/* __cuda_stream__() gives (version, handle). */
static int from_protocol(PyObject *object, void **cuda)
{
	PyObject *answer = PyObject_GetAttrString(object, "__cuda_stream__"), *pair, *handle;
	int rc;

	if (!answer)
		return -1;
	pair = PyCallable_Check(answer) ? PyObject_CallNoArgs(answer) : answer;
	if (pair == answer)
		Py_INCREF(pair);
	handle = pair ? PySequence_GetItem(pair, 1) : NULL;
	rc = handle ? number_of(handle, cuda) : -1;
	Py_XDECREF(handle);
	Py_XDECREF(pair);
	Py_DECREF(answer);
	return rc;
}

static int handle_of(PyObject *named, void **cuda)
{
	static const char *const names[] = {"cuda_stream", "ptr", "handle"}; /* of torch, cupy, numba */

	if (PyLong_Check(named) && !PyBool_Check(named))
		return number_of(named, cuda);
	if (PyObject_HasAttrString(named, "__cuda_stream__"))
		return from_protocol(named, cuda);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		PyObject *value = PyObject_GetAttrString(named, names[i]);
		int rc;

		if (!value) {
			PyErr_Clear();
			continue;
		}
		rc = number_of(value, cuda);
		Py_DECREF(value);
		return rc;
	}
	PyErr_Format(PyExc_TypeError, "stream is %R; comm.stream() makes one, or give a stream of the device", named);
	return -1;
}

struct stream *coll_py_device_stream(struct comm *c, PyObject *named)
{
	void *cuda;

	if (PyObject_TypeCheck(named, coll_py_stream_type)) {
		Py_INCREF(named);
		return (struct stream *)named;
	}
	return handle_of(named, &cuda) == 0 ? stream_at(c, cuda) : NULL;
}

/* ---- Graphs ---- */

static bool stays(const struct view *v)
{
	return v->device && v->contiguous;
}

int coll_py_device_graph_fits(const struct request *r, const struct stream *s)
{
	if ((!r->has_in || stays(&r->in)) && (!r->has_out || stays(&r->out)))
		return 0;
	if (!s->device || !coll_stream_is_captured(s->handle))
		return 0;
	coll_py_raise_unsupported("%s: in a stream that is being captured arrays are contiguous, in device memory",
	                          coll_py_name_of(r));
	return -1;
}

int coll_py_device_graph_allocates(const struct request *r)
{
	const struct stream *s = NULL;

	if (r->reader == READER_NONE || r->reader == READER_UNORDERED || r->reader == READER_LEGACY)
		return 0;
	s = stream_at(r->comm, (void *)r->reader);
	if (!s)
		return -1;
	if (coll_stream_is_captured(s->handle))
		coll_py_raise_unsupported("%s: in a stream that is being captured it needs out=", coll_py_name_of(r));
	Py_DECREF((PyObject *)s);
	return PyErr_Occurred() ? -1 : 0;
}

/* ---- Order ---- */

intptr_t coll_py_device_reader(const struct comm *c, const struct stream *s)
{
	if (c->device < 0)
		return READER_NONE;
	return s && s->device && s->cuda ? (intptr_t)s->cuda : READER_LEGACY;
}

static int follow(struct comm *c, const struct stream *earlier, struct stream *later)
{
	coll_event *event = NULL;
	coll_status st;

	if (coll_py_comm_enter(c, "stream") != 0)
		return -1;
	st = coll_event_create(&event, c->handle);
	if (st == COLL_OK)
		st = coll_event_record(event, earlier->handle);
	if (st == COLL_OK) {
		WITHOUT_GIL(st = coll_stream_wait_event(later->handle, event));
	}
	coll_event_destroy(&event);
	coll_py_comm_leave(c);
	if (st == COLL_ERR_UNSUPPORTED)
		coll_py_raise_unsupported("the stream of a call and the stream that its array names are not in one "
		                          "capture");
	else if (st != COLL_OK)
		coll_py_raise(c, st, "stream");
	return st == COLL_OK ? 0 : -1;
}

int coll_py_device_follow(struct comm *c, void *earlier, void *later)
{
	struct stream *a, *b;
	int rc = -1;

	if (plain(earlier) == plain(later))
		return 0;
	a = stream_at(c, earlier);
	b = a ? stream_at(c, later) : NULL;
	if (b)
		rc = follow(c, a, b);
	Py_XDECREF((PyObject *)a);
	Py_XDECREF((PyObject *)b);
	return rc;
}

static int order_view(struct comm *c, const struct view *v, struct stream *s)
{
	struct stream *earlier;
	int rc;

	if (!v->has_stream || plain(v->stream) == s->cuda)
		return 0;
	earlier = stream_at(c, v->stream);
	rc = earlier ? follow(c, earlier, s) : -1;
	Py_XDECREF((PyObject *)earlier);
	return rc;
}

int coll_py_device_order(const struct request *r, struct stream *s)
{
	if (!s->device)
		return 0;
	if (r->has_in && order_view(r->comm, &r->in, s) != 0)
		return -1;
	return r->has_out ? order_view(r->comm, &r->out, s) : 0;
}

void coll_py_device_mark(struct request *r, const struct stream *s)
{
	if (!s->device || r->marked || !r->result || !coll_py_is_device_array(r->result))
		return;
	r->marked = true;
	coll_py_device_array_begin(r->result, s);
}

void coll_py_device_unmark(struct request *r)
{
	if (r->marked)
		coll_py_device_array_end(r->result);
	r->marked = false;
}

/* ---- Calls without a stream ---- */

static const struct view *waited_for(const struct request *r)
{
	if (r->kind == CALL_RECV && r->tagged) /* it is in no stream */
		return NULL;
	if (r->has_in && r->in.has_stream)
		return &r->in;
	return r->has_out && r->out.has_stream ? &r->out : NULL;
}

bool coll_py_device_waits(const struct request *r)
{
	return waited_for(r) != NULL;
}

PyObject *coll_py_device_run(struct request *r)
{
	struct stream *s;
	PyObject *work, *result;

	if (coll_py_group_open()) {
		coll_py_raise_argument(
		        "%s: an array names the stream of its data; inside of a group give stream=, since "
		        "calls without one are not put behind it",
		        coll_py_name_of(r));
		coll_py_request_end(r);
		return NULL;
	}
	s = stream_at(r->comm, waited_for(r)->stream);
	if (s && coll_stream_is_captured(s->handle)) {
		coll_py_raise_unsupported("%s: an array names a stream that is being captured; give stream=",
		                          coll_py_name_of(r));
		Py_CLEAR(s);
	}
	if (!s) {
		coll_py_request_end(r);
		return NULL;
	}
	work = coll_py_work_start(r, (PyObject *)s);
	Py_DECREF((PyObject *)s);
	result = work ? coll_py_work_await(work) : NULL;
	Py_XDECREF(work);
	return result;
}
