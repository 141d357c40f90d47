/*
 * Small numbers of every rank to every rank, with a checksum: what the report
 * and the exit status rest on is verified like the data itself.
 */
#include "perf.h"

static uint64_t checksum(const uint64_t *words, int count)
{
	return perf_data_hash(words, (size_t)count * sizeof(*words));
}

coll_status perf_exchange(coll_comm *comm, const uint64_t *mine, int count, struct perf_numbers *all)
{
	struct perf_numbers own = {{0}, 0};
	coll_status status;

	for (int i = 0; i < count; i++)
		own.word[i] = mine[i];
	own.checksum = checksum(own.word, PERF_NUMBERS);
	status = coll_all_gather(&own, all, sizeof(own) / 8, COLL_U64, comm, NULL);
	for (int rank = 0; status == COLL_OK && rank < coll_comm_size(comm); rank++)
		if (all[rank].checksum != checksum(all[rank].word, PERF_NUMBERS)) {
			fprintf(stderr, "rank %d: numbers of rank %d were damaged on the way\n", coll_comm_rank(comm),
			        rank);
			status = COLL_ERR_CORRUPT;
		}
	return status;
}
