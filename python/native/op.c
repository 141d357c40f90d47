/*
 * Reduction operations made by users: functions in Python on memoryviews, and premultiplied sums.
 *
 * The library calls a function from the thread that makes the call or from its progress thread. An exception cannot
 * pass through it: the first one is kept in the communicator and raised when the call ends. The communicator is aborted
 * at once, before the part that was not reduced is sent on; later parts are left as they are.
 */
#include <string.h>

#include "binding.h"

PyTypeObject *coll_py_op_type;
atomic_bool coll_py_functions;

/* A memoryview of elements at `of`, bytes or a bytearray, whose reference is stolen; those without a letter of their
 * own in Python are unsigned integers of that size. */
static PyObject *view_of(PyObject *of, coll_dtype type)
{
	size_t bytes = coll_dtype_size(type);
	const struct element *e = coll_py_element_of(type);
	const char *letter = e && strcmp(e->format, "e") != 0 ? e->format : bytes == 2 ? "H" : "B";
	PyObject *plain = of ? PyMemoryView_FromObject(of) : NULL, *typed;

	typed = plain ? PyObject_CallMethod(plain, "cast", "s", letter) : NULL;
	Py_XDECREF(of);
	Py_XDECREF(plain);
	return typed;
}

static void keep_first(struct comm *c, PyObject *error)
{
	PyObject *none = NULL;

	if (!error)
		return;
	coll_py_comm_abort_for(c, error);
	if (!atomic_compare_exchange_strong(&c->failure, &none, error))
		Py_DECREF(error);
}

/* The function works on copies: it may keep its arguments, or arrays over them, longer than the library keeps its
 * memory. */
static void call(void *arg, const void *left, void *inout, size_t count, coll_dtype type)
{
	PyGILState_STATE held = PyGILState_Ensure();
	const struct op *op = arg;
	const Py_ssize_t bytes = (Py_ssize_t)(count * coll_dtype_size(type));
	PyObject *a, *b, *copy, *result = NULL;

	if (!op->comm->failure) {
		copy = PyByteArray_FromStringAndSize(inout, bytes);
		Py_XINCREF(copy);
		b = view_of(copy, type);
		a = b ? view_of(PyBytes_FromStringAndSize(left, bytes), type) : NULL;
		if (a)
			result = PyObject_CallFunctionObjArgs(op->function, a, b, NULL);
		if (result)
			memcpy(inout, PyByteArray_AsString(copy), (size_t)bytes);
		else
			keep_first(op->comm, coll_py_take_exception());
		Py_XDECREF(result);
		Py_XDECREF(a);
		Py_XDECREF(b);
		Py_XDECREF(copy);
	}
	PyGILState_Release(held);
}

/* An Op that the communicator keeps until it ends, since calls may still use it when the caller has dropped it. */
static struct op *start(struct comm *c)
{
	struct op *op;

	if (coll_py_comm_check(c) != 0)
		return NULL;
	if (!c->ops && !(c->ops = PyList_New(0)))
		return NULL;
	op = (struct op *)PyType_GenericAlloc(coll_py_op_type, 0);
	if (op) {
		op->comm = c;
		Py_INCREF((PyObject *)c);
	}
	return op;
}

static PyObject *finish(struct op *op, coll_status st, const char *name)
{
	struct comm *c = op->comm;

	op->made = st == COLL_OK;
	if (st != COLL_OK)
		coll_py_raise(c, st, name);
	else if (PyList_Append(c->ops, (PyObject *)op) == 0)
		return (PyObject *)op;
	Py_DECREF((PyObject *)op);
	return NULL;
}

/* op(function, commutative) */
PyObject *coll_py_op_create(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	struct comm *c = (struct comm *)self;
	int commutative = nargs == 2 ? PyObject_IsTrue(args[1]) : -1;
	struct op *op;

	if (commutative < 0 || !PyCallable_Check(args[0]))
		return PyErr_Format(PyExc_TypeError, "op: a function and whether it is commutative");
	op = start(c);
	if (!op)
		return NULL;
	atomic_store(&coll_py_functions, true);
	op->function = args[0];
	Py_INCREF(op->function);
	return finish(op, coll_op_create(&op->value, c->handle, call, op, commutative), "op");
}

/* premul_sum(bytes of one element, type) */
PyObject *coll_py_op_premul_sum(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	struct comm *c = (struct comm *)self;
	PyObject *name = nargs == 2 ? PyUnicode_AsUTF8String(args[1]) : NULL;
	const struct element *e = name ? coll_py_element_by_name(PyBytes_AsString(name)) : NULL;
	struct op *op;

	Py_XDECREF(name);
	if (!e || !PyBytes_Check(args[0]) || PyBytes_Size(args[0]) != (Py_ssize_t)coll_dtype_size(e->wire))
		return PyErr_Occurred() ? NULL
		                        : coll_py_raise_argument("premul_sum: one element of a float type is needed");
	op = start(c);
	return op ? finish(op, coll_op_create_premul_sum(&op->value, c->handle, PyBytes_AsString(args[0]), e->wire),
	                   "premul_sum")
	          : NULL;
}

/* The library calls it no more. */
static PyObject *forget(struct op *op)
{
	PyObject *ops = op->comm->ops;

	for (Py_ssize_t i = PyList_Size(ops) - 1; i >= 0; i--)
		if (PyList_GetItem(ops, i) == (PyObject *)op)
			return PyList_SetSlice(ops, i, i + 1, NULL) == 0 ? Py_NewRef(Py_None) : NULL;
	Py_RETURN_NONE;
}

/* All ranks close the same operations in the same order. */
static PyObject *op_close(PyObject *self, PyObject *unused)
{
	struct op *op = (struct op *)self;
	struct comm *c = op->comm;
	coll_status st;

	if (!op->made || !c->handle || c->generation != coll_py_generation)
		Py_RETURN_NONE;
	if (coll_py_comm_enter(c, "close") != 0)
		return NULL;
	st = coll_op_destroy(&op->value, c->handle);
	coll_py_comm_leave(c);
	op->made = false;
	if (st != COLL_OK)
		return coll_py_raise(c, st, "op");
	return forget(op);
}

static void dealloc(PyObject *self)
{
	struct op *op = (struct op *)self;

	Py_XDECREF(op->function);
	Py_XDECREF((PyObject *)op->comm);
	coll_py_free(self);
}

GUARD_ONE(op_close)

static PyMethodDef methods[] = {
        {"close", op_close_guarded, METH_NOARGS, NULL},
        {0},
};
static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)dealloc},
        {Py_tp_methods, methods},
        {0, NULL},
};
static PyType_Spec spec = {"coll._coll.Op", sizeof(struct op), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int coll_py_op_init(PyObject *module)
{
	coll_py_op_type = coll_py_type(module, &spec, NULL);
	return coll_py_op_type ? 0 : -1;
}
