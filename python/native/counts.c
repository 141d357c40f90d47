/*
 * counts=: rows per rank, as the caller gives them or as the ranks exchange them, in elements of the library.
 */
#include <stdlib.h>

#include "binding.h"

/* Rows per rank, times elements in a row: elements per rank, and their sum. */
size_t *coll_py_counts_read(const struct request *r, PyObject *object, size_t row, const char *what, size_t *total)
{
	PyObject *list = PySequence_List(object);
	size_t *counts = NULL, sum = 0;

	if (!list) {
		if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_NotImplementedError))
			coll_py_raise_argument("%s: %s is %R; numbers of rows are needed, or 'any' in a gather",
			                       coll_py_name_of(r), what, object);
		return NULL;
	}
	if (PyList_Size(list) != r->comm->size) {
		coll_py_raise_argument("%s: %s has %zd numbers, one for each of %d ranks is needed", coll_py_name_of(r),
		                       what, PyList_Size(list), r->comm->size);
		goto end;
	}
	counts = malloc((size_t)r->comm->size * sizeof(*counts));
	if (!counts)
		PyErr_NoMemory();
	for (int i = 0; counts && i < r->comm->size; i++) {
		size_t n = coll_py_size(PyList_GetItem(list, i));

		if (n == SIZE_MAX || __builtin_mul_overflow(n, row, &counts[i]) ||
		    __builtin_add_overflow(sum, counts[i], &sum)) {
			if (n == SIZE_MAX && !PyErr_Occurred())
				coll_py_raise_argument("%s: %s has %R; numbers of rows are needed", coll_py_name_of(r),
				                       what, PyList_GetItem(list, i));
			else if (!PyErr_Occurred())
				coll_py_raise_argument("%s: %s are too large", coll_py_name_of(r), what);
			free(counts);
			counts = NULL;
		}
	}
	*total = sum;
end:
	Py_DECREF(list);
	return counts;
}

/* counts="any": the ranks exchange the numbers of rows that they have. */
size_t *coll_py_counts_ask(struct request *r, size_t row, size_t *total)
{
	uint64_t mine = r->in.ndim ? (size_t)r->in.shape[0] : 1;
	uint64_t *all = malloc((size_t)r->comm->size * sizeof(*all));
	size_t *counts = malloc((size_t)r->comm->size * sizeof(*counts)), sum = 0;
	coll_status st = COLL_ERR_MEMORY;

	_Static_assert(sizeof(*all) == sizeof(*counts), "counts are exchanged as 64-bit numbers");
	if (coll_py_group_open()) {
		coll_py_raise_argument("%s: counts='any' needs an exchange first, and a group is open",
		                       coll_py_name_of(r));
		goto fail;
	}
	if (!all || !counts) {
		PyErr_NoMemory();
		goto fail;
	}
	if (coll_py_comm_enter(r->comm, coll_py_name_of(r)) != 0)
		goto fail;
	WITHOUT_GIL(st = coll_all_gather(&mine, all, 1, COLL_U64, r->comm->handle, NULL));
	coll_py_comm_leave(r->comm);
	if (st != COLL_OK) {
		coll_py_raise(r->comm, st, coll_py_name_of(r));
		goto fail;
	}
	if (coll_py_interrupted() != 0)
		goto fail;
	for (int i = 0; i < r->comm->size; i++)
		if (__builtin_mul_overflow(all[i], row, &counts[i]) || __builtin_add_overflow(sum, counts[i], &sum)) {
			coll_py_raise_argument("%s: the ranks have too many rows", coll_py_name_of(r));
			goto fail;
		}
	*total = sum;
	free(all);
	return counts;
fail:
	free(all);
	free(counts);
	return NULL;
}
