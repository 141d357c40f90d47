/*
 * The engine of tests: see fake_engine.h.
 */
#include "tests/fakes/fake_engine.h"

#include "device/device.h"

#include <assert.h>

#include "engine/order.h"
#include "engine/position.h"
#include "record/way.h"

struct fake_engine fake_engine;

void fake_engine_reset(void)
{
	fake_engine = (struct fake_engine){.end = COLL_OK};
}

struct coll_run *fake_engine_run_of(uint64_t number)
{
	for (int i = fake_engine.nstarted; i-- > 0;)
		if (fake_engine.number[i] == number)
			return fake_engine.started[i];
	return NULL;
}

coll_status coll_run_create(struct coll_run **run)
{
	if (fake_engine.no_memory)
		return COLL_ERR_MEMORY;
	for (int i = 0; i < FAKE_RUNS; i++)
		if (!fake_engine.runs[i].used) {
			fake_engine.runs[i] = (struct coll_run){.used = true};
			fake_engine.created++;
			*run = &fake_engine.runs[i];
			return COLL_OK;
		}
	return COLL_ERR_MEMORY;
}

void coll_run_destroy(struct coll_run **run)
{
	if (!*run)
		return;
	(*run)->used = false;
	fake_engine.destroyed++;
	*run = NULL;
}

static void started(struct coll_run *run)
{
	assert(fake_engine.nstarted < FAKE_STARTS);
	run->polls = fake_engine.polls;
	run->end = fake_engine.end;
	fake_engine.started[fake_engine.nstarted] = run;
	fake_engine.number[fake_engine.nstarted++] = run->job.way == COLL_WAY_SEND_RECV ? 0 : run->job.sequence;
}

coll_status coll_run_start(struct coll_run *run, const struct coll_fabric *fabric, const struct coll_job *job)
{
	if (fake_engine.refuse)
		return fake_engine.refuse;
	run->job = *job;
	run->after = job->after;
	run->starts++;
	started(run);
	return COLL_OK;
}

void coll_run_begun(struct coll_run *run, const struct coll_intra_state *state)
{
}

void coll_run_restart(struct coll_run *run, const void *in, void *out, uint64_t sequence)
{
	run->job.in.base = (char *)(uintptr_t)in;
	run->job.out.base = out;
	run->job.sequence = sequence;
	run->after = NULL;
	run->restarts++;
	started(run);
}

void coll_run_follow(struct coll_run *run, const struct coll_run *after)
{
	run->after = after;
}

void coll_run_cancel(struct coll_run *run, coll_status status)
{
	run->cancelled++;
	run->cancelled_with = status;
}

coll_status coll_run_poll(struct coll_run *run, bool *moved)
{
	run->polled++;
	if (moved)
		*moved = false;
	if (run->polls == 0)
		return run->end;
	if (run->polls > 0)
		run->polls--;
	if (moved)
		*moved = run->moves;
	return COLL_AGAIN;
}

uint8_t coll_run_way(const struct coll_run *run)
{
	return run->way;
}

bool coll_run_awaits_progress(const struct coll_run *run)
{
	return run->awaits;
}

void coll_run_where(const struct coll_run *run, struct coll_run_where *where)
{
	*where = run->where;
}

/* All memory is host memory. */
/* There is no device, so nothing is staged. */
bool coll_run_waits_for_stream(const struct coll_run *run)
{
	return false;
}

size_t coll_run_span(const struct coll_job *job); /* engine/bind.h shows the real run, too */
size_t coll_run_span(const struct coll_job *job)
{
	return 0;
}

void coll_device_error(struct coll_device *d, struct coll_error_box *box)
{
	coll_error_clear(box);
}

void coll_device_hold(struct coll_device *d, const _Atomic uint32_t *word, uint32_t value)
{
}

bool coll_device_is_held(const struct coll_device *d)
{
	return false;
}

coll_status coll_device_unpin(struct coll_device *d, void *host)
{
	return d->table->unpin(d, host);
}

const struct coll_memory *coll_device_memory(int kind)
{
	static const struct coll_memory host;

	return &host;
}
