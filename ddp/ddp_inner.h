/*
 * What the files of ddp/ share. They use the public interface only.
 */
#ifndef DDP_INNER_H
#define DDP_INNER_H

#include "coll/ddp.h"
#include <stdbool.h>
#include <stdint.h>

#define NAME_BYTES  80
#define ERROR_BYTES 512
#define MOST_PHASES 32

struct param {
	char name[NAME_BYTES];
	int dim_count;
	size_t dims[COLL_DDP_DIMS];
	size_t count, rows; /* rows * (count / rows) */
	size_t offset;      /* in the arena; of buffers: where it would be */
	char *weights;
	bool buffer, ready;
	bool taken; /* by the wire, in this pass */
	/* Tables only. */
	char *lookup;
	uint8_t *touched; /* per row */
	uint32_t *ids;    /* the rows touched, in order of their touch */
	size_t id_count;
};

enum state { WAITING, RUNNING, COMPLETE };

struct bucket {
	size_t first, count;
	int first_param, last_param;
	size_t slice_first, slice_count;
	int missing; /* gradients not ready yet */
	enum state state;
	int phase;  /* of a wire with several rounds */
	int flight; /* of that round, in flights */
	coll_event *event;
	void *scratch;        /* the wire's */
	coll_event *gathered; /* of the weights, after an update */
	bool gathering;
	double ready_s, start_s, end_s;
};

#define MOST_PIECES 2

struct piece {
	void *at;
	size_t len_bytes;
};

/* How a bucket's bytes travel. */
struct wire {
	const char *name;
	/* How many numbers travel for p, whose buckets then end between parameters. NULL: all of it. */
	size_t (*load)(const coll_ddp *d, const struct param *p);
	/* Memory and state for b; COLL_ERR_MEMORY. NULL: none. */
	coll_status (*prepare)(coll_ddp *d, struct bucket *b);
	void (*release)(struct bucket *b);
	/* How many rounds. */
	int (*phases)(const coll_ddp *d);
	/* Put round phase in stream; the rounds before it are complete. Never waits. */
	coll_status (*start)(coll_ddp *d, struct bucket *b, int phase, coll_comm *comm, coll_stream *stream);
	/* All rounds are complete: make the arena what it should be. NULL: it is. */
	void (*finish)(coll_ddp *d, struct bucket *b);
	/* What the next step depends on: fills pieces[], returns how many. NULL: nothing. */
	size_t (*kept)(const struct bucket *b, struct piece *pieces);
	/* The gradient of p is final in this pass, a micro-step or not: move it out of the arena, which is zero there
	 * afterwards. NULL: it stays and piles up there. */
	void (*take)(coll_ddp *d, const struct param *p);
};

/* One round of one bucket on the wire, or of the rows (bucket: how many there are); end_s 0: not over yet. */
struct flight {
	int bucket, phase;
	double start_s, end_s;
};

struct trace_row {
	uint64_t step;
	int bucket, phase; /* phase -1: the bucket as a whole */
	double ready_s, start_s, end_s, waited_s;
};

struct coll_ddp {
	/* Own communicators, since their calls come at different moments on different
	 * ranks: buckets' first rounds; later rounds and weights; flags and rows. */
	coll_comm *first, *later, *side;
	coll_stream *stream[2]; /* buckets alternate: the next begins where this one ends */
	/* One per later round: rounds of different buckets come in an order of the rank's own. */
	coll_stream *later_streams[MOST_PHASES];
	coll_stream *side_stream;
	int rank, size;
	coll_ddp_config config;
	size_t esize; /* bytes per element */

	struct param *params;
	int param_count;
	size_t count;
	char *grads;
	enum { CALLERS, LIBRARY, PAGES } memory; /* whose grads is */
	char *shards;                            /* zero 2: this rank's slices, bucket after bucket */
	size_t *shard_at;                        /* zero 2: where a bucket's begins */

	struct bucket *buckets; /* 0 ends the arena */
	int bucket_count;
	const struct wire *wire;

	bool begun, sync, stub;
	bool last_of_step; /* the last pass was the one that ends a step */
	int unused_count;
	bool piling;    /* zero 2: slices hold micro-steps before this one */
	int *started;   /* per phase: how many buckets have begun it */
	int done;       /* buckets before this one are complete */
	int taken;      /* and the caller got the status of those before this one */
	int rows_phase; /* of the exchange of rows: 0 none, 1 counts, 2 rows, 3 done */
	int rows_flight;
	int table;      /* the parameter with lookups, -1: none */
	int32_t active; /* ranks with data in this step */
	bool joined;    /* this rank has none */
	coll_event *active_event, *rows_event;
	uint64_t *row_counts; /* per rank */
	size_t *row_bytes, *row_at;
	size_t *slice_counts; /* per rank, of the bucket at hand */
	char *rows_out, *rows_in;
	size_t rows_out_bytes, rows_in_bytes;
	bool rows_dense;

	coll_ddp_stats stats;
	struct flight *flights; /* of this step, in order of their starts */
	int flight_count;
	uint64_t step; /* as stats.steps, but never reset */
	bool tracing;
	struct trace_row *trace;
	size_t trace_count, trace_room;
	char error[ERROR_BYTES];
};

extern const struct wire ddp_wire_int8, ddp_wire_powersgd;

static inline char *ddp_at(const coll_ddp *d, size_t element)
{
	return d->grads + element * d->esize;
}

#endif
