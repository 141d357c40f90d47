/*
 * Proofs of control links, and the keys of their seals: see seal.h. Pure.
 */
#include "control/seal.h"

struct coll_proof coll_link_proof(const uint64_t key[2], enum coll_link_role role, const struct coll_link_ends *ends)
{
	const uint64_t as = (uint64_t)role;

	return COLL_PROOF(key, COLL_SAID(as), COLL_SAID(*ends));
}

void coll_link_seal_begin(struct coll_seal *s, const uint64_t key[2], enum coll_link_role sends,
                          const struct coll_link_ends *ends)
{
	s->key = coll_link_proof(key, sends, ends);
	s->number = 0;
}
