/*
 * What the links of a job's hosts carry, measured by messages of the library itself; of coll-tune. All ranks call each
 * function in the same order. A call that fails ends the process with its error.
 */
#ifndef COLL_TOOLS_TUNE_MEASURE_H
#define COLL_TOOLS_TUNE_MEASURE_H

#include "core/comm.h"

struct tune_net {
	struct coll_comm *comm;
	int hosts, lanes; /* lanes: ranks of each host that send at once */
	int *rank_of;     /* [host * lanes + lane] */
	int host, lane;   /* of this rank; lane -1: it only waits */
	char *bytes;      /* what is sent */
};

/* False: out of memory. */
bool tune_net_open(struct tune_net *net, struct coll_comm *comm);
void tune_net_close(struct tune_net *net);

/* Round trips of pairs of hosts, the shortest of 20, in nanoseconds: with[h] is the host that h is paired with, -1:
 * none. Equal on all ranks; [h], 0 without a pair. */
void tune_round_trips(struct tune_net *net, const int *with, double *rtt_ns);

/* Streams that run at once: host h sends to to[h], which nobody else sends to, or to none (-1). mbps[h]: what h sent,
 * of payload; *together: all bytes over the time until the last had come. Equal on all ranks. */
void tune_streams(struct tune_net *net, const int *to, double *mbps, double *together);

#endif
