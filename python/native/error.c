/*
 * Exceptions. coll/_errors.py has the classes; this file fills them from the status and the last error of a
 * communicator.
 */
#include <stdarg.h>

#include "binding.h"

PyObject *coll_py_hooks[HOOK_COUNT];

/* What a signal handler raised while this thread waited in the library; strong. */
static _Thread_local PyObject *interruption;
_Thread_local bool coll_py_signals_wait;

/* The interpreter ends: the library is not to call it any more. */
static atomic_bool alone;

void coll_py_waits_alone(void)
{
	atomic_store(&alone, true);
}

/* coll_config.interrupt. Only the main thread handles signals; in others this does nothing. */
int coll_py_interrupt(void *arg)
{
	PyGILState_STATE held;
	int stop = 0;

	if (coll_py_signals_wait || atomic_load_explicit(&alone, memory_order_relaxed))
		return 0;
	held = PyGILState_Ensure();
	if (PyErr_CheckSignals() != 0) {
		Py_XDECREF(interruption);
		interruption = coll_py_take_exception();
		stop = 1;
	}
	PyGILState_Release(held);
	return stop;
}

int coll_py_interrupted(void)
{
	PyObject *error = interruption;

	if (!error)
		return 0;
	interruption = NULL;
	PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_DECREF(error);
	return -1;
}

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

PyObject *coll_py_error_text(coll_status st, const char *name, const char *text)
{
	if (coll_py_hooks[HOOK_ERROR])
		return PyObject_CallFunction(coll_py_hooks[HOOK_ERROR], "iisKsisds", (int)st, -1, "", 0ull, name, -1,
		                             "", 0.0, text);
	PyErr_SetString(PyExc_RuntimeError, "coll._coll is used without coll");
	return NULL;
}

/* The last error of the communicator, if it has this status. */
static const coll_error *last_of(struct comm *c, coll_status st)
{
	const coll_error *e = coll_last_error(c && c->generation == coll_py_generation ? c->handle : NULL);

	return e && e->status == st ? e : NULL;
}

static PyObject *exception_of(const coll_error *e, coll_status st, const char *name)
{
	PyObject *late, *error;

	if (!coll_py_hooks[HOOK_ERROR] || !e)
		return coll_py_error_text(st, name, coll_status_string(st));
	late = PyTuple_New(e->late_count);
	for (int i = 0; late && i < e->late_count; i++)
		PyTuple_SetItem(late, i, PyLong_FromLong(e->late[i]));
	if (!late)
		return NULL;
	error = PyObject_CallFunction(coll_py_hooks[HOOK_ERROR], "iisKsisdsOi", (int)st, e->rank,
	                              e->host ? e->host : "", (unsigned long long)e->operation,
	                              e->kind ? e->kind : name, e->step, e->link ? e->link : "", e->elapsed_s,
	                              e->message ? e->message : "", late, e->exit_status);
	Py_DECREF(late);
	return error;
}

PyObject *coll_py_error_kept(struct comm *c, coll_status st, const char *name)
{
	return exception_of(last_of(c, st), st, name);
}

/* Another call of the communicator may have failed last; this thread's failure is the one of this call. */
PyObject *coll_py_error(struct comm *c, coll_status st, const char *name)
{
	const coll_error *e = last_of(c, st);

	if (!e)
		e = last_of(NULL, st);
	if (e && e->message)
		coll_py_log_raised(e->message);
	return exception_of(e, st, name);
}

PyObject *coll_py_raise(struct comm *c, coll_status st, const char *name)
{
	PyObject *error = coll_py_interrupted() == 0 ? coll_py_error(c, st, name) : NULL;

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
