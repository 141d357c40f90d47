#include "gpt/formats/token_file.h"
#include "gpt/formats/crc32c.h"
#include "gpt/formats/file.h"
#include "gpt/formats/json.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD       (GPT_TOKEN_HEAD_BYTES / 4)
#define PAGE_BYTES 4096
#define PAGES      64

/* A row per kind of file with a head. */
static const struct kind {
	int32_t magic, version;
	int token_bytes;
} kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static const struct kind *find_kind(const int32_t *head)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (head[0] == kinds[i].magic && head[1] == kinds[i].version)
			return &kinds[i];
	return NULL;
}

bool gpt_token_file_begins(const void *data, size_t len_bytes)
{
	int32_t head[2];

	if (len_bytes < sizeof(head))
		return false;
	memcpy(head, data, sizeof(head));
	return find_kind(head) != NULL;
}

/* ---- Reading ---------------------------------------------------------------------------- */

static int map(struct gpt_token_file *f, const char *path, char *why, size_t why_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st)) {
		gpt_explain(why, why_bytes, path, "%s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	f->map_bytes = (size_t)st.st_size;
	f->map = S_ISREG(st.st_mode) && st.st_size ? mmap(NULL, f->map_bytes, PROT_READ, MAP_SHARED, fd, 0) : NULL;
	close(fd);
	if (f->map && f->map != MAP_FAILED)
		return 0;
	f->map = NULL;
	return gpt_explain(why, why_bytes, path, "%s",
	                   !S_ISREG(st.st_mode) ? "not a file"
	                   : st.st_size         ? strerror(errno)
	                                        : "the file is empty");
}

static int read_head(struct gpt_token_file *f, const char *path, int raw_bytes, char *why, size_t why_bytes)
{
	const struct kind *kind = f->map_bytes >= GPT_TOKEN_HEAD_BYTES ? find_kind(f->map) : NULL;
	const uint64_t bytes = f->map_bytes - (kind ? GPT_TOKEN_HEAD_BYTES : 0);

	f->token_bytes = kind ? kind->token_bytes : raw_bytes;
	f->at_bytes = kind ? GPT_TOKEN_HEAD_BYTES : 0;
	f->tokens = (const char *)f->map + f->at_bytes;
	f->count = bytes / (uint64_t)f->token_bytes;
	if (kind && (((const int32_t *)f->map)[2] < 0 || (uint64_t)((const int32_t *)f->map)[2] != f->count ||
	             bytes % (uint64_t)f->token_bytes))
		return gpt_explain(why, why_bytes, path,
		                   "offset 8: the head says %d tokens of %d bytes, and behind it are %llu bytes",
		                   ((const int32_t *)f->map)[2], f->token_bytes, (unsigned long long)bytes);
	if (bytes % (uint64_t)f->token_bytes)
		return gpt_explain(why, why_bytes, path,
		                   "offset %llu: the file ends within a token of %d bytes; is it a file of tokens?",
		                   (unsigned long long)(f->map_bytes - bytes % (uint64_t)f->token_bytes),
		                   f->token_bytes);
	if (f->count == 0)
		return gpt_explain(why, why_bytes, path, "offset %llu: no tokens", (unsigned long long)f->at_bytes);
	return 0;
}

int gpt_token_file_open(struct gpt_token_file *f, const char *path, int raw_bytes, char *why, size_t why_bytes)
{
	memset(f, 0, sizeof(*f));
	if (map(f, path, why, why_bytes))
		return -1;
	if (read_head(f, path, raw_bytes, why, why_bytes) == 0)
		return 0;
	gpt_token_file_close(f);
	return -1;
}

void gpt_token_file_close(struct gpt_token_file *f)
{
	if (f->map)
		munmap(f->map, f->map_bytes);
	memset(f, 0, sizeof(*f));
}

uint32_t gpt_token_file_crc32c(const struct gpt_token_file *f)
{
	const uint64_t bytes = f->map_bytes, last = (bytes - 1) / PAGE_BYTES;
	uint32_t crc = gpt_crc32c(0, &bytes, sizeof(bytes));

	for (uint64_t i = 0; i < PAGES; i++) {
		const uint64_t at = last * i / (PAGES - 1) * PAGE_BYTES;

		crc = gpt_crc32c(crc, (const char *)f->map + at, at + PAGE_BYTES < bytes ? PAGE_BYTES : bytes - at);
	}
	return crc;
}

/* ---- Writing ------------------------------------------------------------------------------ */

static int put_tokens(struct gpt_sink *sink, const int32_t *tokens, size_t count, bool wide)
{
	uint16_t narrow[4096];

	if (wide)
		return gpt_put(sink, tokens, count * sizeof(*tokens));
	for (size_t i = 0; i < count; i += 4096) {
		const size_t n = count - i < 4096 ? count - i : 4096;

		for (size_t k = 0; k < n; k++)
			narrow[k] = (uint16_t)tokens[i + k];
		if (gpt_put(sink, narrow, n * sizeof(*narrow)))
			return -1;
	}
	return 0;
}

int gpt_token_file_write(const char *path, const int32_t *tokens, size_t count, int vocab, bool raw)
{
	const struct kind *kind = &kinds[vocab > 65536];
	const int32_t head[HEAD] = {kind->magic, kind->version, (int32_t)count};
	struct gpt_file f;

	if (!raw && count > INT32_MAX) {
		errno = EFBIG;
		return -1;
	}
	if (gpt_file_create(&f, path))
		return -1;
	return gpt_file_close(&f, (raw || !gpt_put(&f.sink, head, sizeof(head))) &&
	                                  !put_tokens(&f.sink, tokens, count, kind->token_bytes == 4));
}
