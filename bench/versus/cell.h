/*
 * One cell: a collective of a length in buffers of a kind, called through two builds of
 * the library by turns in the same processes.
 */
#ifndef COLL_BENCH_VERSUS_CELL_H
#define COLL_BENCH_VERSUS_CELL_H

#include <stdbool.h>
#include <stddef.h>

#include "coll/coll.h"
#include "ranks.h"

/* Of the interface only what the first versions have. */
#define LIBRARY_CALLS(X) \
	X(comm_create)   \
	X(comm_destroy)  \
	X(last_error) X(mem_alloc) X(mem_free) X(all_reduce) X(broadcast) X(all_gather) X(reduce_scatter) X(all_to_all)

/* What cells of device memory need too; NULL in older libraries. */
#define LIBRARY_LATER(X) X(mem_alloc_on)

#define LIBRARY_MEMBER(name) __typeof__(coll_##name) *name;
struct library {
	const char *label; /* "old", "new" */
	LIBRARY_CALLS(LIBRARY_MEMBER) LIBRARY_LATER(LIBRARY_MEMBER)
};

/* Load path for itself alone. Returns false after a message to stderr, unless quiet. */
bool library_load(struct library *l, const char *label, const char *path, bool quiet);

enum cell_kind { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, CELL_KINDS };
extern const char *const cell_kind_names[CELL_KINDS];

/* Buffers: of the program, of coll_mem_alloc(), of coll_mem_alloc_on() a device. */
enum cell_memory { PLAIN, LIBRARY, DEVICE, CELL_MEMORIES };
extern const char *const cell_memory_names[CELL_MEMORIES];

struct cell {
	enum cell_kind kind;
	size_t len_bytes; /* of the vector, or of all blocks together */
	enum cell_memory memory;
};

struct cell_how {
	double turn_s; /* the shortest turn */
	bool in_place, touch;
	const char *old_setting; /* NAME=VALUE, of the old library alone; NULL: none */
};

/* What the same processes measure: a share of a block. The time of a block is the least of its shares'. */
enum { CELL_SHARES = 2 };
struct cell_part {
	int block, share;
};

/* Move what is loaded and allocated from here on to other addresses than in other parts. */
void cell_shift(int rank, const struct cell_part *part);

/*
 * Collective: seconds of a call, old and new; all ranks get the same. With the first part every element of results
 * is checked. 0; or 1 after a message: a call failed or a result is wrong, and the process must end.
 */
int cell_measure(struct ranks *r, const struct library lib[2], const struct cell *cell, const struct cell_how *how,
                 const struct cell_part *part, double seconds[2]);

#endif
