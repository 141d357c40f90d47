/*
 * Pointers by small numbers: the receiving ends of a link by the number that we have given
 * them, and what is known of the peer's by the number that it has. Under the link's lock.
 */
#ifndef COLL_TRANSPORTS_COMMON_ID_TABLE_H
#define COLL_TRANSPORTS_COMMON_ID_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct coll_id_table {
	void **at; /* NULL: nobody's number */
	uint32_t cap;
};

/* NULL: nobody's. The number may be anything. */
static inline void *coll_id_table_get(const struct coll_id_table *t, uint32_t id)
{
	return id < t->cap ? t->at[id] : NULL;
}

/* False: no memory. */
bool coll_id_table_put(struct coll_id_table *t, uint32_t id, void *p);
/* The lowest number that is nobody's and for which put() has room; false: no memory, or none
 * below max. */
bool coll_id_table_free_id(struct coll_id_table *t, uint32_t max, uint32_t *id);
/* p's number is nobody's, if it was its. */
void coll_id_table_drop(struct coll_id_table *t, uint32_t id, const void *p);
void coll_id_table_fini(struct coll_id_table *t);

#endif
