/*
 * Arrays of other libraries: where their elements lie, without a copy where they are C-contiguous.
 *
 * How a type is asked is found once per type and kept: DLPack's table of C functions, the buffer protocol, __dlpack__,
 * __cuda_array_interface__. A type whose buffer protocol refuses an element type
 * (numpy with bfloat16, datetime64 ...) is asked again in Python (coll/_buffers.py, describe).
 */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

#include "dlpack.h"

enum way { WAY_NONE, WAY_TABLE, WAY_BUFFER, WAY_METHOD, WAY_BLOCK, WAY_ARRAY, WAY_CUDA, WAY_MASKED };

/* A type that is known stays so, and alive: rows do not change once threads can see them. If all rows that a type may
 * have are taken it is studied each time. */
enum { KNOWN = 64, PROBES = 8 };

/* As many as numpy and torch have. */
enum { MOST_AXES = 64 };

struct known {
	PyTypeObject *type;
	enum way way;
	struct dl_exchange *table;
	bool wraps; /* a type of torch whose tensors may stand for memory elsewhere, or for none */
};

static _Atomic(const struct known *) known[KNOWN];

static struct dl_exchange *table_of(PyTypeObject *type)
{
	PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
	struct dl_exchange *table;

	if (!capsule) {
		PyErr_Clear();
		return NULL;
	}
	table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
	if (!table)
		PyErr_Clear();
	Py_DECREF(capsule);
	while (table && table->version.major > DL_MAJOR)
		table = table->older;
	return table && table->version.major == DL_MAJOR && table->tensor_from_object ? table : NULL;
}

/* Whether a type has a __torch_dispatch__ of its own: not the function in C that torch.Tensor has. */
static bool has_dispatch(PyTypeObject *type)
{
	PyObject *own = PyObject_GetAttrString((PyObject *)type, "__torch_dispatch__");
	const bool has = own && !PyCFunction_Check(own);

	PyErr_Clear();
	Py_XDECREF(own);
	return has;
}

/* Masked arrays of numpy, masked tensors of torch: where the mask is, the memory has numbers that do not count. */
static bool is_masked(PyTypeObject *type)
{
	PyObject *of = (PyObject *)type;

	return (PyObject_HasAttrString(of, "mask") && PyObject_HasAttrString(of, "filled")) ||
	       PyObject_HasAttrString(of, "get_mask");
}

static struct known study(PyObject *object)
{
	struct known k = {.type = Py_TYPE(object)};

	if (PyObject_TypeCheck(object, coll_py_block_type))
		k.way = WAY_BLOCK;
	else if (coll_py_is_device_array(object))
		k.way = WAY_ARRAY;
	else if (is_masked(k.type))
		k.way = WAY_MASKED;
	else if ((k.table = table_of(k.type)) != NULL)
		k.way = WAY_TABLE;
	else if (PyObject_CheckBuffer(object))
		k.way = WAY_BUFFER;
	else if (PyObject_HasAttrString((PyObject *)k.type, "__dlpack__"))
		k.way = WAY_METHOD;
	else if (PyObject_HasAttrString(object, "__cuda_array_interface__"))
		k.way = WAY_CUDA;
	k.wraps = k.way == WAY_TABLE && has_dispatch(k.type);
	return k;
}

/* Keep what was found in a free row. */
static void remember(const struct known *found, _Atomic(const struct known *) *row)
{
	struct known *copy = malloc(sizeof(*copy));
	const struct known *none = NULL;

	if (!copy)
		return;
	*copy = *found;
	Py_INCREF((PyObject *)copy->type);
	if (!atomic_compare_exchange_strong(row, &none, copy)) {
		Py_DECREF((PyObject *)copy->type);
		free(copy);
	}
}

static struct known ask(PyObject *object)
{
	const size_t first = ((uintptr_t)Py_TYPE(object) >> 6) % KNOWN;
	struct known found;

	for (size_t i = 0; i < PROBES; i++) {
		_Atomic(const struct known *) *row = &known[(first + i) % KNOWN];
		/* Acquire: the row was filled before. */
		const struct known *k = atomic_load_explicit(row, memory_order_acquire);

		if (k && k->type == Py_TYPE(object))
			return *k;
		if (!k) {
			found = study(object);
			remember(&found, row);
			return found;
		}
	}
	return study(object);
}

static bool is_contiguous(const struct view *v)
{
	int64_t step = (int64_t)v->item_bytes;

	if (!v->strides || v->items == 0)
		return true;
	for (int i = v->ndim - 1; i >= 0; i--) {
		if (v->shape[i] != 1 && v->strides[i] * v->stride_unit != step)
			return false;
		step *= v->shape[i];
	}
	return true;
}

/* Shape and strides belong to the array, and its object may change them; what is copied needs them to the end. */
static int keep_dims(struct view *v)
{
	int64_t *dims = malloc(2 * (size_t)v->ndim * sizeof(*dims));

	if (!dims) {
		PyErr_NoMemory();
		return -1;
	}
	memcpy(dims, v->shape, (size_t)v->ndim * sizeof(*dims));
	memcpy(dims + v->ndim, v->strides, (size_t)v->ndim * sizeof(*dims));
	v->shape = dims;
	v->strides = dims + v->ndim;
	v->dims_mine = true;
	return 0;
}

/* Whether all axes but empty ones make a number of bytes that memory can have. */
static bool is_possible(const struct view *v)
{
	int64_t bytes = (int64_t)v->item_bytes;
	bool possible = bytes > 0 && v->ndim <= MOST_AXES && (v->ndim == 0 || v->shape);

	for (int i = 0; possible && i < v->ndim; i++)
		possible = v->shape[i] >= 0 && !__builtin_mul_overflow(bytes, v->shape[i] ? v->shape[i] : 1, &bytes);
	return possible;
}

int coll_py_view_measure(struct view *v, const char *what)
{
	if (!is_possible(v)) {
		coll_py_raise_argument("%s has an impossible shape: %d axes, elements of %zu bytes", what, v->ndim,
		                       v->item_bytes);
		return -1;
	}
	v->items = 1;
	for (int i = 0; i < v->ndim; i++)
		v->items *= (size_t)v->shape[i];
	v->contiguous = is_contiguous(v);
	return v->contiguous || v->dims_mine ? 0 : keep_dims(v);
}

static bool is_cuda(const struct dl_tensor *t)
{
	return t->device == DL_CUDA || t->device == DL_CUDA_MANAGED;
}

static int from_tensor(struct view *v, const struct dl_tensor *t, const char *what, intptr_t reader)
{
	v->device = is_cuda(t);
	if (v->device && reader == READER_NONE) {
		coll_py_raise_unsupported("%s is in the memory of cuda:%d, and this communicator has no device: make "
		                          "it with coll.init(device='cuda'), or copy the array to the host first",
		                          what, (int)t->device_id);
		return -1;
	}
	if (!v->device && t->device != DL_CPU && t->device != DL_CUDA_HOST && t->device != DL_ROCM_HOST) {
		coll_py_raise_unsupported("%s is in the memory of a device that is not served (DLPack device %d:%d): "
		                          "copy it to the host first",
		                          what, (int)t->device, (int)t->device_id);
		return -1;
	}
	if (t->lanes != 1 || t->bits % 8 != 0 || t->bits == 0 || t->ndim < 0) {
		coll_py_raise_unsupported("%s has elements of %d bits and %d lanes", what, t->bits, t->lanes);
		return -1;
	}
	v->data = t->data ? (char *)t->data + t->byte_offset : NULL;
	v->item_bytes = t->bits / 8;
	v->element = coll_py_element_by_dlpack(t->code, t->bits);
	v->ndim = t->ndim;
	v->shape = t->shape;
	v->strides = t->strides;
	v->stride_unit = (int64_t)v->item_bytes;
	return coll_py_view_measure(v, what);
}

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "shapes of buffers are read as 64-bit numbers");

/* Whether a format has references to Python objects; names of fields stand between colons. */
static bool has_objects(const char *format)
{
	bool name = false;

	for (; format && *format; format++) {
		if (*format == ':')
			name = !name;
		else if (!name && *format == 'O')
			return true;
	}
	return false;
}

static int from_buffer(struct view *v, const char *what)
{
	v->has_buffer = true;
	if (has_objects(v->buffer.format)) {
		coll_py_raise_argument(
		        "an array of Python objects is no memory that other processes can read (for objects: "
		        "send_object, broadcast_object ...)");
		return -1;
	}
	v->data = v->buffer.buf;
	v->item_bytes = (size_t)v->buffer.itemsize;
	v->readonly = v->buffer.readonly;
	v->element = coll_py_element_by_format(v->buffer.format, v->buffer.itemsize);
	v->ndim = v->buffer.ndim;
	v->shape = (const int64_t *)v->buffer.shape;
	v->strides = (const int64_t *)v->buffer.strides;
	v->stride_unit = 1;
	return coll_py_view_measure(v, what);
}

static void from_block(struct view *v, const struct block *b)
{
	v->data = b->data;
	v->item_bytes = (size_t)b->element->bytes;
	v->element = b->element;
	v->ndim = b->ndim;
	v->shape = (const int64_t *)b->shape;
	v->items = b->items;
	v->contiguous = true;
}

/* PyCapsule_GetPointer() and a new name that says that the tensor has been taken. */
static void *take_capsule(PyObject *capsule, const char *name, const char *used)
{
	void *p = PyCapsule_IsValid(capsule, name) ? PyCapsule_GetPointer(capsule, name) : NULL;

	if (p && PyCapsule_SetName(capsule, used) != 0)
		PyErr_Clear();
	return p;
}

/* Whether __dlpack_device__() says CUDA. */
static bool says_cuda(PyObject *object)
{
	PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
	PyObject *first = pair ? PySequence_GetItem(pair, 0) : NULL;
	const long kind = first ? PyLong_AsLong(first) : -1;

	PyErr_Clear();
	Py_XDECREF(pair);
	Py_XDECREF(first);
	return kind == DL_CUDA || kind == DL_CUDA_MANAGED;
}

/* The producer makes the stream of the reader wait until the data are ready. */
static PyObject *call_dlpack(PyObject *object, intptr_t reader)
{
	PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *none = PyTuple_New(0), *words,
	         *capsule = NULL, *stream = NULL;

	words = Py_BuildValue("{s(ii)}", "max_version", DL_MAJOR, DL_MINOR);
	if (words && reader != READER_NONE && says_cuda(object)) {
		stream = PyLong_FromLongLong(reader);
		if (!stream || PyDict_SetItemString(words, "stream", stream) != 0)
			Py_CLEAR(words);
	}
	if (method && none && words) {
		capsule = PyObject_Call(method, none, words);
		if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
			PyErr_Clear();
			PyDict_DelItemString(words, "max_version");
			capsule = PyObject_Call(method, none, words);
		}
	}
	Py_XDECREF(stream);
	Py_XDECREF(method);
	Py_XDECREF(none);
	Py_XDECREF(words);
	return capsule;
}

/* Other versions have other layouts, but for the version and the deleter. */
static int refuse_version(const struct dl_managed_versioned *m, const char *what)
{
	coll_py_raise_unsupported("%s: __dlpack__ gave a tensor of DLPack %u.%u, and %d.%d was asked for", what,
	                          (unsigned)m->version.major, (unsigned)m->version.minor, DL_MAJOR, DL_MINOR);
	return -1;
}

static int from_method(struct view *v, PyObject *object, const char *what, intptr_t reader)
{
	PyObject *capsule = call_dlpack(object, reader);
	struct dl_managed_versioned *versioned;
	struct dl_managed *plain;
	int rc;

	if (!capsule)
		return -1;
	versioned = take_capsule(capsule, "dltensor_versioned", "used_dltensor_versioned");
	plain = versioned ? NULL : take_capsule(capsule, "dltensor", "used_dltensor");
	if (versioned) {
		v->managed = versioned;
		v->managed_versioned = true;
		v->readonly = versioned->flags & DL_FLAG_READ_ONLY;
		rc = versioned->version.major == DL_MAJOR ? from_tensor(v, &versioned->tensor, what, reader)
		                                          : refuse_version(versioned, what);
	} else if (plain) {
		v->managed = plain;
		rc = from_tensor(v, &plain->tensor, what, reader);
	} else {
		PyErr_Format(PyExc_TypeError, "%s: __dlpack__ gave no tensor", what);
		rc = -1;
	}
	Py_DECREF(capsule);
	/* A blocking call follows the legacy stream, which was made to wait. */
	v->has_stream = rc == 0 && v->device && reader == READER_LEGACY;
	return rc;
}

/* describe(object) -> (object with a buffer, name of the element type or None, shape is that of the buffer). */
static int from_description(struct view *v, PyObject *object, const char *what)
{
	PyObject *cause = coll_py_take_exception();
	PyObject *pair = PyObject_CallFunction(coll_py_hooks[HOOK_DESCRIBE], "Os", object, what);
	PyObject *buffer, *name;
	PyObject *text = NULL;
	int rc = -1;

	Py_XDECREF(cause);
	if (!pair)
		return -1;
	buffer = PyTuple_GetItem(pair, 0);
	name = buffer ? PyTuple_GetItem(pair, 1) : NULL;
	if (name && PyObject_GetBuffer(buffer, &v->buffer, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
		rc = from_buffer(v, what);
		v->element = &coll_py_opaque;
		text = name == Py_None ? NULL : PyUnicode_AsUTF8String(name);
		if (text && coll_py_element_by_name(PyBytes_AsString(text)))
			v->element = coll_py_element_by_name(PyBytes_AsString(text));
		Py_XDECREF(text);
	}
	Py_DECREF(pair);
	return PyErr_Occurred() ? -1 : rc;
}

/* Whether a method without arguments says yes; no: there is none. -1: an exception is set. */
static int says_yes(PyObject *object, const char *method)
{
	PyObject *answer = PyObject_HasAttrString(object, method) ? PyObject_CallMethod(object, method, NULL) : NULL;
	int yes = answer ? PyObject_IsTrue(answer) : 0;

	Py_XDECREF(answer);
	return PyErr_Occurred() ? -1 : yes;
}

/* torch has views that stand for other values than their memory holds, and its table does not tell: conjugated ones, of
 * complex numbers, and negated ones, which are the imaginary parts of those (never contiguous, but for one element). */
static int check_lazy(const struct view *v, PyObject *object, const char *what)
{
	int lazy;

	if (v->element->class != CLASS_COMPLEX && v->contiguous && v->items > 1)
		return 0;
	lazy = says_yes(object, "is_conj");
	if (lazy == 0)
		lazy = says_yes(object, "is_neg");
	if (lazy > 0)
		coll_py_raise_argument("%s is a conjugated or negated view; pass x.resolve_conj().resolve_neg()", what);
	return lazy ? -1 : 0;
}

static int refuse_device(const char *what, intptr_t reader)
{
	if (reader != READER_NONE)
		return 0;
	coll_py_raise_unsupported("%s is in the memory of a CUDA device, and this communicator has no device: make it "
	                          "with coll.init(device='cuda'), or copy the array to the host first",
	                          what);
	return -1;
}

/* The address of a part of a tensor without memory is its offset, which is not NULL: its storage tells. Addresses of
 * real memory are above FIRST_ADDRESS nearly always, and then only types that may have no memory are asked. */
enum { FIRST_ADDRESS = 1 << 30 };

static int check_storage(struct view *v, PyObject *object, const struct known *k)
{
	PyObject *storage, *address;

	if ((!k->wraps && (uintptr_t)v->data >= FIRST_ADDRESS) || v->items == 0 ||
	    !PyObject_HasAttrString(object, "untyped_storage"))
		return 0;
	storage = PyObject_CallMethod(object, "untyped_storage", NULL);
	address = storage ? PyObject_CallMethod(storage, "data_ptr", NULL) : NULL;
	/* That of a wrapper, such as DTensor, refuses to tell. */
	if (address ? !PyLong_AsVoidPtr(address) : PyErr_ExceptionMatches(PyExc_RuntimeError)) {
		PyErr_Clear();
		v->data = NULL;
	}
	Py_XDECREF(storage);
	Py_XDECREF(address);
	return PyErr_Occurred() ? -1 : 0;
}

/* A tensor of torch may be given other memory (x.data = y), and so may what its table hands out: its storage is held.
 */
static int hold_storage(struct view *v, PyObject *object)
{
	if (!PyObject_HasAttrString(object, "untyped_storage"))
		return 0;
	v->storage = PyObject_CallMethod(object, "untyped_storage", NULL);
	return v->storage ? 0 : -1;
}

static int from_table(struct view *v, PyObject *object, const char *what, const struct known *k, bool kept,
                      intptr_t reader)
{
	const struct dl_exchange *table = k->table;
	struct dl_tensor t;

	if (table->tensor_from_object(object, &t) != 0) {
		if (!PyErr_Occurred())
			PyErr_Format(PyExc_ValueError, "%s is not a plain tensor", what);
		return -1;
	}
	if (from_tensor(v, &t, what, reader) != 0 || check_storage(v, object, k) != 0 ||
	    (kept && hold_storage(v, object) != 0))
		return -1;
	/* The table waits for nothing: the work of that library goes on in its stream. */
	if (v->device && table->current_stream && reader != READER_UNORDERED) {
		if (table->current_stream(t.device, t.device_id, &v->stream) != 0)
			return -1;
		v->has_stream = true;
	}
	return check_lazy(v, object, what);
}

static void refuse_object(PyObject *object, const char *what)
{
	PyObject *advice = PyObject_CallFunctionObjArgs(coll_py_hooks[HOOK_ADVICE], object, NULL);

	if (advice)
		coll_py_raise_argument("%s is no array: %R has neither DLPack nor a buffer%S", what,
		                       (PyObject *)Py_TYPE(object), advice);
	Py_XDECREF(advice);
}

static int fill(struct view *v, PyObject *object, const char *what, bool kept, intptr_t reader)
{
	const struct known k = ask(object);

	switch (k.way) {
	case WAY_TABLE: return from_table(v, object, what, &k, kept, reader);
	case WAY_BUFFER:
		if (PyObject_GetBuffer(object, &v->buffer, PyBUF_STRIDES | PyBUF_FORMAT) == 0)
			return from_buffer(v, what);
		if (!PyErr_ExceptionMatches(PyExc_Exception))
			return -1;
		return from_description(v, object, what);
	case WAY_METHOD: return from_method(v, object, what, reader);
	case WAY_BLOCK: from_block(v, (const struct block *)object); return 0;
	case WAY_ARRAY: coll_py_view_device_array(v, object); return refuse_device(what, reader);
	case WAY_CUDA:
		if (refuse_device(what, reader) != 0)
			return -1;
		return coll_py_view_cuda(v, object, what);
	case WAY_MASKED:
		coll_py_raise_argument(
		        "%s is masked (%R): the numbers behind the mask would be used. Pass one with these "
		        "filled in, and the mask as another array",
		        what, (PyObject *)k.type);
		return -1;
	default: refuse_object(object, what); return -1;
	}
}

/* A refusal by the array's own library becomes an ArgumentError with that cause; Ctrl-C is none. */
static void explain(PyObject *object, const char *what)
{
	PyObject *cause, *error;

	if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(coll_py_hooks[HOOK_ARGUMENT]) ||
	    PyErr_ExceptionMatches(coll_py_hooks[HOOK_UNSUPPORTED]) || PyErr_ExceptionMatches(PyExc_MemoryError))
		return;
	cause = coll_py_take_exception();
	coll_py_raise_argument("%s (%R) cannot be read as an array: %S", what, (PyObject *)Py_TYPE(object), cause);
	error = coll_py_take_exception();
	PyException_SetCause(error, cause);
	PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_DECREF(error);
}

/* Elements without memory: fake tensors of torch, DTensor, storage that was freed. */
static int check_memory(const struct view *v, PyObject *object, const char *what)
{
	const char *advice = "";

	if (v->data || v->items == 0)
		return 0;
	if (PyObject_HasAttrString(object, "to_local"))
		advice = ": pass its local tensor, of to_local()";
	coll_py_raise_argument("%s has no memory: the data pointer of this %R is NULL%s", what,
	                       (PyObject *)Py_TYPE(object), advice);
	return -1;
}

/* Memory of a device cannot be copied together here. */
static int check_device(const struct view *v, const char *what)
{
	if (!v->device || v->contiguous)
		return 0;
	coll_py_raise_argument("%s is in the memory of a device and is not C-contiguous: pass a contiguous copy", what);
	return -1;
}

int coll_py_view_take(struct view *v, PyObject *object, const char *what, bool kept, intptr_t reader)
{
	memset(v, 0, sizeof(*v));
	Py_INCREF(object);
	v->owner = object;
	if (fill(v, object, what, kept, reader) == 0 && check_memory(v, object, what) == 0 &&
	    check_device(v, what) == 0)
		return 0;
	explain(object, what);
	coll_py_view_release(v);
	return -1;
}

static void delete_managed(struct view *v)
{
	struct dl_managed_versioned *versioned = v->managed_versioned ? v->managed : NULL;
	struct dl_managed *plain = v->managed_versioned ? NULL : v->managed;

	if (versioned && versioned->deleter)
		versioned->deleter(versioned);
	if (plain && plain->deleter)
		plain->deleter(plain);
	v->managed = NULL;
}

void coll_py_view_release(struct view *v)
{
	PyObject *owner = v->owner;

	if (v->has_buffer) {
		v->has_buffer = false;
		PyBuffer_Release(&v->buffer);
	}
	if (v->managed)
		delete_managed(v);
	if (v->dims_mine)
		free((void *)v->shape);
	v->dims_mine = false;
	free(v->packed);
	v->packed = NULL;
	v->owner = NULL;
	Py_CLEAR(v->storage);
	Py_XDECREF(owner);
}

/* Copy between the array, from dimension d on, and the contiguous copy at *packed, which moves on. */
static void copy(const struct view *v, int d, char *at, char **packed, bool out)
{
	if (d == v->ndim) {
		memcpy(out ? at : *packed, out ? *packed : at, v->item_bytes);
		*packed += v->item_bytes;
		return;
	}
	for (int64_t i = 0; i < v->shape[d]; i++)
		copy(v, d + 1, at + i * v->strides[d] * v->stride_unit, packed, out);
}

/* Where the elements lie: runs of bytes in [low, high), whose begins differ by multiples of step. */
struct span {
	int64_t low, high, run, step;
};

static int64_t divisor(int64_t a, int64_t b)
{
	while (b) {
		const int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a < 0 ? -a : a;
}

static struct span span_of(const struct view *v)
{
	struct span s = {.low = (intptr_t)v->data, .run = (int64_t)v->item_bytes};
	int d = v->ndim;

	if (v->contiguous) {
		s.run = (int64_t)(v->items * v->item_bytes);
		s.high = s.low + s.run;
		return s;
	}
	while (d > 0 && v->strides[d - 1] * v->stride_unit == s.run)
		s.run *= v->shape[--d];
	s.high = s.low + s.run;
	while (d-- > 0) {
		const int64_t stride = v->strides[d] * v->stride_unit;

		if (v->shape[d] > 1)
			s.step = divisor(s.step, stride);
		*(stride < 0 ? &s.low : &s.high) += (v->shape[d] - 1) * stride;
	}
	return s;
}

bool coll_py_view_overlaps(const struct view *v, const struct view *w)
{
	const struct span a = span_of(v), b = span_of(w);
	const int64_t step = divisor(a.step, b.step), between = b.low - a.low;
	int64_t apart;

	if (v->items == 0 || w->items == 0 || a.low >= b.high || b.low >= a.high)
		return false;
	if (step == 0)
		return true;
	/* Such as two columns of one matrix. */
	apart = (between % step + step) % step;
	return apart < a.run || apart + b.run > step;
}

int coll_py_view_pack(struct view *v, bool filled, void **address)
{
	size_t bytes = v->items * v->item_bytes;
	char *at;

	*address = v->data;
	if (v->contiguous)
		return 0;
	if (!v->packed)
		v->packed = malloc(bytes ? bytes : 1);
	if (!v->packed) {
		PyErr_NoMemory();
		return -1;
	}
	*address = at = v->packed;
	if (filled)
		copy(v, 0, v->data, &at, false);
	return 0;
}

void coll_py_view_unpack(const struct view *v)
{
	char *at = v->packed;

	if (at)
		copy(v, 0, v->data, &at, true);
}
