/*
 * Writing states and models to --out.
 *
 * Each rank writes a part of the state, beside the others; rank 0 writes state.json last and gives the directory its
 * name, so that a state is whole or not there. Whether it worked is agreed. Means of what a rank does not update stay
 * where they are.
 */
#include "ddp_gpt_data.h"
#include "ddp_gpt_out.h"
#include "ddp_gpt_see.h"
#include "gpt/formats/hf.h"
#include "gpt/formats/json.h"
#include "gpt/formats/state.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Length and checksum of a file, as every rank tells rank 0. */
enum { PART_BYTES, PART_CRC, OWED_BYTES, OWED_CRC, TOLD };

struct saving {
	struct gpt_state_name name;
	char states[GPT_PATH_MAX]; /* OUT/state, as rank 0 has it */
	char part[GPT_PATH_MAX];   /* the directory being written */
	int32_t *sees;             /* by rank */
	struct gpt_state_range *ranges;
	size_t count;
	void *owed;
	size_t owed_bytes;
	uint64_t told[TOLD], *all; /* TOLD by rank, of rank 0 */
};

/* ---- What this rank writes ----------------------------------------------------------- */

static void add_range(struct saving *s, enum gpt_state_array array, const float *x, uint64_t first, uint64_t end)
{
	if (first < end)
		s->ranges[s->count++] = (struct gpt_state_range){array, first, end - first, x + first};
}

/* Its share of all, or with slices the means that it has. */
static int find_ranges(struct job *j, struct saving *s)
{
	const int buckets = coll_ddp_bucket_count(j->ddp);
	const float *m = gpt_optim_m(j->optim), *v = gpt_optim_v(j->optim);
	coll_ddp_bucket_info b;
	uint64_t first, end;

	s->ranges = calloc((size_t)(3 + 2 * buckets), sizeof(*s->ranges));
	if (!s->ranges)
		return -1;
	gpt_state_share(j->param_count, j->rank, j->size, &first, &end);
	add_range(s, GPT_STATE_WEIGHTS, j->weights, first, end);
	if (!j->o.zero) {
		add_range(s, GPT_STATE_M, m, first, end);
		add_range(s, GPT_STATE_V, v, first, end);
	}
	for (int i = 0; i < buckets && j->o.zero; i++) {
		coll_ddp_bucket(j->ddp, i, &b);
		add_range(s, GPT_STATE_M, m, b.slice_first, b.slice_first + b.slice_count);
	}
	for (int i = 0; i < buckets && j->o.zero; i++) {
		coll_ddp_bucket(j->ddp, i, &b);
		add_range(s, GPT_STATE_V, v, b.slice_first, b.slice_first + b.slice_count);
	}
	return 0;
}

static int prepare(struct job *j, struct saving *s)
{
	s->owed_bytes = coll_ddp_state_bytes(j->ddp);
	s->owed = s->owed_bytes ? malloc(s->owed_bytes) : NULL;
	s->sees = calloc((size_t)j->size, sizeof(*s->sees));
	s->all = calloc((size_t)j->size, sizeof(s->told));
	if (job_check_memory(j, s->sees && s->all && (s->owed || !s->owed_bytes) && find_ranges(j, s) == 0))
		return -1;
	if (s->owed)
		coll_ddp_state_save(j->ddp, s->owed);
	return 0;
}

/* ---- Files --------------------------------------------------------------------------------- */

static int file_path(const struct saving *s, char *path, bool owed, int rank)
{
	char name[64];

	snprintf(name, sizeof(name), "%s-%05d.safetensors", owed ? "owed" : "part", rank);
	return gpt_path(path, s->part, name);
}

static int put(const struct saving *s, struct gpt_sink *sink, bool owed)
{
	return owed ? gpt_state_put_bytes(sink, s->owed, s->owed_bytes) : gpt_state_put_part(sink, s->ranges, s->count);
}

static void tell(uint64_t *told, bool owed, const struct gpt_sink *sink)
{
	told[owed ? OWED_BYTES : PART_BYTES] = sink->bytes;
	told[owed ? OWED_CRC : PART_CRC] = sink->crc32c;
}

static void write_here(struct job *j, struct saving *s, bool owed)
{
	char path[GPT_PATH_MAX];
	struct gpt_file f;

	if (file_path(s, path, owed, j->rank) == 0 && gpt_file_create(&f, path) == 0 &&
	    gpt_file_close(&f, put(s, &f.sink, owed) == 0) == 0)
		tell(s->told, owed, &f.sink);
	else
		job_note(j, "cannot write %s: %s", path, strerror(errno));
}

static int send_there(struct job *j, struct saving *s, bool owed)
{
	const uint64_t total = owed ? gpt_state_bytes_bytes(s->owed_bytes) : gpt_state_part_bytes(s->ranges, s->count);
	struct see_sender sender;

	if (see_send_begin(j, &sender, total))
		return -1;
	if (put(s, &sender.sink, owed) | see_send_end(&sender))
		return -1;
	tell(s->told, owed, &sender.sink);
	return 0;
}

/* Rank 0 takes the files of those that do not see the directory, one after the other. */
static int take_others(struct job *j, struct saving *s, bool owed)
{
	char path[GPT_PATH_MAX];
	struct gpt_sink got;

	for (int r = 1; r < j->size; r++)
		if (!s->sees[r] && (file_path(s, path, owed, r) || see_receive(j, r, path, &got)))
			return -1;
	return 0;
}

static int write_files(struct job *j, struct saving *s, bool owed)
{
	if (s->sees[j->rank])
		write_here(j, s, owed);
	else if (send_there(j, s, owed))
		return -1;
	return j->rank ? 0 : take_others(j, s, owed);
}

/* ---- state.json -------------------------------------------------------------------------------- */

static json_t *list_files(const struct job *j, const struct saving *s, bool owed)
{
	json_t *list = json_array();

	for (int r = 0; r < j->size && list; r++) {
		const uint64_t *told = s->all + (size_t)r * TOLD;

		json_array_append_new(list,
		                      json_pack("{s:o, s:o, s:o}", "file",
		                                json_sprintf("%s-%05d.safetensors", owed ? "owed" : "part", r), "bytes",
		                                gpt_json_u64(told[owed ? OWED_BYTES : PART_BYTES]), "crc32c",
		                                out_crc32c((uint32_t)told[owed ? OWED_CRC : PART_CRC])));
	}
	return list;
}

static json_t *describe(const struct job *j, const struct saving *s)
{
	const struct gpt_shape *shape = gpt_model_shape(j->model);
	const uint64_t sequences = job_sequences(j, s->name.step);
	json_t *root =
	        json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:o, s:i, s:o, s:o, s:o, s:o, s:o}",
	                  "format", "coll-gpt-state", "version", 1, "run_id", j->run_id, "start",
	                  (json_int_t)s->name.start, "members_epoch", (json_int_t)s->name.epoch, "step",
	                  (json_int_t)s->name.step, "epoch", (json_int_t)(sequences / job_windows(j)), "sequences",
	                  gpt_json_u64(sequences), "tokens", gpt_json_u64(j->tokens), "optimizer_steps",
	                  (json_int_t)s->name.step, "params", gpt_json_u64(j->param_count), "ranks", j->size, "model",
	                  gpt_hf_config(shape, shape->vocab, j->o.dropout, false), "flags", out_flags(j), "data",
	                  job_describe_data(j), "tokenizer_crc32c", out_crc32c(gpt_hf_tokenizer_crc32c(&j->tokenizer)),
	                  "parts", list_files(j, s, false));

	if (root && s->owed)
		json_object_set_new(root, "owed",
		                    json_pack("{s:i, s:o, s:o}", "ranks", j->size, "bytes", gpt_json_u64(s->owed_bytes),
		                              "files", list_files(j, s, true)));
	return root;
}

static int write_description(const struct job *j, const struct saving *s)
{
	char *text = gpt_json_sealed_text(describe(j, s)), path[GPT_PATH_MAX];
	struct gpt_file f;
	int rc = -1;

	errno = ENOMEM;
	if (text && gpt_path(path, s->part, "state.json") == 0 && gpt_file_create(&f, path) == 0)
		rc = gpt_file_close(&f, gpt_put(&f.sink, text, strlen(text)) == 0);
	free(text);
	return rc;
}

/* All but the newest --keep. */
static void prune(const struct job *j, const struct saving *s)
{
	struct gpt_state_name *names;
	char name[96], path[GPT_PATH_MAX];
	size_t count;

	if (gpt_state_list(s->states, &names, &count))
		return;
	for (size_t i = (size_t)j->o.keep; i < count; i++) {
		gpt_state_format(&names[i], name, sizeof(name));
		if (gpt_path(path, s->states, name) == 0)
			gpt_directory_remove(path);
	}
	free(names);
}

static void give_name(struct job *j, const struct saving *s)
{
	char name[96], path[GPT_PATH_MAX];

	gpt_state_format(&s->name, name, sizeof(name));
	if (gpt_path(path, s->states, name) || write_description(j, s) || gpt_directory_sync(s->part) ||
	    rename(s->part, path) || gpt_directory_sync(s->states))
		job_note(j, "cannot write %s in %s: %s", name, s->states, strerror(errno));
	else
		prune(j, s);
}

/* ---- All of it ----------------------------------------------------------------------------------- */

/* Rank 0 makes OUT/state, and in it the directory for the parts. */
static void make_directories(struct job *j, struct saving *s)
{
	char path[GPT_PATH_MAX], name[96], host[65] = "";

	gethostname(host, sizeof(host) - 1);
	gpt_state_format(&s->name, name, sizeof(name));
	if (out_path(j, "state", path) || (mkdir(path, 0777) && errno != EEXIST) || !realpath(path, s->states))
		job_note(j, "cannot write state in %s: %s", j->o.out, strerror(errno));
	else if ((size_t)snprintf(s->part, sizeof(s->part), "%s/%s.part-%s-%ld", s->states, name, host,
	                          (long)getpid()) +
	                 32 >=
	         sizeof(s->part))
		job_note(j, "cannot write state in %s: %s", j->o.out, strerror(ENAMETOOLONG));
	else if (mkdir(s->part, 0777) && errno != EEXIST)
		job_note(j, "cannot write %s: %s", s->part, strerror(errno));
}

static int save_parts(struct job *j, struct saving *s)
{
	if (j->rank == 0)
		make_directories(j, s);
	if (job_agree(j) || see_directory(j, s->states, s->sees) ||
	    job_check(j, coll_broadcast(s->part, s->part, sizeof(s->part), COLL_U8, 0, j->comm, NULL)))
		return -1;
	if (write_files(j, s, false) || (s->owed && write_files(j, s, true)))
		return -1;
	if (job_agree(j) || job_check(j, coll_gather(s->told, s->all, TOLD, COLL_U64, 0, j->comm, NULL)))
		return -1;
	if (j->rank == 0)
		give_name(j, s);
	return job_agree(j);
}

/* Ranks that step by themselves have means of their own, as they have weights: where these are
 * averaged to be saved, so are the means, and the run goes on from them as a resumed one does. */
static int average_means(struct job *j)
{
	float *means[] = {gpt_optim_m(j->optim), gpt_optim_v(j->optim)};

	for (int i = 0; i < 2; i++)
		if (job_check(j,
		              coll_all_reduce(means[i], means[i], j->param_count, COLL_F32, COLL_AVG, j->comm, NULL)))
			return -1;
	return 0;
}

int job_save_state(struct job *j, long steps_done)
{
	struct saving s = {.name = {.step = steps_done, .start = j->start}};
	int rc;

	if (j->o.local_steps > 1 && average_means(j))
		return -1;
	if (!j->o.out)
		return 0;
	rc = prepare(j, &s) || save_parts(j, &s) ? -1 : 0;
	if (rc && j->rank == 0 && s.part[0])
		gpt_directory_remove(s.part);
	free(s.owed);
	free(s.sees);
	free(s.ranges);
	free(s.all);
	return rc;
}

/* ---- Models ------------------------------------------------------------------------------------------ */

int job_save_model(struct job *j, const char *name)
{
	const struct gpt_hf hf = {.shape = *gpt_model_shape(j->model),
	                          .tokenizer = j->tokenizer,
	                          .has_tokenizer = true,
	                          .dropout = j->o.dropout};
	char path[GPT_PATH_MAX];

	if (!j->o.out)
		return 0;
	if (j->rank == 0 &&
	    (out_path(j, name, path) || gpt_hf_write(path, &hf, j->weights, j->o.save_type == SAVE_BF16)))
		job_note(j, "cannot write %s in %s: %s", name, j->o.out, strerror(errno));
	return job_agree(j);
}
