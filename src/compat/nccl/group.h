/*
 * Groups of NCCL: what a thread notes between ncclGroupStart() and ncclGroupEnd().
 */
#ifndef COLL_COMPAT_NCCL_GROUP_H
#define COLL_COMPAT_NCCL_GROUP_H

#include "compat/nccl/handle.h"

enum nccl_call_kind {
	NCCL_ALL_REDUCE,
	NCCL_REDUCE,
	NCCL_BROADCAST,
	NCCL_ALL_GATHER,
	NCCL_REDUCE_SCATTER,
	NCCL_ALL_TO_ALL,
	NCCL_GATHER,
	NCCL_SCATTER,
	NCCL_SEND,
	NCCL_RECV
};

/* A checked call. */
struct nccl_call {
	const char *function;
	enum nccl_call_kind kind;
	ncclComm_t comm;
	const void *in;
	void *out;
	size_t count;
	coll_dtype type;
	coll_op op;
	/* Of a premultiplied sum, which may be destroyed before the group ends. scalar: in device memory; NULL: none.
	 */
	bool scaled;
	char factor[sizeof(double)];
	const void *scalar;
	int root; /* or the peer */
	cudaStream_t stream;
	bool paired;                     /* a receive from this rank itself, moved with its partner */
	const struct nccl_call *partner; /* of such a send */
};

/* Make the call, or note it if a group is open. */
ncclResult_t nccl_call(const struct nccl_call *c);

/* A creation, see comm.c. Run at once, or noted if a group is open. */
struct nccl_creation {
	struct nccl_creation *next;
	struct nccl_creation *behind; /* of the same parent: run after this one */
	bool follows;                 /* it is behind another one */
	ncclResult_t (*run)(struct nccl_creation *c);
	const char *function;
	ncclComm_t *out, handle, parent;
	ncclUniqueId id;
	int colour, key, nranks;
	int *ranks;
	ncclResult_t result;
	char text[1024];
};
ncclResult_t nccl_create(struct nccl_creation *c);

/* Refuses to end a communicator that a creation of this thread's open group needs, or makes: the end would wait for
 * this thread. */
ncclResult_t nccl_group_leaves(ncclComm_t comm, const char *function);

bool nccl_group_is_open(void);

/* A call inside a group that is refused makes the group fail; returns r. */
ncclResult_t nccl_refuse(ncclResult_t r);

#endif
