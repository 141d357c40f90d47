/*
 * The output directory. It owns run.json and the decision whether a run may write there: what an earlier run left is
 * never replaced without a word. Rank 0 alone touches the directory; what it finds is agreed.
 */
#include "ddp_gpt_out.h"
#include "ddp_gpt_data.h"
#include "gpt/formats/file.h"
#include "gpt/formats/hf.h"
#include "gpt/formats/json.h"
#include "gpt/formats/state.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What a run writes. */
static const char *const ours[] = {"run.json", "metrics.jsonl", "metrics.csv", "loss.svg",  "model",
                                   "best",     "state",         "model.ckpt",  "state.ckpt"};

#define OURS    (sizeof(ours) / sizeof(*ours))
#define RUN_MAX (64 << 20)
#define EVENTS  "events.out.tfevents."

int out_path(const struct job *j, const char *name, char *path)
{
	return gpt_path(path, j->o.out, name);
}

/* ---- An earlier run ------------------------------------------------------------ */

/* The first file of an earlier run; NULL: there is none. */
static const char *find_ours(const struct job *j)
{
	char path[GPT_PATH_MAX];
	struct stat st;

	for (size_t i = 0; i < OURS; i++)
		if (out_path(j, ours[i], path) == 0 && lstat(path, &st) == 0)
			return ours[i];
	return NULL;
}

/* A run that began with a model, or took a tokenizer, goes on with that: its directory is in the flags of the last
 * start. */
static void take_flag(struct job *j, const json_t *flags, const char *name, const char **flag)
{
	const char *was = json_string_value(json_object_get(flags, name));

	if (!was || *flag || j->o.init || j->o.tokenizer || options_given(&j->o, "vocab"))
		return;
	*flag = j->taken = strdup(was);
	printf("ddp_gpt: --resume: --%s %s, as when the run began\n", name, was);
}

static void take_flags(struct job *j, const json_t *starts)
{
	const json_t *flags = json_object_get(json_array_get(starts, json_array_size(starts) - 1), "flags");

	take_flag(j, flags, "init", &j->o.init);
	take_flag(j, flags, "tokenizer", &j->o.tokenizer);
}

static int check_id(struct job *j)
{
	char path[GPT_PATH_MAX], why[512];
	const char *id;
	json_t *run;

	if (out_path(j, "run.json", path))
		return job_note(j, "--out %s: %s", j->o.out, strerror(errno));
	run = gpt_json_read(path, RUN_MAX, why, sizeof(why));
	if (!run && errno == ENOENT)
		return 0;
	if (!run)
		return job_note(j, "%s", why);
	id = json_string_value(json_object_get(run, "run_id"));
	j->start = (long)json_array_size(json_object_get(run, "starts"));
	take_flags(j, json_object_get(run, "starts"));
	if (!id || strlen(id) >= sizeof(j->run_id))
		job_note(j, "%s: has no run_id", path);
	else if (j->o.run_id && strcmp(j->o.run_id, id) != 0)
		job_note(j, "--run-id %s: the run in %s is %s", j->o.run_id, j->o.out, id);
	else
		snprintf(j->run_id, sizeof(j->run_id), "%s", id);
	json_decref(run);
	return 0;
}

static void draw_id(struct job *j)
{
	uint64_t x = 0;

	if (getrandom(&x, sizeof(x), 0) != sizeof(x))
		x = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
	if (j->o.run_id)
		snprintf(j->run_id, sizeof(j->run_id), "%s", j->o.run_id);
	else
		snprintf(j->run_id, sizeof(j->run_id), "%016" PRIx64, x);
}

int job_check_out(struct job *j)
{
	const char *found = j->rank == 0 && j->o.out ? find_ours(j) : NULL;

	if (j->rank == 0) {
		if (found && !j->o.resume && !j->o.overwrite)
			job_note(j,
			         "--out %s holds %s of an earlier run: --resume goes on with it, --overwrite removes "
			         "it, or "
			         "name another directory",
			         j->o.out, found);
		else if (found && j->o.resume)
			check_id(j);
		if (!j->run_id[0])
			draw_id(j);
	}
	return job_agree(j);
}

/* ---- Removing --------------------------------------------------------------------- */

static void remove_states(const char *states)
{
	struct gpt_state_name *names;
	size_t count;
	char path[GPT_PATH_MAX], name[96];

	if (gpt_state_list(states, &names, &count))
		return;
	for (size_t i = 0; i < count; i++) {
		gpt_state_format(&names[i], name, sizeof(name));
		if (gpt_path(path, states, name) == 0)
			gpt_directory_remove(path);
	}
	free(names);
	gpt_state_sweep(states);
}

static void remove_events(const struct job *j)
{
	DIR *d = opendir(j->o.out);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (strncmp(e->d_name, EVENTS, strlen(EVENTS)) == 0)
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}

/* The state of a directory that cannot be emptied shows in what is written next. */
static void overwrite(const struct job *j)
{
	char path[GPT_PATH_MAX];

	for (size_t i = 0; i < OURS; i++) {
		if (out_path(j, ours[i], path))
			continue;
		if (strcmp(ours[i], "state") == 0)
			remove_states(path);
		if (unlink(path) && (errno == EISDIR || errno == EPERM))
			gpt_directory_remove(path);
	}
	remove_events(j);
}

/* ---- run.json --------------------------------------------------------------------------- */

json_t *out_crc32c(uint32_t crc)
{
	return json_sprintf("%08" PRIx32, crc);
}

json_t *out_flags(const struct job *j)
{
	json_t *flags = json_object();
	char value[512];

	for (int i = 0; flags && i < options_count(); i++) {
		if (!options_name(i))
			continue;
		if (!options_text(&j->o, i, value, sizeof(value)))
			json_object_set_new(flags, options_name(i), json_null());
		else
			json_object_set_new(flags, options_name(i), json_string(value));
	}
	return flags;
}

static int count_hosts(const struct job *j)
{
	int hosts = 0;

	for (int r = 0; r < j->size; r++) {
		int q = 0;

		while (strcmp(coll_comm_host(j->comm, q), coll_comm_host(j->comm, r)) != 0)
			q++;
		hosts += q == r;
	}
	return hosts;
}

/* "0.1.0 (commit)" */
static json_t *commit(void)
{
	const char *text = coll_version_text(), *open = strchr(text, '('), *close = strchr(text, ')');

	return open && close > open ? json_stringn(open + 1, (size_t)(close - open - 1)) : json_string(text);
}

static json_t *start_of(const struct job *j)
{
	return json_pack("{s:I, s:I, s:o, s:s, s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "start", (json_int_t)j->start,
	                 "time", (json_int_t)time(NULL), "commit", commit(), "library", coll_version_text(), "hosts",
	                 count_hosts(j), "ranks", j->size, "members_epoch", 0, "resumed",
	                 j->first_step ? json_integer(j->first_step) : json_null(), "flags", out_flags(j), "data",
	                 job_describe_data(j), "tokenizer_crc32c", out_crc32c(gpt_hf_tokenizer_crc32c(&j->tokenizer)));
}

static int write_run(struct job *j)
{
	char path[GPT_PATH_MAX], why[512];
	json_t *run, *starts;

	if (out_path(j, "run.json", path))
		return -1;
	run = gpt_json_read(path, RUN_MAX, why, sizeof(why));
	if (!run)
		run = json_pack("{s:s, s:i, s:s, s:[]}", "format", "coll-gpt-run", "version", 1, "run_id", j->run_id,
		                "starts");
	starts = json_object_get(run, "starts");
	if (!run || json_array_append_new(starts, start_of(j))) {
		json_decref(run);
		errno = ENOMEM;
		return -1;
	}
	return gpt_json_write(path, run);
}

int job_open_out(struct job *j)
{
	char path[GPT_PATH_MAX];

	if (j->rank == 0 && j->o.out) {
		if (j->o.overwrite)
			overwrite(j);
		j->start++;
		if ((mkdir(j->o.out, 0777) && errno != EEXIST) || write_run(j))
			job_note(j, "cannot write run.json in %s: %s", j->o.out, strerror(errno));
		gpt_state_sweep(j->o.out);
		if (out_path(j, "state", path) == 0)
			gpt_state_sweep(path);
	}
	return job_agree(j);
}
