/*
 * The main program of every perf program: create the communicator, walk through
 * types, operations, roots and sizes, and for each row time and verify the call
 * out of place and in place.
 *
 * Exit status: 0 all right; 1 wrong values, or a call failed; 2 bad arguments;
 * 3 the time of -T ran out.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf.h"
#include "tools/common/last_flush.h"

/* What the bytes behind an output, and the output itself, hold before a call. */
enum { ALIGNMENT = 4096, GUARD_BYTES = 64, GUARD = 0xa5, STALE = 0xc3 };

struct session {
	const struct perf_collective *what;
	struct perf_args args;
	coll_comm *comm;
	int rank;
	int size;
	char *buffer[2]; /* as allocated; the second for output when out of place */
	char *device[2]; /* the same in device memory, with --device */
	size_t capacity[2];
	double *samples;
	struct perf_numbers *numbers;
	uint64_t salt;
	struct perf_report report;
};

double perf_bus_one(int n)
{
	(void)n;
	return 1;
}

double perf_bus_others(int n)
{
	return (double)(n - 1) / n;
}

coll_status perf_run(const struct perf_test *t)
{
	if (t->in_device)
		return t->what->run(&t->call, t->in_device, t->out_device);
	return t->what->run(&t->call, t->in, t->out);
}

coll_status perf_fill_input(const struct perf_test *t)
{
	if (t->in_count > 0)
		perf_data_fill(t->data, t->call.rank, t->salt, 0, t->in_count, t->in);
	return t->in_device ? perf_device_write(t->in_device, t->in, t->in_count * t->elem_bytes) : COLL_OK;
}

/* What the call has left in device memory. */
static coll_status fetch(const struct perf_test *t, bool in_place)
{
	const size_t out_bytes = t->out_count > 0 ? t->out_count * t->elem_bytes : 0;
	coll_status status = COLL_OK;

	if (!t->in_device)
		return COLL_OK;
	if (out_bytes > 0)
		status = perf_device_read(t->out, t->out_device, out_bytes + (in_place ? 0 : GUARD_BYTES));
	if (status == COLL_OK && !in_place)
		status = perf_device_read(t->in, t->in_device, t->in_count * t->elem_bytes);
	return status;
}

/* ---- Verification ---- */

/* Out of place only: in place, input may lie behind the output. */
static uint64_t check_guard(const struct perf_test *t)
{
	const unsigned char *p = (const unsigned char *)t->out + t->out_count * t->elem_bytes;
	uint64_t wrong = 0;

	for (int i = 0; t->out_count > 0 && i < GUARD_BYTES; i++)
		wrong += p[i] != GUARD;
	return wrong > 0;
}

static uint64_t check_output(const struct perf_test *t)
{
	struct perf_segment s;
	uint64_t wrong = 0;

	for (int k = 0; t->what->segment && t->what->segment(&t->call, k, &s); k++)
		wrong += perf_data_check(t->data, &s, t->salt, t->out + s.at * t->elem_bytes);
	return wrong;
}

/* The call must not write to an input that is not its output. */
static uint64_t check_input(const struct perf_test *t)
{
	const struct perf_segment s = {.count = t->in_count, .source = t->call.rank};

	return t->in_count > 0 ? perf_data_check(t->data, &s, t->salt, t->in) : 0;
}

/* Wrong values of all ranks together. Results of an all-reduce are equal on all
 * ranks, bit for bit, whatever rounding was allowed for. */
static coll_status count_wrong(const struct perf_test *t, uint64_t mine, uint64_t *wrong)
{
	const bool equal = strcmp(t->what->kind, "all_reduce") == 0;
	const uint64_t words[2] = {mine, equal ? perf_data_hash(t->out, t->out_count * t->elem_bytes) : 0};
	coll_status status = perf_exchange(t->call.comm, words, 2, t->numbers);
	uint64_t all = 0;

	for (int rank = 0; status == COLL_OK && rank < t->call.size; rank++) {
		all += t->numbers[rank].word[0];
		if (t->numbers[rank].word[0] == 0 && t->numbers[rank].word[1] != t->numbers[0].word[1])
			all++;
	}
	*wrong += all;
	return status;
}

/* The output is that of a call on the input as filled. */
static coll_status verify_result(const struct perf_test *t, bool in_place, uint64_t *wrong)
{
	const coll_status fetched = fetch(t, in_place);
	uint64_t mine;

	if (fetched != COLL_OK)
		return fetched;
	mine = check_output(t);
	if (!in_place)
		mine += check_guard(t) + check_input(t);
	return count_wrong(t, mine, wrong);
}

static coll_status prepare(const struct perf_test *t)
{
	coll_status status = COLL_OK;

	if (t->out_count > 0) {
		memset(t->out, STALE, t->out_count * t->elem_bytes);
		memset(t->out + t->out_count * t->elem_bytes, GUARD, GUARD_BYTES);
		if (t->out_device)
			status = perf_device_write(t->out_device, t->out, t->out_count * t->elem_bytes + GUARD_BYTES);
	}
	return status == COLL_OK ? perf_fill_input(t) : status;
}

/* ---- One row ---- */

static char *aligned_start(const struct session *s, int which, size_t elem_bytes)
{
	const uintptr_t p = (uintptr_t)s->buffer[which];
	const size_t pad = s->args.library_memory ? 0 : (ALIGNMENT - p % ALIGNMENT) % ALIGNMENT;

	return s->buffer[which] + pad + s->args.unalign * elem_bytes;
}

/* The same place in device memory, which is aligned. */
static char *device_start(const struct session *s, int which, size_t elem_bytes)
{
	return s->device[which] ? s->device[which] + s->args.unalign * elem_bytes : NULL;
}

/* Where input and output lie for a call out of place or in place. */
static void place_buffers(const struct session *s, struct perf_test *t, bool in_place)
{
	char *first = aligned_start(s, 0, t->elem_bytes), *second = aligned_start(s, 1, t->elem_bytes);
	char *device = device_start(s, 0, t->elem_bytes);
	size_t in_at = 0, out_at = 0;

	if (!in_place) {
		t->in = first;
		t->out = second;
		t->in_device = device;
		t->out_device = device_start(s, 1, t->elem_bytes);
		return;
	}
	if (t->what->place)
		t->what->place(&t->call, &in_at, &out_at);
	t->in = first + in_at * t->elem_bytes;
	t->out = first + out_at * t->elem_bytes;
	t->in_device = device ? device + in_at * t->elem_bytes : NULL;
	t->out_device = device ? device + out_at * t->elem_bytes : NULL;
}

/* Every call on fresh data, every result verified: for runs with faults, where the
 * times mean little. */
static coll_status measure_and_verify(struct session *s, struct perf_test *t, bool in_place, struct perf_times *times,
                                      uint64_t *wrong)
{
	coll_status status = COLL_OK;
	double total_s = 0;

	for (int i = -s->args.warmups; i < s->args.iters && status == COLL_OK; i++)
		for (int k = 0; k < s->args.aggregate && status == COLL_OK; k++) {
			t->salt = ++s->salt;
			status = prepare(t);
			if (status == COLL_OK)
				status = perf_measure_one(t, i < 0 ? 0 : i);
			total_s += i < 0 ? 0 : t->samples[i];
			if (status == COLL_OK)
				status = verify_result(t, in_place, wrong);
		}
	return status == COLL_OK ? perf_measure_samples(t, total_s, times) : status;
}

static coll_status run_place(struct session *s, struct perf_test *t, struct perf_row *row, int place)
{
	const bool in_place = place == 1 && s->what->in_place;
	uint64_t *wrong = &row->place[place].wrong;
	coll_status status;

	place_buffers(s, t, in_place);
	t->salt = ++s->salt;
	status = prepare(t);
	if (status != COLL_OK)
		return status;
	if (s->args.check_all)
		status = measure_and_verify(s, t, in_place, &row->place[place].times, wrong);
	else
		status = perf_measure(t, &row->place[place].times);
	if (status == COLL_OK && !s->args.check_all && s->args.checks > 0 && perf_measure_leaves_result(t, in_place))
		status = verify_result(t, in_place, wrong);
	for (int i = 0; i < s->args.checks && status == COLL_OK; i++) {
		t->salt = ++s->salt;
		status = prepare(t);
		if (status == COLL_OK)
			status = perf_run(t);
		if (status == COLL_OK)
			status = verify_result(t, in_place, wrong);
	}
	row->place[place].algbw = (double)row->bytes / row->place[place].times.mean * 1e-9;
	row->place[place].busbw = row->place[place].algbw * (s->what->bus_factor ? s->what->bus_factor(s->size) : 0);
	return status;
}

/* How the calls that were timed last were made, out of place and in place. */
static void name_algorithm(struct perf_row *row, const char *const way[2])
{
	const char *first = way[0] ? way[0] : "-", *second = way[1] ? way[1] : first;
	const bool differ = strcmp(first, second) != 0;

	snprintf(row->algorithm, sizeof(row->algorithm), "%s%s%s", first, differ ? "/" : "", differ ? second : "");
}

/* The scale goes with the operation; made per row, it costs nothing that is timed. */
static coll_status bind_op(const struct session *s, struct perf_call *call, int op)
{
	static const uint16_t half_bits = 0x3800, bfloat16_bits = 0x3f00; /* PERF_MULSUM_SCALE */
	static const uint8_t e4m3_bits = 0x30, e5m2_bits = 0x38;
	const float f = PERF_MULSUM_SCALE;
	const double d = PERF_MULSUM_SCALE;
	const void *scale = &d;

	if (op != PERF_MULSUM) {
		call->op = (coll_op)(op < 0 ? 0 : op);
		return COLL_OK;
	}
	if (call->type == COLL_F16)
		scale = &half_bits;
	else if (call->type == COLL_BF16)
		scale = &bfloat16_bits;
	else if (call->type == COLL_F8E4M3)
		scale = &e4m3_bits;
	else if (call->type == COLL_F8E5M2)
		scale = &e5m2_bits;
	else if (call->type == COLL_F32)
		scale = &f;
	return coll_op_create_premul_sum(&call->op, s->comm, scale, call->type);
}

static coll_status run_row(struct session *s, struct perf_data *data, coll_dtype type, int op, int root, size_t bytes)
{
	const size_t elem_bytes = coll_dtype_size(type), blocks = s->what->blocks ? (size_t)s->size : 1;
	const char *way[2] = {NULL, NULL};
	struct perf_row row = {.op = op};
	struct perf_test t = {.what = s->what,
	                      .args = &s->args,
	                      .data = data,
	                      .elem_bytes = elem_bytes,
	                      .samples = s->samples,
	                      .numbers = s->numbers};
	coll_status status;

	t.call = (struct perf_call){.count = bytes / elem_bytes / blocks,
	                            .type = type,
	                            .root = root,
	                            .rank = s->rank,
	                            .size = s->size,
	                            .comm = s->comm};
	status = bind_op(s, &t.call, op);
	if (s->what->no_data)
		t.call.count = 0;
	if (status != COLL_OK)
		return status;
	if (s->what->extent)
		s->what->extent(&t.call, &t.in_count, &t.out_count);
	t.bytes = row.bytes = t.call.count * blocks * elem_bytes;
	row.call = t.call;
	if (s->args.timeout_s)
		alarm((unsigned)s->args.timeout_s);
	for (int place = 0; place < 2 && status == COLL_OK; place++) {
		t.way = &way[place];
		status = run_place(s, &t, &row, place);
	}
	/* A message to oneself is on no record. */
	if (s->size == 1 && strcmp(s->what->kind, "send_recv") == 0)
		way[0] = way[1] = NULL;
	name_algorithm(&row, way);
	if (s->args.timeout_s)
		alarm(0);
	if (op == PERF_MULSUM)
		(void)coll_op_destroy(&t.call.op, s->comm);
	if (status == COLL_OK)
		perf_report_row(&s->report, &row);
	return status;
}

/* ---- All rows ---- */

/* The next size of the scan; 0 is followed by one element (of each block). */
static size_t next_bytes(const struct session *s, size_t bytes, size_t elem_bytes)
{
	const size_t one = elem_bytes * (s->what->blocks ? (size_t)s->size : 1);

	if (s->args.factor == 0)
		return bytes + s->args.step_bytes;
	return bytes == 0 ? one : bytes * s->args.factor;
}

static coll_status run_sizes(struct session *s, struct perf_data *data, coll_dtype type, int op, int root)
{
	const size_t elem_bytes = coll_dtype_size(type);
	coll_status status = COLL_OK;
	size_t bytes = s->args.min_bytes;

	for (; bytes <= s->args.max_bytes && status == COLL_OK; bytes = next_bytes(s, bytes, elem_bytes)) {
		status = run_row(s, data, type, op, root, bytes);
		if (s->what->no_data)
			break;
	}
	return status;
}

/* How many ranks a rank's result comes from; at least 1, though nothing is checked at rank 0 of an exclusive scan. */
static int ranks_of(const struct session *s)
{
	switch (s->what->prefix) {
	case PERF_UP_TO_OWN: return s->rank + 1;
	case PERF_BEFORE_OWN: return s->rank > 0 ? s->rank : 1;
	default: return s->size;
	}
}

static coll_status run_roots(struct session *s, coll_dtype type, int op)
{
	const bool all = s->what->rooted && s->args.root == PERF_ALL;
	const int first = all || !s->what->rooted ? 0 : s->args.root, last = all ? s->size - 1 : first;
	struct perf_data *data = perf_data_create(type, op, s->size, ranks_of(s), s->args.check_all);
	coll_status status = data ? COLL_OK : COLL_ERR_MEMORY;

	for (int root = first; root <= last && status == COLL_OK; root++)
		status = run_sizes(s, data, type, op, root);
	perf_data_destroy(&data);
	return status;
}

static coll_status run_table(struct session *s)
{
	coll_status status = COLL_OK;

	for (int type = 0; type < COLL_DTYPE_COUNT; type++) {
		if (s->args.type != PERF_ALL && s->args.type != type)
			continue;
		if (!s->what->reduces)
			status = run_roots(s, (coll_dtype)type, -1);
		for (int op = 0; s->what->reduces && op < PERF_OPS && status == COLL_OK; op++)
			if (perf_op_supports((coll_dtype)type, op) && !(s->what->prefix && op == COLL_AVG) &&
			    (s->args.op == PERF_ALL || s->args.op == op))
				status = run_roots(s, (coll_dtype)type, op);
		if (status != COLL_OK || s->what->no_data)
			break;
	}
	return status;
}

/* ---- Beginning and end ---- */

static const char *program_name = "perf";

static void timed_out(int signal)
{
	static const char text[] = ": a row took longer than the time of -T\n";

	(void)signal;
	(void)!write(STDERR_FILENO, program_name, strlen(program_name));
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(3);
}

static bool on_device(const struct perf_args *args)
{
	return args->device && strcmp(args->device, "host") != 0;
}

static coll_status allocate(struct session *s)
{
	const size_t slack = GUARD_BYTES + ALIGNMENT + s->args.unalign * 8;
	/* Blocks round down, but a size of 0 is followed by one element of each. */
	const size_t least = (size_t)s->size * 8;
	const size_t bytes = s->what->no_data ? 0 : s->args.max_bytes > least ? s->args.max_bytes : least;
	coll_status status = COLL_OK;

	s->samples = malloc((size_t)s->args.iters * sizeof(double));
	s->numbers = calloc((size_t)s->size, sizeof(*s->numbers));
	if (!s->samples || !s->numbers)
		return COLL_ERR_MEMORY;
	for (int i = 0; i < 2 && status == COLL_OK; i++) {
		s->capacity[i] = bytes + slack;
		if (s->args.library_memory)
			status = coll_mem_alloc(s->comm, (void **)&s->buffer[i], s->capacity[i]);
		else if (!(s->buffer[i] = malloc(s->capacity[i])))
			status = COLL_ERR_MEMORY;
		if (status == COLL_OK && on_device(&s->args))
			status = coll_mem_alloc_on(s->comm, (void **)&s->device[i], s->capacity[i], COLL_MEM_DEVICE);
	}
	return status;
}

static void release(struct session *s)
{
	for (int i = 0; i < 2; i++)
		if (s->args.library_memory && s->buffer[i])
			(void)coll_mem_free(s->comm, s->buffer[i]);
		else
			free(s->buffer[i]);
	for (int i = 0; i < 2; i++)
		if (s->device[i])
			(void)coll_mem_free(s->comm, s->device[i]);
	free(s->samples);
	free(s->numbers);
}

/* Rank 0 opens the JSON file; all learn whether it could. */
static coll_status begin_report(struct session *s, bool *opened)
{
	struct perf_gpu gpu = {.ordinal = coll_comm_local_rank(s->comm), .name = "CPU"};
	uint64_t mine[PERF_BEGIN] = {[PERF_PID] = (uint64_t)getpid(), [PERF_OPENED] = 1};
	coll_status status;

	static_assert(sizeof(gpu.name) == PERF_NAME_WORDS * sizeof(*mine), "a name fits");
	if (s->device[0] && !perf_device_gpu(s->device[0], &gpu))
		strcpy(gpu.name, "unknown device");
	mine[PERF_DEVICE] = (uint64_t)gpu.ordinal;
	mine[PERF_DOMAIN] = gpu.domain;
	mine[PERF_BUS] = gpu.bus;
	mine[PERF_SLOT] = gpu.slot;
	memcpy(&mine[PERF_NAME], gpu.name, sizeof(gpu.name));

	s->report.table = s->rank == 0 ? stdout : NULL;
	if (s->rank == 0 && s->args.json) {
		s->report.json = fopen(s->args.json, "w");
		if (!s->report.json)
			fprintf(stderr, "%s: %s: %s\n", s->what->program, s->args.json, strerror(errno));
		mine[PERF_OPENED] = s->report.json != NULL;
	}
	status = perf_exchange(s->comm, mine, PERF_BEGIN, s->numbers);
	*opened = status != COLL_OK || s->numbers[0].word[PERF_OPENED];
	if (status == COLL_OK && *opened)
		perf_report_begin(&s->report, s->what, &s->args, s->comm, s->numbers);
	return status;
}

static void explain_failure(const struct session *s, coll_status status)
{
	const coll_error *e = coll_last_error(s->comm);

	fprintf(stderr, "%s: rank %d: %s\n", s->what->program, s->rank,
	        e && e->status == status && e->message ? e->message : coll_status_string(status));
}

static int run_session(struct session *s)
{
	bool opened = true;
	coll_status status;

	s->rank = coll_comm_rank(s->comm);
	s->size = coll_comm_size(s->comm);
	if (s->what->rooted && s->args.root >= s->size) {
		if (s->rank == 0)
			fprintf(stderr, "%s: flag -r %d: there are only ranks 0 to %d\n", s->what->program,
			        s->args.root, s->size - 1);
		return 2;
	}
	status = allocate(s);
	if (status == COLL_OK)
		status = begin_report(s, &opened);
	if (status == COLL_OK && !opened)
		return 2;
	for (int cycle = 0; status == COLL_OK && (s->args.cycles == 0 || cycle < s->args.cycles); cycle++)
		status = run_table(s);
	if (s->report.what)
		perf_report_end(&s->report, status == COLL_OK);
	if (status != COLL_OK)
		explain_failure(s, status);
	return status != COLL_OK || s->report.wrong > 0;
}

/* One rank, from the beginning to its end. */
static int run_rank(struct session *s, const struct perf_job *job, int index)
{
	coll_status status = perf_job_create(job, index, &s->comm);
	int result;

	if (status != COLL_OK) {
		explain_failure(s, status);
		return 1;
	}
	result = run_session(s);
	if (s->report.json && fclose(s->report.json) != 0) {
		fprintf(stderr, "%s: %s: %s\n", s->what->program, s->args.json, strerror(errno));
		result = result ? result : 1;
	}
	release(s);
	status = coll_comm_destroy(&s->comm);
	if (status != COLL_OK && result == 0) {
		fprintf(stderr, "%s: destroy: %s\n", s->what->program, coll_status_string(status));
		result = 1;
	}
	return result;
}

struct rank {
	struct session session;
	const struct perf_job *job;
	int index, result;
	pthread_t thread;
};

static void *rank_main(void *arg)
{
	struct rank *r = arg;

	r->result = run_rank(&r->session, r->job, r->index);
	return NULL;
}

/* Each rank in its thread. The first one has the alarm clock. */
static int run_ranks(const struct session *s, const struct perf_job *job)
{
	struct rank *ranks = calloc((size_t)job->ranks, sizeof(*ranks));
	int begun = 0, result = ranks ? 0 : 1;

	for (; ranks && begun < job->ranks; begun++) {
		struct rank *r = &ranks[begun];

		*r = (struct rank){.session = *s, .job = job, .index = begun};
		if (begun > 0)
			r->session.args.timeout_s = 0;
		if (pthread_create(&r->thread, NULL, rank_main, r)) {
			fprintf(stderr, "%s: no thread for rank %d\n", s->what->program, begun);
			result = 1;
			break;
		}
	}
	for (int i = 0; i < begun; i++) {
		pthread_join(ranks[i].thread, NULL);
		result = result ? result : ranks[i].result;
	}
	free(ranks);
	return result;
}

int perf_main(const struct perf_collective *what, int argc, char **argv)
{
	struct session s = {.what = what, .rank = -1};
	struct perf_job job;
	coll_status status;
	int result;

	last_flush_check(what->program);
	result = perf_args_parse(&s.args, what->program, argc, argv);
	if (result)
		return result - 1;
	program_name = what->program;
	s.args.check_all |= getenv("COLL_HOOK") && *getenv("COLL_HOOK");
	signal(SIGALRM, timed_out);
	status = perf_job_begin(&job, s.args.ranks, s.args.device);
	if (status != COLL_OK)
		explain_failure(&s, status);
	result = status != COLL_OK ? 1 : job.ranks == 1 ? run_rank(&s, &job, 0) : run_ranks(&s, &job);
	status = perf_job_end(&job);
	if (status != COLL_OK && result == 0) {
		fprintf(stderr, "%s: destroy: %s\n", what->program, coll_status_string(status));
		result = 1;
	}
	return result;
}
