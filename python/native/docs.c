/*
 * Docstrings and signatures of the types, from the stub (docs.py makes the rows at build time). They are set before the
 * type is made.
 */
#include <string.h>

#include "binding.h"

static const struct {
	const char *type, *member, *text; /* member "": the type itself */
} rows[] = {
#include "docs_rows.h"
};

static const char *text_of(const char *type, const char *member)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].type, type) == 0 && strcmp(rows[i].member, member) == 0)
			return rows[i].text;
	return NULL;
}

const char *coll_py_document(const PyType_Spec *spec)
{
	const char *type = strrchr(spec->name, '.') + 1;

	for (const PyType_Slot *s = spec->slots; s->slot; s++) {
		if (s->slot == Py_tp_methods)
			for (PyMethodDef *m = s->pfunc; m->ml_name; m++)
				m->ml_doc = text_of(type, m->ml_name);
		if (s->slot == Py_tp_getset)
			for (PyGetSetDef *g = s->pfunc; g->name; g++)
				g->doc = text_of(type, g->name);
	}
	return text_of(type, "");
}
