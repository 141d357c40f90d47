/*
 * The name that a program has given a communicator: see label.h.
 */
#include "core/label.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/+";

const char *coll_label_of(const struct coll_comm *comm)
{
	const struct coll_label *l = atomic_load_explicit(&comm->label, memory_order_acquire);

	return l ? l->text : "";
}

struct coll_label_text coll_comm_label(const struct coll_comm *comm)
{
	const char *name = coll_label_of(comm);
	struct coll_label_text t;

	snprintf(t.text, sizeof(t.text), "%s%s", name, name[0] ? ": " : "");
	return t;
}

bool coll_label_is_valid(const char *text)
{
	return strlen(text) < COLL_LABEL_BYTES && strspn(text, allowed) == strlen(text);
}

bool coll_label_set(struct coll_comm *comm, const char *text)
{
	struct coll_label *l;

	if (strcmp(coll_label_of(comm), text) == 0)
		return true;
	l = calloc(1, sizeof(*l));
	if (!l)
		return false;
	l->before = atomic_load_explicit(&comm->label, memory_order_relaxed);
	snprintf(l->text, sizeof(l->text), "%s", text);
	atomic_store_explicit(&comm->label, l, memory_order_release);
	return true;
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
