/*
 * A collective call of n ranks with its inputs and the result it must have,
 * computed the plain way: whole vectors, rank order, no plan.
 */
#ifndef COLL_SIM_CALL_H
#define COLL_SIM_CALL_H

#include "engine/engine.h"

struct sim_call {
	enum coll_kind kind;
	int size;
	int root;
	coll_dtype type;
	coll_op op;
	size_t count;
	const size_t *counts; /* block kinds: ragged blocks, or NULL */
	uint64_t in_place;    /* bit per rank */
	uint64_t seed;        /* of the inputs */
};

/* The buffers of one rank. `raw` holds everything, with guard bytes around. */
struct sim_buffers {
	char *raw;
	size_t raw_bytes;
	char *in;  /* whole buffer, or the block for kinds whose in is one block */
	char *out; /* NULL where the rank has none */
	size_t in_bytes;
	size_t out_bytes;
};

/* Fill the inputs of all ranks: bufs[size]. */
coll_status sim_call_buffers(const struct sim_call *c, struct sim_buffers *bufs);
void sim_call_free(const struct sim_call *c, struct sim_buffers *bufs);

/* The reduction that this call uses (ordered user operation included). */
coll_status sim_call_reduction(const struct sim_call *c, struct coll_reduction *r);

/* Fill in, out, elem_bytes and reduction of a job for a rank. */
void sim_call_bind(const struct sim_call *c, int rank, const struct sim_buffers *b, const struct coll_reduction *r,
                   struct coll_job *job);

/* Compare every rank's out with the result and look at the guards and, out of
 * place, at the inputs. 0 when right; else why says what and where. */
int sim_call_check(const struct sim_call *c, const struct sim_buffers *bufs, char *why, size_t why_bytes);

/* The same for one rank, whatever the other buffers hold by now. */
int sim_call_check_rank(const struct sim_call *c, int rank, const struct sim_buffers *b, char *why, size_t why_bytes);

#endif
