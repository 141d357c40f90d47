/*
 * A device in software, or several, for tests of the rdma transport where the order of events matters
 * and a real device gives it once in a thousand times: all instances of a process meet in
 * it. It takes the place of verbs.c. Device i is behind the address 10.99.i.1, in a network of its own; there are as
 * many as FABRIC_DEVICES of the environment says, or one. Writes and sends are done when they are posted;
 * messages of the connection manager arrive in order, but the asking end's last word
 * (which completes a connection at the accepting end) waits while it is held: the kernel
 * hands it on from a queue of its own, so what goes over the connection may overtake it.
 */
#ifndef COLL_TRANSPORTS_RDMA_FABRIC_TEST_H
#define COLL_TRANSPORTS_RDMA_FABRIC_TEST_H

#include <stdbool.h>

#include "transports/rdma/verbs.h"

/* From now on last words wait; false: those that wait arrive. */
void fabric_hold(bool on);
/* The process that has this event channel dies: its identifiers and queue pairs end without a word. */
void fabric_kill(struct rdma_event_channel *channel);
/* After so many more receives one is refused, once; less than 0: none. */
void fabric_refuse_recvs(int after);
/* From now on no memory is registered, as where none may be locked. */
void fabric_refuse_memory(bool on);
/* Called by a thread that is about to call the device: what other threads do in the meantime. NULL: nothing. */
void fabric_between(void (*fn)(void));
/* How many devices there are for instances that are opened from now on. */
void fabric_devices(int count);
/* Its port is not active, and nothing gets from it or to it; false: as before. */
void fabric_unplug(int device, bool out);
/* It swallows what it is given, and reports nothing. Ends with the connections that were made before. */
void fabric_mute(int device, bool on);
/* Called with what a write has put at the peer before anybody is told, which may change it. NULL: nothing. */
void fabric_written(void (*fn)(char *to, size_t len_bytes));
/* Bytes that went out of it. */
uint64_t fabric_sent(int device);
/* Identifiers, queue pairs, queues, regions and channels that have not been destroyed. */
int fabric_objects(void);

#endif
