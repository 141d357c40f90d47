/*
 * What the parts of the device in software (fabric_test.h) share: one lock over everything, objects that are
 * counted, and queue pairs, which the verbs move data through and the connection manager joins.
 * fabric_test.c holds the parts together, fabric_verbs_test.c and fabric_cm_test.c are the two.
 */
#ifndef COLL_TRANSPORTS_RDMA_FABRIC_PARTS_TEST_H
#define COLL_TRANSPORTS_RDMA_FABRIC_PARTS_TEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/rdma/fabric_test.h"

enum { FABRIC_RECVS = 1024, FABRIC_DEVICES = 8 };

struct queue_pair {
	struct ibv_qp qp;
	struct queue_pair *peer;
	bool error;
	struct {
		uint64_t id;
		struct ibv_sge sge;
	} recv[FABRIC_RECVS];
	uint64_t recv_first, recv_count;
};

/* Whoever is called by the transport enters; the same thread may enter again. */
#define LOCKED const int locked __attribute__((cleanup(fabric_leave), unused)) = fabric_enter()
extern pthread_mutex_t fabric_mutex;
int fabric_enter(void);
void fabric_leave(const int *unused);

/* What the standard or this device forbids: the end of the program. */
_Noreturn void fabric_forbidden(const char *what);

/* Zeroed memory of an object, which fabric_objects() counts until it is unmade. */
void *fabric_make(size_t bytes);
void fabric_unmake(void *p);

/* Whether there is something to take from the channel that has this eventfd. */
void fabric_show(int fd, bool readable);

/* ---- Verbs ---- */

struct fabric_device {
	struct ibv_context context; /* the first member: verbs know it by that */
	bool unplugged, muted;
	uint64_t sent;
};

extern struct fabric_device fabric_device[FABRIC_DEVICES];

static inline struct fabric_device *fabric_device_of(const struct ibv_context *context)
{
	return (struct fabric_device *)context;
}

/* Its part of the table; the making of queue pairs is among it. */
void fabric_verbs_fill(struct coll_rdma_verbs *v);

/* The queue pair is in error: its receives complete as flushed. */
void fabric_flush(struct queue_pair *q);

/* ---- Connection manager ---- */

void fabric_cm_fill(struct coll_rdma_verbs *v);

#endif
