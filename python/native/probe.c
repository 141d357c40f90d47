/*
 * probe() and iprobe(): the envelope of the message with a tag that a receive would get, which stays where it is. No
 * array has a part in it, so the length is that of the sender, in elements of the type that travels.
 */
#include "binding.h"

/* _probe(peer, tag, wait): (source, tag, elements, type); None: no message yet */
PyObject *coll_py_probe(PyObject *self, PyObject *args)
{
	struct comm *c = (struct comm *)self;
	coll_message_info info = {0};
	int wait, source, number;
	PyObject *peer, *tag;
	const char *name;
	coll_status st;

	if (!PyArg_ParseTuple(args, "OOp", &peer, &tag, &wait) || coll_py_comm_check(c) != 0)
		return NULL;
	name = wait ? "probe" : "iprobe";
	if (coll_py_read_envelope(c, name, -1, peer, tag, &source, &number) != 0 || coll_py_comm_enter(c, name) != 0)
		return NULL;
	WITHOUT_GIL(st = wait ? coll_probe(source, number, c->handle, &info)
	                      : coll_iprobe(source, number, c->handle, &info));
	coll_py_comm_leave(c);
	coll_py_reap();
	if (coll_py_interrupted() != 0)
		return NULL;
	if (st == COLL_AGAIN)
		Py_RETURN_NONE;
	if (st != COLL_OK)
		return coll_py_raise(c, st, name);
	return Py_BuildValue("iins", info.source, info.tag, (Py_ssize_t)info.count, coll_dtype_name(info.type));
}
