/*
 * The round trip of a TCP connection, as the kernel has measured it.
 */
#ifndef COLL_BASE_ROUND_TRIP_H
#define COLL_BASE_ROUND_TRIP_H

#include <stdint.h>

/* The shortest so far, in microseconds, 1 at least; 0: unknown. */
uint32_t coll_round_trip_us(int fd);

#endif
