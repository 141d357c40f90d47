/*
 * Two builds of this library beside each other, in the same processes, by turns: what a
 * change gained or lost. Times of two runs differ more than most changes do; the ratio of
 * two turns that follow each other does not.
 *
 *   versus [flags] OLD.so NEW.so
 *
 * This process measures nothing: it starts ranks (versus/ranks.c) that measure one block
 * of one cell, or a share of it (versus/cell.c), and makes the table and the verdict. versus/plan.c has the flags.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "median.h"
#include "versus/plan.h"

enum { VERSUS_FAILED = 1, BLOCKS_AGAIN = 27 };

/* What blocks say of a cell; blocks 0: there were none. */
struct found {
	double ratio, lower, upper; /* old time / new time: median and quartiles of the blocks' */
	double seconds[2];          /* of a call: medians */
	double block[PLAN_BLOCKS_MAX];
	int blocks;
};

struct row {
	struct found first, again;
};

/* For the ranks of one start. */
struct job {
	const struct plan *plan;
	const struct cell *cell;
	struct cell_part part;
	double (*seconds)[2]; /* [PLAN_BLOCKS_MAX], mapped by all */
};

/* ---- Table ---------------------------------------------------------------- */

static void size_text(size_t bytes, char text[24])
{
	if (bytes % (1 << 20) == 0)
		snprintf(text, 24, "%zuMi", bytes >> 20);
	else if (bytes % (1 << 10) == 0)
		snprintf(text, 24, "%zuKi", bytes >> 10);
	else
		snprintf(text, 24, "%zu", bytes);
}

static const char *memory_name(const struct cell *c)
{
	return cell_memory_names[c->memory];
}

static void print_row(const struct cell *c, const struct found *t, const char *note)
{
	char size[24];

	size_text(c->len_bytes, size);
	printf("%-14s %7s %-7s %12.3f %12.3f %7.3f %7.3f %7.3f%s\n", cell_kind_names[c->kind], size, memory_name(c),
	       t->seconds[0] * 1e6, t->seconds[1] * 1e6, t->ratio, t->lower, t->upper, note);
	fflush(stdout);
}

static bool slower(const struct row *row, double below)
{
	return row->again.blocks > 0 && row->again.upper < below;
}

static const struct found *last_times(const struct row *row)
{
	return row->again.blocks > 0 ? &row->again : &row->first;
}

/* Closing line; the exit status. */
static int summarise(const struct plan *p, const struct row *rows)
{
	double logs = 0;
	int lowest = 0, repeated = 0, bad = 0;
	char size[24];

	for (int i = 0; i < p->cells; i++) {
		logs += log(last_times(&rows[i])->ratio);
		repeated += rows[i].again.blocks > 0;
		bad += slower(&rows[i], p->below);
		if (last_times(&rows[i])->ratio < last_times(&rows[lowest])->ratio)
			lowest = i;
	}
	size_text(p->cell[lowest].len_bytes, size);
	printf("# %d cells, geometric mean of the ratios %.3f, lowest %.3f (%s %s %s); %d repeated, %d below %g\n",
	       p->cells, exp(logs / p->cells), last_times(&rows[lowest])->ratio, cell_kind_names[p->cell[lowest].kind],
	       size, memory_name(&p->cell[lowest]), repeated, bad, p->below);
	return bad ? VERSUS_FAILED : 0;
}

static void json_text(FILE *f, const char *text)
{
	fputc('"', f);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', f);
		if ((unsigned char)*text < ' ')
			fprintf(f, "\\u%04x", *text);
		else
			fputc(*text, f);
	}
	fputc('"', f);
}

static void json_times(FILE *f, const char *name, const struct found *t)
{
	fprintf(f, ", \"%s\": {\"old_s\": %.9g, \"new_s\": %.9g, \"ratio\": %.6g, \"lower\": %.6g, \"upper\": %.6g, ",
	        name, t->seconds[0], t->seconds[1], t->ratio, t->lower, t->upper);
	for (int i = 0; i < t->blocks; i++)
		fprintf(f, "%s%.6g", i ? ", " : "\"blocks\": [", t->block[i]);
	fprintf(f, "]}");
}

static int write_json(const struct plan *p, const struct row *rows)
{
	const char *transports = getenv("COLL_TRANSPORTS");
	FILE *f = fopen(p->json, "w");
	bool fine;

	if (!f) {
		fprintf(stderr, "versus: %s: %s\n", p->json, strerror(errno));
		return 1;
	}
	fprintf(f, "{\"old\": ");
	json_text(f, p->real[0]);
	fprintf(f, ", \"new\": ");
	json_text(f, p->real[1]);
	fprintf(f, ", \"transports\": ");
	json_text(f, transports ? transports : "");
	fprintf(f, ", \"ranks\": %d, \"in_place\": %s, \"touch\": %s, \"below\": %g,\n \"cells\": [", p->ranks,
	        p->how.in_place ? "true" : "false", p->how.touch ? "true" : "false", p->below);
	for (int i = 0; i < p->cells; i++) {
		const struct cell *c = &p->cell[i];

		fprintf(f, "%s\n  {\"collective\": \"%s\", \"bytes\": %zu, \"buffers\": \"%s\", \"slower\": %s",
		        i ? "," : "", cell_kind_names[c->kind], c->len_bytes, memory_name(c),
		        slower(&rows[i], p->below) ? "true" : "false");
		json_times(f, "first", &rows[i].first);
		if (rows[i].again.blocks > 0)
			json_times(f, "again", &rows[i].again);
		fprintf(f, "}");
	}
	fprintf(f, "\n ]}\n");
	fine = !ferror(f);
	fine &= fclose(f) == 0;
	if (!fine)
		fprintf(stderr, "versus: %s: cannot be written\n", p->json);
	return fine ? 0 : 1;
}

/* ---- Measuring ------------------------------------------------------------ */

/* At a rank: by turns the one or the other library is loaded first. */
static int load(struct ranks *r, const struct plan *p, int first, struct library lib[2])
{
	for (int i = 0; i < 2; i++) {
		const int k = first ^ i;

		if (!library_load(&lib[k], k ? "new" : "old", p->real[k], r->rank != 0))
			return PLAN_REFUSED;
	}
	if (lib[0].comm_create == lib[1].comm_create) {
		fprintf(stderr, "versus: %s and %s share their functions\n", p->real[0], p->real[1]);
		return PLAN_REFUSED;
	}
	return 0;
}

static int load_only(struct ranks *r, void *arg)
{
	struct library lib[2];

	return load(r, arg, 0, lib);
}

static int measure(struct ranks *r, void *arg)
{
	const struct job *j = arg;
	double seconds[2], *least = j->seconds[j->part.block];
	struct library lib[2];
	int status;

	cell_shift(r->rank, &j->part);
	if (j->plan->hosts > 0 && !ranks_enter(r, j->plan->host, j->plan->hosts))
		return VERSUS_FAILED;
	status = load(r, j->plan, (j->part.block + j->part.share) % 2, lib);
	if (status == 0)
		status = cell_measure(r, lib, j->cell, &j->plan->how, &j->part, seconds) ? VERSUS_FAILED : 0;
	for (int k = 0; k < 2 && status == 0 && r->rank == 0; k++)
		if (j->part.share == 0 || seconds[k] < least[k])
			least[k] = seconds[k];
	return status;
}

/* The value below which a part of the sorted values lies. */
static double quantile(const double *sorted, int n, double part)
{
	const double at = part * (n - 1);
	const int below = (int)at;

	return below + 1 < n ? sorted[below] + (at - below) * (sorted[below + 1] - sorted[below]) : sorted[n - 1];
}

static void judge(double (*seconds)[2], int blocks, struct found *f)
{
	static double sorted[PLAN_BLOCKS_MAX];

	f->blocks = blocks;
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < blocks; i++)
			sorted[i] = seconds[i][k];
		f->seconds[k] = median_of(sorted, blocks);
	}
	for (int i = 0; i < blocks; i++)
		f->block[i] = sorted[i] = seconds[i][0] / seconds[i][1];
	f->ratio = median_of(sorted, blocks);
	f->lower = quantile(sorted, blocks, 0.25);
	f->upper = quantile(sorted, blocks, 0.75);
}

/* All blocks of a cell, by one start of the ranks after the other. The exit status. */
static int measure_cell(struct job *j, const struct cell *cell, int blocks, struct found *f)
{
	j->cell = cell;
	for (j->part.block = 0; j->part.block < blocks; j->part.block++)
		for (j->part.share = 0; j->part.share < CELL_SHARES; j->part.share++) {
			const int status = ranks_run(j->plan->ranks, measure, j);

			if (status != 0)
				return status;
		}
	judge(j->seconds, blocks, f);
	return 0;
}

/* The whole table. */
static int measure_all(struct job *j, struct row *rows)
{
	const struct plan *p = j->plan;
	const int again = p->blocks < BLOCKS_AGAIN ? BLOCKS_AGAIN : p->blocks;
	int status = 0, repeats = 0;

	printf("# old: %s\n# new: %s\n# %d ranks, %s, %d blocks; ratio: old time / new time, median and quartiles\n",
	       p->real[0], p->real[1], p->ranks, p->how.in_place ? "in place" : "out of place", p->blocks);
	printf("%-14s %7s %-7s %12s %12s %7s %7s %7s\n", "# collective", "bytes", "buffers", "old us", "new us",
	       "ratio", "lower", "upper");
	fflush(stdout);
	for (int i = 0; i < p->cells && status == 0; i++) {
		status = measure_cell(j, &p->cell[i], p->blocks, &rows[i].first);
		if (status == 0)
			print_row(&p->cell[i], &rows[i].first, rows[i].first.ratio < p->below ? " below" : "");
	}
	for (int i = 0; i < p->cells && status == 0; i++) {
		if (rows[i].first.ratio >= p->below)
			continue;
		if (repeats++ == 0)
			printf("# repeated, %d blocks\n", again);
		fflush(stdout);
		status = measure_cell(j, &p->cell[i], again, &rows[i].again);
		if (status == 0)
			print_row(&p->cell[i], &rows[i].again, slower(&rows[i], p->below) ? " SLOWER" : "");
	}
	return status;
}

int main(int argc, char **argv)
{
	static struct plan p;
	struct job job = {.plan = &p};
	struct row *rows;
	int status = plan_parse(&p, argc, argv);

	if (status >= 0)
		return status;
	if (p.json) {
		/* Found out now, not after ten minutes; what is there stays. */
		FILE *f = fopen(p.json, "a");

		if (!f) {
			fprintf(stderr, "versus: --json %s: %s\n", p.json, strerror(errno));
			return PLAN_REFUSED;
		}
		fclose(f);
	}
	status = ranks_run(1, load_only, &p);
	if (status != 0)
		return status;
	rows = calloc((size_t)p.cells, sizeof(*rows));
	job.seconds = mmap(NULL, PLAN_BLOCKS_MAX * sizeof(*job.seconds), PROT_READ | PROT_WRITE,
	                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!rows || job.seconds == MAP_FAILED) {
		fprintf(stderr, "versus: no memory\n");
		free(rows);
		return VERSUS_FAILED;
	}
	status = measure_all(&job, rows);
	if (status == 0) {
		status = summarise(&p, rows);
		if (p.json && write_json(&p, rows) != 0)
			status = VERSUS_FAILED;
	} else {
		printf("# not finished\n");
	}
	free(rows);
	return status;
}
