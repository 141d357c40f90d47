/*
 * Our own descriptors 0 to 2. Nothing here blocks: pipes and terminals are opened once more, without blocking, since
 * others share the descriptors that we were given and must find them as they were. A descriptor that was closed is
 * held, so that no pipe of ours gets its number; what is written to it fails as before.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collrun.h"

enum { WRITE_CHUNK = 4096 }; /* a pipe that poll() calls writable takes it whole */

void streams_hold(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) < 0)
			return;
}

int stream_open(int fd)
{
	const int mode = fcntl(fd, F_GETFL), wanted = fd == 0 ? O_RDONLY : O_WRONLY;
	char path[32];
	struct stat st;
	int own;

	if (mode < 0 || ((mode & O_ACCMODE) != wanted && (mode & O_ACCMODE) != O_RDWR) || fstat(fd, &st) < 0 ||
	    !(S_ISFIFO(st.st_mode) || isatty(fd)))
		return fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, wanted | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return own < 0 ? fd : own;
}

void stream_close(int fd)
{
	if (fd > 2)
		close(fd);
}

ssize_t stream_read(int fd, void *data, size_t len_bytes)
{
	const ssize_t n = recv(fd, data, len_bytes, MSG_DONTWAIT);

	return n < 0 && errno == ENOTSOCK ? read(fd, data, len_bytes) : n;
}

ssize_t stream_write(int fd, const void *data, size_t len_bytes)
{
	const size_t some = len_bytes < WRITE_CHUNK ? len_bytes : WRITE_CHUNK;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	ssize_t n;

	if (poll(&p, 1, 0) == 0) {
		errno = EAGAIN;
		return -1;
	}
	n = send(fd, data, some, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n < 0 && errno == ENOTSOCK ? write(fd, data, some) : n;
}
