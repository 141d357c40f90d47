/*
 * Which ranks see the output directory of rank 0, and the bytes of those that do not.
 *
 * Rank 0 puts a file of a random name there and the others look for it: equal paths prove nothing. A rank that does not
 * find it sends what it would write to rank 0, which writes it, so that one disk is enough.
 */
#include "ddp_gpt_see.h"
#include "gpt/formats/crc32c.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES (1 << 20)

static int name_file(char *path, const char *directory, uint64_t nonce)
{
	char name[64];

	snprintf(name, sizeof(name), ".see-%016" PRIx64, nonce);
	return gpt_path(path, directory, name);
}

int see_directory(struct job *j, char *directory, int32_t *sees)
{
	char path[GPT_PATH_MAX];
	uint64_t nonce = 0;
	int32_t mine = 1;
	int fd;

	if (j->rank == 0) {
		if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce) || name_file(path, directory, nonce) ||
		    (fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666)) < 0)
			job_note(j, "cannot write in %s: %s", directory, strerror(errno));
		else
			close(fd);
	}
	if (job_agree(j) || job_check(j, coll_broadcast(&nonce, &nonce, 1, COLL_U64, 0, j->comm, NULL)) ||
	    job_check(j, coll_broadcast(directory, directory, GPT_PATH_MAX, COLL_U8, 0, j->comm, NULL)))
		return -1;
	if (j->rank)
		mine = name_file(path, directory, nonce) == 0 && access(path, F_OK) == 0;
	if (job_check(j, coll_all_gather(&mine, sees, 1, COLL_I32, j->comm, NULL)))
		return -1;
	if (j->rank == 0)
		unlink(path);
	return 0;
}

/* ---- Sending to rank 0 ------------------------------------------------------------- */

static int flush(struct see_sender *s)
{
	const size_t used = s->used;

	s->used = 0;
	return used ? job_check(s->job, coll_send(s->chunk, used, COLL_U8, 0, s->job->comm, NULL)) : 0;
}

static int put_chunk(struct gpt_sink *sink, const void *data, size_t len_bytes)
{
	struct see_sender *s = (struct see_sender *)sink;
	const char *p = data;

	while (len_bytes) {
		const size_t n = len_bytes < CHUNK_BYTES - s->used ? len_bytes : CHUNK_BYTES - s->used;

		memcpy(s->chunk + s->used, p, n);
		s->used += n;
		p += n;
		len_bytes -= n;
		if (s->used == CHUNK_BYTES && flush(s))
			return -1;
	}
	return 0;
}

int see_send_begin(struct job *j, struct see_sender *s, uint64_t total_bytes)
{
	*s = (struct see_sender){.sink = {.put = put_chunk}, .job = j, .chunk = malloc(CHUNK_BYTES)};
	if (!s->chunk)
		return job_abort(j, "not enough memory to send a state");
	return job_check(j, coll_send(&total_bytes, 1, COLL_U64, 0, j->comm, NULL));
}

int see_send_end(struct see_sender *s)
{
	const int rc = s->chunk ? flush(s) : -1;

	free(s->chunk);
	s->chunk = NULL;
	return rc;
}

int see_receive(struct job *j, int rank, const char *path, struct gpt_sink *got)
{
	char *chunk = malloc(CHUNK_BYTES);
	struct gpt_file f;
	uint64_t left;
	bool good = gpt_file_create(&f, path) == 0;
	const bool created = good;
	int cause = errno;

	if (!chunk)
		return job_abort(j, "not enough memory to receive a state");
	if (job_check(j, coll_recv(&left, 1, COLL_U64, rank, j->comm, NULL)))
		goto failed;
	/* A disk that is full stops the writing, not the sender. */
	while (left) {
		const size_t n = left < CHUNK_BYTES ? left : CHUNK_BYTES;

		if (job_check(j, coll_recv(chunk, n, COLL_U8, rank, j->comm, NULL)))
			goto failed;
		if (good && gpt_put(&f.sink, chunk, n)) {
			cause = errno;
			good = false;
		}
		left -= n;
	}
	free(chunk);
	if (created && gpt_file_close(&f, good) && good) {
		cause = errno;
		good = false;
	}
	if (!good)
		return job_note(j, "cannot write %s: %s", path, strerror(cause)), 0;
	*got = f.sink;
	return 0;
failed:
	free(chunk);
	if (created)
		close(f.fd);
	return -1;
}
