/*
 * Groups: calls between begin and end are handed in together (coll_group_begin()).
 *
 * A thread has one group, which may be nested. It holds the buffers of its calls until the outermost end. A group whose
 * block raises cannot be completed, and the other ranks would wait for the rest: its communicators are aborted.
 */
#include <stdlib.h>

#include "binding.h"

struct member {
	struct member *next;
	struct request request; /* blocking */
	struct work *work;      /* strong; with a stream */
};

struct group {
	int depth;
	struct member *first, **end;
};

static _Thread_local struct group group;

bool coll_py_group_open(void)
{
	return group.depth > 0;
}

/* ---- Calls ---- */

static struct request *request_of(struct member *m)
{
	return m->work ? &m->work->request : &m->request;
}

int coll_py_group_add(struct request *r, struct work *w)
{
	struct member *m = calloc(1, sizeof(*m));
	struct comm *c = r->comm;
	coll_status st;

	if (!m || coll_py_comm_enter(c, coll_py_methods[r->kind].name) != 0) {
		if (!m)
			PyErr_NoMemory();
		goto fail;
	}
	LIBRARY(st = coll_py_request_start(r, w ? w->stream->handle : NULL)); /* does not wait: the group is open */
	coll_py_comm_leave(c);
	if (st != COLL_OK) {
		coll_py_raise(c, st, coll_py_methods[r->kind].name);
		goto fail;
	}
	m->work = w;
	if (w)
		Py_INCREF((PyObject *)w);
	else
		m->request = *r;
	*group.end = m;
	group.end = &m->next;
	return 0;
fail:
	free(m);
	if (!w)
		coll_py_request_end(r);
	return -1;
}

/* ---- The end ---- */

static bool is_cause(struct member *m, coll_status st)
{
	const struct comm *c = request_of(m)->comm;
	const coll_error *e = c->handle ? coll_last_error(c->handle) : NULL;

	return e && e->status == st;
}

/* The error of the communicator that has it. */
static PyObject *error_of(struct member *members, coll_status st)
{
	for (struct member *m = members; m; m = m->next)
		if (is_cause(m, st))
			return coll_py_error(request_of(m)->comm, st, "group");
	return coll_py_error(NULL, st, "group");
}

static void settle(struct member *m, coll_status st, bool started)
{
	if (m->work) {
		coll_py_work_begin(m->work, started ? COLL_OK : st);
		Py_DECREF((PyObject *)m->work);
	} else {
		if (st == COLL_OK)
			coll_py_request_unpack(&m->request);
		coll_py_request_end(&m->request);
	}
	free(m);
}

static void abort_all(struct member *members, PyObject *reason)
{
	PyObject *bytes = PyUnicode_AsUTF8String(reason);

	if (!bytes)
		PyErr_Clear();
	for (struct member *m = members; m; m = m->next) {
		const struct comm *c = request_of(m)->comm;

		if (c->handle && c->generation == coll_py_generation)
			LIBRARY(coll_comm_abort(c->handle,
			                        bytes ? PyBytes_AsString(bytes) : "a group was not completed"));
	}
	Py_XDECREF(bytes);
}

PyObject *coll_py_group_begin(PyObject *module, PyObject *unused)
{
	coll_status st = coll_group_begin();

	if (st != COLL_OK)
		return coll_py_raise(NULL, st, "group");
	if (group.depth++ == 0) {
		group.first = NULL;
		group.end = &group.first;
	}
	Py_RETURN_NONE;
}

/* group_end(reason): None, or why the group is given up */
PyObject *coll_py_group_end(PyObject *module, PyObject *reason)
{
	struct member *members = group.first;
	PyObject *error = NULL;
	coll_status st;

	if (group.depth == 0)
		return coll_py_raise_argument("no group is open");
	if (reason != Py_None)
		abort_all(members, reason);
	if (--group.depth == 0)
		group.first = NULL;
	else
		members = NULL;
	WITHOUT_GIL(st = coll_group_end());
	if (coll_py_interrupted() != 0)
		error = coll_py_take_exception();
	for (struct member *m = members; m; m = m->next)
		if (request_of(m)->comm->failure && !error) {
			coll_py_comm_failure(request_of(m)->comm);
			error = coll_py_take_exception();
		}
	if (st != COLL_OK && !error)
		error = error_of(members, st);
	while (members) {
		struct member *m = members;

		members = m->next;
		settle(m, st, st != COLL_ERR_MEMORY);
	}
	if (st == COLL_OK && !error)
		Py_RETURN_NONE;
	if (error) {
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
		Py_DECREF(error);
	}
	return NULL;
}
