/*
 * One call: its arrays, counts and operation, checked before anything is sent; the start; the end.
 *
 * Shapes. all_gather and gather stack: (size,) + shape. With counts, and in reduce_scatter, scatter and all_to_all,
 * axis 0 is what is cut and joined; counts are numbers of rows. The library counts elements of its own types, which are
 * `per` to one element of the array.
 */
#include <stdlib.h>

#include "binding.h"

const char *coll_py_name_of(const struct request *r)
{
	return coll_py_methods[r->kind].name;
}

static size_t per(const struct view *v)
{
	return v->element->class == CLASS_OPAQUE ? v->item_bytes : (size_t)v->element->per;
}

/* Rows along axis 0, and elements of the library in one of them. */
static size_t rows(const struct view *v)
{
	return v->ndim ? (size_t)v->shape[0] : 1;
}

static size_t row_count(const struct view *v)
{
	size_t n = per(v);

	for (int i = 1; i < v->ndim; i++)
		n *= (size_t)v->shape[i];
	return n;
}

/* ---- Arrays ---- */

static int take_in(struct request *r, PyObject *x)
{
	if (!x) {
		coll_py_raise_argument("%s: x is None", coll_py_name_of(r));
		return -1;
	}
	if (coll_py_view_take(&r->in, x, "x", r->kept, r->reader) != 0)
		return -1;
	r->has_in = true;
	r->type = r->in.element->wire;
	return 0;
}

static int refuse_read_only(const struct request *r, const char *what)
{
	coll_py_raise_argument("%s: %s is read-only", coll_py_name_of(r), what);
	return -1;
}

/* The input is where the result goes. */
static int in_place(struct request *r)
{
	if (r->in.readonly)
		return refuse_read_only(r, "out");
	r->same = true;
	r->result = r->in.owner;
	Py_INCREF(r->result);
	return 0;
}

/* (first,) + shape[from:] of the input; first SIZE_MAX: none. */
static PyObject *make_shape(const struct view *v, size_t first, int from)
{
	int lead = first != SIZE_MAX;
	PyObject *shape = PyTuple_New(lead + (v->ndim > from ? v->ndim - from : 0));

	if (!shape)
		return NULL;
	if (lead)
		PyTuple_SetItem(shape, 0, PyLong_FromSize_t(first));
	for (int i = from; i < v->ndim; i++)
		PyTuple_SetItem(shape, lead + i - from, PyLong_FromLongLong(v->shape[i]));
	if (PyErr_Occurred()) {
		Py_DECREF(shape);
		return NULL;
	}
	return shape;
}

/* A new array like the input: of its own library if that is known, else a Buffer. */
static PyObject *make_like(const struct request *r, PyObject *shape)
{
	PyObject *made = PyObject_CallFunction(coll_py_hooks[HOOK_LIKE], "OO", r->in.owner, shape);

	if (!made || made != Py_None)
		return made;
	Py_DECREF(made);
	if (r->in.element->class == CLASS_OPAQUE)
		return coll_py_raise_argument(
		        "%s: elements of this type (%zu bytes each) need out=", coll_py_name_of(r), r->in.item_bytes);
	if (!r->in.device)
		return coll_py_block_new(NULL, shape, r->in.element);
	return coll_py_device_graph_allocates(r) == 0 ? coll_py_device_array_new(r->comm, shape, r->in.element) : NULL;
}

/* Bytes of no type go with any type of one byte. */
static bool same_elements(const struct view *a, const struct view *b)
{
	if (a->item_bytes == 1 && b->item_bytes == 1 &&
	    (a->element == &coll_py_opaque || b->element == &coll_py_opaque))
		return true;
	return a->element == b->element && a->item_bytes == b->item_bytes;
}

/* Take `out`, or make one of the shape given, whose reference is stolen. It must hold so many elements of the library.
 */
static int take_out(struct request *r, PyObject *out, PyObject *shape, size_t count)
{
	PyObject *made = NULL;
	int rc = -1;

	if (!shape)
		return -1;
	if (!out)
		out = made = make_like(r, shape);
	Py_DECREF(shape);
	if (!out || coll_py_view_take(&r->out, out, "out", r->kept, r->reader) != 0)
		goto end;
	r->has_out = true;
	if (r->out.readonly) {
		refuse_read_only(r, "out");
	} else if (r->has_in && !same_elements(&r->in, &r->out)) {
		coll_py_raise_argument("%s: x has elements of type %s (%zu bytes), out of type %s (%zu bytes)",
		                       coll_py_name_of(r), r->in.element->name, r->in.item_bytes, r->out.element->name,
		                       r->out.item_bytes);
	} else if (count != SIZE_MAX && r->out.items * per(&r->out) != count) {
		coll_py_raise_argument("%s: out has %zu elements, %zu are needed", coll_py_name_of(r), r->out.items,
		                       count / per(&r->out));
	} else {
		r->result = out;
		Py_INCREF(out);
		rc = 0;
	}
end:
	Py_XDECREF(made);
	return rc;
}

static int number(const struct request *r, PyObject *object, const char *what, int fallback, int *value)
{
	long n = object ? PyLong_AsLong(object) : fallback;

	if (n == -1 && PyErr_Occurred())
		return -1;
	if (object && (n < 0 || n >= r->comm->size)) {
		coll_py_raise_argument("%s: %s is %ld; the ranks are 0 to %d", coll_py_name_of(r), what, n,
		                       r->comm->size - 1);
		return -1;
	}
	*value = (int)n;
	return 0;
}

/* ---- Rows ---- */

static bool says_any(PyObject *counts)
{
	return PyUnicode_Check(counts) && PyUnicode_CompareWithASCIIString(counts, "any") == 0;
}

/* Whether the number of rows of the input is what counts say. */
static int check_rows(const struct request *r, size_t elements, const char *what)
{
	if (r->in.ndim == 0) {
		coll_py_raise_argument("%s: an array without axes has no rows to count", coll_py_name_of(r));
		return -1;
	}
	if (r->in.items * per(&r->in) == elements)
		return 0;
	coll_py_raise_argument("%s: x has %zu elements, %s make %zu", coll_py_name_of(r), r->in.items, what,
	                       elements / per(&r->in));
	return -1;
}

/* Axis 0 in equal parts: rows of one. */
static int equal_rows(const struct request *r, size_t *part)
{
	size_t size = (size_t)r->comm->size;

	if (r->in.ndim == 0 || rows(&r->in) % size != 0) {
		coll_py_raise_argument(
		        "%s: axis 0 of x has %zu rows, which %d ranks cannot share equally (see counts=)",
		        coll_py_name_of(r), r->in.ndim ? rows(&r->in) : 0, r->comm->size);
		return -1;
	}
	*part = rows(&r->in) / size;
	return 0;
}

/* ---- One function per kind ---- */

static int make_vector(struct request *r, PyObject *const *values)
{
	if (take_in(r, values[ARG_X]) != 0 || coll_py_request_reduce(r, values[ARG_OP]) != 0 ||
	    number(r, values[ARG_ROOT], "root", 0, &r->root) != 0)
		return -1;
	r->count = r->in.items * per(&r->in);
	if (r->kind == CALL_REDUCE && r->root != r->comm->rank)
		return 0;
	if (r->kind == CALL_EXCLUSIVE_SCAN && r->comm->rank == 0)
		return 0;
	if (values[ARG_OUT] == r->in.owner)
		return in_place(r);
	return take_out(r, values[ARG_OUT], make_shape(&r->in, SIZE_MAX, 0), r->count);
}

static int make_broadcast(struct request *r, PyObject *const *values)
{
	if (take_in(r, values[ARG_X]) != 0 || number(r, values[ARG_ROOT], "root", 0, &r->root) != 0)
		return -1;
	if (r->in.readonly && r->root != r->comm->rank)
		return refuse_read_only(r, "x");
	r->count = r->in.items * per(&r->in);
	r->same = true;
	r->result = r->in.owner;
	Py_INCREF(r->result);
	return 0;
}

static int make_gather(struct request *r, PyObject *const *values)
{
	PyObject *counts = values[ARG_COUNTS];
	size_t total, size = (size_t)r->comm->size;

	if (take_in(r, values[ARG_X]) != 0 || number(r, values[ARG_ROOT], "root", 0, &r->root) != 0)
		return -1;
	r->count = r->in.items * per(&r->in);
	r->ragged = counts != NULL;
	if (r->ragged && says_any(counts))
		r->out_counts = coll_py_counts_ask(r, row_count(&r->in), &total);
	else if (r->ragged && (r->kind == CALL_ALL_GATHER || r->root == r->comm->rank))
		r->out_counts = coll_py_counts_read(r, counts, row_count(&r->in), "counts", &total);
	if (PyErr_Occurred() || (r->out_counts && check_rows(r, r->out_counts[r->comm->rank], "counts") != 0))
		return -1;
	if (r->kind == CALL_GATHER && r->root != r->comm->rank)
		return 0;
	if (!r->ragged)
		return take_out(r, values[ARG_OUT], make_shape(&r->in, size, 0), size * r->count);
	return take_out(r, values[ARG_OUT], make_shape(&r->in, row_count(&r->in) ? total / row_count(&r->in) : 0, 1),
	                total);
}

static int make_reduce_scatter(struct request *r, PyObject *const *values)
{
	size_t part, total;

	if (take_in(r, values[ARG_X]) != 0 || coll_py_request_reduce(r, values[ARG_OP]) != 0)
		return -1;
	if (values[ARG_COUNTS]) {
		r->ragged = true;
		r->in_counts = coll_py_counts_read(r, values[ARG_COUNTS], row_count(&r->in), "counts", &total);
		if (!r->in_counts || check_rows(r, total, "counts") != 0)
			return -1;
		r->count = r->in_counts[r->comm->rank];
		part = row_count(&r->in) ? r->count / row_count(&r->in) : 0;
	} else {
		if (equal_rows(r, &part) != 0)
			return -1;
		r->count = part * row_count(&r->in);
	}
	return take_out(r, values[ARG_OUT], make_shape(&r->in, part, 1), r->count);
}

static int make_all_to_all(struct request *r, PyObject *const *values)
{
	PyObject *in_counts = values[ARG_IN_COUNTS], *out_counts = values[ARG_OUT_COUNTS];
	size_t part, total, row;

	if (take_in(r, values[ARG_X]) != 0)
		return -1;
	row = row_count(&r->in);
	if (!in_counts != !out_counts) {
		coll_py_raise_argument("%s: in_counts and out_counts go together", coll_py_name_of(r));
		return -1;
	}
	if (!in_counts) {
		if (equal_rows(r, &part) != 0)
			return -1;
		r->count = part * row;
		if (values[ARG_OUT] == r->in.owner)
			return in_place(r);
		return take_out(r, values[ARG_OUT], make_shape(&r->in, SIZE_MAX, 0), r->in.items * per(&r->in));
	}
	r->ragged = true;
	r->in_counts = coll_py_counts_read(r, in_counts, row, "in_counts", &total);
	if (!r->in_counts || check_rows(r, total, "in_counts") != 0)
		return -1;
	r->out_counts = coll_py_counts_read(r, out_counts, row, "out_counts", &total);
	if (!r->out_counts)
		return -1;
	return take_out(r, values[ARG_OUT], make_shape(&r->in, row ? total / row : 0, 1), total);
}

/* Only the root has an input; elsewhere out says what is expected. */
static int make_scatter(struct request *r, PyObject *const *values)
{
	PyObject *counts = values[ARG_COUNTS];
	size_t part = 0, total;

	if (number(r, values[ARG_ROOT], "root", 0, &r->root) != 0)
		return -1;
	r->ragged = counts != NULL;
	if (r->root != r->comm->rank) {
		if (!values[ARG_OUT]) {
			coll_py_raise_argument("scatter: out is needed at ranks other than the root");
			return -1;
		}
		if (take_out(r, values[ARG_OUT], PyTuple_New(0), SIZE_MAX) != 0)
			return -1;
		r->type = r->out.element->wire;
		r->count = r->out.items * per(&r->out);
		return 0;
	}
	if (take_in(r, values[ARG_X]) != 0)
		return -1;
	if (r->ragged) {
		r->in_counts = coll_py_counts_read(r, counts, row_count(&r->in), "counts", &total);
		if (!r->in_counts || check_rows(r, total, "counts") != 0)
			return -1;
		r->count = r->in_counts[r->root];
		part = row_count(&r->in) ? r->count / row_count(&r->in) : 0;
	} else {
		if (equal_rows(r, &part) != 0)
			return -1;
		r->count = part * row_count(&r->in);
	}
	return take_out(r, values[ARG_OUT], make_shape(&r->in, part, 1), r->count);
}

int coll_py_read_envelope(const struct comm *c, const char *name, long least, PyObject *peer, PyObject *tag, int *from,
                          int *number)
{
	const long t = PyLong_AsLong(tag), p = peer ? PyLong_AsLong(peer) : 0;

	if (!peer)
		coll_py_raise_argument("%s: peer is None", name);
	if (PyErr_Occurred())
		return -1;
	if (t < least || t > INT32_MAX) {
		coll_py_raise_argument("%s: tag is %ld", name, t);
		return -1;
	}
	if (p < least || p >= c->size) {
		coll_py_raise_argument("%s: peer is %ld; the ranks are 0 to %d", name, p, c->size - 1);
		return -1;
	}
	*from = (int)p;
	*number = (int)t;
	return 0;
}

/* A receive takes any peer and any tag. */
static int set_tag(struct request *r, PyObject *peer, PyObject *tag)
{
	r->tagged = true;
	return coll_py_read_envelope(r->comm, coll_py_name_of(r), r->kind == CALL_RECV ? -1 : 0, peer, tag, &r->root,
	                             &r->tag);
}

static int make_pair(struct request *r, PyObject *const *values)
{
	if (take_in(r, values[ARG_X]) != 0)
		return -1;
	if (values[ARG_TAG]) {
		if (set_tag(r, values[ARG_PEER], values[ARG_TAG]) != 0)
			return -1;
	} else if (number(r, values[ARG_PEER], "peer", -1, &r->root) != 0) {
		return -1;
	}
	r->count = r->in.items * per(&r->in);
	if (r->kind == CALL_SEND)
		return 0;
	return in_place(r);
}

static int make_exchange(struct request *r, PyObject *const *values)
{
	if (number(r, values[ARG_DEST], "dest", -1, &r->dest) != 0 ||
	    number(r, values[ARG_SOURCE], "source", -1, &r->root) != 0)
		return -1;
	if ((r->dest >= 0) != !!values[ARG_X] || (r->root >= 0) != !!values[ARG_OUT]) {
		coll_py_raise_argument(
		        "send_recv: x goes with dest, out with source; None and None leave one half out");
		return -1;
	}
	if (r->dest >= 0 && take_in(r, values[ARG_X]) != 0)
		return -1;
	if (r->root >= 0 && take_out(r, values[ARG_OUT], PyTuple_New(0), SIZE_MAX) != 0)
		return -1;
	r->count = r->has_in ? r->in.items * per(&r->in) : 0;
	r->out_count = r->has_out ? r->out.items * per(&r->out) : 0;
	if (r->has_out)
		r->type = r->out.element->wire;
	return 0;
}

static int make(struct request *r, PyObject *const *values)
{
	switch (r->kind) {
	case CALL_ALL_REDUCE:
	case CALL_REDUCE:
	case CALL_SCAN:
	case CALL_EXCLUSIVE_SCAN: return make_vector(r, values);
	case CALL_BROADCAST: return make_broadcast(r, values);
	case CALL_ALL_GATHER:
	case CALL_GATHER: return make_gather(r, values);
	case CALL_REDUCE_SCATTER: return make_reduce_scatter(r, values);
	case CALL_ALL_TO_ALL: return make_all_to_all(r, values);
	case CALL_SCATTER: return make_scatter(r, values);
	case CALL_SEND:
	case CALL_RECV: return make_pair(r, values);
	case CALL_SEND_RECV: return make_exchange(r, values);
	default: return 0;
	}
}

/* All but the views, which are large and filled when they are taken. */
static void clear(struct request *r)
{
	r->op = COLL_SUM;
	r->type = COLL_U8;
	r->root = r->dest = 0;
	r->count = r->out_count = 0;
	r->has_in = r->has_out = r->same = r->ragged = r->tagged = r->marked = false;
	r->in_counts = r->out_counts = NULL;
	r->in_address = r->out_address = NULL;
	r->op_object = r->result = NULL;
}

static int build(struct request *r, struct comm *c, enum call_kind kind, PyObject *const *values, struct stream *s,
                 bool kept, intptr_t reader)
{
	clear(r);
	r->kept = kept;
	r->reader = reader;
	r->comm = c;
	r->kind = kind;
	Py_INCREF((PyObject *)c);
	if (make(r, values) == 0 && (!s || coll_py_stream_settle(s, r) == 0) && coll_py_request_pack(r) == 0)
		return 0;
	coll_py_request_end(r);
	return -1;
}

int coll_py_request_make(struct request *r, struct comm *c, enum call_kind kind, PyObject *const *values,
                         struct stream *s, bool kept, intptr_t reader)
{
	if (kind == CALL_RECV && values[ARG_TAG] && (values[ARG_STREAM] || coll_py_group_open())) {
		coll_py_raise_argument(
		        "recv: with a tag it takes no stream and stands in no group; irecv() does not wait");
		return -1;
	}
	return build(r, c, kind, values, s, kept, reader);
}

int coll_py_receive_make(struct request *r, struct comm *c, PyObject *const *values)
{
	return build(r, c, CALL_RECV, values, NULL, true,
	             coll_py_device_reader(c, NULL) ? READER_UNORDERED : READER_NONE);
}

/* ---- Start and end ---- */

int coll_py_request_pack(struct request *r)
{
	/* What a receive overwrites as a whole is not copied in; a message with a tag may be shorter. */
	bool reads = (r->kind != CALL_RECV || r->tagged) && (r->kind != CALL_BROADCAST || r->root == r->comm->rank);

	if (r->has_in && coll_py_view_pack(&r->in, reads, &r->in_address) != 0)
		return -1;
	if (r->has_out && coll_py_view_pack(&r->out, false, &r->out_address) != 0)
		return -1;
	if (r->same)
		r->out_address = r->in_address;
	return 0;
}

const struct view *coll_py_request_written(const struct request *r)
{
	if (r->same)
		return r->kind == CALL_BROADCAST && r->root == r->comm->rank ? NULL : &r->in;
	return r->has_out ? &r->out : NULL;
}

void coll_py_request_unpack(struct request *r)
{
	const struct view *v = coll_py_request_written(r);

	if (v)
		coll_py_view_unpack(v);
}

void coll_py_request_end(struct request *r)
{
	struct comm *c = r->comm;

	r->comm = NULL;
	if (r->has_in)
		coll_py_view_release(&r->in);
	if (r->has_out)
		coll_py_view_release(&r->out);
	r->has_in = r->has_out = false;
	free(r->in_counts);
	free(r->out_counts);
	r->in_counts = r->out_counts = NULL;
	coll_py_device_unmark(r);
	Py_CLEAR(r->op_object);
	Py_CLEAR(r->result);
	Py_XDECREF((PyObject *)c);
}

PyObject *coll_py_request_run(struct request *r)
{
	struct comm *c = r->comm;
	PyObject *result = NULL;
	coll_status st;

	if (coll_py_comm_enter(c, coll_py_name_of(r)) != 0) {
		coll_py_request_end(r);
		return NULL;
	}
	WITHOUT_GIL(st = coll_py_request_start(r, NULL));
	if (c->failure) {
		coll_py_comm_failure(c);
	} else if (coll_py_interrupted() != 0) {
		/* the exception of a signal handler */
	} else if (st != COLL_OK) {
		coll_py_raise(c, st, coll_py_name_of(r));
	} else {
		coll_py_request_unpack(r);
		result = r->result ? r->result : Py_None;
		Py_INCREF(result);
	}
	coll_py_comm_leave(c); /* now another thread may replace the error of the communicator */
	coll_py_request_end(r);
	return result;
}
