/*
 * See tune_measure.h. A stream is sized by short ones before it, so that it takes about STREAM_NS; then all streams
 * begin at a barrier. The receiver takes the time, without the first part: what shapes a link often lets a burst
 * through.
 */
#include "tools/tune_measure.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "coll/coll.h"

enum { ROUND_TRIPS = 20, LANES_MAX = 4, CHUNK_BYTES = 1 << 20, FIRST_BYTES = 64 << 10, FEWEST_TRIALS = 3 };

#define STREAM_NS 100e6 /* of the stream that counts */
#define TRIAL_NS  20e6  /* a trial as long says enough of the rate */
#define MOST      4e9   /* bytes of a stream */

/* What goes before it, of its bytes. */
#define FIRST_PART 0.6

static void must(coll_status st, const struct coll_comm *comm)
{
	if (st == COLL_OK)
		return;
	fprintf(stderr, "coll-tune: %s\n", coll_last_error(comm)->message);
	exit(1);
}

bool tune_net_open(struct tune_net *net, struct coll_comm *comm)
{
	const struct coll_rank_map *map = &comm->rank_map;
	int *seen;

	*net = (struct tune_net){.comm = comm, .hosts = (int)map->hosts, .lanes = LANES_MAX, .lane = -1};
	seen = calloc((size_t)net->hosts, sizeof(*seen));
	net->rank_of = calloc((size_t)net->hosts * LANES_MAX, sizeof(*net->rank_of));
	net->bytes = calloc(1, CHUNK_BYTES);
	if (!seen || !net->rank_of || !net->bytes) {
		free(seen);
		tune_net_close(net);
		return false;
	}
	for (int r = 0; r < comm->size; r++)
		seen[map->host_of[r]]++;
	for (int h = 0; h < net->hosts; h++) {
		net->lanes = seen[h] < net->lanes ? seen[h] : net->lanes;
		seen[h] = 0;
	}
	for (int r = 0; r < comm->size; r++) {
		const int h = (int)map->host_of[r], lane = seen[h]++;

		if (lane < net->lanes)
			net->rank_of[h * net->lanes + lane] = r;
		if (r == comm->rank && lane < net->lanes)
			net->lane = lane;
	}
	net->host = (int)map->host_of[comm->rank];
	free(seen);
	return true;
}

void tune_net_close(struct tune_net *net)
{
	free(net->rank_of);
	free(net->bytes);
}

static int rank_at(const struct tune_net *net, int host)
{
	return net->rank_of[host * net->lanes + net->lane];
}

/* One number of each host, from its first rank, for all. */
static void share(struct tune_net *net, double mine, double *of)
{
	double *all = malloc((size_t)net->comm->size * sizeof(*all));

	if (!all) {
		fprintf(stderr, "coll-tune: out of memory\n");
		exit(1);
	}
	must(coll_all_gather(&mine, all, 1, COLL_F64, net->comm, NULL), net->comm);
	for (int h = 0; h < net->hosts; h++) {
		of[h] = 0;
		for (int lane = 0; lane < net->lanes; lane++)
			of[h] += all[net->rank_of[h * net->lanes + lane]];
	}
	free(all);
}

/* ---- Round trips ---- */

void tune_round_trips(struct tune_net *net, const int *with, double *rtt_ns)
{
	const int other = net->lane == 0 ? with[net->host] : -1;
	double least = 0;
	uint64_t word = 0;

	must(coll_barrier(net->comm, NULL), net->comm);
	for (int i = 0; other >= 0 && i <= ROUND_TRIPS; i++) {
		const uint64_t begun = coll_clock_ns();
		const int peer = rank_at(net, other);

		if (net->host < other)
			must(coll_send(&word, 1, COLL_U64, peer, net->comm, NULL), net->comm);
		must(coll_recv(&word, 1, COLL_U64, peer, net->comm, NULL), net->comm);
		if (net->host > other)
			must(coll_send(&word, 1, COLL_U64, peer, net->comm, NULL), net->comm);
		if (i > 0 && (least == 0 || (double)(coll_clock_ns() - begun) < least)) /* the first opens the link */
			least = (double)(coll_clock_ns() - begun);
	}
	share(net, net->lane == 0 ? least : 0, rtt_ns);
}

/* ---- Streams ---- */

static void move(struct tune_net *net, int peer, bool sends, double bytes)
{
	for (uint64_t left = (uint64_t)bytes; left > 0;) {
		const size_t n = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;

		must(sends ? coll_send(net->bytes, n, COLL_U8, peer, net->comm, NULL)
		           : coll_recv(net->bytes, n, COLL_U8, peer, net->comm, NULL),
		     net->comm);
		left -= n;
	}
}

/* How many bytes take STREAM_NS: trials grow until one takes long enough. The sender decides, after the receiver's
 * times. */
static double sized(struct tune_net *net, int peer, bool sends)
{
	double bytes = FIRST_BYTES, ns = 0;

	for (int trial = 0;; trial++) {
		if (sends && trial > 0) {
			const double wanted = bytes * (ns < TRIAL_NS ? 2 * TRIAL_NS : STREAM_NS) / ns;
			const bool ends = (trial >= FEWEST_TRIALS && ns >= TRIAL_NS) || wanted > MOST;
			const double next = ends || wanted < 8 * bytes ? wanted : 8 * bytes;
			const double told[2] = {next > MOST ? MOST : next < FIRST_BYTES ? FIRST_BYTES : next, ends};

			must(coll_send(told, 2, COLL_F64, peer, net->comm, NULL), net->comm);
			bytes = told[0];
			if (ends)
				return bytes;
		} else if (trial > 0) {
			double told[2];

			must(coll_recv(told, 2, COLL_F64, peer, net->comm, NULL), net->comm);
			bytes = told[0];
			if (told[1] != 0)
				return bytes;
		}
		const uint64_t begun = coll_clock_ns();

		move(net, peer, sends, bytes);
		ns = (double)(coll_clock_ns() - begun + 1);
		must(sends ? coll_recv(&ns, 1, COLL_F64, peer, net->comm, NULL)
		           : coll_send(&ns, 1, COLL_F64, peer, net->comm, NULL),
		     net->comm);
	}
}

static int sender_to(const struct tune_net *net, const int *to, int host)
{
	for (int h = 0; h < net->hosts; h++)
		if (to[h] == host)
			return h;
	return -1;
}

void tune_streams(struct tune_net *net, const int *to, double *mbps, double *together)
{
	const int dest = net->lane >= 0 ? to[net->host] : -1;
	const int source = net->lane >= 0 && dest < 0 ? sender_to(net, to, net->host) : -1;
	const int peer = dest >= 0 ? rank_at(net, dest) : source >= 0 ? rank_at(net, source) : -1;
	double bytes = 0, all = 0, ns = 0, *of = malloc((size_t)net->hosts * sizeof(*of));
	uint64_t begun;

	if (!of) {
		fprintf(stderr, "coll-tune: out of memory\n");
		exit(1);
	}
	if (peer >= 0)
		bytes = sized(net, peer, dest >= 0);
	must(coll_barrier(net->comm, NULL), net->comm);
	if (peer >= 0)
		move(net, peer, dest >= 0, FIRST_PART * bytes);
	begun = coll_clock_ns();
	if (peer >= 0)
		move(net, peer, dest >= 0, bytes);
	ns = source >= 0 ? (double)(coll_clock_ns() - begun) : 0;
	/* What each host received, in Mb/s: bytes and nanoseconds are 8000 Mb/s. */
	share(net, ns > 0 ? 8e3 * bytes / ns : 0, of);
	for (int h = 0; h < net->hosts; h++)
		mbps[h] = to[h] >= 0 ? of[to[h]] : 0;
	must(coll_all_reduce(&ns, &ns, 1, COLL_F64, COLL_MAX, net->comm, NULL), net->comm);
	all = source >= 0 ? bytes : 0;
	must(coll_all_reduce(&all, &all, 1, COLL_F64, COLL_SUM, net->comm, NULL), net->comm);
	*together = ns > 0 ? 8e3 * all / ns : 0;
	free(of);
}
