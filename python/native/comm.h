/* The life of communicators, for comm_methods.c. */
#ifndef COLL_PYTHON_COMM_H
#define COLL_PYTHON_COMM_H

#include "binding.h"

PyObject *coll_py_comm_open(PyObject *self, PyObject *args);
PyObject *coll_py_comm_open_all(PyObject *module, PyObject *args);
PyObject *coll_py_comm_close(PyObject *self, PyObject *last);
PyObject *coll_py_comm_abort(PyObject *self, PyObject *args);
void coll_py_comm_dealloc(PyObject *self);

#endif
