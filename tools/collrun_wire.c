/*
 * Frames between collrun and its agents: {type, rank, length} and a body, over
 * non-blocking pipes. Nothing here waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collrun.h"

struct head {
	uint32_t type;
	uint32_t rank;
	uint32_t len_bytes;
};

enum { READ_CHUNK = 64 << 10 };

void *must(void *p)
{
	if (p)
		return p;
	fprintf(stderr, "collrun: out of memory\n");
	exit(1);
}

static void make_room(struct buffer *b, size_t len_bytes)
{
	size_t cap = b->cap ? b->cap : 1024;

	if (b->at > 0 && b->len + len_bytes > b->cap) {
		b->len -= b->at;
		memmove(b->data, b->data + b->at, b->len);
		b->at = 0;
	}
	while (cap < b->len + len_bytes)
		cap *= 2;
	if (cap > b->cap) {
		b->data = must(realloc(b->data, cap));
		b->cap = cap;
	}
}

void buffer_add(struct buffer *b, const void *data, size_t len_bytes)
{
	make_room(b, len_bytes);
	if (len_bytes)
		memcpy(b->data + b->len, data, len_bytes);
	b->len += len_bytes;
}

void buffer_drop(struct buffer *b, size_t len_bytes)
{
	b->at += len_bytes;
	if (b->at == b->len)
		b->at = b->len = 0;
}

size_t buffer_size(const struct buffer *b)
{
	return b->len - b->at;
}

void buffer_free(struct buffer *b)
{
	free(b->data);
	memset(b, 0, sizeof(*b));
}

void channel_open(struct channel *c, int in_fd, int out_fd)
{
	memset(c, 0, sizeof(*c));
	c->in_fd = in_fd;
	c->out_fd = out_fd;
	fcntl(in_fd, F_SETFL, fcntl(in_fd, F_GETFL) | O_NONBLOCK);
	fcntl(out_fd, F_SETFL, fcntl(out_fd, F_GETFL) | O_NONBLOCK);
}

void channel_close(struct channel *c)
{
	if (c->in_fd >= 0)
		close(c->in_fd);
	if (c->out_fd >= 0 && c->out_fd != c->in_fd)
		close(c->out_fd);
	buffer_free(&c->in);
	buffer_free(&c->out);
	c->in_fd = c->out_fd = -1;
	c->ended = true;
}

void channel_read(struct channel *c)
{
	ssize_t n;

	if (c->ended)
		return;
	make_room(&c->in, READ_CHUNK);
	n = read(c->in_fd, c->in.data + c->in.len, READ_CHUNK);
	if (n > 0)
		c->in.len += (size_t)n;
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		c->ended = true;
}

bool channel_readable(const struct channel *c)
{
	struct pollfd p = {.fd = c->in_fd, .events = POLLIN};

	return c->in_fd >= 0 && poll(&p, 1, 0) > 0;
}

void channel_write(struct channel *c)
{
	while (c->out_fd >= 0 && buffer_size(&c->out) > 0) {
		ssize_t n = write(c->out_fd, c->out.data + c->out.at, buffer_size(&c->out));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) /* gone; what it said before is still read */
			buffer_drop(&c->out, buffer_size(&c->out));
		if (n <= 0)
			return;
		buffer_drop(&c->out, (size_t)n);
	}
}

void channel_send(struct channel *c, uint32_t type, uint32_t rank, const void *body, size_t len_bytes)
{
	const struct head h = {type, rank, (uint32_t)len_bytes};

	if (c->out_fd < 0)
		return;
	buffer_add(&c->out, &h, sizeof(h));
	buffer_add(&c->out, body, len_bytes);
	channel_write(c);
}

bool channel_next(struct channel *c, struct frame *f)
{
	struct head h;

	if (buffer_size(&c->in) < sizeof(h))
		return false;
	memcpy(&h, c->in.data + c->in.at, sizeof(h));
	if (h.len_bytes > FRAME_MAX) {
		c->ended = true;
		buffer_drop(&c->in, buffer_size(&c->in));
		return false;
	}
	if (buffer_size(&c->in) < sizeof(h) + h.len_bytes)
		return false;
	*f = (struct frame){h.type, h.rank, h.len_bytes, c->in.data + c->in.at + sizeof(h)};
	buffer_drop(&c->in, sizeof(h) + h.len_bytes); /* the bytes stay until the next read */
	return true;
}

void strings_add(struct buffer *b, const char *s)
{
	buffer_add(b, s, strlen(s) + 1);
}

const char *strings_next(const struct frame *f, size_t *at)
{
	const char *s = f->body + *at;
	const char *end = *at < f->len_bytes ? memchr(s, 0, f->len_bytes - *at) : NULL;

	if (!end)
		return NULL;
	*at += (size_t)(end - s) + 1;
	return s;
}
