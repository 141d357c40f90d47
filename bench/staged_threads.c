/*
 * All-reduce of device buffers by ranks that are threads of one process and share a device: what the perf programs,
 * with one rank per process, do not show. Verified; times are the means of rank 0, blocking calls.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "perf/perf.h"

enum { RANKS_MAX = 16, WARM = 5 };

static int ranks = 2, iters = 100;
static size_t max_bytes = (size_t)1 << 30;
static const char *device = "cuda";
static int failures;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static bool ok(coll_comm *comm, coll_status st)
{
	if (st != COLL_OK) {
		fprintf(stderr, "staged_threads: rank %d: %s\n", coll_comm_rank(comm), coll_last_error(comm)->message);
		__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
	}
	return st == COLL_OK;
}

struct rank {
	pthread_t thread;
	coll_comm *comm;
	float *host, *in, *out; /* in, out: of the device */
};

/* Element i of rank r is r + i % 1000: the sum is exact. */
static size_t wrong(struct rank *r, size_t count)
{
	const int me = coll_comm_rank(r->comm), triangle = ranks * (ranks - 1) / 2;
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		r->host[i] = (float)(me + (int)(i % 1000));
	if (!ok(r->comm, perf_device_write(r->in, r->host, count * sizeof(float))) ||
	    !ok(r->comm, coll_all_reduce(r->in, r->out, count, COLL_F32, COLL_SUM, r->comm, NULL)) ||
	    !ok(r->comm, perf_device_read(r->host, r->out, count * sizeof(float))))
		return 1;
	for (size_t i = 0; i < count; i++)
		n += r->host[i] != (float)(ranks * (int)(i % 1000) + triangle);
	return n;
}

static void size(struct rank *r, size_t bytes)
{
	const size_t count = bytes / sizeof(float), bad = wrong(r, count);
	const int n = bytes > (1 << 22) && iters > 10 ? 10 : iters;
	double us = 0;

	for (int i = -WARM; i < n; i++) {
		const double begin = now_us();

		if (!ok(r->comm, coll_all_reduce(r->in, r->out, count, COLL_F32, COLL_SUM, r->comm, NULL)))
			return;
		if (i >= 0)
			us += (now_us() - begin) / n;
	}
	if (bad)
		__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
	if (coll_comm_rank(r->comm) == 0)
		printf("%12zu %12.2f %10.3f %8zu\n", bytes, us, 2.0 * (ranks - 1) / ranks * (double)bytes / us * 1e-3,
		       bad);
}

static void *rank_main(void *arg)
{
	struct rank *r = arg;

	r->host = malloc(max_bytes);
	if (r->host && ok(r->comm, coll_mem_alloc_on(r->comm, (void **)&r->in, max_bytes, COLL_MEM_DEVICE)) &&
	    ok(r->comm, coll_mem_alloc_on(r->comm, (void **)&r->out, max_bytes, COLL_MEM_DEVICE)))
		for (size_t bytes = 8; bytes <= max_bytes; bytes *= 8)
			size(r, bytes);
	else
		__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
	free(r->host);
	if (coll_comm_destroy(&r->comm) != COLL_OK)
		__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
	return NULL;
}

int main(int argc, char **argv)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comms[RANKS_MAX] = {NULL};
	static struct rank r[RANKS_MAX];
	int flag;

	while ((flag = getopt(argc, argv, "t:e:n:d:")) != -1) {
		if (flag == 't')
			ranks = atoi(optarg);
		else if (flag == 'e')
			max_bytes = strtoull(optarg, NULL, 10);
		else if (flag == 'n')
			iters = atoi(optarg);
		else if (flag == 'd')
			device = optarg;
		else
			ranks = 0;
	}
	if (ranks < 1 || ranks > RANKS_MAX || iters < 1 || max_bytes < 8) {
		fprintf(stderr, "usage: staged_threads [-t RANKS] [-e BYTES] [-n ITERATIONS] [-d DEVICE]\n");
		return 2;
	}
	cfg.device = device;
	if (coll_comm_create_all(comms, ranks, &cfg) != COLL_OK) {
		fprintf(stderr, "staged_threads: %s\n", coll_last_error(NULL)->message);
		return 1;
	}
	printf("# all_reduce, f32, sum, %d threads of one process on %s\n%12s %12s %10s %8s\n", ranks, device, "bytes",
	       "us", "busbw GB/s", "wrong");
	for (int i = 0; i < ranks; i++) {
		r[i].comm = comms[i];
		pthread_create(&r[i].thread, NULL, rank_main, &r[i]);
	}
	for (int i = 0; i < ranks; i++)
		pthread_join(r[i].thread, NULL);
	return failures > 0;
}
