/*
 * Going on from a state: which one, whether it fits this run, and what of it each rank needs.
 *
 * Rank 0 chooses and checks: the newest that is whole, and a damaged one is named. Ranks that all see the directory
 * read what they need beside each other; else rank 0 reads for all. The number of ranks that wrote the state does not
 * matter.
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

/* What all ranks learn from rank 0. */
struct found {
	int64_t step; /* 0: no state */
	uint64_t sequences, tokens;
	int32_t owed; /* each rank has what its wire owes */
	char states[GPT_PATH_MAX], path[GPT_PATH_MAX];
};

/* ---- Does it fit? ------------------------------------------------------------------------- */

/* Of a flag: what the state has for it; false: nothing. */
static bool was(const json_t *flags, int flag, const char **text)
{
	const json_t *value = json_object_get(flags, options_name(flag));

	*text = json_string_value(value);
	return value != NULL;
}

static int check_flags(struct job *j, const json_t *flags, const char *path)
{
	const char *before;
	char now[512];

	for (int i = 0; i < options_count(); i++)
		if (options_kind(i) == OPTION_OF_MODEL && was(flags, i, &before) &&
		    options_text(&j->o, i, now, sizeof(now)) && before && strcmp(before, now) != 0)
			return job_note(j, "--resume: --%s is %s and was %s in %s", options_name(i), now, before, path);
	return 0;
}

static void print_changed_flags(const struct job *j, const json_t *flags)
{
	const char *before;
	char now[512];

	for (int i = 0; i < options_count(); i++)
		if (options_kind(i) == OPTION_OF_RUN && was(flags, i, &before) &&
		    options_text(&j->o, i, now, sizeof(now)) && before && strcmp(before, now) != 0)
			printf("ddp_gpt: --resume: --%s was %s and is %s\n", options_name(i), before, now);
}

static bool same_crc(const json_t *object, const char *key, uint32_t crc)
{
	const char *text = json_string_value(json_object_get(object, key));
	char now[16];

	snprintf(now, sizeof(now), "%08" PRIx32, crc);
	return text && strcmp(text, now) == 0;
}

/* What does not fit is refused: going on would not be the same run. */
static int check_state(struct job *j, const struct gpt_state *s)
{
	const char *id = json_string_value(json_object_get(s->root, "run_id"));
	const json_t *flags = json_object_get(s->root, "flags");
	const char *other = job_other_data(j, json_object_get(s->root, "data"));

	if (check_flags(j, flags, s->path))
		return -1;
	if (other)
		return job_note(j, "--resume: %s is of another text than --data, or another weight: %s", s->path,
		                other);
	if (!same_crc(s->root, "tokenizer_crc32c", gpt_hf_tokenizer_crc32c(&j->tokenizer)))
		return job_note(j, "--resume: %s is of another vocabulary", s->path);
	if (s->params != j->param_count)
		return job_note(j, "--resume: %s has %" PRIu64 " weights, and the model %zu", s->path, s->params,
		                j->param_count);
	if (id && j->o.run_id && strcmp(id, j->o.run_id) != 0)
		return job_note(j, "--run-id %s: %s is of run %s", j->o.run_id, s->path, id);
	if (id && strlen(id) < sizeof(j->run_id))
		strcpy(j->run_id, id);
	print_changed_flags(j, flags);
	return 0;
}

/* What each rank owes: of another number of ranks, or another way to send, it is nobody's, and lost. */
static bool owed_fits(const struct job *j, const struct gpt_state *s)
{
	static const char *const names[] = {"wire", "powersgd-rank", "bucket-mb"};
	const json_t *owed = json_object_get(s->root, "owed"), *flags = json_object_get(s->root, "flags");
	const json_int_t ranks = json_integer_value(json_object_get(owed, "ranks"));
	bool same = ranks == j->size;
	const char *before;
	uint64_t len_bytes;
	char now[512];

	if (!owed)
		return false;
	for (int i = 0; i < options_count(); i++)
		for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++)
			if (options_name(i) && strcmp(options_name(i), names[n]) == 0 &&
			    options_text(&j->o, i, now, sizeof(now)))
				same = same && was(flags, i, &before) && before && strcmp(before, now) == 0;
	if (same && gpt_json_get_u64(owed, "bytes", &len_bytes) && len_bytes == coll_ddp_state_bytes(j->ddp))
		return true;
	printf("ddp_gpt: --resume: what the wire still owed of %d ranks is dropped\n", (int)ranks);
	return false;
}

/* ---- Which one? ------------------------------------------------------------------------------ */

static void list_steps(const struct gpt_state_name *names, size_t count, char *text, size_t len_bytes)
{
	size_t at = 0;

	text[0] = 0;
	for (size_t i = count; i-- > 0 && at + 16 < len_bytes;)
		at += (size_t)snprintf(text + at, len_bytes - at, " %ld", names[i].step);
}

/* Opens it and checks all of it; a damaged one is named. */
static bool usable(const char *states, const struct gpt_state_name *n, struct gpt_state *s)
{
	char name[96], path[GPT_PATH_MAX], why[GPT_PATH_MAX + 256];

	gpt_state_format(n, name, sizeof(name));
	if (gpt_path(path, states, name))
		return false;
	if (gpt_state_open(s, path, why, sizeof(why)) == 0) {
		if (gpt_state_check(s, why, sizeof(why)) == 0)
			return true;
		gpt_state_close(s);
	}
	fprintf(stderr, "ddp_gpt: --resume: %s; an older state is looked for\n", why);
	return false;
}

/* 1: s is open; 0: there is none; -1: noted. */
static int choose(struct job *j, const char *states, struct gpt_state *s)
{
	struct gpt_state_name *names;
	size_t count, tried = 0;
	char steps[256];

	if (gpt_state_list(states, &names, &count))
		return job_note(j, "--resume: %s: %s", states, strerror(errno));
	/* The newest has the last start. */
	if (count && names[0].start > j->start)
		j->start = names[0].start;
	for (size_t i = 0; i < count; i++) {
		if (j->o.resume != RESUME_LATEST && names[i].step != j->o.resume)
			continue;
		tried++;
		if (usable(states, &names[i], s)) {
			free(names);
			return 1;
		}
	}
	list_steps(names, count, steps, sizeof(steps));
	free(names);
	if (tried)
		return job_note(j, "--resume: no state in %s is whole", states);
	if (j->o.resume != RESUME_LATEST)
		return job_note(j, "--resume %ld: %s has no state of that step; it has:%s", j->o.resume, states,
		                *steps ? steps : " none");
	return 0;
}

/* Of rank 0. */
static void find_state(struct job *j, struct gpt_state *s, struct found *f)
{
	char path[GPT_PATH_MAX], old[GPT_PATH_MAX];
	struct stat st;
	int rc;

	if (out_path(j, "state", path) || out_path(j, "state.ckpt", old)) {
		job_note(j, "--resume: %s: %s", j->o.out, strerror(errno));
		return;
	}
	rc = choose(j, path, s);
	if (rc == 0 && stat(old, &st) == 0)
		job_note(j, "--resume: %s is a state of an earlier version, which this one does not read", old);
	else if (rc == 0)
		printf("ddp_gpt: no state in %s: starting at step 0\n", path);
	if (rc != 1 || check_state(j, s))
		return;
	f->step = json_integer_value(json_object_get(s->root, "step"));
	f->owed = owed_fits(j, s);
	if (!gpt_json_get_u64(s->root, "sequences", &f->sequences) ||
	    !gpt_json_get_u64(s->root, "tokens", &f->tokens) || !realpath(path, f->states) ||
	    !realpath(s->path, f->path))
		job_note(j, "--resume: %s has no sequences", s->path);
	if (json_integer_value(json_object_get(s->root, "ranks")) != j->size)
		printf("ddp_gpt: --resume: the run had %d ranks and now has %d: results agree up to rounding\n",
		       (int)json_integer_value(json_object_get(s->root, "ranks")), j->size);
}

/* ---- Reading --------------------------------------------------------------------------------------- */

/* Means of what this rank does not update are zero, or memory is held for them. */
static void clear_others(struct job *j, float *x)
{
	coll_ddp_bucket_info b;

	for (int i = 0; i < coll_ddp_bucket_count(j->ddp); i++) {
		coll_ddp_bucket(j->ddp, i, &b);
		memset(x + b.first, 0, (b.slice_first - b.first) * sizeof(*x));
		memset(x + b.slice_first + b.slice_count, 0,
		       (b.first + b.count - b.slice_first - b.slice_count) * sizeof(*x));
	}
}

/* The whole array, or the slices that this rank updates. */
static int read_array(struct job *j, const struct gpt_state *s, enum gpt_state_array array, float *x)
{
	coll_ddp_bucket_info b;

	if (!j->o.zero || array == GPT_STATE_WEIGHTS)
		return gpt_state_read(s, array, 0, j->param_count, x);
	for (int i = 0; i < coll_ddp_bucket_count(j->ddp); i++) {
		coll_ddp_bucket(j->ddp, i, &b);
		if (gpt_state_read(s, array, b.slice_first, b.slice_count, x + b.slice_first))
			return -1;
	}
	return 0;
}

static void read_own(struct job *j, const struct gpt_state *s)
{
	if ((j->rank == 0 && read_array(j, s, GPT_STATE_WEIGHTS, j->weights)) ||
	    read_array(j, s, GPT_STATE_M, gpt_optim_m(j->optim)) ||
	    read_array(j, s, GPT_STATE_V, gpt_optim_v(j->optim)))
		job_note(j, "--resume: %s: %s", s->path, strerror(errno));
}

/* Rank 0 reads all and sends it. */
static int read_for_all(struct job *j, const struct gpt_state *s)
{
	float *means[] = {gpt_optim_m(j->optim), gpt_optim_v(j->optim)};

	if (j->rank == 0 && (gpt_state_read(s, GPT_STATE_WEIGHTS, 0, j->param_count, j->weights) ||
	                     gpt_state_read(s, GPT_STATE_M, 0, j->param_count, means[0]) ||
	                     gpt_state_read(s, GPT_STATE_V, 0, j->param_count, means[1])))
		job_note(j, "--resume: %s: %s", s->path, strerror(errno));
	if (job_agree(j))
		return -1;
	for (int i = 0; i < 2; i++) {
		if (job_check(j, coll_broadcast(means[i], means[i], j->param_count, COLL_F32, 0, j->comm, NULL)))
			return -1;
		if (j->o.zero)
			clear_others(j, means[i]);
	}
	return 0;
}

static int read_owed(struct job *j, const struct gpt_state *s)
{
	const size_t len_bytes = coll_ddp_state_bytes(j->ddp);
	char *all = j->rank ? NULL : malloc((size_t)j->size * len_bytes), *mine = malloc(len_bytes);
	int rc = job_check_memory(j, mine && (all || j->rank));

	for (int r = 0; r < j->size && !rc && j->rank == 0; r++)
		if (gpt_state_read_bytes(s, r, all + (size_t)r * len_bytes, len_bytes))
			job_note(j, "--resume: %s: %s", s->path, strerror(errno));
	if (!rc)
		rc = job_agree(j);
	if (!rc)
		rc = job_check(j, coll_scatter(all, mine, len_bytes, COLL_U8, 0, j->comm, NULL));
	if (!rc)
		rc = job_check_ddp(j, coll_ddp_state_load(j->ddp, mine, len_bytes));
	free(all);
	free(mine);
	return rc;
}

static bool all_see(const struct job *j, const int32_t *sees)
{
	for (int r = 0; r < j->size; r++)
		if (!sees[r])
			return false;
	return true;
}

static int read_state(struct job *j, struct gpt_state *s, struct found *f)
{
	int32_t *sees = calloc((size_t)j->size, sizeof(*sees));
	char why[GPT_PATH_MAX + 256];
	int rc = job_check_memory(j, sees != NULL);

	if (!rc)
		rc = see_directory(j, f->states, sees);
	if (!rc && all_see(j, sees)) {
		if (j->rank && gpt_state_open(s, f->path, why, sizeof(why)))
			job_note(j, "--resume: %s", why);
		else
			read_own(j, s);
		rc = job_agree(j);
	} else if (!rc) {
		rc = read_for_all(j, s);
	}
	free(sees);
	return rc || (f->owed && read_owed(j, s)) ? -1 : 0;
}

int job_resume(struct job *j)
{
	struct gpt_state s = {0};
	struct found f = {0};
	int rc;

	if (!j->o.resume)
		return 0;
	if (j->rank == 0)
		find_state(j, &s, &f);
	rc = job_agree(j) || job_check(j, coll_broadcast(&f, &f, sizeof(f), COLL_U8, 0, j->comm, NULL)) ? -1 : 0;
	if (!rc && f.step > 0)
		rc = read_state(j, &s, &f);
	gpt_state_close(&s);
	if (rc)
		return -1;
	j->first_step = (long)f.step;
	j->first_sequence = f.sequences;
	j->tokens = f.tokens;
	gpt_optim_set_step(j->optim, (int)f.step);
	if (j->rank == 0 && f.step)
		printf("ddp_gpt: continuing after step %ld\n", j->first_step);
	return 0;
}
