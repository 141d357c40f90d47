/*
 * Two bare sockets of one machine, the measure of the tcp transport: no library, both ends
 * spin on sockets that do not block.
 */
#ifndef COLL_BENCH_BARE_H
#define COLL_BENCH_BARE_H

#include <netinet/in.h>
#include <stddef.h>

/*
 * This end's socket. Both ends call it; at lies in memory that both see, and barrier(arg)
 * returns when both have come. A congestion control that the system does not have is told on
 * stderr; what else goes wrong ends the program.
 */
int bare_connect(int rank, struct sockaddr_in *at, void (*barrier)(void *arg), void *arg, const char *congestion);

/* bytes from rank 0 to rank 1, and back. */
void bare_ping(int fd, int rank, const char *out, char *in, size_t bytes);

/* Both ends send bytes and receive as many at once, times times back to back. */
void bare_duplex(int fd, const char *out, char *in, size_t bytes, int times);

#endif
