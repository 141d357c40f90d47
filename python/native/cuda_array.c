/*
 * __cuda_array_interface__ of other libraries, versions 2 and 3
 * (https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html): a dictionary with shape, typestr, data,
 * strides, mask and, since version 3, the stream whose work makes the data.
 */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

#include "dlpack.h"

/* Borrowed; NULL: missing or None. */
static PyObject *entry(PyObject *dict, const char *name)
{
	PyObject *value = PyDict_GetItemString(dict, name);

	return value == Py_None ? NULL : value;
}

/* "<f4": byte order, kind, bytes. */
static int set_type(struct view *v, PyObject *typestr, const char *what)
{
	static const struct {
		char kind;
		int code;
	} kinds[] = {{'i', DL_INT}, {'u', DL_UINT}, {'f', DL_FLOAT}, {'c', DL_COMPLEX}, {'b', DL_BOOL}};
	PyObject *bytes = typestr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8String(typestr) : NULL;
	const char *text = bytes ? PyBytes_AsString(bytes) : "";
	char *end = NULL;
	long size = strlen(text) > 2 ? strtol(text + 2, &end, 10) : 0;
	bool foreign = text[0] == (PY_BIG_ENDIAN ? '<' : '>') && size > 1;

	if (size < 1 || size > INT32_MAX || *end || !strchr("<>|=", text[0])) {
		if (!PyErr_Occurred())
			coll_py_raise_argument("%s: __cuda_array_interface__ has the typestr %R", what,
			                       typestr ? typestr : Py_None);
		Py_XDECREF(bytes);
		return -1;
	}
	v->item_bytes = (size_t)size;
	v->element = &coll_py_opaque;
	for (size_t i = 0; !foreign && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].kind == text[1] && size <= 16)
			v->element = coll_py_element_by_dlpack(kinds[i].code, (int)(8 * size));
	Py_DECREF(bytes);
	return 0;
}

/* A tuple of n numbers, none below `least`. */
static int read_numbers(PyObject *tuple, int64_t *numbers, int n, int64_t least)
{
	for (int i = 0; i < n; i++) {
		PyObject *item = PySequence_GetItem(tuple, i);

		numbers[i] = item ? PyLong_AsLongLong(item) : 0;
		Py_XDECREF(item);
		if (PyErr_Occurred() || numbers[i] < least)
			return -1;
	}
	return 0;
}

static int set_dims(struct view *v, PyObject *shape, PyObject *strides, const char *what)
{
	Py_ssize_t n = shape ? PySequence_Size(shape) : -1;
	int64_t *dims = n < 0 || n > 64 ? NULL : calloc(2 * (size_t)n + 1, sizeof(*dims)), items = 1;
	bool bad = !dims || (strides && PySequence_Size(strides) != n);

	v->shape = dims;
	v->dims_mine = dims != NULL;
	v->ndim = dims ? (int)n : 0;
	bad = bad || read_numbers(shape, dims, v->ndim, 0) != 0;
	for (int i = 0; !bad && i < v->ndim; i++)
		bad = __builtin_mul_overflow(items, dims[i] ? dims[i] : 1, &items);
	if (!bad && strides) {
		bad = read_numbers(strides, dims + n, v->ndim, INT64_MIN) != 0;
		v->strides = dims + n;
		v->stride_unit = 1;
	}
	if (!bad)
		return 0;
	if (!PyErr_Occurred())
		coll_py_raise_argument("%s: __cuda_array_interface__ has an impossible shape or strides", what);
	return -1;
}

static int set_data(struct view *v, PyObject *data)
{
	PyObject *address = data ? PySequence_GetItem(data, 0) : NULL,
	         *readonly = address ? PySequence_GetItem(data, 1) : NULL;

	if (readonly) {
		v->data = PyLong_AsVoidPtr(address);
		v->readonly = PyObject_IsTrue(readonly) > 0;
	}
	Py_XDECREF(address);
	Py_XDECREF(readonly);
	if (!data)
		PyErr_SetString(PyExc_ValueError, "there is no entry data");
	return PyErr_Occurred() ? -1 : 0;
}

/* None: nothing to wait for. */
static int set_stream(struct view *v, PyObject *stream, const char *what)
{
	if (!stream)
		return 0;
	v->stream = PyLong_AsVoidPtr(stream);
	if (PyErr_Occurred())
		return -1;
	if (!v->stream) {
		coll_py_raise_argument("%s: __cuda_array_interface__ has the stream 0, which has no meaning", what);
		return -1;
	}
	v->has_stream = true;
	return 0;
}

int coll_py_view_cuda(struct view *v, PyObject *object, const char *what)
{
	PyObject *dict = PyObject_GetAttrString(object, "__cuda_array_interface__");
	int rc = -1;

	if (!dict)
		return -1;
	v->device = true;
	if (!PyDict_Check(dict))
		PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__ is no dictionary");
	else if (entry(dict, "mask"))
		coll_py_raise_argument("%s has a mask, which calls do not take", what);
	else if (set_type(v, entry(dict, "typestr"), what) == 0 &&
	         set_dims(v, entry(dict, "shape"), entry(dict, "strides"), what) == 0 &&
	         set_data(v, entry(dict, "data")) == 0 && set_stream(v, entry(dict, "stream"), what) == 0)
		rc = coll_py_view_measure(v, what);
	Py_DECREF(dict);
	return rc;
}
