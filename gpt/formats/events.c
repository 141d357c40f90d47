/*
 * Event: 0x09 double wall time, 0x10 varint step, then one of: 0x1a version, 0x2a summary, 0x3a session log. A field of
 * bytes is its key, its length as a varint, and the bytes.
 */
#include "gpt/formats/events.h"
#include "gpt/formats/crc32c.h"
#include "gpt/formats/file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST 16

/* A message that is being made; each fits. */
struct message {
	uint8_t bytes[2048];
	size_t len;
};

static void put_varint(struct message *m, uint64_t x)
{
	for (; x > 127; x >>= 7)
		m->bytes[m->len++] = (uint8_t)(x | 128);
	m->bytes[m->len++] = (uint8_t)x;
}

static void put_raw(struct message *m, uint8_t key, const void *data, size_t len)
{
	m->bytes[m->len++] = key;
	memcpy(m->bytes + m->len, data, len);
	m->len += len;
}

static void put_field(struct message *m, uint8_t key, const void *data, size_t len)
{
	m->bytes[m->len++] = key;
	put_varint(m, len);
	memcpy(m->bytes + m->len, data, len);
	m->len += len;
}

static void put_message(struct message *m, uint8_t key, const struct message *inner)
{
	put_field(m, key, inner->bytes, inner->len);
}

static uint32_t masked(const void *data, size_t len)
{
	const uint32_t c = gpt_crc32c(0, data, len);

	return (c >> 15 | c << 17) + 0xa282ead8u;
}

static void put_record(FILE *f, const struct message *m)
{
	const uint64_t len = m->len;
	const uint32_t of_length = masked(&len, sizeof(len)), of_bytes = masked(m->bytes, m->len);

	fwrite(&len, sizeof(len), 1, f);
	fwrite(&of_length, sizeof(of_length), 1, f);
	fwrite(m->bytes, 1, m->len, f);
	fwrite(&of_bytes, sizeof(of_bytes), 1, f);
}

static double wall(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void begin(struct message *m, long step)
{
	const double now = wall();

	m->len = 0;
	put_raw(m, 0x09, &now, sizeof(now));
	m->bytes[m->len++] = 0x10;
	put_varint(m, (uint64_t)step);
}

/* A text summary: a tensor of strings with one element, shown by the text plugin. */
static void put_text(FILE *f, const char *tag, const char *text)
{
	static const uint8_t strings[] = {0x08, 0x07}, shape[] = {0x12, 0x02, 0x08, 0x01};
	struct message value = {.len = 0}, tensor = {.len = 0}, plugin = {.len = 0}, meta = {.len = 0},
	               summary = {.len = 0}, event;

	put_field(&plugin, 0x0a, "text", 4);
	put_message(&meta, 0x0a, &plugin);
	memcpy(tensor.bytes, strings, sizeof(strings));
	tensor.len = sizeof(strings);
	put_field(&tensor, 0x12, shape, sizeof(shape));
	put_field(&tensor, 0x42, text, strlen(text));
	put_field(&value, 0x0a, tag, strlen(tag));
	put_message(&value, 0x4a, &meta);
	put_message(&value, 0x42, &tensor);
	put_message(&summary, 0x0a, &value);
	begin(&event, 0);
	put_message(&event, 0x2a, &summary);
	put_record(f, &event);
}

FILE *gpt_events_open(const char *directory, long first_step, const char *run_id)
{
	char name[256], path[GPT_PATH_MAX], host[65] = "";
	struct message m;
	FILE *f;

	gethostname(host, sizeof(host) - 1);
	snprintf(name, sizeof(name), "events.out.tfevents.%lld.%s.%ld.0", (long long)time(NULL), host, (long)getpid());
	if (gpt_path(path, directory, name))
		return NULL;
	f = fopen(path, "we");
	if (!f)
		return NULL;
	begin(&m, 0);
	put_field(&m, 0x1a, "brain.Event:2", 13);
	put_record(f, &m);
	put_text(f, "run_id", run_id);
	if (first_step) {
		static const uint8_t started[] = {0x08, 0x01};

		/* Readers drop what earlier files have from this step on. */
		begin(&m, first_step + 1);
		put_field(&m, 0x3a, started, sizeof(started));
		put_record(f, &m);
	}
	fflush(f);
	return f;
}

void gpt_events_put(FILE *f, long step, const struct gpt_scalar *scalars, size_t count)
{
	struct message summary = {.len = 0}, event;

	for (size_t i = 0; i < count && i < MOST; i++) {
		const float x = (float)scalars[i].value;
		struct message value = {.len = 0};

		put_field(&value, 0x0a, scalars[i].tag, strlen(scalars[i].tag));
		put_raw(&value, 0x15, &x, sizeof(x));
		put_message(&summary, 0x0a, &value);
	}
	begin(&event, step);
	put_message(&event, 0x2a, &summary);
	put_record(f, &event);
	fflush(f);
}
