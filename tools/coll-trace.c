/*
 * coll-trace: dumps of the flight recorder of several ranks as one trace, to be opened in
 * Perfetto (ui.perfetto.dev) or chrome://tracing.
 *
 * A rank is a process of the trace; a stream of a communicator, or its blocking calls, is
 * a thread, or several where operations overlap. The format is the Trace Event Format's
 * JSON: complete events (X) for operations, instants (i) for what failed or hangs.
 *
 * Clocks of hosts differ. An operation in which all ranks wait for each other cannot
 * end on one rank before another has begun it. If the stamps contradict this, the
 * clocks are wrong, and the stamps of a host are moved by the smallest possible amount.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "coll/coll.h"
#include "dump.h"
#include "inspect_client.h"
#include "tools/common/flag_guess.h"
#include "tools/common/last_flush.h"

static const char usage[] = "usage: coll-trace [-o FILE] [--no-align] [--pid PID]... [DUMP]...\n"
                            "  -o, --output FILE  write the trace there (default: standard output)\n"
                            "  --no-align         leave the clocks of hosts as they are\n"
                            "  --pid PID          ask the ranks below a running process\n"
                            "  --version          version and commit\n"
                            "DUMPs are files of COLL_DUMP_FILE, - is standard input.\n";

/* An operation with its rank, in microseconds of the trace's time later on. */
struct event {
	const struct dump *dump;
	const struct dump_op *op;
	int host;       /* index into hosts */
	int64_t number; /* of the process in the trace */
	uint64_t begin_ns, end_ns;
	int thread; /* of the rank, from 1 */
	int row;    /* of the stream, from 0 */
};

struct trace {
	struct event *events;
	size_t n;
	const char **hosts;
	int64_t *shift_ns; /* by host */
	int nhosts;
	uint64_t base_ns;
};

/* ---- Collecting ---- */

static int host_index(struct trace *t, const char *name)
{
	for (int i = 0; i < t->nhosts; i++)
		if (strcmp(t->hosts[i], name) == 0)
			return i;
	t->hosts[t->nhosts] = name;
	return t->nhosts++;
}

static uint64_t begin_of(const struct dump_op *o)
{
	return o->begin_ns ? o->begin_ns : o->queued_ns;
}

/* Equal operations of the same rank together, the one with the most information last. */
static int by_identity(const void *a, const void *b)
{
	const struct event *x = a, *y = b;
	const struct dump *dx = x->dump, *dy = y->dump;

	if (dx->job != dy->job)
		return dx->job < dy->job ? -1 : 1;
	if (dx->process != dy->process)
		return dx->process < dy->process ? -1 : 1;
	if (x->op->comm != y->op->comm)
		return x->op->comm < y->op->comm ? -1 : 1;
	if (x->op->index != y->op->index)
		return x->op->index < y->op->index ? -1 : 1;
	if (x->op->state != y->op->state)
		return x->op->state < y->op->state ? -1 : 1;
	return dx->now_ns < dy->now_ns ? -1 : dx->now_ns > dy->now_ns;
}

/* Process numbers of the trace: ranks, those of several jobs apart. */
static int64_t number(const struct dump_list *l, const struct dump *d)
{
	int64_t job = 0;

	for (size_t i = 0; i < l->n && l->dumps[i].job != d->job; i++)
		job++;
	return job * 1000000 + d->process;
}

static bool collect(struct trace *t, const struct dump_list *l)
{
	size_t total = 0, n = 0;

	for (size_t i = 0; i < l->n; i++)
		total += l->dumps[i].nops;
	t->events = calloc(total + 1, sizeof(*t->events));
	t->hosts = calloc(l->n + 1, sizeof(*t->hosts));
	t->shift_ns = calloc(l->n + 1, sizeof(*t->shift_ns));
	if (!t->events || !t->hosts || !t->shift_ns)
		return false;
	for (size_t i = 0; i < l->n; i++) {
		const struct dump *d = &l->dumps[i];
		const int host = host_index(t, d->host);
		const int64_t pid = number(l, d);

		for (size_t k = 0; k < d->nops; k++) {
			const struct dump_op *o = &d->ops[k];

			t->events[t->n++] = (struct event){.dump = d,
			                                   .op = o,
			                                   .host = host,
			                                   .number = pid,
			                                   .begin_ns = begin_of(o),
			                                   .end_ns = o->end_ns ? o->end_ns : d->now_ns};
		}
	}
	/* Several dumps of a rank tell of the same operations. */
	qsort(t->events, t->n, sizeof(*t->events), by_identity);
	for (size_t i = 0; i < t->n; i++) {
		const struct event *e = &t->events[i], *next = e + 1;

		if (i + 1 < t->n && e->dump->job == next->dump->job && e->dump->process == next->dump->process &&
		    e->op->comm == next->op->comm && e->op->index == next->op->index)
			continue;
		t->events[n++] = *e;
	}
	t->n = n;
	return true;
}

/* ---- Clocks ---- */

/* No rank leaves before all have entered. */
static bool synchronises(const struct dump_op *o)
{
	static const char *const kinds[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strncmp(o->kind, kinds[i], strlen(kinds[i])) == 0)
			return o->state == DUMP_ENDED && o->status == 0 && (o->count > 0 || o->kind[0] == 'b');
	return false;
}

static int by_call(const void *a, const void *b)
{
	const struct event *x = *(const struct event *const *)a, *y = *(const struct event *const *)b;

	if (x->op->comm != y->op->comm)
		return x->op->comm < y->op->comm ? -1 : 1;
	if (x->op->sequence != y->op->sequence)
		return x->op->sequence < y->op->sequence ? -1 : 1;
	return x->host - y->host;
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Bounds of what must be added to the stamps of host b for a call both saw: its ends come
 * after a's begins, its begins before a's ends. */
static void bound(const struct event *a, const struct event *b, int64_t *low, int64_t *high)
{
	*low = larger(*low, (int64_t)(a->begin_ns - b->end_ns));
	*high = -larger(-*high, -(int64_t)(a->end_ns - b->begin_ns));
}

/* The first host's calendar is right by definition. */
static bool align(struct trace *t)
{
	const struct event **calls = malloc((t->n + 1) * sizeof(*calls));
	size_t n = 0;

	if (!calls)
		return false;
	for (size_t i = 0; i < t->n; i++)
		if (synchronises(t->events[i].op))
			calls[n++] = &t->events[i];
	qsort(calls, n, sizeof(*calls), by_call);
	for (int host = 1; host < t->nhosts; host++) {
		int64_t low = INT64_MIN / 2, high = INT64_MAX / 2;

		for (size_t first = 0, i = 0; i < n; i++) {
			if (calls[i]->op->comm != calls[first]->op->comm ||
			    calls[i]->op->sequence != calls[first]->op->sequence)
				first = i;
			for (size_t k = first; calls[i]->host == host && k < i && calls[k]->host == 0; k++)
				bound(calls[k], calls[i], &low, &high);
		}
		if (low > INT64_MIN / 2 && (low > 0 || high < 0))
			t->shift_ns[host] = low <= high ? low + (high - low) / 2 : low > 0 ? low : high;
		if (t->shift_ns[host])
			fprintf(stderr, "coll-trace: the clock of host %s is off by %.6f s against %s: corrected\n",
			        t->hosts[host], -(double)t->shift_ns[host] * 1e-9, t->hosts[0]);
	}
	free(calls);
	return true;
}

static void shift(struct trace *t)
{
	t->base_ns = UINT64_MAX;
	for (size_t i = 0; i < t->n; i++) {
		struct event *e = &t->events[i];

		e->begin_ns += (uint64_t)t->shift_ns[e->host];
		e->end_ns += (uint64_t)t->shift_ns[e->host];
		if (e->end_ns < e->begin_ns)
			e->end_ns = e->begin_ns;
		t->base_ns = e->begin_ns < t->base_ns ? e->begin_ns : t->base_ns;
	}
	if (t->n == 0)
		t->base_ns = 0;
}

/* ---- Threads ---- */

static int by_place(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->dump->job != y->dump->job)
		return x->dump->job < y->dump->job ? -1 : 1;
	if (x->dump->process != y->dump->process)
		return x->dump->process < y->dump->process ? -1 : 1;
	if (x->op->comm != y->op->comm)
		return x->op->comm < y->op->comm ? -1 : 1;
	if (x->op->stream != y->op->stream)
		return x->op->stream < y->op->stream ? -1 : 1;
	return x->begin_ns != y->begin_ns ? (x->begin_ns < y->begin_ns ? -1 : 1) : x->op->index < y->op->index ? -1 : 1;
}

static bool same_rank(const struct event *a, const struct event *b)
{
	return a->dump->job == b->dump->job && a->dump->process == b->dump->process;
}

static bool same_stream(const struct event *a, const struct event *b)
{
	return same_rank(a, b) && a->op->comm == b->op->comm && a->op->stream == b->op->stream;
}

/* Complete events of a thread must not overlap but nest: what does goes to a further
 * thread of the same stream. What has not started takes no time and no place. */
static bool place(struct trace *t)
{
	uint64_t *busy = malloc((t->n + 1) * sizeof(*busy));
	int first = 1, rows = 0;

	if (!busy)
		return false;
	qsort(t->events, t->n, sizeof(*t->events), by_place);
	for (size_t i = 0; i < t->n; i++) {
		struct event *e = &t->events[i];
		int row = 0;

		if (i == 0 || !same_rank(e, e - 1))
			first = 1, rows = 0;
		else if (!same_stream(e, e - 1))
			first += rows ? rows : 1, rows = 0;
		e->thread = first;
		if (e->op->state == DUMP_QUEUED)
			continue;
		while (row < rows && busy[row] > e->begin_ns)
			row++;
		rows = row >= rows ? row + 1 : rows;
		busy[row] = e->end_ns;
		e->thread = first + row;
		e->row = row;
	}
	free(busy);
	return true;
}

/* ---- Writing ---- */

struct writer {
	FILE *f;
	bool any;
	size_t events;
};

static void put(struct writer *w, struct coll_text *line)
{
	fprintf(w->f, "%s\n%s", w->any ? "," : "", line->p ? line->p : "");
	w->any = true;
	w->events++;
	line->len_bytes = 0;
}

static double micros(const struct trace *t, uint64_t ns)
{
	return (double)(int64_t)(ns - t->base_ns) * 1e-3;
}

/* Escaped, without quotes: a part of a text of JSON. */
static void add_escaped(struct coll_text *line, const char *text)
{
	struct coll_text quoted = {0};

	coll_text_add_json(&quoted, text);
	coll_text_add(line, "%.*s", quoted.len_bytes > 2 ? (int)quoted.len_bytes - 2 : 0, quoted.p ? quoted.p + 1 : "");
	coll_text_free(&quoted);
}

static void put_names(struct writer *w, const struct trace *t, struct coll_text *line)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct event *e = &t->events[i];
		const long long pid = e->number;

		if (i == 0 || !same_rank(e, e - 1)) {
			coll_text_add(
			        line,
			        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%lld,\"tid\":0,\"args\":{\"name\":",
			        pid);
			coll_text_add(line, "\"rank %d (pid %d, host ", e->dump->process, e->dump->pid);
			add_escaped(line, e->dump->host);
			coll_text_add(line, ")\"}}");
			put(w, line);
			coll_text_add(line,
			              "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%lld,\"tid\":0,"
			              "\"args\":{\"sort_index\":%lld}}",
			              pid, pid);
			put(w, line);
		}
	}
}

/* Threads are numbered in the order of events, rows of a stream next to each other. */
static void put_threads(struct writer *w, const struct trace *t, struct coll_text *line)
{
	int rows = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct event *e = &t->events[i];
		const struct dump_comm *c = dump_find_comm(e->dump, e->op->comm);

		/* A row is first used after all before it. */
		if (i == 0 || !same_stream(e, e - 1))
			rows = 0;
		if (e->row < rows)
			continue;
		rows = e->row + 1;
		coll_text_add(line,
		              "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%lld,\"tid\":%d,\"args\":{\"name\":\"",
		              (long long)e->number, e->thread);
		if (c && c->name[0]) {
			add_escaped(line, c->name);
			coll_text_add(line, ", ");
		}
		coll_text_add(line, "communicator %08llx ", (unsigned long long)(e->op->comm >> 32));
		if (e->op->stream < 0)
			coll_text_add(line, "blocking");
		else
			coll_text_add(line, "stream %d", e->op->stream);
		if (e->row > 0)
			coll_text_add(line, " (overlapping, %d)", e->row + 1);
		coll_text_add(line, "\"}}");
		put(w, line);
	}
}

static void put_operation(struct writer *w, const struct trace *t, const struct event *e, struct coll_text *line)
{
	static const char *const states[] = {"queued", "running", "ended"};
	const struct dump_op *o = e->op;
	const bool pair = dump_is_message(o);

	coll_text_add(line,
	              o->state == DUMP_QUEUED ? "{\"ph\":\"i\",\"s\":\"t\",\"name\":" : "{\"ph\":\"X\",\"name\":");
	coll_text_add_json(line, o->kind);
	coll_text_add(line, ",\"cat\":\"%s\",\"pid\":%lld,\"tid\":%d,\"ts\":%.3f",
	              o->state == DUMP_QUEUED ? "queued"
	              : pair                  ? "pair"
	                                      : "collective",
	              (long long)e->number, e->thread, micros(t, e->begin_ns));
	if (o->state != DUMP_QUEUED)
		coll_text_add(line, ",\"dur\":%.3f", (double)(e->end_ns - e->begin_ns) * 1e-3);
	coll_text_add(line, ",\"args\":{");
	coll_text_add(line, "\"sequence\":%llu,\"count\":%llu,\"dtype\":", (unsigned long long)o->sequence,
	              (unsigned long long)o->count);
	coll_text_add_json(line, o->dtype);
	coll_text_add(line, ",\"op\":");
	coll_text_add_json(line, o->op);
	if (o->way[0]) {
		coll_text_add(line, ",\"way\":");
		coll_text_add_json(line, o->way);
	}
	if (dump_has_tag(o) && o->root < 0)
		coll_text_add(line, ",\"peer\":\"any source\"");
	else
		coll_text_add(line, ",\"%s\":%d", pair ? "peer" : "root", o->root);
	if (dump_has_tag(o) && o->tag < 0)
		coll_text_add(line, ",\"tag\":\"any tag\"");
	else if (dump_has_tag(o))
		coll_text_add(line, ",\"tag\":%d", o->tag);
	coll_text_add(line, ",\"state\":\"%s\",\"communicator\":\"%016llx\"", states[o->state],
	              (unsigned long long)o->comm);
	if (o->stream >= 0 && o->begin_ns)
		coll_text_add(line, ",\"queued_us\":%.3f", (double)(int64_t)(o->begin_ns - o->queued_ns) * 1e-3);
	if (o->state == DUMP_ENDED) {
		coll_text_add(line, ",\"result\":");
		coll_text_add_json(line, o->result);
	}
	if (o->waits_for >= 0)
		coll_text_add(line, ",\"waits_for\":%d,\"step\":%d,\"lane\":%d", o->waits_for, o->step, o->lane);
	coll_text_add(line, "}}");
	put(w, line);
	/* What merely runs while the dump is made is no trouble. */
	if (o->state == DUMP_ENDED ? o->status == 0 : o->waits_for < 0)
		return;
	coll_text_add(line,
	              "{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"trouble\",\"pid\":%lld,\"tid\":%d,\"ts\":%.3f,\"name\":",
	              (long long)e->number, e->thread, micros(t, e->end_ns));
	if (o->state == DUMP_ENDED)
		coll_text_add_json(line, o->result);
	else
		coll_text_add(line, "\"not ended: waits for rank %d\"", o->waits_for);
	coll_text_add(line, "}");
	put(w, line);
}

/* Deaths and failures reported to a rank, if its dump has them. */
static void put_troubles(struct writer *w, const struct trace *t, const struct dump_list *l, struct coll_text *line)
{
	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; k < l->dumps[i].nnotes; k++) {
			const struct dump *d = &l->dumps[i];
			int host = 0;

			while (host < t->nhosts - 1 && strcmp(t->hosts[host], d->host) != 0)
				host++;
			coll_text_add(
			        line,
			        "{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"trouble\",\"pid\":%lld,\"tid\":0,\"ts\":%.3f,"
			        "\"name\":",
			        (long long)number(l, d), micros(t, d->now_ns + (uint64_t)t->shift_ns[host]));
			coll_text_add_json(line, d->notes[k].about);
			coll_text_add(line, ",\"args\":{\"rank\":%d,\"text\":", d->notes[k].process);
			coll_text_add_json(line, d->notes[k].text);
			coll_text_add(line, "}}");
			put(w, line);
		}
}

static bool write_trace(const struct trace *t, const struct dump_list *l, FILE *f)
{
	struct writer w = {.f = f};
	struct coll_text line = {0};
	bool ok;

	fprintf(f, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"program\":\"coll-trace\",\"base_ns\":\"%llu\"",
	        (unsigned long long)t->base_ns);
	for (int i = 0; i < t->nhosts; i++) {
		coll_text_add_json(&line, t->hosts[i]);
		fprintf(f, ",\"clock of %s:\"%+.6f s\"", line.p ? line.p + 1 : "\"", (double)t->shift_ns[i] * 1e-9);
		line.len_bytes = 0;
	}
	fprintf(f, "},\"traceEvents\":[");
	put_names(&w, t, &line);
	put_threads(&w, t, &line);
	for (size_t i = 0; i < t->n; i++)
		put_operation(&w, t, &t->events[i], &line);
	put_troubles(&w, t, l, &line);
	fprintf(f, "\n]}\n");
	ok = !line.failed && fflush(f) == 0 && !ferror(f);
	coll_text_free(&line);
	return ok;
}

static int count_ranks(const struct trace *t)
{
	int n = 0;

	for (size_t i = 0; i < t->n; i++)
		n += i == 0 || !same_rank(&t->events[i], &t->events[i - 1]);
	return n;
}

static int make(struct dump_list *l, const char *path, bool aligned)
{
	struct trace t = {0};
	FILE *f = path ? fopen(path, "we") : stdout;
	bool ok = f && collect(&t, l) && (!aligned || align(&t));
	int why = f ? 0 : errno;

	if (ok) {
		shift(&t);
		errno = 0;
		ok = place(&t) && write_trace(&t, l, f);
		why = ok ? 0 : errno;
	}
	if (f && f != stdout && fclose(f) != 0 && ok) {
		ok = false;
		why = errno;
	}
	if (ok)
		fprintf(stderr, "coll-trace: %d ranks, %zu operations%s%s\n", count_ranks(&t), t.n, path ? " in " : "",
		        path ? path : "");
	else
		fprintf(stderr, "coll-trace: cannot write %s: %s\n", path ? path : "to standard output",
		        why ? strerror(why) : "out of memory");
	free(t.events);
	free((void *)t.hosts);
	free(t.shift_ns);
	return ok ? 0 : 1;
}

/* All ranks below a process. */
static bool read_process(const char *text, struct dump_list *l)
{
	struct door_silent silent = {.n = 0};
	char why[300];
	int pid;

	if (!coll_number_parse(text, 1, INT_MAX, &pid)) {
		fprintf(stderr, "coll-trace: --pid %s: expected the number of a process\n", text);
		return false;
	}
	if (door_ask_family(pid, "dump", l, &silent) > 0) {
		for (int i = 0; i < silent.n; i++)
			fprintf(stderr, "coll-trace: process %d %s\n", silent.who[i].pid, silent.who[i].why);
		return true;
	}
	door_why_none(pid, why, sizeof(why));
	fprintf(stderr, "coll-trace: %s\n", why);
	return false;
}

static bool read_file(const char *path, struct dump_list *l)
{
	const size_t before = l->n;
	char why[200];

	if (!dump_read_file(path, l, why, sizeof(why))) {
		fprintf(stderr, "coll-trace: %s: %s\n", path, why);
		return false;
	}
	for (size_t i = before; i < l->n; i++)
		if (!l->dumps[i].whole)
			fprintf(stderr,
			        "coll-trace: %s: a dump of rank %d breaks off: its last operations may be missing\n",
			        path, l->dumps[i].process);
	return true;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
	        {"output", required_argument, NULL, 'o'}, {"no-align", no_argument, NULL, 'n'},
	        {"pid", required_argument, NULL, 'p'},    {"help", no_argument, NULL, 'h'},
	        {"version", no_argument, NULL, 'V'},      {0}};
	struct dump_list list = {0};
	const char *path = NULL;
	bool aligned = true, ok = true;
	int o, bad = 0, status = 1;

	last_flush_check("coll-trace");
	opterr = 0;
	while (ok && (o = getopt_long(argc, argv, ":o:V", options, NULL)) != -1) {
		if (o == '?' || o == ':')
			flag_refused("coll-trace", usage, o, argv);
		if (o == 'h' || o == '?' || o == ':') {
			fputs(usage, o == 'h' ? stdout : stderr);
			dump_list_free(&list);
			return o == 'h' ? 0 : 2;
		}
		if (o == 'V') {
			printf("coll-trace %s\n", coll_version_text());
			dump_list_free(&list);
			return 0;
		}
		path = o == 'o' ? optarg : path;
		aligned = aligned && o != 'n';
		ok = o != 'p' || read_process(optarg, &list);
	}
	/* One bad file of thousands costs that one. */
	for (; ok && optind < argc; optind++)
		bad += !read_file(argv[optind], &list);
	if (ok && list.n == 0 && bad == 0) {
		fputs(usage, stderr);
		status = 2;
	} else if (ok && list.n > 0) {
		status = make(&list, path, aligned) || bad > 0;
	}
	dump_list_free(&list);
	return status;
}
