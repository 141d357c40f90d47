/*
 * op=: which reduction a call makes, and whether the elements of its array allow it.
 */
#include "binding.h"

static const char *const op_names[COLL_OP_COUNT] = {"sum", "prod", "min",  "max", "avg", "band",
                                                    "bor", "bxor", "land", "lor", "lxor"};
static PyObject *interned_ops[COLL_OP_COUNT];

int coll_py_reduce_init(void)
{
	for (int i = 0; i < COLL_OP_COUNT; i++)
		if (!(interned_ops[i] = PyUnicode_InternFromString(op_names[i])))
			return -1;
	return 0;
}

static int find_op(PyObject *name)
{
	if (!name)
		return COLL_SUM;
	for (int i = 0; i < COLL_OP_COUNT; i++)
		if (interned_ops[i] == name)
			return i;
	if (PyUnicode_Check(name))
		for (int i = 0; i < COLL_OP_COUNT; i++)
			if (PyUnicode_Compare(interned_ops[i], name) == 0)
				return i;
	return -1;
}

/* true + true is true, as in numpy. */
static int bool_op(int op)
{
	switch (op) {
	case COLL_SUM:
	case COLL_MAX: return COLL_LOR;
	case COLL_PROD:
	case COLL_MIN: return COLL_LAND;
	case COLL_AVG: return -1;
	default: return op;
	}
}

static int refuse_op(const struct request *r, int op, const char *name)
{
	coll_py_raise_argument("%s: there is no '%s' of elements of type %s", coll_py_name_of(r), op_names[op], name);
	return -1;
}

static int user_op(struct request *r, PyObject *object)
{
	struct op *op = (struct op *)object;

	if (!PyObject_TypeCheck(object, coll_py_op_type)) {
		coll_py_raise_argument(
		        "%s: op is %R; sum, prod, min, max, avg, band, bor, bxor, land, lor, lxor, or what "
		        "comm.op() and comm.premul_sum() made",
		        coll_py_name_of(r), object);
		return -1;
	}
	if (!op->made || op->comm != r->comm) {
		coll_py_raise_argument("%s: the operation %s", coll_py_name_of(r),
		                       op->made ? "belongs to another communicator" : "is closed");
		return -1;
	}
	if (op->function && r->in.element->class == CLASS_COMPLEX) {
		coll_py_raise_argument("%s: operations in Python take real numbers", coll_py_name_of(r));
		return -1;
	}
	r->op = op->value;
	Py_INCREF(object);
	r->op_object = object;
	return 0;
}

int coll_py_request_reduce(struct request *r, PyObject *object)
{
	const struct element *e = r->in.element;
	int op = find_op(object);

	if (e->class == CLASS_OPAQUE) {
		coll_py_raise_argument("%s: elements of this type (%zu bytes each) can be moved but not reduced",
		                       coll_py_name_of(r), r->in.item_bytes);
		return -1;
	}
	if (op < 0)
		return user_op(r, object);
	if (e->class == CLASS_COMPLEX && op != COLL_SUM && op != COLL_AVG)
		return refuse_op(r, op, e->name);
	if (e->class == CLASS_BOOL && bool_op(op) < 0)
		return refuse_op(r, op, e->name);
	r->op = (coll_op)(e->class == CLASS_BOOL ? bool_op(op) : op);
	return 0;
}
