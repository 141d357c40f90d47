/*
 * Copies of failures: see failure.h. Owns the texts, not which thread or stream has which.
 */
#include "core/failure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dead.h"

void coll_failure_copy(struct coll_failure *f, const coll_error *e)
{
	const size_t late_bytes = (size_t)e->late_count * sizeof(int);
	int *late = late_bytes ? realloc(f->late, late_bytes) : NULL;

	snprintf(f->host, sizeof(f->host), "%s", e->host);
	snprintf(f->kind, sizeof(f->kind), "%s", e->kind);
	snprintf(f->link, sizeof(f->link), "%s", e->link);
	snprintf(f->message, sizeof(f->message), "%s", e->message);
	f->error = *e;
	f->error.host = f->host;
	f->error.kind = f->kind;
	f->error.link = f->link;
	f->error.message = f->message;
	if (late) {
		memcpy(late, e->late, late_bytes);
		f->late = late;
		f->error.late = late;
	} else if (late_bytes) {
		f->error.late = &f->error.rank;
		f->error.late_count = 1;
	}
}

struct coll_failure *coll_failure_of(const struct coll_comm *comm, coll_status status)
{
	const coll_error *e = coll_comm_ended_error(comm);
	struct coll_failure *f = e && e->status == status ? calloc(1, sizeof(*f)) : NULL;

	if (!f)
		return NULL;
	coll_failure_copy(f, e);
	f->users = 1;
	return f;
}

struct coll_failure *coll_failure_share(struct coll_failure *f)
{
	if (f)
		f->users++;
	return f;
}

void coll_failure_drop(struct coll_failure **f)
{
	struct coll_failure *mine = *f;

	*f = NULL;
	if (!mine || --mine->users > 0)
		return;
	free(mine->late);
	free(mine);
}
