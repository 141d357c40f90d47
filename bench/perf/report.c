/*
 * The table, in the columns of nccl-tests with ours behind them, and the same
 * numbers as JSON. Rank 0 prints; the others count wrong values for their exit
 * status.
 */
#include <string.h>

#include "perf.h"

static void print_configuration(const struct perf_report *r, coll_comm *comm, const struct perf_numbers *pids)
{
	const struct perf_args *a = r->args;
	const int size = coll_comm_size(comm), version = coll_version();

	fprintf(r->table, "# %s, libcoll %d.%d.%d, %d rank%s\n", r->what->program, version / 10000, version / 100 % 100,
	        version % 100, size, size == 1 ? "" : "s");
	fprintf(r->table,
	        "# nThread 1 nGpus 1 minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d "
	        "agg iters: %d validation: %d average: %d%s%s",
	        a->min_bytes, a->max_bytes, a->factor ? a->factor : a->step_bytes, a->factor ? "factor" : "bytes",
	        a->warmups, a->iters, a->aggregate, a->checks, a->average, a->touch ? " touch" : "",
	        a->library_memory ? " library memory" : "");
	if (a->unalign)
		fprintf(r->table, " unalign %zu", a->unalign);
	fprintf(r->table, "\n#\n");
	for (int i = 0; i < size; i++)
		fprintf(r->table, "#  Rank %3d Pid %7lld on %s\n", i, (long long)pids[i].word[0],
		        coll_comm_host(comm, i) ? coll_comm_host(comm, i) : "?");
	fprintf(r->table, "#\n");
}

static void print_head(const struct perf_report *r)
{
	static const char *const lines[] = {
	        "#                                                     |            out-of-place             "
	        "|              in-place               |        out-of-place        |          in-place          |\n",
	        "#       size         count      type   redop    root  |    time   algbw   busbw    #wrong  "
	        "|    time   algbw   busbw    #wrong  |     min      p50      p99  |     min      p50      p99  | "
	        "algorithm\n",
	        "#        (B)    (elements)                            |    (us)  (GB/s)  (GB/s)            "
	        "|    (us)  (GB/s)  (GB/s)            |    (us)     (us)     (us)  |    (us)     (us)     (us)  |\n",
	};

	for (size_t i = 0; i < 3; i++)
		fputs(lines[i], r->table);
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
                       coll_comm *comm, const struct perf_numbers *pids)
{
	r->what = what;
	r->args = args;
	if (r->table) {
		print_configuration(r, comm, pids);
		print_head(r);
		fflush(r->table);
	}
	if (r->json)
		json_begin(r, comm);
}

static void print_place(const struct perf_report *r, const struct perf_row *row, int place)
{
	const struct perf_times *t = &row->place[place].times;

	if (!row->place[place].done) {
		fprintf(r->table, "%8s %7s %7s %9s  | ", "N/A", "N/A", "N/A", "N/A");
		return;
	}
	fprintf(r->table, "%8.2f %7.2f %7.2f ", t->mean * 1e6, row->place[place].algbw, row->place[place].busbw);
	if (r->args->checks)
		fprintf(r->table, "%9llu  | ", (unsigned long long)row->place[place].wrong);
	else
		fprintf(r->table, "%9s  | ", "N/A");
}

static void print_spread(const struct perf_report *r, const struct perf_row *row, int place)
{
	const struct perf_times *t = &row->place[place].times;

	if (row->place[place].done)
		fprintf(r->table, "%8.2f %8.2f %8.2f  | ", t->min * 1e6, t->p50 * 1e6, t->p99 * 1e6);
	else
		fprintf(r->table, "%8s %8s %8s  | ", "N/A", "N/A", "N/A");
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

	fprintf(r->json, ", \"%s\": ", place ? "in_place" : "out_of_place");
	if (!row->place[place].done) {
		fputs("null", r->json);
		return;
	}
	fprintf(r->json,
	        "{\"time_us\": %.4f, \"algbw\": %.6f, \"busbw\": %.6f, \"min_us\": %.4f, \"p50_us\": %.4f, "
	        "\"p99_us\": %.4f, \"wrong\": ",
	        t->mean * 1e6, row->place[place].algbw, row->place[place].busbw, t->min * 1e6, t->p50 * 1e6,
	        t->p99 * 1e6);
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
	for (int place = 0; place < 2; place++)
		if (row->place[place].done) {
			r->busbw_sum += row->place[place].busbw;
			r->busbw_count++;
			r->wrong += row->place[place].wrong;
		}
	if (r->json)
		json_row(r, row);
	if (!r->table)
		return;
	fprintf(r->table, "%12zu %13zu %9s %7s %7d  | ", row->bytes, row->call.count, type_text(r, row),
	        op_text(r, row), r->what->rooted ? row->call.root : -1);
	print_place(r, row, 0);
	print_place(r, row, 1);
	print_spread(r, row, 0);
	print_spread(r, row, 1);
	fprintf(r->table, "%s\n", row->algorithm);
	fflush(r->table);
}

void perf_report_end(struct perf_report *r, bool complete)
{
	const double busbw = r->busbw_count ? r->busbw_sum / r->busbw_count : 0;
	const bool good = complete && r->wrong == 0;

	if (r->table) {
		fprintf(r->table, "# Out of bounds values : %llu %s\n", (unsigned long long)r->wrong,
		        good ? "OK" : "FAILED");
		fprintf(r->table, "# Avg bus bandwidth    : %.5g\n#\n", busbw);
		if (!complete)
			fprintf(r->table, "# Ended early by an error\n");
		fflush(r->table);
	}
	if (r->json)
		fprintf(r->json, "],\n \"complete\": %s, \"wrong\": %llu, \"average_busbw\": %.6f}\n",
		        complete ? "true" : "false", (unsigned long long)r->wrong, busbw);
}
