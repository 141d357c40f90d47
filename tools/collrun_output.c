/*
 * The ranks' output on its way to ours: whole lines, each with its rank in front,
 * or a file each. A line is kept until it is complete, so that two ranks never
 * meet inside one; a rank's last words without a newline get one. Nothing here
 * blocks: at most 4096 bytes are written to a descriptor that poll() calls
 * writable, which a pipe then takes whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collrun.h"

enum { WRITE_CHUNK = 4096, LINE_MAX_BYTES = 64 << 20 };

struct line {
	struct buffer text; /* without its end */
	int file;           /* -1: our own output */
};

struct output {
	const struct options *o;
	struct line *lines;     /* 2 * rank + stream - 1 */
	struct buffer queue[2]; /* for our descriptors 1 and 2 */
	bool broken;
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
	out->lines = must(calloc(2 * (size_t)o->size, sizeof(*out->lines)));
	for (int i = 0; i < 2 * o->size; i++)
		out->lines[i].file = -1;
	if (!o->output || open_files(out))
		return out;
	output_close(out);
	return NULL;
}

static void to_file(int fd, const char *data, size_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t n = write(fd, data, len_bytes);

		if (n < 0 && errno != EINTR)
			return; /* a full disk must not end the job */
		if (n > 0)
			data += n, len_bytes -= (size_t)n;
	}
}

/* Give the line out, with what is in tail (up to and with a newline) behind it. */
static void emit(struct output *out, int rank, int stream, struct line *l, const char *tail, size_t len_bytes)
{
	struct buffer *q = &out->queue[stream - 1];
	char prefix[24];

	if (out->o->prefix)
		buffer_add(q, prefix, (size_t)snprintf(prefix, sizeof(prefix), "[%d] ", rank));
	buffer_add(q, l->text.data + l->text.at, buffer_size(&l->text));
	buffer_add(q, tail, len_bytes);
	buffer_drop(&l->text, buffer_size(&l->text));
}

void output_add(struct output *out, int rank, int stream, const char *data, size_t len_bytes)
{
	struct line *l = &out->lines[2 * rank + stream - 1];

	if (l->file >= 0) {
		to_file(l->file, data, len_bytes);
		return;
	}
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
	output_write(out, 2);
}

bool output_waiting(const struct output *out, int stream)
{
	return buffer_size(&out->queue[stream - 1]) > 0;
}

void output_write(struct output *out, int stream)
{
	struct buffer *q = &out->queue[stream - 1];

	while (buffer_size(q) > 0) {
		struct pollfd p = {.fd = stream, .events = POLLOUT};
		const size_t n = buffer_size(q) < WRITE_CHUNK ? buffer_size(q) : WRITE_CHUNK;
		ssize_t done;

		if (poll(&p, 1, 0) <= 0)
			return;
		done = write(stream, q->data + q->at, n);
		if (done < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (done < 0) { /* it has no reader any more */
			out->broken |= stream == 1;
			buffer_drop(q, buffer_size(q));
			return;
		}
		buffer_drop(q, (size_t)done);
	}
}

size_t output_size(const struct output *out)
{
	return buffer_size(&out->queue[0]) + buffer_size(&out->queue[1]);
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
	buffer_free(&out->queue[0]);
	buffer_free(&out->queue[1]);
	free(out->lines);
	free(out);
}
