/*
 * Entry points for the name of a communicator.
 */
#include "core/entry.h"
#include "core/error.h"
#include "core/label.h"

const char *coll_comm_get_name(const coll_comm *comm)
{
	return comm ? coll_label_of(comm) : NULL;
}

coll_status coll_comm_set_name(coll_comm *comm, const char *name)
{
	if (coll_entry_no_comm(comm, "comm_set_name"))
		return COLL_ERR_ARGUMENT;
	if (!coll_label_is_valid(name ? name : ""))
		return coll_comm_refuse(comm, "comm_set_name", COLL_ERR_ARGUMENT,
		                        "a name has at most %d letters, digits and . _ - : / +", COLL_LABEL_BYTES - 1);
	if (!coll_label_set(comm, name ? name : ""))
		return coll_comm_refuse(comm, "comm_set_name", COLL_ERR_MEMORY, "out of memory for a name");
	return COLL_OK;
}
