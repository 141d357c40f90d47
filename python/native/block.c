/*
 * Buffer: an array of this package's own, for results where no array library made the input, for memory of a
 * communicator (empty()) and for addresses that a caller vouches for (raw()). It offers the buffer protocol and DLPack,
 * and no arithmetic.
 */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

#include "dlpack.h"

PyTypeObject *coll_py_block_type;

size_t coll_py_size(PyObject *object)
{
	Py_ssize_t n = object ? PyNumber_AsSsize_t(object, PyExc_OverflowError) : -1;

	if (n >= 0)
		return (size_t)n;
	if (n == -1 && PyErr_Occurred() &&
	    (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_OverflowError)))
		PyErr_Clear();
	return SIZE_MAX;
}

/* Shape, strides in bytes and number of elements; overflow is an error. */
static int set_shape(struct block *b, PyObject *shape)
{
	Py_ssize_t n = PyTuple_Size(shape), step = b->element->bytes;

	if (n < 0 || n > 64) {
		coll_py_raise_argument("a shape is a tuple of at most 64 sizes");
		return -1;
	}
	b->ndim = (int)n;
	b->items = 1;
	b->shape = calloc(2 * (size_t)n + 1, sizeof(*b->shape));
	if (!b->shape) {
		PyErr_NoMemory();
		return -1;
	}
	b->strides = b->shape + n;
	for (Py_ssize_t i = 0; i < n; i++) {
		b->shape[i] = (Py_ssize_t)coll_py_size(PyTuple_GetItem(shape, i));
		if (b->shape[i] < 0 || __builtin_mul_overflow(b->items, (size_t)b->shape[i], &b->items)) {
			if (!PyErr_Occurred())
				coll_py_raise_argument("%R is no shape", shape);
			return -1;
		}
	}
	for (Py_ssize_t i = n - 1; i >= 0; i--) {
		b->strides[i] = step;
		if (__builtin_mul_overflow(step, b->shape[i] ? b->shape[i] : 1, &step)) {
			coll_py_raise_argument("%R is too large", shape);
			return -1;
		}
	}
	return 0;
}

struct block *coll_py_block_start(PyTypeObject *type, PyObject *shape, const struct element *element)
{
	struct block *b = (struct block *)PyType_GenericAlloc(type, 0);

	if (!b)
		return NULL;
	b->element = element;
	b->generation = coll_py_generation;
	if (set_shape(b, shape) == 0)
		return b;
	Py_DECREF((PyObject *)b);
	return NULL;
}

PyObject *coll_py_block_new(struct comm *c, PyObject *shape, const struct element *element)
{
	struct block *b = coll_py_block_start(coll_py_block_type, shape, element);
	size_t bytes = b ? b->items * (size_t)element->bytes : 0;
	coll_status st;

	if (!b)
		return NULL;
	if (!c) {
		b->data = calloc(bytes ? bytes : 1, 1);
		b->mine = true;
		if (b->data)
			return (PyObject *)b;
		PyErr_NoMemory();
	} else {
		LIBRARY(st = coll_mem_alloc(c->handle, &b->data, bytes));
		if (st == COLL_OK) {
			b->comm = c;
			Py_INCREF((PyObject *)c);
			c->blocks++;
			return (PyObject *)b;
		}
		coll_py_raise(c, st, "empty");
	}
	Py_DECREF((PyObject *)b);
	return NULL;
}

/* raw(address, shape, dtype, owner) */
PyObject *coll_py_block_raw(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
	const struct element *element = NULL;
	struct block *b;
	PyObject *name, *number;
	void *address;

	if (nargs != 4)
		return PyErr_Format(PyExc_TypeError, "raw: four arguments");
	number = PyNumber_Index(args[0]);
	if (!number)
		return NULL;
	address = PyLong_AsVoidPtr(number);
	Py_DECREF(number);
	name = PyErr_Occurred() ? NULL : PyUnicode_AsUTF8String(args[2]);
	if (!name)
		return NULL;
	element = coll_py_element_by_name(PyBytes_AsString(name));
	Py_DECREF(name);
	if (!element)
		return coll_py_raise_argument("raw: there is no type %R", args[2]);
	b = coll_py_block_start(coll_py_block_type, args[1], element);
	if (!b)
		return NULL;
	if (!address && b->items) {
		Py_DECREF((PyObject *)b);
		return coll_py_raise_argument("raw: the address is 0");
	}
	b->data = address;
	b->owner = args[3];
	Py_INCREF(b->owner);
	return (PyObject *)b;
}

void coll_py_block_dealloc(PyObject *self)
{
	struct block *b = (struct block *)self;

	if (b->comm) {
		coll_py_comm_block_freed(b->comm, b->data);
		Py_DECREF((PyObject *)b->comm);
	}
	if (b->mine)
		free(b->data);
	Py_XDECREF(b->owner);
	free(b->shape);
	coll_py_free(self);
}

/* ---- The buffer protocol ---- */

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
	struct block *b = (struct block *)self;
	int axes = 0;

	memset(view, 0, sizeof(*view));
	for (int i = 0; i < b->ndim; i++)
		axes += b->shape[i] != 1;
	if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && axes > 1 && b->items > 0) {
		PyErr_SetString(PyExc_BufferError, "a Buffer is in C order");
		return -1;
	}
	view->buf = b->data;
	view->obj = self;
	Py_INCREF(self);
	view->len = (Py_ssize_t)b->items * b->element->bytes;
	view->itemsize = b->element->bytes;
	view->ndim = flags & PyBUF_ND ? b->ndim : 1;
	view->format = flags & PyBUF_FORMAT ? (char *)b->element->format : NULL;
	view->shape = flags & PyBUF_ND ? b->shape : NULL;
	view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? b->strides : NULL;
	return 0;
}

/* ---- DLPack ---- */

static void fill_tensor(const struct block *b, struct dl_tensor *t)
{
	*t = (struct dl_tensor){.data = b->data,
	                        .device = DL_CPU,
	                        .ndim = b->ndim,
	                        .code = (uint8_t)b->element->dl_code,
	                        .bits = (uint8_t)(8 * b->element->bytes),
	                        .lanes = 1,
	                        .shape = (int64_t *)b->shape};
}

/* __dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None) */
static PyObject *dlpack(PyObject *self, PyObject *args, PyObject *words)
{
	static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
	PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *may_copy = Py_None;
	int kind = DL_CPU, number = 0;
	struct dl_tensor tensor;

	if (!PyArg_ParseTupleAndKeywords(args, words, "|$OOOO", names, &stream, &version, &device, &may_copy) ||
	    coll_py_dlpack_device(device, &kind, &number) != 0)
		return NULL;
	if (kind != DL_CPU || number != 0)
		return PyErr_Format(PyExc_BufferError, "a Buffer stays in the memory of the host");
	fill_tensor((const struct block *)self, &tensor);
	return coll_py_dlpack_export(self, &tensor, version, may_copy);
}

static PyObject *dlpack_device(PyObject *self, PyObject *unused)
{
	return Py_BuildValue("(ii)", DL_CPU, 0);
}

/* ---- As a sequence ---- */

static Py_ssize_t length(PyObject *self)
{
	const struct block *b = (struct block *)self;

	if (b->ndim)
		return b->shape[0];
	PyErr_SetString(PyExc_TypeError, "a Buffer without axes has no length");
	return -1;
}

static PyObject *subscript(PyObject *self, PyObject *key)
{
	PyObject *view = PyMemoryView_FromObject(self), *item = view ? PyObject_GetItem(view, key) : NULL;

	Py_XDECREF(view);
	return item;
}

/* As a sequence: for loops and list(). */
static PyObject *item(PyObject *self, Py_ssize_t i)
{
	PyObject *key = PyLong_FromSsize_t(i), *found = key ? subscript(self, key) : NULL;

	Py_XDECREF(key);
	return found;
}

static int assign(PyObject *self, PyObject *key, PyObject *value)
{
	PyObject *view = PyMemoryView_FromObject(self);
	int rc = -1;

	if (view && value)
		rc = PyObject_SetItem(view, key, value);
	else if (view)
		PyErr_SetString(PyExc_TypeError, "elements of a Buffer cannot be deleted");
	Py_XDECREF(view);
	return rc;
}

/* Numbers in lists of lists, from axis d on; *at moves on. */
static PyObject *list_from(const struct block *b, int d, const char **at)
{
	PyObject *list, *item;

	if (d == b->ndim) {
		item = coll_py_element_number(b->element, *at);
		*at += b->element->bytes;
		return item;
	}
	list = PyList_New(b->shape[d]);
	for (Py_ssize_t i = 0; list && i < b->shape[d]; i++) {
		item = list_from(b, d + 1, at);
		if (!item || PyList_SetItem(list, i, item) != 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *tolist(PyObject *self, PyObject *unused)
{
	const struct block *b = (const struct block *)self;
	const char *at = b->data;
	PyObject *view, *list;

	if (!coll_py_element_is_plain(b->element))
		return list_from(b, 0, &at);
	view = PyMemoryView_FromObject(self);
	list = view ? PyObject_CallMethod(view, "tolist", NULL) : NULL;
	Py_XDECREF(view);
	return list;
}

PyObject *coll_py_block_shape(PyObject *self, void *unused)
{
	const struct block *b = (struct block *)self;
	PyObject *shape = PyTuple_New(b->ndim);

	for (int i = 0; shape && i < b->ndim; i++)
		PyTuple_SetItem(shape, i, PyLong_FromSsize_t(b->shape[i]));
	return shape;
}

PyObject *coll_py_block_dtype(PyObject *self, void *unused)
{
	return PyUnicode_FromString(((struct block *)self)->element->name);
}

PyObject *coll_py_block_address(PyObject *self, void *unused)
{
	return PyLong_FromVoidPtr(((struct block *)self)->data);
}

PyObject *coll_py_block_bytes(PyObject *self, void *unused)
{
	const struct block *b = (struct block *)self;

	return PyLong_FromSize_t(b->items * (size_t)b->element->bytes);
}

static PyObject *repr(PyObject *self)
{
	PyObject *shape = coll_py_block_shape(self, NULL), *text;

	text = shape ? PyUnicode_FromFormat("coll.Buffer(shape=%R, dtype='%s')", shape,
	                                    ((struct block *)self)->element->name)
	             : NULL;
	Py_XDECREF(shape);
	return text;
}

static PyMethodDef methods[] = {
        {"__dlpack__", (PyCFunction)(void (*)(void))dlpack, METH_VARARGS | METH_KEYWORDS, NULL},
        {"__dlpack_device__", dlpack_device, METH_NOARGS, NULL},
        {"tolist", tolist, METH_NOARGS, NULL},
        {0},
};

static PyGetSetDef properties[] = {
        {"shape", coll_py_block_shape, NULL, NULL, NULL},
        {"dtype", coll_py_block_dtype, NULL, NULL, NULL},
        {"address", coll_py_block_address, NULL, NULL, NULL},
        {"nbytes", coll_py_block_bytes, NULL, NULL, NULL},
        {0},
};

static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)coll_py_block_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, properties},
        {Py_tp_repr, (void *)repr},
        {Py_bf_getbuffer, (void *)get_buffer},
        {Py_sq_item, (void *)item},
        {Py_mp_length, (void *)length},
        {Py_mp_subscript, (void *)subscript},
        {Py_mp_ass_subscript, (void *)assign},
        {0, NULL},
};
static PyType_Spec spec = {"coll._coll.Buffer", sizeof(struct block), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int coll_py_block_init(PyObject *module)
{
	coll_py_block_type = coll_py_type(module, &spec, NULL);
	return coll_py_block_type ? 0 : -1;
}
