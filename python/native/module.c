/*
 * The module coll._coll: its table, the generation of the process, where the library is.
 */
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "binding.h"

unsigned coll_py_generation = 1;
PyObject *coll_py_shared;

/* In the child of a fork: what the parent made is the parent's. */
static void forked(void)
{
	coll_py_generation++;
	coll_py_ended_reset();
	coll_py_log_forked();
}

PyTypeObject *coll_py_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base)
{
	enum { SLOTS_MAX = 32 };
	PyType_Slot slots[SLOTS_MAX] = {{Py_tp_doc, (void *)(uintptr_t)coll_py_document(spec)}};
	PyType_Spec documented = *spec;
	PyTypeObject *type;
	int n = slots[0].pfunc ? 1 : 0;

	for (const PyType_Slot *s = spec->slots; s->slot; s++) {
		assert(n < SLOTS_MAX - 1);
		slots[n++] = *s;
	}
	slots[n] = (PyType_Slot){0};
	documented.slots = slots;
	type = (PyTypeObject *)PyType_FromSpecWithBases(&documented, (PyObject *)base);
	if (!type)
		return NULL;
	Py_INCREF((PyObject *)type);
	if (PyModule_AddObject(module, strrchr(spec->name, '.') + 1, (PyObject *)type) == 0)
		return type;
	Py_DECREF((PyObject *)type);
	Py_DECREF((PyObject *)type);
	return NULL;
}

void coll_py_free(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	release(object);
	Py_DECREF((PyObject *)type);
}

/* setup(error, argument, unsupported, like, describe, advice, work, message) */
static PyObject *setup(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
	if (nargs != HOOK_COUNT)
		return PyErr_Format(PyExc_TypeError, "setup: %d hooks", HOOK_COUNT);
	for (int i = 0; i < HOOK_COUNT; i++) {
		PyObject *old = coll_py_hooks[i];

		Py_INCREF(args[i]);
		coll_py_hooks[i] = args[i];
		Py_XDECREF(old);
	}
	Py_RETURN_NONE;
}

static PyObject *version(PyObject *module, PyObject *unused)
{
	return PyLong_FromLong(coll_version());
}

static PyObject *unique_id(PyObject *module, PyObject *unused)
{
	coll_unique_id id;
	coll_status st;

	WITHOUT_GIL(st = coll_unique_id_create(&id));
	if (st != COLL_OK)
		return coll_py_raise(NULL, st, "unique_id");
	return PyBytes_FromStringAndSize(id.bytes, COLL_UNIQUE_ID_BYTES);
}

/* The file that the library was loaded from. */
static PyObject *library(PyObject *module, PyObject *unused)
{
	Dl_info info;

	if (!dladdr((void *)(uintptr_t)coll_version, &info) || !info.dli_fname)
		Py_RETURN_NONE;
	return PyUnicode_DecodeFSDefault(info.dli_fname);
}

static PyObject *status_string(PyObject *module, PyObject *status)
{
	long st = PyLong_AsLong(status);

	return st == -1 && PyErr_Occurred() ? NULL : PyUnicode_FromString(coll_status_string((coll_status)st));
}

static PyObject *thread(PyObject *module, PyObject *unused)
{
	return PyLong_FromUnsignedLong(coll_py_thread());
}

static PyObject *group_open(PyObject *module, PyObject *unused)
{
	return PyBool_FromLong(coll_py_group_open());
}

static PyObject *reap(PyObject *module, PyObject *unused)
{
	coll_py_reap();
	Py_RETURN_NONE;
}

/* outcome(work, future): the value of a Work of torch, or its error, without a line of Python: those would stand below
 * its sentence where C++ prints it. */
static PyObject *outcome(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
	PyObject *failure = nargs > 0 ? PyObject_GetAttrString(args[0], "_failure") : NULL;

	if (failure == Py_None) {
		Py_DECREF(failure);
		return PyObject_GetAttrString(args[0], "_value");
	}
	if (failure) {
		PyException_SetTraceback(failure, Py_None);
		PyErr_SetObject((PyObject *)Py_TYPE(failure), failure);
		Py_DECREF(failure);
	} else if (!PyErr_Occurred()) {
		PyErr_SetString(PyExc_TypeError, "outcome: no Work");
	}
	return NULL;
}

GUARD_ONE(coll_py_stream_new)
GUARD_ONE(coll_py_comm_open_all)
GUARD_ONE(coll_py_group_end)
GUARD_ONE(reap)

#define FAST(name, function)                                                       \
	{                                                                          \
		name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, NULL \
	}
static PyMethodDef methods[] = {
        FAST("setup", setup),
        FAST("raw", coll_py_block_raw),
        {"version", version, METH_NOARGS, NULL},
        {"unique_id", unique_id, METH_NOARGS, NULL},
        {"library", library, METH_NOARGS, NULL},
        {"status_string", status_string, METH_O, NULL},
        {"open_all", coll_py_comm_open_all_guarded, METH_VARARGS, NULL},
        {"stream", coll_py_stream_new_guarded, METH_VARARGS, NULL},
        {"group_begin", coll_py_group_begin, METH_NOARGS, NULL},
        {"group_open", group_open, METH_NOARGS, NULL},
        {"group_end", coll_py_group_end_guarded, METH_O, NULL},
        {"thread", thread, METH_NOARGS, NULL},
        {"reap", reap_guarded, METH_NOARGS, NULL},
        {"log_attach", coll_py_log_attach, METH_O, NULL},
        {"log_wait", coll_py_log_wait, METH_O, NULL},
        {"log_flush", coll_py_log_flush, METH_O, NULL},
        {"log_ending", coll_py_log_ending, METH_NOARGS, NULL},
        FAST("outcome", outcome),
        {0},
};

/* Its state is static: one interpreter per process. */
static struct PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "coll._coll", "libcoll for Python", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__coll(void);

PyMODINIT_FUNC PyInit__coll(void)
{
	PyObject *module = PyModule_Create(&definition);

	if (!module)
		return NULL;
#ifdef Py_GIL_DISABLED
	coll_py_shared = PyList_New(0);
	if (!coll_py_shared || PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED) != 0) {
		Py_DECREF(module);
		return NULL;
	}
#endif
	if (coll_py_calls_init() == 0 && coll_py_reduce_init() == 0 && coll_py_comm_init(module) == 0 &&
	    coll_py_async_init(module) == 0 && coll_py_block_init(module) == 0 && coll_py_op_init(module) == 0 &&
	    coll_py_operation_init(module) == 0 && coll_py_device_array_init(module) == 0 &&
	    coll_py_receive_init(module) == 0 && coll_py_ended_init(module) == 0 &&
	    pthread_atfork(NULL, NULL, forked) == 0)
		return module;
	Py_DECREF(module);
	return NULL;
}
