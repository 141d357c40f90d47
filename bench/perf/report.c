/*
 * The table, in the format of nccl-tests so that programs that read its output
 * read ours (tests/multi/perf_table.py has the rules), and the same numbers as
 * JSON. Our own columns come behind, with --details. Rank 0 prints; the others count
 * wrong values for their exit status.
 */
#include <string.h>

#include "perf.h"

/* The lines before the table. */
static void print_configuration(const struct perf_report *r, coll_comm *comm, const struct perf_numbers *ranks)
{
	const struct perf_args *a = r->args;
	const int size = coll_comm_size(comm), version = coll_version();

	fprintf(r->table, "# libcoll version %d.%d.%d, %d rank%s\n", version / 10000, version / 100 % 100,
	        version % 100, size, size == 1 ? "" : "s");
	fprintf(r->table, "# Collective test starting: %s\n", r->what->program);
	fprintf(r->table,
	        "# nThread 1 nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d "
	        "agg iters: %d validation: %d graph: 0 unalign: %zu average: %d%s%s\n",
	        a->ranks, a->min_bytes, a->max_bytes, a->factor ? a->factor : a->step_bytes,
	        a->factor ? "factor" : "bytes", a->warmups, a->iters, a->aggregate, a->checks, a->unalign, a->average,
	        a->touch ? " touch" : "", a->library_memory ? " library memory" : "");
	if (!r->what->in_place)
		fprintf(r->table, "# There is no form in place: those columns hold a second run of the call\n");
	fprintf(r->table, "#\n# Using devices\n");
	for (int i = 0; i < size; i++) {
		const uint64_t *w = ranks[i].word;
		char name[PERF_NAME_WORDS * sizeof(*w)];

		memcpy(name, &w[PERF_NAME], sizeof(name));
		fprintf(r->table, "#  Rank %2d Group %2d Pid %6lld on %10s device %2d [%04x:%02x:%02x] %.*s\n", i, 0,
		        (long long)w[PERF_PID], coll_comm_host(comm, i) ? coll_comm_host(comm, i) : "?",
		        (int)w[PERF_DEVICE], (unsigned)w[PERF_DOMAIN], (unsigned)w[PERF_BUS], (unsigned)w[PERF_SLOT],
		        (int)sizeof(name) - 1, name);
	}
	fprintf(r->table, "#\n");
}

/* The columns of nccl-tests; its widths, too, for readers that cut lines at fixed places. */
static void print_head(const struct perf_report *r)
{
	static const char *const lines[][2] = {
	        {"#                                                              out-of-place                       "
	         "in-place          ",
	         "       out-of-place                in-place"},
	        {"#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   "
	         "algbw   busbw  #wrong",
	         "       min       p50       p99       min       p50       p99  algorithm"},
	        {"#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  "
	         "(GB/s)  (GB/s)        ",
	         "      (us)      (us)      (us)      (us)      (us)      (us)"},
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		fprintf(r->table, "%s%s\n", lines[i][0], r->args->details ? lines[i][1] : "");
}

static void json_text(FILE *f, const char *text)
{
	fputc('"', f);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', f);
		fputc((unsigned char)*text < ' ' ? ' ' : *text, f);
	}
	fputc('"', f);
}

static void json_begin(const struct perf_report *r, coll_comm *comm)
{
	const struct perf_args *a = r->args;
	const int size = coll_comm_size(comm);

	fprintf(r->json, "{\"program\": \"%s\", \"version\": %d, \"ranks\": %d,\n", r->what->program, coll_version(),
	        size);
	fprintf(r->json, " \"hosts\": [");
	for (int i = 0; i < size; i++) {
		fputs(i ? ", " : "", r->json);
		json_text(r->json, coll_comm_host(comm, i) ? coll_comm_host(comm, i) : "");
	}
	fprintf(r->json,
	        "],\n \"config\": {\"min_bytes\": %zu, \"max_bytes\": %zu, \"step_bytes\": %zu, \"factor\": %zu, "
	        "\"warmup_iters\": %d, \"iters\": %d, \"agg_iters\": %d, \"check\": %d, \"average\": %d, "
	        "\"touch\": %s, \"library_memory\": %s, \"unalign\": %zu},\n \"results\": [",
	        a->min_bytes, a->max_bytes, a->factor ? 0 : a->step_bytes, a->factor, a->warmups, a->iters,
	        a->aggregate, a->checks, a->average, a->touch ? "true" : "false", a->library_memory ? "true" : "false",
	        a->unalign);
}

void perf_report_begin(struct perf_report *r, const struct perf_collective *what, const struct perf_args *args,
                       coll_comm *comm, const struct perf_numbers *ranks)
{
	r->what = what;
	r->args = args;
	if (r->table) {
		print_configuration(r, comm, ranks);
		print_head(r);
		fflush(r->table);
	}
	if (r->json)
		json_begin(r, comm);
}

/* Two decimals where they fit, and never an exponent, which readers take for the end of the number. */
static void print_number(const struct perf_report *r, double value, int width)
{
	char text[400];

	for (int decimals = 2; decimals >= 0; decimals--)
		if (snprintf(text, sizeof(text), "%.*f", decimals, value) <= width)
			break;
	fprintf(r->table, "  %*s", width, text);
}

static void print_place(const struct perf_report *r, const struct perf_row *row, int place)
{
	print_number(r, row->place[place].times.mean * 1e6, 7);
	print_number(r, row->place[place].algbw, 6);
	print_number(r, row->place[place].busbw, 6);
	if (r->args->checks)
		fprintf(r->table, "  %6llu", (unsigned long long)row->place[place].wrong);
	else
		fprintf(r->table, "  %6s", "N/A");
}

/* What nccl-tests does not have, behind its columns and only when asked for: a program that reads the table may
 * count the columns or take the last one. */
static void print_details(const struct perf_report *r, const struct perf_row *row)
{
	for (int place = 0; place < 2; place++) {
		const struct perf_times *t = &row->place[place].times;

		fprintf(r->table, "  %8.2f  %8.2f  %8.2f", t->min * 1e6, t->p50 * 1e6, t->p99 * 1e6);
	}
	fprintf(r->table, "  %s", row->algorithm);
}

static const char *op_text(const struct perf_report *r, const struct perf_row *row)
{
	return r->what->reduces ? perf_op_name(row->op) : "none";
}

static const char *type_text(const struct perf_report *r, const struct perf_row *row)
{
	return r->what->no_data ? "none" : perf_type_name(row->call.type);
}

static void json_place(const struct perf_report *r, const struct perf_row *row, int place)
{
	const struct perf_times *t = &row->place[place].times;

	fprintf(r->json,
	        ", \"%s\": {\"time_us\": %.4f, \"algbw\": %.6f, \"busbw\": %.6f, \"min_us\": %.4f, \"p50_us\": %.4f, "
	        "\"p99_us\": %.4f, \"wrong\": ",
	        place ? "in_place" : "out_of_place", t->mean * 1e6, row->place[place].algbw, row->place[place].busbw,
	        t->min * 1e6, t->p50 * 1e6, t->p99 * 1e6);
	if (r->args->checks)
		fprintf(r->json, "%llu}", (unsigned long long)row->place[place].wrong);
	else
		fputs("null}", r->json);
}

static void json_row(struct perf_report *r, const struct perf_row *row)
{
	fprintf(r->json, "%s\n  {\"size\": %zu, \"count\": %zu, \"type\": \"%s\", \"redop\": \"%s\", \"root\": %d",
	        r->json_comma ? "," : "", row->bytes, row->call.count, type_text(r, row), op_text(r, row),
	        r->what->rooted ? row->call.root : -1);
	json_place(r, row, 0);
	json_place(r, row, 1);
	fputs(", \"algorithm\": ", r->json);
	json_text(r->json, row->algorithm);
	fputc('}', r->json);
	r->json_comma = true;
}

void perf_report_row(struct perf_report *r, const struct perf_row *row)
{
	for (int place = 0; place < 2; place++) {
		r->busbw_sum += row->place[place].busbw;
		r->busbw_count++;
		r->wrong += row->place[place].wrong;
	}
	if (r->json)
		json_row(r, row);
	if (!r->table)
		return;
	fprintf(r->table, "%12zu  %12zu  %8s  %6s  %6d", row->bytes, row->call.count, type_text(r, row),
	        op_text(r, row), r->what->rooted ? row->call.root : -1);
	print_place(r, row, 0);
	print_place(r, row, 1);
	if (r->args->details)
		print_details(r, row);
	fputc('\n', r->table);
	fflush(r->table);
}

void perf_report_end(struct perf_report *r, bool complete)
{
	const double busbw = r->busbw_count ? r->busbw_sum / r->busbw_count : 0;
	const bool good = complete && r->wrong == 0;

	if (r->table) {
		fprintf(r->table, "# Out of bounds values : %llu %s\n", (unsigned long long)r->wrong,
		        good ? "OK" : "FAILED");
		fputs("# Avg bus bandwidth    : ", r->table);
		/* No exponent here either; %g would print one. */
		fprintf(r->table,
		        busbw >= 1e6                ? "%.0f\n#\n"
		        : busbw > 0 && busbw < 1e-4 ? "%.9f\n#\n"
		                                    : "%g\n#\n",
		        busbw);
		if (!complete)
			fprintf(r->table, "# Ended early by an error\n");
		else
			fprintf(r->table, "# Collective test concluded: %s\n", r->what->program);
		fflush(r->table);
	}
	if (r->json)
		fprintf(r->json, "],\n \"complete\": %s, \"wrong\": %llu, \"average_busbw\": %.6f}\n",
		        complete ? "true" : "false", (unsigned long long)r->wrong, busbw);
}
