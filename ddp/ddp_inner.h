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
	int taken;      /* and the caller has been told of those before this one */
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

/* base.c */
double ddp_now_s(void);
__attribute__((format(printf, 3, 4))) coll_status ddp_fail(coll_ddp *d, coll_status status, const char *format, ...);
/* Pass on a status of a call on comm, noting its story. */
coll_status ddp_pass(coll_ddp *d, coll_comm *comm, coll_status status);
/* Count a collective: payload handed in, and the bytes this rank sends by its formula. */
void ddp_count(coll_ddp *d, size_t payload_bytes, double sent_bytes);

/* check.c: COLL_ERR_MISMATCH if ranks differ. */
coll_status ddp_compare(coll_ddp *d, coll_comm *comm);

/* layout.c */
coll_status ddp_lay_out(coll_ddp *d, coll_comm *comm);
/* Limits for what has been measured: COLL_DDP_AUTO's choice, from nothing else. */
void ddp_limits(coll_ddp_config *config, double latency_s, double bytes_per_s);
/* Part r of the elements first .. first + count. */
void ddp_slice(const coll_ddp *d, size_t first, size_t count, int r, size_t *slice_first, size_t *slice_count);

/* step.c: let all that runs go on; never waits. */
coll_status ddp_advance(coll_ddp *d);
/* Until buckets 0 .. index, all of which have started, are complete. */
coll_status ddp_wait_for(coll_ddp *d, int index);

/* rows.c */
coll_status ddp_rows_start(coll_ddp *d);
/* Let the exchange go on; never waits. */
coll_status ddp_rows_poll(coll_ddp *d);
/* Until the rows are added to the arena. */
coll_status ddp_rows_wait(coll_ddp *d);
bool ddp_rows_pending(const coll_ddp *d, const struct bucket *b);

/* wire.c, int8.c, powersgd.c */
const struct wire *ddp_wire_of(const coll_ddp *d);
extern const struct wire ddp_wire_int8, ddp_wire_powersgd;
/* What an average multiplies the sum by in this step; 1 where the collective did it. */
double ddp_scale(const coll_ddp *d);
void ddp_scale_range(coll_ddp *d, size_t first, size_t count, double by);

/* weights.c: may slices of buckets be slices of the weights? */
coll_status ddp_check_weights(coll_ddp *d);

/* trace.c: a round starts, has ended (when, is returned); all rounds of the step have. */
int ddp_flight_start(coll_ddp *d, int bucket, int phase);
double ddp_flight_end(coll_ddp *d, int flight, coll_event *event);
void ddp_flights_close(coll_ddp *d);
void ddp_trace_bucket(coll_ddp *d, const struct bucket *b, double waited_s);

static inline char *ddp_at(const coll_ddp *d, size_t element)
{
	return d->grads + element * d->esize;
}

#endif
