/*
 * A call that points up: tests/headers/layers.py takes this object for a file of src/base and must refuse it.
 */
#include "tests/planted/upward.h"

#include "base/clock.h"

void planted_upward(coll_comm **comm);

void planted_upward(coll_comm **comm)
{
	coll_comm_destroy(comm);
}
