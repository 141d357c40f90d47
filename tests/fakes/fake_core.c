/*
 * The communicator of tests: see fake_core.h.
 */
#include "tests/fakes/fake_core.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/entry.h"
#include "core/error.h"
#include "core/fabric.h"
#include "core/host_rates.h"
#include "core/label.h"
#include "core/rails_text.h"

struct fake_core fake_core;

static struct coll_context context;
static struct coll_comm comms[FAKE_COMMS];
static struct coll_peer_info infos[FAKE_RANKS];
static struct coll_process processes[FAKE_RANKS];
static _Atomic uint64_t sequences[FAKE_COMMS][2][FAKE_RANKS];

static void log_line(void *arg, int level, const char *line)
{
	fake_core.lines++;
	snprintf(fake_core.logged, sizeof(fake_core.logged), "%s", line);
}

static void open_comm(int which, int rank, int size)
{
	struct coll_comm *comm = &comms[which];

	memset(comm, 0, sizeof(*comm));
	comm->ctx = &context;
	comm->id = (uint64_t)(FAKE_COMM_ID + which);
	comm->rank = rank;
	comm->size = size;
	comm->rank_map.size = comm->rank_map.processes = size;
	comm->timeout_ms = 1000;
	comm->arrival_timeout_ms = 5000;
	coll_error_clear(&comm->box);
	comm->pair_sequence[0] = sequences[which][0];
	comm->pair_sequence[1] = sequences[which][1];
}

struct coll_comm *fake_comm_open(int rank, int size)
{
	assert(size <= FAKE_RANKS);
	fake_core = (struct fake_core){.culprit = -1};
	memset(&context, 0, sizeof(context));
	memset(infos, 0, sizeof(infos));
	memset(processes, 0, sizeof(processes));
	memset(sequences, 0, sizeof(sequences));
	for (int r = 0; r < size; r++) {
		infos[r].rank = r;
		infos[r].process = 100 + r;
		snprintf(infos[r].host_name, sizeof(infos[r].host_name), "host%d", r);
	}
	pthread_mutex_init(&context.comms_lock, NULL);
	context.peer_infos = infos;
	context.processes = processes;
	context.rank = rank;
	context.size = size;
	context.logger = (struct coll_logger){.level = COLL_LOG_WARN, .rank = rank, .size = size, .fn = log_line};
	open_comm(0, rank, size);
	context.comms = &comms[0];
	return &comms[0];
}

struct coll_comm *fake_comm_second(void)
{
	open_comm(1, comms[0].rank, comms[0].size);
	comms[0].next = &comms[1];
	return &comms[1];
}

struct coll_rank_name coll_comm_name(const struct coll_comm *comm, int rank)
{
	struct coll_rank_name name;

	snprintf(name.text, sizeof(name.text), "rank %d", rank);
	return name;
}

bool coll_comm_abort_locally(struct coll_comm *comm, int exit_status, const char *reason)
{
	if (atomic_exchange(&comm->abort_claimed, true))
		return false;
	fake_core.aborts++;
	atomic_store(&comm->aborted, true);
	return true;
}

coll_status coll_comm_fail(struct coll_comm *comm, coll_status status, int culprit, const char *cause,
                           const char *circumstances)
{
	if (comm->failed)
		return comm->failed;
	comm->failed = comm->ended = status;
	fake_core.failures++;
	fake_core.culprit = culprit;
	snprintf(fake_core.cause, sizeof(fake_core.cause), "%s", cause);
	snprintf(fake_core.circumstances, sizeof(fake_core.circumstances), "%s", circumstances);
	return status;
}

coll_status coll_comm_fail_for(struct coll_comm *comm, coll_status status, int process, const char *cause,
                               const char *circumstances)
{
	return coll_comm_fail(comm, status, process >= 0 ? coll_comm_rank_of(comm, process) : -1, cause, circumstances);
}

coll_status coll_comm_lose_member(struct coll_comm *comm, int rank, coll_status status, int process, const char *cause,
                                  const char *circumstances)
{
	return coll_comm_fail_for(comm, status, process, cause, circumstances);
}

void coll_ended_text(const struct coll_context *ctx, int process, const char *name, const struct coll_note *error,
                     char *text, size_t len_bytes)
{
	snprintf(text, len_bytes, "%s left after an error: %s", name, error->text);
}

void coll_death_text(const struct coll_context *ctx, int process, const char *name, char *text, size_t len_bytes)
{
	snprintf(text, len_bytes, "%s is dead", name);
}

coll_status coll_comm_refuse(struct coll_comm *comm, const char *kind, coll_status status, const char *format, ...)
{
	va_list ap;

	fake_core.refusals++;
	va_start(ap, format);
	vsnprintf(fake_core.cause, sizeof(fake_core.cause), format, ap);
	va_end(ap);
	return status;
}

void coll_host_rates_text(const struct coll_comm *comm, char *buf, size_t len_bytes)
{
	(void)comm, (void)len_bytes;
	buf[0] = '\0';
}

void coll_rails_explain(const struct coll_comm *comm, const struct coll_plan *plan, uint32_t windows, char *buf,
                        size_t len_bytes)
{
	snprintf(buf, len_bytes, "%s", "");
}

enum coll_link_end coll_comm_link_end(struct coll_comm *comm, int rank)
{
	return rank < 0 ? COLL_LINK_STANDS : fake_core.link_end[rank];
}

int coll_comm_broken(struct coll_comm *comm, int likely)
{
	if (coll_comm_link_end(comm, likely) == COLL_LINK_STANDS)
		for (int r = 0; r < comm->size; r++)
			if (fake_core.link_end[r] != COLL_LINK_STANDS)
				return r;
	return likely;
}

coll_status coll_comm_fabric_init(struct coll_comm *comm, struct coll_comm_fabric *f, uint16_t lane_base)
{
	*f = (struct coll_comm_fabric){.comm = comm, .lane_base = lane_base};
	return COLL_OK;
}

void coll_comm_fabric_close(struct coll_comm_fabric *f)
{
}

void coll_entry_refuse(const struct coll_context *ctx, const char *what, const char *kind)
{
}

struct coll_label_text coll_comm_label(const struct coll_comm *comm)
{
	(void)comm;
	return (struct coll_label_text){""};
}
