/*
 * See bare.h.
 */
#include "bare.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* The control before the connection is made, from when on a paced one would pace for ever; accepted sockets inherit it.
 */
static int new_socket(const char *congestion)
{
	const int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)))
		perror(congestion);
	return fd;
}

static int accept_one(struct sockaddr_in *at, void (*barrier)(void *arg), void *arg, const char *congestion)
{
	const int listener = new_socket(congestion);
	socklen_t len = sizeof(*at);
	int fd;

	*at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (bind(listener, (struct sockaddr *)at, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)at, &len))
		die("listen");
	barrier(arg);
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		die("accept");
	close(listener);
	return fd;
}

int bare_connect(int rank, struct sockaddr_in *at, void (*barrier)(void *arg), void *arg, const char *congestion)
{
	const int one = 1;
	int fd;

	if (rank == 0) {
		fd = accept_one(at, barrier, arg, congestion);
	} else {
		barrier(arg);
		fd = new_socket(congestion);
		if (connect(fd, (struct sockaddr *)at, sizeof(*at)))
			die("connect");
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

void bare_ping(int fd, int rank, const char *out, char *in, size_t bytes)
{
	for (int half = 0; half < 2; half++)
		for (size_t done = 0; done < bytes;) {
			const ssize_t k = half == rank ? send(fd, out + done, bytes - done, MSG_NOSIGNAL)
			                               : recv(fd, in + done, bytes - done, 0);

			if (k > 0)
				done += (size_t)k;
		}
}

void bare_duplex(int fd, const char *out, char *in, size_t bytes, int times)
{
	const size_t total = bytes * (size_t)times;
	size_t sent = 0, got = 0;

	while (sent < total || got < total) {
		if (sent < total) {
			const ssize_t k = send(fd, out + sent % bytes, bytes - sent % bytes, MSG_NOSIGNAL);

			sent += k > 0 ? (size_t)k : 0;
		}
		if (got < total) {
			const ssize_t k = recv(fd, in + got % bytes, bytes - got % bytes, 0);

			got += k > 0 ? (size_t)k : 0;
		}
	}
}
