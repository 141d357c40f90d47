/*
 * Arrays of this package for other libraries: capsules of DLPack. The array lives as long as the tensor in the capsule.
 */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

#include "dlpack.h"

struct loaned {
	union {
		struct dl_managed plain;
		struct dl_managed_versioned versioned;
	} of;
	PyObject *owner;
};

static void give_back(struct loaned *l)
{
	PyGILState_STATE held = PyGILState_Ensure();

	Py_DECREF(l->owner);
	free(l);
	PyGILState_Release(held);
}

static void delete_plain(struct dl_managed *m)
{
	give_back(m->context);
}

static void delete_versioned(struct dl_managed_versioned *m)
{
	give_back(m->context);
}

/* A capsule whose tensor nobody has taken. */
static void drop_capsule(PyObject *capsule)
{
	const char *name = PyCapsule_GetName(capsule);

	if (name && strcmp(name, "dltensor") == 0)
		delete_plain(PyCapsule_GetPointer(capsule, name));
	else if (name && strcmp(name, "dltensor_versioned") == 0)
		delete_versioned(PyCapsule_GetPointer(capsule, name));
}

/* Whether a version, (major, minor) or None, has capsules with versions. -1 with an exception set. */
static int is_versioned(PyObject *version)
{
	PyObject *first = version == Py_None ? NULL : PySequence_GetItem(version, 0);
	long major = first ? PyLong_AsLong(first) : 0;

	Py_XDECREF(first);
	return PyErr_Occurred() ? -1 : major >= 1;
}

int coll_py_dlpack_device(PyObject *device, int *kind, int *number)
{
	if (device == Py_None)
		return 0;
	if (PyTuple_Check(device))
		return PyArg_ParseTuple(device, "ii", kind, number) ? 0 : -1;
	PyErr_Format(PyExc_TypeError, "dl_device is %R; a tuple of two numbers is needed", device);
	return -1;
}

PyObject *coll_py_dlpack_export(PyObject *owner, const struct dl_tensor *tensor, PyObject *version, PyObject *may_copy)
{
	const int versioned = is_versioned(version);
	PyObject *capsule;
	struct loaned *l;

	if (versioned < 0)
		return NULL;
	if (may_copy == Py_True)
		return PyErr_Format(PyExc_BufferError, "it is not copied by __dlpack__");
	l = calloc(1, sizeof(*l));
	if (!l)
		return PyErr_NoMemory();
	if (versioned) {
		l->of.versioned.version = (struct dl_version){DL_MAJOR, DL_MINOR};
		l->of.versioned.context = l;
		l->of.versioned.deleter = delete_versioned;
		l->of.versioned.tensor = *tensor;
		capsule = PyCapsule_New(&l->of.versioned, "dltensor_versioned", drop_capsule);
	} else {
		l->of.plain.context = l;
		l->of.plain.deleter = delete_plain;
		l->of.plain.tensor = *tensor;
		capsule = PyCapsule_New(&l->of.plain, "dltensor", drop_capsule);
	}
	if (!capsule) {
		free(l);
		return NULL;
	}
	l->owner = owner;
	Py_INCREF(owner);
	return capsule;
}
