/*
 * The ranks' output on its way to ours: whole lines, each with its rank in front
 * once two ranks have written, or a file each. A line is kept until it is complete, so that two ranks never
 * meet inside one; a rank's last words without a newline get one. Nothing here
 * blocks but a file system. What cannot be written is dropped and told once, and
 * the job goes on; a pipe without a reader ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collrun.h"
#include "collrun_cause.h"

enum { LINE_MAX_BYTES = 64 << 20 };

struct line {
	struct buffer text; /* without its end */
	int file;           /* -1: our own output */
};

struct output {
	const struct options *o;
	struct line *lines;     /* 2 * rank + stream - 1 */
	struct buffer queue[2]; /* for our descriptors 1 and 2 */
	int fd[2];
	uint64_t line_count;
	int writer; /* the rank that wrote first, -1: none has */
	bool prefix;
	struct cause cause;
	bool broken;
	bool failed[2]; /* something was lost, and told */
	bool file_failed;
};

static bool open_files(struct output *out)
{
	char path[4096];

	if (mkdir(out->o->output, 0777) < 0 && errno != EEXIST) {
		fprintf(stderr, "collrun: --output %s: %s\n", out->o->output, strerror(errno));
		return false;
	}
	for (int i = 0; i < 2 * out->o->size; i++) {
		snprintf(path, sizeof(path), "%s/rank.%d.%s", out->o->output, i / 2, i % 2 ? "err" : "out");
		out->lines[i].file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
		if (out->lines[i].file < 0) {
			fprintf(stderr, "collrun: %s: %s\n", path, strerror(errno));
			return false;
		}
	}
	return true;
}

struct output *output_open(const struct options *o)
{
	struct output *out = must(calloc(1, sizeof(*out)));

	out->o = o;
	out->writer = -1;
	out->prefix = o->prefix == PREFIX_ALWAYS;
	cause_init(&out->cause, o->size);
	out->fd[0] = stream_open(1);
	out->fd[1] = stream_open(2);
	out->lines = must(calloc(2 * (size_t)o->size, sizeof(*out->lines)));
	for (int i = 0; i < 2 * o->size; i++)
		out->lines[i].file = -1;
	if (!o->output || open_files(out))
		return out;
	output_close(out);
	return NULL;
}

/* A full disk must not end the job. */
static void to_file(struct output *out, int rank, int stream, const char *data, size_t len_bytes)
{
	const int fd = out->lines[2 * rank + stream - 1].file;

	while (len_bytes > 0) {
		ssize_t n = write(fd, data, len_bytes);

		if (n < 0 && errno != EINTR) {
			if (!out->file_failed)
				output_say(out, "cannot write %s/rank.%d.%s: %s", out->o->output, rank,
				           stream == 2 ? "err" : "out", strerror(errno));
			out->file_failed = true;
			return;
		}
		if (n > 0)
			data += n, len_bytes -= (size_t)n;
	}
}

/* Give the line out, with what is in tail (up to and with a newline) behind it. */
static void emit(struct output *out, int rank, int stream, struct line *l, const char *tail, size_t len_bytes)
{
	struct buffer *q = &out->queue[stream - 1];
	char prefix[24];
	bool again;

	buffer_add(&l->text, tail, len_bytes);
	again = stream == 2 && cause_look(&out->cause, rank, l->text.data + l->text.at, buffer_size(&l->text));
	if (l->file < 0 && (!again || out->o->verbose)) {
		if (out->writer >= 0 && out->writer != rank && out->o->prefix == PREFIX_BY_NEED)
			out->prefix = true;
		out->writer = out->writer < 0 ? rank : out->writer;
		if (out->prefix)
			buffer_add(q, prefix, (size_t)snprintf(prefix, sizeof(prefix), "[%d] ", rank));
		buffer_add(q, l->text.data + l->text.at, buffer_size(&l->text));
		out->line_count++;
	} else if (l->file < 0) {
		out->cause.repeated++;
	}
	buffer_drop(&l->text, buffer_size(&l->text));
}

void output_add(struct output *out, int rank, int stream, const char *data, size_t len_bytes)
{
	struct line *l = &out->lines[2 * rank + stream - 1];

	if (l->file >= 0)
		to_file(out, rank, stream, data, len_bytes);
	if (l->file >= 0 && stream == 1)
		return;
	while (len_bytes > 0) {
		const char *end = memchr(data, '\n', len_bytes);
		const size_t n = end ? (size_t)(end - data) + 1 : len_bytes;

		if (end)
			emit(out, rank, stream, l, data, n);
		else
			buffer_add(&l->text, data, n);
		if (buffer_size(&l->text) > LINE_MAX_BYTES)
			emit(out, rank, stream, l, "\n", 1);
		data += n;
		len_bytes -= n;
	}
}

void output_finish(struct output *out, int rank)
{
	for (int stream = 1; stream <= 2; stream++) {
		struct line *l = &out->lines[2 * rank + stream - 1];

		if (buffer_size(&l->text) > 0)
			emit(out, rank, stream, l, "\n", 1);
	}
}

void output_say(struct output *out, const char *format, ...)
{
	char text[1024];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (n >= (int)sizeof(text))
		n = sizeof(text) - 1;
	buffer_add(&out->queue[1], "collrun: ", 9);
	buffer_add(&out->queue[1], text, (size_t)n);
	buffer_add(&out->queue[1], "\n", 1);
	out->line_count++;
	output_write(out, 2);
}

bool output_waiting(const struct output *out, int stream)
{
	return buffer_size(&out->queue[stream - 1]) > 0;
}

int output_fd(const struct output *out, int stream)
{
	return output_waiting(out, stream) ? out->fd[stream - 1] : -1;
}

static void lost(struct output *out, int stream, int error)
{
	const bool first = !out->failed[stream - 1];

	buffer_drop(&out->queue[stream - 1], buffer_size(&out->queue[stream - 1]));
	out->failed[stream - 1] = true;
	if (error == EPIPE)
		out->broken |= stream == 1;
	else if (first && stream == 1)
		output_say(out, "cannot write standard output: %s", strerror(error));
}

void output_write(struct output *out, int stream)
{
	struct buffer *q = &out->queue[stream - 1];

	while (buffer_size(q) > 0) {
		const ssize_t done = stream_write(out->fd[stream - 1], q->data + q->at, buffer_size(q));

		if (done < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (done < 0) {
			lost(out, stream, errno);
			return;
		}
		buffer_drop(q, (size_t)done);
	}
}

size_t output_size(const struct output *out)
{
	return buffer_size(&out->queue[0]) + buffer_size(&out->queue[1]);
}

uint64_t output_lines(const struct output *out)
{
	return out->line_count;
}

bool output_written(const struct output *out)
{
	return !out->failed[0] && !out->file_failed;
}

struct cause *output_cause(struct output *out)
{
	return &out->cause;
}

bool output_broken(const struct output *out)
{
	return out->broken;
}

void output_close(struct output *out)
{
	if (!out)
		return;
	for (int i = 0; i < 2 * out->o->size; i++) {
		if (out->lines[i].file >= 0)
			close(out->lines[i].file);
		buffer_free(&out->lines[i].text);
	}
	for (int i = 0; i < 2; i++)
		stream_close(out->fd[i]);
	buffer_free(&out->queue[0]);
	buffer_free(&out->queue[1]);
	cause_free(&out->cause);
	free(out->lines);
	free(out);
}
