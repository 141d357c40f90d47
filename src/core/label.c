/*
 * The name that a program has given a communicator: see label.h.
 */
#include "core/label.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/entry.h"
#include "core/error.h"

static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/+";

const char *coll_comm_get_name(const coll_comm *comm)
{
	const struct coll_label *l = comm ? atomic_load_explicit(&comm->label, memory_order_acquire) : NULL;

	return l ? l->text : comm ? "" : NULL;
}

struct coll_label_text coll_comm_label(const struct coll_comm *comm)
{
	const char *name = coll_comm_get_name(comm);
	struct coll_label_text t;

	snprintf(t.text, sizeof(t.text), "%s%s", name, name[0] ? ": " : "");
	return t;
}

coll_status coll_comm_set_name(coll_comm *comm, const char *name)
{
	const char *text = name ? name : "";
	struct coll_label *l;

	if (coll_entry_no_comm(comm, "comm_set_name"))
		return COLL_ERR_ARGUMENT;
	if (strlen(text) >= COLL_LABEL_BYTES || strspn(text, allowed) != strlen(text))
		return coll_comm_refuse(comm, "comm_set_name", COLL_ERR_ARGUMENT,
		                        "a name has at most %d letters, digits and . _ - : / +", COLL_LABEL_BYTES - 1);
	if (strcmp(coll_comm_get_name(comm), text) == 0)
		return COLL_OK;
	l = calloc(1, sizeof(*l));
	if (!l)
		return coll_comm_refuse(comm, "comm_set_name", COLL_ERR_MEMORY, "out of memory for a name");
	l->before = atomic_load_explicit(&comm->label, memory_order_relaxed);
	snprintf(l->text, sizeof(l->text), "%s", text);
	atomic_store_explicit(&comm->label, l, memory_order_release);
	return COLL_OK;
}

void coll_label_free(struct coll_comm *comm)
{
	struct coll_label *l = atomic_load_explicit(&comm->label, memory_order_relaxed);

	while (l) {
		struct coll_label *before = l->before;

		free(l);
		l = before;
	}
}
