/*
 * The seal of messages: see seal.h. Pure.
 */
#include "base/seal.h"

#include "base/siphash.h"

struct coll_proof coll_seal_next(struct coll_seal *s, const void *message, size_t len_bytes)
{
	struct coll_siphash h = coll_siphash_wide_begin(s->key.word);
	struct coll_proof proof;

	coll_siphash_word(&h, s->number++);
	coll_siphash_data(&h, message, len_bytes);
	coll_siphash_wide_end(&h, proof.word);
	return proof;
}
