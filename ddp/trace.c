/*
 * Counters, and what happened when.
 */
#include "ddp/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ddp/base.h"
#include "ddp/ddp_inner.h"

coll_status coll_ddp_get_stats(coll_ddp *d, coll_ddp_stats *stats, int reset)
{
	double latency, speed;

	if (!d || !stats)
		return COLL_ERR_ARGUMENT;
	latency = d->stats.latency_s;
	speed = d->stats.bytes_per_s;
	if (!coll_sized_write(stats, &d->stats, sizeof(d->stats), COLL_SIZED_FIRST(coll_ddp_stats, bytes_per_s)))
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_get_stats(): struct_size is not set");
	if (reset)
		d->stats = (coll_ddp_stats){.latency_s = latency, .bytes_per_s = speed};
	return COLL_OK;
}

void coll_ddp_stub(coll_ddp *d, int on)
{
	if (d)
		d->stub = on;
}

void coll_ddp_trace(coll_ddp *d, int on)
{
	if (d)
		d->tracing = on;
}

/* A row that finds no memory is left out: a trace must not stop a training. */
static void keep(coll_ddp *d, const struct trace_row *row)
{
	if (d->trace_count == d->trace_room) {
		const size_t room = d->trace_room ? 2 * d->trace_room : 1024;
		struct trace_row *grown = realloc(d->trace, room * sizeof(*grown));

		if (!grown)
			return;
		d->trace = grown;
		d->trace_room = room;
	}
	d->trace[d->trace_count++] = *row;
}

void ddp_trace_bucket(coll_ddp *d, const struct bucket *b, double waited_s)
{
	if (d->tracing)
		keep(d, &(struct trace_row){d->step, (int)(b - d->buckets), -1, b->ready_s, b->start_s, b->end_s,
		                            waited_s});
}

/* ---- Rounds on the wire ---- */

int ddp_flight_start(coll_ddp *d, int bucket, int phase)
{
	d->flights[d->flight_count] = (struct flight){bucket, phase, ddp_now_s(), 0};
	return d->flight_count++;
}

/* The thread that completed it has recorded the time; this thread may look much later. */
double ddp_flight_end(coll_ddp *d, int flight, coll_event *event)
{
	struct flight *f = &d->flights[flight];

	if (coll_event_time(event, &f->end_s) != COLL_OK)
		f->end_s = ddp_now_s();
	/* A short one may be over before its start was noted. */
	f->end_s = f->end_s > f->start_s ? f->end_s : f->start_s;
	return f->end_s;
}

/* Time in which there was at least one. */
void ddp_flights_close(coll_ddp *d)
{
	double until = 0;

	for (int i = 0; i < d->flight_count; i++) {
		const struct flight *f = &d->flights[i];

		if (f->end_s > until)
			d->stats.wire_s += f->end_s - (f->start_s > until ? f->start_s : until);
		until = f->end_s > until ? f->end_s : until;
		if (d->tracing)
			keep(d, &(struct trace_row){d->step, f->bucket, f->phase, 0, f->start_s, f->end_s, 0});
	}
	d->flight_count = 0;
}

/* A parameter may be called anything. */
static void write_name(FILE *f, const char *name)
{
	for (const char *p = name; *p; p++) {
		if (*p == '"' || *p == '\\')
			fprintf(f, "\\%c", *p);
		else if ((unsigned char)*p < ' ')
			fprintf(f, "\\u%04x", (unsigned char)*p);
		else
			fputc(*p, f);
	}
}

static void write_round(FILE *f, const coll_ddp *d, const struct trace_row *r)
{
	char name[48];

	if (r->bucket == d->bucket_count)
		snprintf(name, sizeof(name), "rows round %d", r->phase);
	else
		snprintf(name, sizeof(name), "bucket %d round %d", r->bucket, r->phase);
	fprintf(f,
	        ",\n{\"name\":\"%s\",\"cat\":\"round\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,"
	        "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%llu}}",
	        name, d->rank, r->bucket == d->bucket_count ? 2 + MOST_PHASES : 2 + r->phase, 1e6 * r->start_s,
	        1e6 * (r->end_s - r->start_s), (unsigned long long)r->step);
}

static void write_bucket(FILE *f, const coll_ddp *d, const struct trace_row *r)
{
	const struct bucket *b = &d->buckets[r->bucket];

	fprintf(f,
	        ",\n{\"name\":\"bucket %d\",\"cat\":\"wire\",\"ph\":\"X\",\"pid\":%d,\"tid\":1,"
	        "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%llu,\"bytes\":%zu,\"ready_us\":%.3f,"
	        "\"waited_us\":%.3f,\"first\":\"",
	        r->bucket, d->rank, 1e6 * r->start_s, 1e6 * (r->end_s - r->start_s), (unsigned long long)r->step,
	        b->count * d->esize, 1e6 * r->ready_s, 1e6 * r->waited_s);
	write_name(f, b->first_param < 0 ? "" : d->params[b->first_param].name);
	fprintf(f, "\"}}");
	if (r->ready_s > 0)
		fprintf(f,
		        ",\n{\"name\":\"ready %d\",\"cat\":\"ready\",\"ph\":\"i\",\"s\":\"t\",\"pid\":%d,"
		        "\"tid\":0,\"ts\":%.3f}",
		        r->bucket, d->rank, 1e6 * r->ready_s);
}

coll_status coll_ddp_trace_write(coll_ddp *d, const char *path)
{
	FILE *f;
	int bad;

	if (!d || !path)
		return COLL_ERR_ARGUMENT;
	f = fopen(path, "we");
	if (!f)
		return ddp_fail(d, COLL_ERR_SYSTEM, "cannot write %s: %s", path, strerror(errno));
	fprintf(f,
	        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,"
	        "\"args\":{\"name\":\"rank %d\"}}",
	        d->rank, d->rank);
	for (size_t i = 0; i < d->trace_count; i++)
		(d->trace[i].phase < 0 ? write_bucket : write_round)(f, d, &d->trace[i]);
	fprintf(f, "\n]}\n");
	bad = ferror(f);
	if (fclose(f) || bad)
		return ddp_fail(d, COLL_ERR_SYSTEM, "cannot write %s: %s", path, strerror(errno));
	return COLL_OK;
}
