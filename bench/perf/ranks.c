/*
 * The ranks of this process: one, or with -g several, each in a thread of its own. Several processes may have several
 * ranks each: then the processes first find each other, as ranks on the host.
 */
#include <stdlib.h>

#include "perf.h"

static coll_status share_id(struct perf_job *j)
{
	coll_status status = COLL_OK;

	if (coll_comm_rank(j->processes) == 0)
		status = coll_unique_id_create(&j->id);
	if (status == COLL_OK)
		status = coll_broadcast(&j->id, &j->id, sizeof(j->id), COLL_U8, 0, j->processes, NULL);
	return status;
}

coll_status perf_job_begin(struct perf_job *j, int ranks, const char *device)
{
	coll_config config = COLL_CONFIG_INIT;
	coll_status status;

	*j = (struct perf_job){.ranks = ranks, .device = device};
	if (ranks == 1)
		return COLL_OK;
	config.device = "host";
	status = coll_comm_create(&j->processes, &config);
	if (status != COLL_OK)
		return status;
	if (coll_comm_size(j->processes) > 1)
		return share_id(j);
	config.device = device;
	j->comms = calloc((size_t)ranks, sizeof(coll_comm *));
	return j->comms ? coll_comm_create_all(j->comms, ranks, &config) : COLL_ERR_MEMORY;
}

coll_status perf_job_create(const struct perf_job *j, int index, coll_comm **comm)
{
	coll_config config = COLL_CONFIG_INIT;

	if (j->comms) {
		*comm = j->comms[index];
		return COLL_OK;
	}
	config.device = j->device;
	if (j->processes) {
		config.rank = coll_comm_rank(j->processes) * j->ranks + index;
		config.size = coll_comm_size(j->processes) * j->ranks;
		config.id = &j->id;
	}
	return coll_comm_create(comm, &config);
}

coll_status perf_job_end(struct perf_job *j)
{
	free(j->comms);
	return j->processes ? coll_comm_destroy(&j->processes) : COLL_OK;
}
