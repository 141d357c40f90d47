/*
 * What the files of ddp_gpt share: one training job, as one rank sees it.
 */
#ifndef DDP_GPT_JOB_H
#define DDP_GPT_JOB_H

#include "coll/coll.h"
#include "coll/ddp.h"
#include "ddp_gpt_options.h"
#include "gpt/model.h"
#include "gpt/optim.h"
#include <stdio.h>

/* A point of the loss curve; val < 0: none. */
struct point {
	long step;
	double loss, val;
	double step_s, wire_s; /* of --overlap */
};

/* What a run is asked for from outside; what asks for more counts. */
enum stop { STOP_NONE, STOP_SAVE, STOP_LEAVE, STOP_INTERRUPTED };

/* Exit statuses; docs/guide/training.md has the table. */
enum { STATUS_FAILED = 1, STATUS_REFUSED = 2, STATUS_AGAIN = 75, STATUS_INTERRUPTED = 130 };

/* Of ddp_gpt_stop.c. */
struct stopping {
	coll_comm *comm; /* NULL: nothing asks */
	coll_stream *stream;
	int32_t mine, all; /* enum stop */
	bool under_way, installed;
	double begun_s, look_s;
};

/* What a rank did since the last progress line. */
struct of_rank {
	double loss_sum, tokens, computed_s, waited_s;
};

struct job {
	struct options o;
	coll_comm *comm;
	int rank, size;

	struct gpt_tokenizer tokenizer;
	bool init_tokenizer; /* it is that of --init or --tokenizer, and not of the text */
	struct data *data;   /* of ddp_gpt_data.c */

	struct gpt_model *model;
	struct gpt_optim *optim;
	struct gpt_optim_config optim_config;
	struct gpt_tensor *tensors;
	int tensor_count;
	size_t param_count;
	float *weights; /* library memory */
	float *lookup;  /* gradients of the token embedding's lookups; NULL: they go to the head's */
	coll_ddp *ddp;
	coll_status ddp_status; /* the first failure inside a pass */
	bool averaging;         /* in this pass gradients are sent as they get ready */

	int passes;           /* of this step on this rank: micro-steps, or leaves */
	struct dealt *dealt;  /* of ddp_gpt_deal.c: --documents apart; NULL: all sequences are of one length */
	double batch_targets; /* of this step, of all ranks */
	double own_targets;   /* and of this one */
	uint64_t tokens;      /* targets since the beginning of the run, of all ranks */
	uint64_t last_log_tokens;
	int pass_batch;            /* sequences per pass, at most */
	int32_t *inputs, *targets; /* pass_batch * context */
	int32_t *window;           /* context + 1 */
	double *leaf_sums;         /* --deterministic=world: of the losses of each leaf of this rank */
	double *squares;           /* and the squares of the gradient, per GPT_SQUARES_BLOCK elements */
	uint8_t *seen;             /* per validation window */
	double *val_sums;          /* losses of the windows that are read together */

	char problem[512]; /* of this rank alone, the first; "": none. job_agree() makes it all ranks' */

	long first_step;         /* not 0 after --resume */
	uint64_t first_sequence; /* of the data: where the first step begins */
	char run_id[65];         /* of rank 0, as the next two */
	char *taken;             /* value of a flag of an earlier start, which --resume goes on with */
	long start;              /* how often the run was started, this time included */
	double best;             /* the lowest validation loss */
	long done;               /* steps, when training ended */
	long saved;              /* steps of the last state; -1: none */
	struct stopping stop;
	enum stop stopped;      /* why training ended before its last step */
	FILE *metrics, *events; /* of rank 0; NULL: none */
	struct of_rank *of_ranks;
	coll_ddp_stats stats; /* since the last progress line, as the next two */
	double log_s, data_s;
	struct point *curve;
	long curve_count, curve_room;
	bool terminal;
	double peak_flops; /* of all ranks */
	double last_log_s, first_loss, loss, val_loss, train_s;
	long last_log_step;
};

double job_now_s(void);

/*
 * How a run ends early. A rank never leaves by itself: the others would wait for it. Each
 * rank writes the reason to its stderr, with its rank. All of these return -1, or 0 if
 * nothing is wrong.
 *
 * All ranks find the same, since it follows from what is equal on all of them.
 */
__attribute__((format(printf, 2, 3))) int job_refuse(const struct job *j, const char *format, ...);
/* This rank alone finds it; it goes on to the next job_agree(). */
__attribute__((format(printf, 2, 3))) int job_note(struct job *j, const char *format, ...);
/* Collective: has any rank noted a problem? The first such rank's reason is given to all. */
int job_agree(struct job *j);
/* This rank alone finds it, where the ranks do not meet soon: the others' calls fail with the reason. */
__attribute__((format(printf, 2, 3))) int job_abort(struct job *j, const char *format, ...);
/* Did a call of the library work? What the library has not told all ranks aborts the job. */
int job_check(struct job *j, coll_status status);
int job_check_ddp(struct job *j, coll_status status);
/* Do all ranks hold the same number? */
int job_check_same(struct job *j, uint64_t x, const char *what);
int job_check_weights(struct job *j);
/* Has every rank the memory it wanted? */
int job_check_memory(struct job *j, bool have);

/* ddp_gpt_deal.c: which sequences of a step's batch this rank computes. */
struct part {
	long first, end; /* end == first: none; job_place() says which of the batch they are */
	long leaf;       /* of --deterministic=world */
};
int job_deal(struct job *j);
/* Before each step: how many targets it has, and with --balance which documents are whose. */
void job_deal_step(struct job *j, long step);
void job_close_deal(struct job *j);
struct part job_pass(const struct job *j, int pass);
long job_place(const struct job *j, long i);
/* Of all passes. */
long job_share(const struct job *j);
/* What a pass multiplies its sum of losses by. */
double job_scale(const struct job *j);
/* The same bits need the same kernels, BLAS and threads on all ranks. */
int job_check_arithmetic(struct job *j);

/* ddp_gpt_train.c: all steps. */
int job_train(struct job *j);
/* Hooks of the model, arg is the job. */
void job_need(void *arg, int tensor);
void job_ready(void *arg, int tensor);
void job_lookup(void *arg, const struct gpt_groups *g);

/* How many windows a validation reads, and how many there are. */
size_t job_val_windows(const struct job *j);
size_t job_all_val_windows(const struct job *j);

/* ddp_gpt_init.c: the shape, vocabulary and tokenizer of --init, then its weights on rank 0. */
int job_init_shape(struct job *j);
/* The tokenizer of --init or --tokenizer, on all ranks. */
int job_share_tokenizer(struct job *j);
int job_init_weights(struct job *j);

/* ddp_gpt_stop.c */
int job_stop_open(struct job *j);
/* Signals do what they did before. Local. */
int job_stop_close(struct job *j);
/* At the beginning of each step: what the ranks were asked for when the step before began. */
int job_stop_ask(struct job *j, long step, enum stop *stop);
/* After the last step: nothing is under way any more. */
int job_stop_finish(struct job *j);

/* ddp_gpt_save.c: a state in --out, and the model as NAME in it. */
int job_save_state(struct job *j, long steps_done);
int job_save_model(struct job *j, const char *name);
/* ddp_gpt_resume.c */
int job_resume(struct job *j);

/* ddp_gpt_metrics.c */
int job_open_metrics(struct job *j);
/* Local: -1 if not all of it was written, which is noted. */
int job_close_metrics(struct job *j);
/* ddp_gpt_report.c */
void job_add_point(struct job *j, struct point p);
void job_print_start(struct job *j);
void job_report(struct job *j, long step, bool validated, double norm, double rate);
/* On a terminal: a line that the next one overwrites. */
void job_print_live(const struct job *j, long step);
void job_draw_curve(const struct job *j);
/* --overlap: what of the time on the wire was hidden. */
void job_print_overlap(const struct job *j);

/* Where in the data step begins: sequences since the beginning of the run. */
static inline uint64_t job_sequences(const struct job *j, long step)
{
	return j->first_sequence + (uint64_t)(step - j->first_step) * (uint64_t)j->o.batch;
}

/* --fault: does this rank meet it? */
static inline bool job_faulty(const struct job *j, long fault)
{
	return j->o.fault == fault && j->rank == j->o.fault_rank;
}

/* Nothing is sent in this step. */
static inline bool job_stubbed(const struct job *j, long step)
{
	return j->o.stub || (j->o.overlap && step % 2);
}

#endif
