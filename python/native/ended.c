/*
 * Works whose end is told: callbacks, futures, await (coll/_work.py has the threads that run them).
 *
 * The library says that a work has ended in whichever thread advances it (coll_event_notify()), which may be one that
 * Python does not know, and nothing moves while that thread is kept. So it takes no GIL: it puts the work into a list
 * and wakes a thread that sleeps here. Then neither a busy program nor the end of the interpreter holds up calls. One
 * thread leads: it waits for the oldest work itself, which moves calls also where there is no progress thread; that
 * work wakes nobody else.
 */
#include <errno.h>
#include <semaphore.h>

#include "binding.h"

static _Atomic(struct work *) list; /* the last one first; strong */
static _Atomic(struct work *) led;
static sem_t told;

static void ended(void *arg, coll_status status)
{
	struct work *w = arg, *first = atomic_load(&list);

	do {
		w->next_ended = first;
	} while (!atomic_compare_exchange_weak(&list, &first, w));
	/* In this order: a leader that has gone looks into the list afterwards. */
	if (atomic_load(&led) != w)
		sem_post(&told);
}

void coll_py_ended_reset(void)
{
	atomic_store(&list, NULL);
	atomic_store(&led, NULL);
	sem_init(&told, 0, 0);
}

static struct work *work_of(PyObject *object)
{
	if (PyObject_TypeCheck(object, coll_py_work_type))
		return (struct work *)object;
	PyErr_Format(PyExc_TypeError, "%R is no Work", object);
	return NULL;
}

/* watch(work): its end will be told. False: it has ended. */
static PyObject *watch(PyObject *module, PyObject *object)
{
	struct work *w = work_of(object);
	coll_status st;

	if (!w)
		return NULL;
	if (w->state == WORK_DONE)
		Py_RETURN_FALSE;
	if (w->state != WORK_RUNNING || w->generation != coll_py_generation)
		return coll_py_raise_argument(w->state != WORK_RUNNING
		                                      ? "the group of this call is still open"
		                                      : "the work belongs to the process that forked this one");
	Py_INCREF(object); /* until taken() */
	w->waiters++;      /* the event stays */
	LIBRARY(st = coll_event_notify(w->event, ended, w));
	w->waiters--;
	if (w->state == WORK_DONE)
		coll_py_work_drop_event(w);
	if (st == COLL_OK)
		Py_RETURN_TRUE;
	Py_DECREF(object);
	return coll_py_raise(NULL, st, "event");
}

/* lead(work): wait until it is done. */
static PyObject *lead(PyObject *module, PyObject *object)
{
	struct work *w = work_of(object);
	int done;

	if (!w)
		return NULL;
	atomic_store(&led, w);
	done = coll_py_work_wait(w, -1);
	atomic_store(&led, NULL);
	if (done < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* sleep(): until a work has ended, or wake() was called */
static PyObject *sleep_until_told(PyObject *module, PyObject *unused)
{
	WITHOUT_GIL(while (sem_wait(&told) != 0 && errno == EINTR););
	Py_RETURN_NONE;
}

static PyObject *wake(PyObject *module, PyObject *unused)
{
	sem_post(&told);
	Py_RETURN_NONE;
}

/* taken(): the works that have ended, in order, all of them done */
static PyObject *taken(PyObject *module, PyObject *unused)
{
	struct work *w = atomic_exchange(&list, NULL), *first = NULL;
	PyObject *works = PyList_New(0);

	while (w) {
		struct work *next = w->next_ended;

		w->next_ended = first;
		first = w;
		w = next;
	}
	for (w = first; w; w = first) {
		first = w->next_ended;
		if (works && (coll_py_work_wait(w, -1) < 0 || PyList_Append(works, (PyObject *)w) != 0))
			Py_CLEAR(works);
		Py_DECREF((PyObject *)w);
	}
	return works;
}

GUARD_ONE(watch)
GUARD_ONE(lead)
GUARD_ONE(taken)

static PyMethodDef methods[] = {
        {"watch", watch_guarded, METH_O, NULL},         {"lead", lead_guarded, METH_O, NULL},
        {"sleep", sleep_until_told, METH_NOARGS, NULL}, {"wake", wake, METH_NOARGS, NULL},
        {"taken", taken_guarded, METH_NOARGS, NULL},    {0},
};

int coll_py_ended_init(PyObject *module)
{
	coll_py_ended_reset();
	return PyModule_AddFunctions(module, methods);
}
