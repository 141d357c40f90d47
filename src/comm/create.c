/*
 * Creation of communicators: probe, open, exchange, join. closing.c ends them.
 */
#include "comm/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/delay.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/limits.h"
#include "base/sized.h"
#include "bootstrap/address.h"
#include "bootstrap/exchange.h"
#include "bootstrap/id.h"
#include "bootstrap/probe.h"
#include "bootstrap/secret.h"
#include "call/persistent.h"
#include "call/tag_kind.h"
#include "comm/clients.h"
#include "comm/closing.h"
#include "comm/devices.h"
#include "comm/facts.h"
#include "comm/group_barrier.h"
#include "comm/layout.h"
#include "comm/own_failure.h"
#include "comm/refine.h"
#include "comm/settings.h"
#include "comm/stats.h"
#include "context/session.h"
#include "core/dead.h"
#include "core/fabric.h"
#include "core/host_rates.h"
#include "core/label.h"
#include "core/memory.h"
#include "core/thread_error.h"
#include "devcall/capture_ring.h"
#include "devcall/stage.h"
#include "engine/run.h"
#include "inflight/async.h"
#include "inflight/drive.h"
#include "inflight/notify.h"
#include "inflight/queue.h"
#include "inflight/thread.h"
#include "inspect/dump.h"
#include "inspect/dump_signal.h"
#include "intra/region.h"
#include "match/tags.h"
#include "members/changes.h"
#include "select/frame.h"
#include "select/intra.h"
#include "watch/alarm.h"
#include "watch/held_up.h"
#include "watch/pair_counts.h"
#include "watch/watchdog.h"

coll_status coll_unique_id_create(coll_unique_id *id)
{
	struct coll_error_box err;
	struct coll_settings *settings = malloc(sizeof(*settings));
	coll_status st;

	coll_error_clear(&err);
	coll_secret_take();
	if (!id)
		st = coll_error_set(&err, COLL_ERR_ARGUMENT, "id is NULL");
	else if (!settings)
		st = coll_error_set(&err, COLL_ERR_MEMORY, "out of memory");
	else
		st = coll_settings_load(settings, NULL, NULL, &err);
	if (st == COLL_OK)
		coll_secret_forget(settings);
	if (st == COLL_OK)
		st = coll_bootstrap_unique_id(settings, id, &err);
	free(settings);
	return st == COLL_OK ? st : coll_thread_error_failed(st, &err, NULL);
}

/* ---- Objects ---- */

static void unlist(struct coll_comm *comm)
{
	struct coll_comm **link = &comm->ctx->comms;

	pthread_mutex_lock(&comm->ctx->comms_lock);
	while (*link && *link != comm)
		link = &(*link)->next;
	if (*link) {
		*link = comm->next;
		comm->ctx->gone[comm->ctx->ngone++ % COLL_GONE_MAX] = comm->id;
	}
	if (comm->ctx->comms) /* if none is left, the context ends as well */
		coll_history_keep(&comm->ctx->history, &comm->recorder, comm->id);
	pthread_mutex_unlock(&comm->ctx->comms_lock);
}

static coll_status find_isa(struct coll_comm *comm, struct coll_error_box *err)
{
	comm->isa = coll_reduce_best_isa();
	if (!comm->ctx->settings.isa[0])
		return COLL_OK;
	for (enum coll_isa i = COLL_ISA_SCALAR; i < COLL_ISA_COUNT; i++)
		if (strcmp(comm->ctx->settings.isa, coll_reduce_isa_name(i)) == 0 && i <= comm->isa) {
			comm->isa = i;
			return COLL_OK;
		}
	return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] COLL_ISA=%s: unknown, or this CPU does not have it",
	                      comm->ctx->settings.isa);
}

void coll_comm_describe(const struct coll_comm *comm)
{
	const struct coll_context *ctx = comm->ctx;
	char layout[96] = "flat";

	if (comm->layout)
		coll_layout_print(comm->layout, layout, sizeof(layout));
	coll_log(&ctx->logger, COLL_LOG_INFO,
	         "rank %d of %d on host %s (%u host%s, %d here%s), layout %s, launcher %s, slots %u x %zu bytes, "
	         "kernels %s, device %s",
	         comm->rank, comm->size, ctx->info.host_name, comm->rank_map.hosts,
	         comm->rank_map.hosts == 1 ? "" : "s", comm->rank_map.local_size,
	         ctx->dedicated_cores ? "" : ", more ranks than cores", layout, ctx->identity.launcher, comm->slots,
	         comm->slot_bytes, coll_reduce_isa_name(comm->isa), ctx->device ? ctx->device->name : "none");
}

uint64_t coll_comm_first_id(const struct coll_context *ctx)
{
	/* The id is equal on all ranks and differs between jobs: it derives from the process id of
	 * rank 0. */
	return coll_hash_combine(ctx->peer_infos[0].id.word[0], ctx->peer_infos[0].id.word[1]) | 1;
}

/* Who its ranks are, and what is agreed among them. */
static coll_status settle(struct coll_comm *comm, const int *process_of, int size)
{
	const struct coll_context *ctx = comm->ctx;
	const struct coll_opened_transport *w;
	coll_status st = coll_rank_map_init(&comm->rank_map, ctx, process_of, size);

	if (st != COLL_OK)
		return st;
	/* ALARM: gossip notes may have arrived earlier. */
	atomic_init(&comm->attention, COLL_ATTENTION_ALARM | (ctx->device ? COLL_ATTENTION_MEMORY : 0u));
	comm->rank = coll_comm_rank_of(comm, ctx->rank);
	comm->size = comm->rank_map.size;
	w = coll_comm_facts_transport(comm, true);
	if (w && comm->rank_map.hosts > 1)
		comm->host_rates = coll_host_rates_find(comm, w);
	if (w && comm->rank_map.hosts > 1 && !comm->host_rates)
		return COLL_ERR_MEMORY;
	st = coll_comm_find_layout(comm, &comm->layout);
	if (st == COLL_OK)
		st = coll_comm_find_chain(comm, &comm->chain);
	if (st == COLL_OK)
		st = coll_comm_find_rails(comm, w, comm->layout, &comm->rails);
	if (st == COLL_OK)
		coll_comm_facts_find(comm);
	return st;
}

/* What its calls run in. */
static coll_status make_runs(struct coll_comm *comm)
{
	coll_status st = coll_run_create(&comm->run);

	for (int i = 0; i < 2 && st == COLL_OK; i++)
		st = coll_run_create(&comm->pair_run[i]);
	if (st == COLL_OK)
		st = coll_plan_cache_create(comm->ctx->settings.memory_budget / 4, &comm->plans);
	if (st == COLL_OK && comm->facts.caps.streamed)
		coll_plan_cache_keep_logical(comm->plans);
	return st;
}

/* What it allocates for all its life, beside what captures, tags and operations of the user need. */
static coll_status make_parts(struct coll_comm *comm)
{
	const size_t size = (size_t)comm->size;
	coll_status st;

	comm->pair_sequence[0] = calloc(size, sizeof(uint64_t));
	comm->pair_sequence[1] = calloc(size, sizeof(uint64_t));
	comm->tagged.wakes = calloc(size, sizeof(*comm->tagged.wakes));
	if (!comm->pair_sequence[0] || !comm->pair_sequence[1] || !comm->tagged.wakes)
		return COLL_ERR_MEMORY;
	st = coll_comm_fabric_init(comm, &comm->collective, 0);
	if (st == COLL_OK)
		st = coll_select_intra_prepare(comm);
	if (st == COLL_OK)
		st = coll_comm_fabric_init(comm, &comm->pairs, COLL_LANES_P2P);
	if (st == COLL_OK)
		st = make_runs(comm);
	return st == COLL_OK ? coll_comm_prepare_end(comm) : st;
}

static void enlist(struct coll_comm *comm)
{
	struct coll_context *ctx = comm->ctx;

	pthread_mutex_lock(&ctx->comms_lock);
	comm->next = ctx->comms;
	ctx->comms = comm;
	pthread_mutex_unlock(&ctx->comms_lock);
	coll_context_retain(ctx);
}

coll_status coll_comm_new(struct coll_context *ctx, uint64_t id, uint32_t epoch, const int *process_of, int size,
                          struct coll_comm **out, struct coll_error_box *err)
{
	struct coll_comm *comm = calloc(1, sizeof(*comm));
	coll_status st = COLL_ERR_MEMORY;

	if (!comm)
		return coll_error_set(err, st, "out of memory for a communicator");
	comm->ctx = ctx;
	comm->mark = ctx->mark;
	comm->id = id;
	comm->epoch = epoch;
	comm->timeout_ms = ctx->settings.timeout_ms;
	comm->arrival_timeout_ms = ctx->settings.arrival_timeout_ms;
	coll_error_clear(&comm->box);
	coll_inflight_init(&comm->inflight);
	pthread_mutex_init(&comm->tagged.lock, NULL);
	comm->tagged.made = true;
	st = settle(comm, process_of, size);
	if (st == COLL_OK && coll_recorder_open(&comm->recorder) != COLL_OK)
		coll_log(&ctx->logger, COLL_LOG_WARN,
		         "[COLL-5103] no memory for the flight recorder: operations are not recorded");
	if (st == COLL_OK && comm->size > 1)
		comm->waits = calloc(1, sizeof(*comm->waits) + (size_t)comm->size * sizeof(comm->waits->of[0]));
	if (st == COLL_OK) {
		coll_stats_prepare(comm);
		st = make_parts(comm);
	}
	if (st != COLL_OK)
		coll_error_set(err, st, "out of memory for a communicator of %d", size);
	if (st == COLL_OK)
		st = find_isa(comm, err);
	if (st == COLL_OK)
		st = coll_stage_create(comm, err);
	if (st != COLL_OK) {
		coll_comm_free(&comm);
		return st;
	}
	enlist(comm);
	*out = comm;
	return COLL_OK;
}

/* What only its thread has touched. */
static void free_own(struct coll_comm *comm)
{
	coll_run_destroy(&comm->run);
	coll_run_destroy(&comm->pair_run[0]);
	coll_run_destroy(&comm->pair_run[1]);
	coll_plan_cache_destroy(&comm->plans);
	coll_recorder_close(&comm->recorder);
	coll_rank_map_fini(&comm->rank_map);
	coll_layout_destroy(&comm->layout);
	coll_layout_destroy(&comm->chain);
	coll_rails_destroy(&comm->rails);
	free(comm->host_rates);
	free((void *)comm->pair_sequence[0]);
	free((void *)comm->pair_sequence[1]);
	coll_pair_counts_free(&comm->pair_counts);
	free(comm->groups.at);
	free(comm->ops);
	free(comm->scratch);
	free(comm->end);
	free(coll_comm_dead(comm));
	coll_label_free(comm);
	free(comm->waits);
	free(comm->late.ranks);
	free(comm->refused_late);
	free(comm);
}

void coll_comm_forget(struct coll_comm *comm)
{
	struct coll_context *ctx = comm->ctx;

	coll_operations_orphan(comm);
	free_own(comm);
	coll_context_forget(ctx);
}

void coll_comm_free(struct coll_comm **out)
{
	struct coll_comm *comm = *out;

	if (!comm)
		return;
	*out = NULL;
	unlist(comm);
	/* First: it finds out whether the driver would wait for work that never ends. */
	coll_stage_destroy(comm);
	coll_capture_destroy(comm);
	coll_comm_fabric_close(&comm->collective);
	coll_comm_fabric_close(&comm->pairs);
	for (int i = 0; comm->captured && i < 2; i++)
		coll_comm_fabric_close(&comm->captured[i]);
	free(comm->captured);
	coll_group_barrier_destroy(&comm->group_barrier);
	coll_tags_free(comm);
	coll_intra_destroy(&comm->intra);
	coll_inflight_fini(comm);
	coll_comm_memory_free_all(comm);
	free_own(comm);
}

/* ---- Creation ---- */

/* A struct of another version: see base/sized.h. */
static coll_status read_config(const coll_config **cfg, coll_config *whole, struct coll_error_box *err)
{
	const coll_config *given = *cfg;

	if (!given || given->struct_size == sizeof(*given))
		return COLL_OK;
	*cfg = NULL;
	if (!coll_sized_read(whole, sizeof(*whole), given, COLL_SIZED_FIRST(coll_config, settings)))
		return coll_error_set(err, COLL_ERR_ARGUMENT,
		                      "[COLL-1202] coll_config.struct_size is %zu, and %zu here: initialise with "
		                      "COLL_CONFIG_INIT, and leave members that this library lacks at zero",
		                      given->struct_size, sizeof(*given));
	*cfg = whole;
	return COLL_OK;
}

/* Whoever noticed the interrupt may have reported what it could not finish. */
static coll_status end_interruptible(coll_status st, struct coll_error_box *err)
{
	if (st != COLL_OK && st != COLL_ERR_ABORTED && coll_interrupt_here(false))
		st = coll_error_set(err, COLL_ERR_ABORTED, "[COLL-3301] this rank was interrupted");
	coll_interrupt_leave();
	return st;
}

/* ---- Hooks of the context ---- */

static coll_status open_hook(struct coll_context *ctx, struct coll_error_box *err)
{
	coll_status st;

	if (coll_dump_signal_parse(ctx->settings.dump_signal) < 0)
		return coll_error_set(err, COLL_ERR_CONFIG,
		                      "[COLL-1106] COLL_DUMP_SIGNAL=%s: expected usr1, usr2 or none",
		                      ctx->settings.dump_signal);
	st = coll_async_open(ctx, err);
	if (st == COLL_OK)
		coll_tag_kind_attach(ctx);
	return st;
}

static const struct coll_context_hooks hooks = {
        .open = open_hook,
        .join = coll_clients_join,
        .stop = coll_async_close,
        .close = coll_clients_close,
        .end = coll_comm_end_context,
        .progress_closing = coll_comm_progress_closing,
        .failed = coll_dump_failure,
        .answer = coll_held_up_answer,
        .alert = coll_comm_alert,
        .needs = coll_comm_needs_note,
        .carried = coll_changes_on_message,
        .served = coll_changes_serve,
        .closed = coll_changes_free,
};

/* The communicator failed before the program had it. Ends the context as well. */
static void give_up(struct coll_comm **comm)
{
	coll_thread_error_keep(&(*comm)->box, (*comm)->lost.message);
	coll_comm_destroy(comm);
}

/* What the program and its environment ask for. creation: of one rank, or NULL. */
static coll_status configure(const coll_config **cfg, coll_config *whole, int local_ranks,
                             struct coll_settings *settings, char *unknown, struct coll_device_choice *device,
                             struct coll_creation *creation, struct coll_error_box *err)
{
	coll_status st = read_config(cfg, whole, err);
	const bool readable = st == COLL_OK;

	/* First: another thread must not overwrite the key while the environment is read. */
	coll_secret_take();
	if (st == COLL_OK)
		st = coll_settings_load(settings, *cfg, unknown, err);
	if (st == COLL_OK)
		st = coll_settings_check(settings, err);
	if (st == COLL_OK)
		st = coll_comm_devices_choose(*cfg, settings, local_ranks, device, err);
	if (st != COLL_OK && readable && creation)
		creation->untold = coll_bootstrap_identify(*cfg, settings, &creation->id, NULL) == COLL_OK;
	return st;
}

static void met(void *mine, const struct coll_ip *own, uint32_t round_trip_us)
{
	struct coll_peer_info *info = mine;

	info->met = *own;
	info->has_met = 1;
	info->met_us = round_trip_us;
}

/* What the exchange fills, and the context that joins the job as soon as it is full: from then on others may call. */
struct joining {
	struct coll_context *ctx;
	struct coll_peer_info *peer_infos;
	struct coll_error_box *err;
	bool done;
};

static coll_status join_job(void *arg)
{
	struct joining *j = arg;

	if (j->done)
		return COLL_OK;
	j->done = true;
	return coll_context_join(j->ctx, j->peer_infos, j->err);
}

static void report_failure(struct coll_context *ctx, coll_status st, const struct coll_error_box *err, bool own)
{
	if (ctx->peer_infos)
		coll_own_failure_report(ctx, coll_comm_first_id(ctx), st, err, own);
}

/* Open the context of this rank, and exchange peer infos with all others. */
static coll_status open_job(const coll_config *cfg, struct coll_settings *settings, struct coll_creation *creation,
                            const struct coll_device_choice *device, struct coll_context **out,
                            struct coll_error_box *err)
{
	struct coll_identity *id = &creation->id;
	struct coll_peer_info *peer_infos = NULL;
	coll_status st = coll_bootstrap_probe(cfg, settings, id, err);
	struct joining j = {.err = err};
	bool own;

	coll_secret_forget(settings);
	id->met = met;
	id->complete = join_job;
	id->complete_arg = &j;
	id->untold = &creation->untold;
	creation->untold = st == COLL_OK;
	if (st == COLL_OK)
		coll_device_locate(device, settings->cuda_library, id->rank, id->local_rank, id->device);
	if (st == COLL_OK)
		st = coll_context_open(out, &hooks, cfg, settings, id, NULL, err);
	if (st == COLL_OK)
		(*out)->info.device = device->wanted;
	if (st == COLL_OK && !(peer_infos = calloc((size_t)id->size, sizeof(*peer_infos))))
		st = coll_error_set(err, COLL_ERR_MEMORY, "out of memory for the peer info of %d ranks", id->size);
	j.ctx = *out;
	j.peer_infos = peer_infos;
	if (st == COLL_OK && id->size == 1)
		peer_infos[0] = (*out)->info;
	else if (st == COLL_OK)
		st = coll_bootstrap_exchange(cfg, settings, id, &(*out)->info, peer_infos, sizeof(*peer_infos), err);
	own = st == COLL_OK;
	if (st == COLL_OK)
		st = join_job(&j);
	if (st == COLL_OK)
		st = coll_comm_devices_open(*out, device, coll_comm_devices_local_rank(*out), err);
	if (st != COLL_OK && j.done)
		report_failure(*out, st, err, own);
	if (peer_infos)
		coll_session_forget(peer_infos, id->size);
	free(peer_infos);
	return st;
}

coll_status coll_comm_create(coll_comm **out, const coll_config *cfg)
{
	struct coll_error_box err;
	struct coll_settings *settings = malloc(sizeof(*settings));
	struct coll_context *ctx = NULL;
	struct coll_comm *comm = NULL;
	char unknown[COLL_TEXT_MAX] = "";
	struct coll_device_choice device;
	struct coll_creation creation = {.id.rank = -1};
	coll_config whole;
	coll_status st;

	coll_error_clear(&err);
	if (!out)
		st = coll_error_set(&err, COLL_ERR_ARGUMENT, "comm is NULL");
	else if (coll_notify_forbids(NULL, "comm_create"))
		st = coll_error_set(&err, COLL_ERR_ARGUMENT, "[COLL-1204] not inside a function of event_notify");
	else if (!settings)
		st = coll_error_set(&err, COLL_ERR_MEMORY, "out of memory for settings");
	else
		st = configure(&cfg, &whole, 1, settings, unknown, &device, &creation, &err);
	if (cfg)
		coll_interrupt_enter(&(struct coll_interrupt){cfg->interrupt, cfg->interrupt_arg});
	if (st == COLL_OK)
		st = open_job(cfg, settings, &creation, &device, &ctx, &err);
	st = end_interruptible(st, &err); /* what follows waits on a communicator */
	if (st == COLL_OK && (st = coll_comm_new(ctx, coll_comm_first_id(ctx), 0, NULL, 0, &comm, &err)) != COLL_OK)
		report_failure(ctx, st, &err, true);
	if (st == COLL_OK &&
	    ((st = coll_comm_refine(comm)) != COLL_OK || (st = coll_comm_devices_connect(comm)) != COLL_OK)) {
		give_up(&comm);
	} else if (st == COLL_OK) {
		coll_comm_describe(comm);
		if (coll_secret_warns(&ctx->identity))
			coll_log(&ctx->logger, COLL_LOG_WARN,
			         "[COLL-5114] the ranks met at %.100s without a secret: whoever reaches it can join "
			         "this job, end it and change its results; a key in ~/.config/coll/key (mode 600) on "
			         "each host, or one COLL_JOB_KEY for all ranks, prevents that",
			         ctx->identity.root_host);
		if (unknown[0])
			coll_log(&ctx->logger, COLL_LOG_WARN,
			         "[COLL-5102] %s is set but is not a setting of this library%s", unknown,
			         coll_settings_guess(unknown).text);
		*out = comm;
	} else {
		coll_context_close(&ctx);
		coll_thread_error_failed(st, &err, cfg);
		if (creation.untold && st != COLL_ERR_ABORTED) /* an interrupt is in a hurry */
			coll_own_failure_tell(cfg, settings, &creation.id, st, &err);
	}
	explicit_bzero(creation.id.job_key, sizeof(creation.id.job_key));
	free(settings);
	return st;
}

/* The contexts of n ranks of this process. A group connects their loop transports; peer infos need no exchange. */
static coll_status open_all(struct coll_context **ctx, int n, const coll_config *cfg,
                            const struct coll_settings *settings, const struct coll_device_choice *device,
                            struct coll_shared_group *group, struct coll_error_box *err)
{
	struct coll_peer_info *peer_infos = calloc((size_t)n, sizeof(*peer_infos));
	coll_status st = peer_infos ? COLL_OK : coll_error_set(err, COLL_ERR_MEMORY, "out of memory");

	for (int r = 0; r < n && st == COLL_OK; r++) {
		struct coll_identity id = {.rank = r, .size = n, .launcher = "process", .one_host = true};

		coll_device_locate(device, settings->cuda_library, r, r, id.device);
		st = coll_context_open(&ctx[r], &hooks, cfg, settings, &id, group, err);
		if (st == COLL_OK) {
			ctx[r]->info.device = device->wanted;
			peer_infos[r] = ctx[r]->info;
		}
	}
	for (int r = 0; r < n && st == COLL_OK; r++)
		st = coll_context_join(ctx[r], peer_infos, err);
	for (int r = 0; r < n && st == COLL_OK; r++)
		st = coll_comm_devices_open(ctx[r], device, r, err);
	if (peer_infos)
		coll_session_forget(peer_infos, n);
	free(peer_infos);
	return st;
}

coll_status coll_comm_create_all(coll_comm **comms, int n, const coll_config *cfg)
{
	struct coll_error_box err;
	struct coll_settings *settings = malloc(sizeof(*settings));
	struct coll_context **ctx = n > 0 ? calloc((size_t)n, sizeof(struct coll_context *)) : NULL;
	struct coll_shared_group *group = NULL;
	struct coll_device_choice device;
	coll_config whole;
	coll_status st;

	coll_error_clear(&err);
	if (!comms || n < 1)
		st = coll_error_set(&err, COLL_ERR_ARGUMENT, "comms is NULL or n = %d is below 1", n);
	else if (coll_notify_forbids(NULL, "comm_create_all"))
		st = coll_error_set(&err, COLL_ERR_ARGUMENT, "[COLL-1204] not inside a function of event_notify");
	else if (!settings || !ctx)
		st = coll_error_set(&err, COLL_ERR_MEMORY, "out of memory");
	else
		st = configure(&cfg, &whole, n, settings, NULL, &device, NULL, &err);
	if (st == COLL_OK) {
		coll_secret_forget(settings);
		st = coll_shared_group_create(&group);
	}
	if (st == COLL_OK)
		st = open_all(ctx, n, cfg, settings, &device, group, &err);
	for (int r = 0; comms && r < n; r++)
		comms[r] = NULL;
	for (int r = 0; r < n && st == COLL_OK; r++)
		st = coll_comm_new(ctx[r], coll_comm_first_id(ctx[r]), 0, NULL, 0, &comms[r], &err);
	if (st == COLL_OK)
		coll_comm_devices_connect_all(comms, n);
	for (int r = 0; r < n && st == COLL_OK; r++)
		coll_comm_describe(comms[r]);
	if (st != COLL_OK) {
		for (int r = 0; ctx && r < n; r++) {
			if (comms)
				coll_comm_free(&comms[r]);
			coll_context_close(&ctx[r]);
		}
		coll_thread_error_failed(st, &err, cfg);
	}
	coll_shared_group_release(&group);
	free(ctx);
	free(settings);
	return st;
}
