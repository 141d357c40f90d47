/*
 * Rank 0 is the root, unless another process hosts the rendezvous; all others are members.
 */
#include "bootstrap/rendezvous_roles.h"

#include <string.h>

#include "bootstrap/rendezvous_member.h"
#include "bootstrap/rendezvous_root.h"
#include "bootstrap/rendezvous_tell.h"

coll_status coll_rendezvous(const struct coll_rendezvous_point *how, struct coll_error_box *err)
{
	if ((uint64_t)how->size * how->len_bytes > UINT32_MAX / 2)
		return coll_error_set(err, COLL_ERR_ARGUMENT, "%d ranks exchange %zu bytes each: more than 2 GiB",
		                      how->size, how->len_bytes);
	memcpy((char *)how->all + (size_t)how->rank * how->len_bytes, how->mine, how->len_bytes);
	if (how->size == 1)
		return COLL_OK;
	if (how->untold) /* until it begins */
		*how->untold = true;
	if (how->absent && (how->rank != 0 || how->hosted))
		return rendezvous_tell(how) ? how->absent->status : COLL_ERR_BOOTSTRAP;
	return how->rank == 0 && !how->hosted ? meet_root(how, err) : meet_member(how, err);
}

void coll_rendezvous_host(const struct coll_rendezvous_point *how)
{
	meet_root(how, NULL); /* the ranks learn of a failure and report it */
}
