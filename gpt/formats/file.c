/*
 * The system calls behind file.h. A name is never removed before what takes its place is on the disk.
 */
#include "gpt/formats/file.h"
#include "gpt/checkpoint.h"
#include "gpt/formats/crc32c.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int gpt_path(char *path, const char *directory, const char *name)
{
	if ((size_t)snprintf(path, GPT_PATH_MAX, "%s/%s", directory, name) < GPT_PATH_MAX)
		return 0;
	errno = ENAMETOOLONG;
	return -1;
}

int gpt_put(struct gpt_sink *sink, const void *data, size_t len_bytes)
{
	sink->bytes += len_bytes;
	sink->crc32c = gpt_crc32c(sink->crc32c, data, len_bytes);
	return sink->put(sink, data, len_bytes);
}

static int put_file(struct gpt_sink *sink, const void *data, size_t len_bytes)
{
	return gpt_write_all(((struct gpt_file *)sink)->fd, data, len_bytes);
}

int gpt_file_create(struct gpt_file *f, const char *path)
{
	*f = (struct gpt_file){.sink = {.put = put_file}};
	f->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	return f->fd < 0 ? -1 : 0;
}

int gpt_file_close(struct gpt_file *f, bool good)
{
	const int rc = good ? fsync(f->fd) : -1, cause = errno;

	if (close(f->fd) && !rc)
		return -1;
	errno = cause;
	return rc;
}

int gpt_file_replace(const char *path, const void *data, size_t len_bytes)
{
	char aside[GPT_PATH_MAX + 32];
	struct gpt_file f;
	char *slash;

	snprintf(aside, sizeof(aside), "%s.part-%ld", path, (long)getpid());
	if (gpt_file_create(&f, aside))
		return -1;
	if (gpt_file_close(&f, !gpt_put(&f.sink, data, len_bytes)) || rename(aside, path)) {
		const int cause = errno;

		unlink(aside);
		errno = cause;
		return -1;
	}
	slash = strrchr(aside, '/');
	if (slash)
		*slash = 0;
	return gpt_directory_sync(slash ? aside : ".");
}

static int read_all(int fd, size_t most_bytes, char **data, size_t *len_bytes)
{
	struct stat st;
	size_t used = 0;

	if (fstat(fd, &st))
		return -1;
	if (!S_ISREG(st.st_mode)) {
		errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
		return -1;
	}
	if ((uint64_t)st.st_size > most_bytes) {
		errno = EFBIG;
		return -1;
	}
	*data = malloc((size_t)st.st_size + 1);
	if (!*data)
		return -1;
	while (used < (size_t)st.st_size) {
		const ssize_t n = read(fd, *data + used, (size_t)st.st_size - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n ? errno : EIO;
			free(*data);
			return -1;
		}
		used += (size_t)n;
	}
	(*data)[used] = 0;
	*len_bytes = used;
	return 0;
}

int gpt_file_read(const char *path, size_t most_bytes, char **data, size_t *len_bytes)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int rc, cause;

	if (fd < 0)
		return -1;
	rc = read_all(fd, most_bytes, data, len_bytes);
	cause = errno;
	close(fd);
	errno = cause;
	return rc;
}

int gpt_directory_sync(const char *path)
{
	const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return -1;
	rc = fsync(fd);
	close(fd);
	return rc;
}

int gpt_directory_remove(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int rc = 0;

	if (!d)
		return errno == ENOENT ? 0 : -1;
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlinkat(dirfd(d), e->d_name, 0))
			rc = -1;
	closedir(d);
	return rmdir(path) || rc ? -1 : 0;
}

int gpt_directory_replace(const char *part, const char *final)
{
	char old[GPT_PATH_MAX + 32], parent[GPT_PATH_MAX];
	char *slash;

	snprintf(parent, sizeof(parent), "%s", final);
	slash = strrchr(parent, '/');
	if (slash)
		*slash = 0;
	if (gpt_directory_sync(part))
		return -1;
	if (rename(part, final)) {
		if (errno != ENOTEMPTY && errno != EEXIST)
			return -1;
		/* Both change names at once. Where the file system cannot do that, the old one steps aside first. */
		if (renameat2(AT_FDCWD, part, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
			snprintf(old, sizeof(old), "%s", part);
		} else {
			snprintf(old, sizeof(old), "%s.old-%ld", final, (long)getpid());
			if (rename(final, old) || rename(part, final))
				return -1;
		}
		gpt_directory_remove(old);
	}
	return gpt_directory_sync(slash ? parent : ".");
}
