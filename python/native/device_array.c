/*
 * DeviceArray: an array in memory of the communicator's device, for results where the input's library is not known to
 * this package. It offers __cuda_array_interface__ and DLPack, and no arithmetic.
 *
 * While calls in streams write it, it names the stream of the last one, so that its readers wait for that.
 */
#include "binding.h"

#include "dlpack.h"

static PyTypeObject *array_type;

struct array {
	struct block of; /* what it shares with Buffer */
	int calls;       /* that write it, not ended */
	void *stream;    /* of the last of them */
};

bool coll_py_is_device_array(PyObject *object)
{
	return PyObject_TypeCheck(object, array_type);
}

PyObject *coll_py_device_array_new(struct comm *c, PyObject *shape, const struct element *element)
{
	struct block *b = coll_py_block_start(array_type, shape, element);
	coll_status st = COLL_OK;

	if (!b || coll_py_comm_enter(c, "empty") != 0)
		goto fail;
	/* The driver may wait for calls of the device, which may wait for ranks that are threads of this process. */
	coll_py_comm_free_dropped(c);
	WITHOUT_GIL(st = coll_mem_alloc_on(c->handle, &b->data, b->items * (size_t)element->bytes, COLL_MEM_DEVICE));
	coll_py_comm_leave(c);
	if (st == COLL_OK) {
		b->comm = c;
		Py_INCREF((PyObject *)c);
		c->blocks++;
		return (PyObject *)b;
	}
	coll_py_raise(c, st, "empty");
fail:
	Py_XDECREF((PyObject *)b);
	return NULL;
}

void coll_py_device_array_begin(PyObject *array, const struct stream *s)
{
	struct array *a = (struct array *)array;

	a->calls++;
	a->stream = s->cuda;
}

void coll_py_device_array_end(PyObject *array)
{
	((struct array *)array)->calls--;
}

void coll_py_view_device_array(struct view *v, PyObject *array)
{
	const struct array *a = (const struct array *)array;

	v->device = true;
	v->has_stream = a->calls > 0;
	v->stream = a->stream;
	v->data = a->of.data;
	v->item_bytes = (size_t)a->of.element->bytes;
	v->element = a->of.element;
	v->ndim = a->of.ndim;
	v->shape = (const int64_t *)a->of.shape;
	v->items = a->of.items;
	v->contiguous = true;
}

/* ---- __cuda_array_interface__ ---- */

static PyObject *typestr(const struct element *e)
{
	const char order = e->bytes == 1 ? '|' : PY_BIG_ENDIAN ? '>' : '<';
	char kind = 'V'; /* bf16 and 8-bit floats have no letter */

	switch (e->dl_code) {
	case DL_INT: kind = 'i'; break;
	case DL_UINT: kind = 'u'; break;
	case DL_FLOAT: kind = 'f'; break;
	case DL_COMPLEX: kind = 'c'; break;
	case DL_BOOL: kind = 'b'; break;
	default: break;
	}
	return PyUnicode_FromFormat("%c%c%d", order, kind, e->bytes);
}

/* The legacy default stream is 1 there. */
static PyObject *stream_of(const struct array *a)
{
	coll_py_reap();
	if (a->calls == 0)
		Py_RETURN_NONE;
	return a->stream ? PyLong_FromVoidPtr(a->stream) : PyLong_FromLong(READER_LEGACY);
}

static PyObject *get_interface(PyObject *self, void *unused)
{
	const struct array *a = (const struct array *)self;
	PyObject *shape = coll_py_block_shape(self, NULL), *type = typestr(a->of.element), *stream = stream_of(a);

	if (!shape || !type || !stream) {
		Py_XDECREF(shape);
		Py_XDECREF(type);
		Py_XDECREF(stream);
		return NULL;
	}
	return Py_BuildValue("{sNsNs(KO)sOsNsi}", "shape", shape, "typestr", type, "data",
	                     (unsigned long long)(uintptr_t)a->of.data, Py_False, "strides", Py_None, "stream", stream,
	                     "version", 3);
}

/* ---- DLPack ---- */

/* The stream of the reader waits for calls that write the array. -1 is: it needs no wait. */
static int let_follow(struct array *a, PyObject *stream)
{
	long long number = stream == Py_None ? READER_LEGACY : PyLong_AsLongLong(stream);

	if (PyErr_Occurred())
		return -1;
	coll_py_reap();
	if (number == READER_UNORDERED || a->calls == 0 || coll_py_comm_check(a->of.comm) != 0)
		return PyErr_Occurred() ? -1 : 0;
	return coll_py_device_follow(a->of.comm, a->stream, (void *)(uintptr_t)number);
}

/* __dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None) */
static PyObject *dlpack(PyObject *self, PyObject *args, PyObject *words)
{
	static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
	PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *may_copy = Py_None;
	struct array *a = (struct array *)self;
	const struct block *b = &a->of;
	struct dl_tensor tensor;
	int kind = DL_CUDA, number = b->comm->device;

	if (!PyArg_ParseTupleAndKeywords(args, words, "|$OOOO", names, &stream, &version, &device, &may_copy) ||
	    coll_py_dlpack_device(device, &kind, &number) != 0)
		return NULL;
	if (kind != DL_CUDA || number != b->comm->device)
		return PyErr_Format(PyExc_BufferError, "a DeviceArray stays on cuda:%d", b->comm->device);
	if (let_follow(a, stream) != 0)
		return NULL;
	tensor = (struct dl_tensor){.data = b->data,
	                            .device = DL_CUDA,
	                            .device_id = b->comm->device,
	                            .ndim = b->ndim,
	                            .code = (uint8_t)b->element->dl_code,
	                            .bits = (uint8_t)(8 * b->element->bytes),
	                            .lanes = 1,
	                            .shape = (int64_t *)b->shape};
	return coll_py_dlpack_export(self, &tensor, version, may_copy);
}

static PyObject *dlpack_device(PyObject *self, PyObject *unused)
{
	return Py_BuildValue("(ii)", DL_CUDA, ((struct array *)self)->of.comm->device);
}

/* ---- The class ---- */

static PyObject *get_device(PyObject *self, void *unused)
{
	return PyUnicode_FromFormat("cuda:%d", ((struct array *)self)->of.comm->device);
}

static PyObject *repr(PyObject *self)
{
	const struct array *a = (const struct array *)self;
	PyObject *shape = coll_py_block_shape(self, NULL), *text;

	text = shape ? PyUnicode_FromFormat("coll.DeviceArray(shape=%R, dtype='%s', device='cuda:%d')", shape,
	                                    a->of.element->name, a->of.comm->device)
	             : NULL;
	Py_XDECREF(shape);
	return text;
}

GUARD_GET(get_interface)
GUARD(dlpack, (PyObject * self, PyObject *args, PyObject *words), (self, args, words))

static PyMethodDef methods[] = {
        {"__dlpack__", (PyCFunction)(void (*)(void))dlpack_guarded, METH_VARARGS | METH_KEYWORDS, NULL},
        {"__dlpack_device__", dlpack_device, METH_NOARGS, NULL},
        {0},
};

static PyGetSetDef properties[] = {
        {"shape", coll_py_block_shape, NULL, NULL, NULL},
        {"dtype", coll_py_block_dtype, NULL, NULL, NULL},
        {"address", coll_py_block_address, NULL, NULL, NULL},
        {"nbytes", coll_py_block_bytes, NULL, NULL, NULL},
        {"device", get_device, NULL, NULL, NULL},
        {"__cuda_array_interface__", get_interface_guarded, NULL, NULL, NULL},
        {0},
};

static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)coll_py_block_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, properties},
        {Py_tp_repr, (void *)repr},
        {0, NULL},
};
static PyType_Spec spec = {"coll._coll.DeviceArray", sizeof(struct array), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int coll_py_device_array_init(PyObject *module)
{
	array_type = coll_py_type(module, &spec, NULL);
	return array_type ? 0 : -1;
}
