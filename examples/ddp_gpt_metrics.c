/*
 * metrics.jsonl or metrics.csv, and TensorBoard's file. It owns the three files and the order of the fields. After a
 * resume the lines of steps that will be taken again are cut off, and the others begin the loss curve.
 */
#include "ddp_gpt_metrics.h"
#include "ddp_gpt_data.h"
#include "ddp_gpt_out.h"
#include "gpt/formats/events.h"
#include "gpt/formats/file.h"
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AT(member) offsetof(struct metrics, member)

static const struct {
	const char *name;
	size_t offset;
	const char *format;
} fields[] = {
        {"step", AT(step), "%.0f"},
        {"loss", AT(loss), "%.9g"},
        {"val_loss", AT(val_loss), "%.9g"},
        {"grad_norm", AT(grad_norm), "%.9g"},
        {"stubbed", AT(stubbed), "%.0f"},
        {"lr", AT(lr), "%.6g"},
        {"tokens_per_s", AT(tokens_per_s), "%.1f"},
        {"ms_per_step", AT(ms_per_step), "%.3f"},
        {"comm_share", AT(comm_share), "%.4f"},
        {"mfu", AT(mfu), "%.4f"},
        {"wire_s", AT(wire_s), "%.6f"},
        {"waited_s", AT(waited_s), "%.6f"},
        {"sent_bytes", AT(sent_bytes), "%.0f"},
        {"time", AT(time), "%.0f"},
        {"elapsed_s", AT(elapsed_s), "%.3f"},
        {"tokens", AT(tokens), "%.0f"},
        {"epoch", AT(epoch), "%.6g"},
        {"data_wait_s", AT(data_wait_s), "%.6f"},
        {"rss_mb", AT(rss_mb), "%.1f"},
        {"ranks", AT(ranks), "%.0f"},
};

#define FIELDS (sizeof(fields) / sizeof(*fields))

static double number(const struct metrics *m, size_t field)
{
	return *(const double *)((const char *)m + fields[field].offset);
}

/* ---- Lines that are there ----------------------------------------------------------- */

/* The number behind "name": in a line of JSON; ABSENT: there is none. */
static double number_of(const char *line, const char *name)
{
	char key[32];
	const char *at;
	char *end = NULL;
	double x;

	snprintf(key, sizeof(key), "\"%s\":", name);
	at = strstr(line, key);
	x = at ? strtod(at + strlen(key), &end) : ABSENT;
	return at && end == at + strlen(key) ? ABSENT : x;
}

/* Column number of a line of CSV. */
static double column_of(const char *line, size_t column)
{
	char *end;
	double x;

	while (column-- && line)
		line = strchr(line, ',') ? strchr(line, ',') + 1 : NULL;
	x = line ? strtod(line, &end) : ABSENT;
	return line && end == line ? ABSENT : x;
}

static double or_none(double x)
{
	return x == ABSENT ? -1 : x;
}

static struct point point_of(bool csv, const char *line)
{
	return (struct point){.step = (long)(csv ? column_of(line, 0) : number_of(line, "step")),
	                      .loss = or_none(csv ? column_of(line, 1) : number_of(line, "loss")),
	                      .val = or_none(csv ? column_of(line, 2) : number_of(line, "val_loss"))};
}

/* A killed run may have been further than its state. */
static FILE *open_after(struct job *j, const char *path, bool csv)
{
	FILE *f = fopen(path, "r+e");
	long keep = 0;
	char line[2048];

	if (!f)
		return errno == ENOENT ? fopen(path, "we") : NULL;
	if (csv && fgets(line, sizeof(line), f) && strncmp(line, "step,", 5) == 0)
		keep = ftell(f);
	while (fgets(line, sizeof(line), f) && strchr(line, '\n') &&
	       (csv ? *line >= '0' && *line <= '9' : !strncmp(line, "{\"step\":", 8))) {
		const struct point p = point_of(csv, line);

		if (p.step > j->first_step || j->curve_count == j->first_step)
			break;
		keep = ftell(f);
		job_add_point(j, p);
	}
	if (fseek(f, keep, SEEK_SET) || ftruncate(fileno(f), keep)) {
		fclose(f);
		return NULL;
	}
	return f;
}

static void put_header(FILE *f)
{
	if (ftell(f))
		return;
	for (size_t i = 0; i < FIELDS; i++)
		fprintf(f, "%s%s", i ? "," : "", fields[i].name);
	fprintf(f, "\n");
}

static const char *file_name(const struct job *j)
{
	return j->o.metrics == METRICS_CSV ? "metrics.csv" : "metrics.jsonl";
}

int job_open_metrics(struct job *j)
{
	const bool csv = j->o.metrics == METRICS_CSV;
	char path[GPT_PATH_MAX];

	if (j->rank == 0 && j->o.out) {
		if (out_path(j, file_name(j), path) == 0)
			j->metrics = j->first_step ? open_after(j, path, csv) : fopen(path, "we");
		if (j->metrics && csv)
			put_header(j->metrics);
		if (!j->metrics)
			job_note(j, "cannot write %s in %s: %s", file_name(j), j->o.out, strerror(errno));
		if (j->o.tensorboard && !(j->events = gpt_events_open(j->o.out, j->first_step, j->run_id)))
			job_note(j, "cannot write events.out.tfevents in %s: %s", j->o.out, strerror(errno));
	}
	return job_agree(j);
}

static bool close_file(FILE **f)
{
	bool bad = *f && ferror(*f);

	if (*f)
		bad = fclose(*f) || bad;
	*f = NULL;
	return bad;
}

int job_close_metrics(struct job *j)
{
	const bool bad = close_file(&j->metrics), no_events = close_file(&j->events);

	if (bad)
		return job_note(j, "cannot write all of %s in %s", file_name(j), j->o.out);
	return no_events ? job_note(j, "cannot write all of events.out.tfevents in %s", j->o.out) : 0;
}

/* ---- A new line ------------------------------------------------------------------------- */

static double resident_mb(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	long pages = 0;

	if (f && fscanf(f, "%*d %ld", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576;
}

static void complete(const struct job *j, struct metrics *m)
{
	const uint64_t sequences = job_sequences(j, (long)m->step);
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	m->time = (double)t.tv_sec * 1e3 + (double)(t.tv_nsec / 1000000);
	m->elapsed_s = job_now_s() - j->stop.begun_s;
	m->tokens = (double)j->tokens;
	m->epoch = (double)sequences / (double)job_windows(j);
	m->data_wait_s = j->data_s;
	m->rss_mb = resident_mb();
	m->ranks = j->size;
}

/* JSON has no word for what is not finite. */
static void put_json(FILE *f, const struct metrics *m)
{
	for (size_t i = 0; i < FIELDS; i++) {
		const double x = number(m, i);

		if (x == ABSENT)
			continue;
		fprintf(f, "%s\"%s\":", i ? "," : "{", fields[i].name);
		if (isfinite(x))
			fprintf(f, fields[i].format, x);
		else
			fputs("null", f);
	}
}

static void put_csv(FILE *f, const struct metrics *m)
{
	for (size_t i = 0; i < FIELDS; i++) {
		const double x = number(m, i);

		fputs(i ? "," : "", f);
		if (x != ABSENT)
			fprintf(f, fields[i].format, x);
	}
}

/* The seconds that each rank computed, and waited for gradients, and the tokens that it learned in this step. */
static void put_ranks(const struct job *j)
{
	static const char *const names[] = {"compute_s", "wait_s", "rank_tokens"};

	for (int k = 0; k < 3; k++) {
		fprintf(j->metrics, ",\"%s\":[", names[k]);
		for (int r = 0; r < j->size; r++) {
			const struct of_rank *of = &j->of_ranks[r];

			fprintf(j->metrics, k == 2 ? "%s%.0f" : "%s%.6f", r ? "," : "",
			        k == 2   ? of->tokens
			        : k == 1 ? of->waited_s
			                 : of->computed_s);
		}
		fprintf(j->metrics, "]");
	}
}

static void put_events(const struct job *j, const struct metrics *m)
{
	struct gpt_scalar scalars[7] = {{"train/loss", m->loss},
	                                {"train/learning_rate", m->lr},
	                                {"train/grad_norm", m->grad_norm},
	                                {"speed/tokens_per_s", m->tokens_per_s},
	                                {"speed/mfu", m->mfu},
	                                {"speed/comm_share", m->comm_share},
	                                {"validation/loss", m->val_loss}};

	gpt_events_put(j->events, (long)m->step, scalars, m->val_loss == ABSENT ? 6 : 7);
}

void metrics_write(struct job *j, struct metrics *m)
{
	const bool csv = j->o.metrics == METRICS_CSV;

	complete(j, m);
	if (j->metrics && csv)
		put_csv(j->metrics, m);
	else if (j->metrics)
		put_json(j->metrics, m);
	if (j->metrics && !csv && j->o.per_rank)
		put_ranks(j);
	if (j->metrics) {
		fputs(csv ? "\n" : "}\n", j->metrics);
		fflush(j->metrics);
	}
	if (j->events)
		put_events(j, m);
}
