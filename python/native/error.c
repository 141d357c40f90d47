/*
 * Exceptions. coll/_errors.py has the classes; this file fills them from the status and the last error of a
 * communicator.
 */
#include <stdarg.h>

#include "binding.h"

PyObject *coll_py_hooks[HOOK_COUNT];

static PyObject *raise_hook(enum hook hook, const char *format, va_list args)
{
	PyObject *text = PyUnicode_FromFormatV(format, args);

	if (text) {
		PyErr_SetObject(coll_py_hooks[hook] ? coll_py_hooks[hook] : PyExc_ValueError, text);
		Py_DECREF(text);
	}
	return NULL;
}

PyObject *coll_py_raise_argument(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	raise_hook(HOOK_ARGUMENT, format, args);
	va_end(args);
	return NULL;
}

PyObject *coll_py_raise_unsupported(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	raise_hook(HOOK_UNSUPPORTED, format, args);
	va_end(args);
	return NULL;
}

PyObject *coll_py_error(struct comm *c, coll_status st, const char *name)
{
	const coll_error *e = coll_last_error(c && c->generation == coll_py_generation ? c->handle : NULL);

	if (!coll_py_hooks[HOOK_ERROR]) {
		PyErr_SetString(PyExc_RuntimeError, "coll._coll is used without coll");
		return NULL;
	}
	if (!e || e->status != st)
		return PyObject_CallFunction(coll_py_hooks[HOOK_ERROR], "iisKsisds", (int)st, -1, "", 0ull, name, -1,
		                             "", 0.0, coll_status_string(st));
	return PyObject_CallFunction(coll_py_hooks[HOOK_ERROR], "iisKsisds", (int)st, e->rank, e->host ? e->host : "",
	                             (unsigned long long)e->operation, e->kind ? e->kind : name, e->step,
	                             e->link ? e->link : "", e->elapsed_s, e->message ? e->message : "");
}

PyObject *coll_py_raise(struct comm *c, coll_status st, const char *name)
{
	PyObject *error = coll_py_error(c, st, name);

	if (error) {
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
		Py_DECREF(error);
	}
	return NULL;
}

PyObject *coll_py_take_exception(void)
{
	PyObject *type, *value, *trace;

	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	if (value && trace)
		PyException_SetTraceback(value, trace);
	Py_XDECREF(type);
	Py_XDECREF(trace);
	return value;
}
