/*
 * Context: open, join, links, progress, close. See context.h.
 */
#include "context/context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/hash.h"
#include "bootstrap/host_id.h"
#include "context/check_peers.h"
#include "context/descriptors.h"
#include "context/locality.h"
#include "context/other_jobs.h"
#include "context/service.h"
#include "context/session.h"
#include "context/transports.h"
#include "control/one_host.h"
#include "net/net.h"
#include "topology/topology.h"
#include "transports/hook/hook.h"
#include "transports/loop/group.h"

/* ---- Shared group ---- */

coll_status coll_shared_group_create(struct coll_shared_group **group)
{
	struct coll_shared_group *h = calloc(1, sizeof(*h));
	coll_status st = h ? coll_loop_group_create(&h->group) : COLL_ERR_MEMORY;

	if (st != COLL_OK) {
		free(h);
		return st;
	}
	atomic_init(&h->users, 1);
	pthread_mutex_init(&h->lock, NULL);
	*group = h;
	return COLL_OK;
}

void coll_shared_group_release(struct coll_shared_group **group)
{
	struct coll_shared_group *h = *group;

	*group = NULL;
	/* The last user frees the group. acq_rel orders all earlier uses before that. */
	if (h && atomic_fetch_sub_explicit(&h->users, 1, memory_order_acq_rel) == 1) {
		coll_loop_group_destroy(&h->group);
		pthread_mutex_destroy(&h->lock);
		free(h);
	}
}

struct coll_context *coll_context_end(struct coll_context *c)
{
	struct coll_shared_group *h = c->group;
	bool last;

	if (!h)
		return c;
	pthread_mutex_lock(&h->lock);
	c->next_ended = h->ended;
	h->ended = c;
	last = ++h->nended == atomic_load_explicit(&h->users, memory_order_relaxed);
	pthread_mutex_unlock(&h->lock);
	return last ? c : NULL;
}

/* ---- Open ---- */

/* A link that is being opened now counts: the next question comes soon. */
static bool env_linked(void *ctx, int process)
{
	struct coll_context *c = ctx;
	const struct coll_process *p = &c->processes[process];
	bool up;

	if (pthread_mutex_trylock(&c->links_lock) != 0)
		return true;
	up = p->link && p->opened->table.link_status(p->link) == COLL_OK;
	pthread_mutex_unlock(&c->links_lock);
	return up;
}

static void fill_cpus(uint64_t cpus[4])
{
	cpu_set_t usable;

	if (sched_getaffinity(0, sizeof(usable), &usable) != 0)
		return;
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &usable))
			cpus[cpu % 256 / 64] |= (uint64_t)1 << cpu % 64;
}

static coll_status fill_peer_info(struct coll_context *c, struct coll_error_box *err)
{
	struct coll_peer_info *info = &c->info;

	info->magic = COLL_PEER_INFO_MAGIC;
	info->version = COLL_PEER_INFO_VERSION;
	snprintf(info->library, sizeof(info->library), "%s", coll_library_version());
	info->rank = c->rank;
	info->size = c->size;
	info->process = (int32_t)getpid();
	info->cores = (uint32_t)coll_topology_cores();
	fill_cpus(info->cpus);
	info->process_space = coll_bootstrap_process_space();
	info->machine = coll_bootstrap_machine();
	info->name_space = coll_bootstrap_name_space();
	if (c->settings.site[0])
		info->site = coll_hash_bytes(3, c->settings.site, strlen(c->settings.site)) | 1;
	info->site_mbps = (uint32_t)c->settings.site_rate;
	coll_settings_agreed(&c->settings, &info->settings);
	gethostname(info->host_name, sizeof(info->host_name) - 1);
	if (coll_net->random(&info->id, sizeof(info->id), GRND_NONBLOCK) == sizeof(info->id))
		return coll_session_contribute(info, err);
	return coll_error_set(err, COLL_ERR_SYSTEM, "no random bytes to name this process by: getrandom: %s",
	                      coll_errno_text(errno).text);
}

static coll_status open_log(struct coll_context *c, const coll_config *cfg, struct coll_error_box *err)
{
	int level = coll_log_level_from_name(c->settings.debug);
	char path[COLL_TEXT_MAX + 32];

	if (level < 0)
		return coll_error_set(err, COLL_ERR_CONFIG,
		                      "[COLL-1106] COLL_DEBUG=%s: expected error, warn, info or debug",
		                      c->settings.debug);
	c->logger.level = (enum coll_log_level)level;
	c->logger.rank = c->rank;
	c->logger.size = c->size;
	if (cfg && cfg->log) {
		c->logger.fn = cfg->log;
		c->logger.arg = cfg->log_arg;
	}
	if (!c->settings.log_file[0])
		return COLL_OK;
	coll_log_path(c->settings.log_file, c->rank, path, sizeof(path));
	c->logger.file = coll_log_open(path);
	if (c->logger.file < 0) {
		c->logger.file = 0;
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1113] COLL_LOG_FILE=%s: %s", path,
		                      coll_errno_text(errno).text);
	}
	return COLL_OK;
}

static coll_status open_control(struct coll_context *c, struct coll_error_box *err)
{
	const struct coll_control_env env = {.settings = &c->settings,
	                                     .logger = &c->logger,
	                                     .job_key = c->session_key,
	                                     .self = c->info.id,
	                                     .wake_fd = c->wake_fd,
	                                     .alarm = &c->alarm,
	                                     .host_id = c->info.host_id,
	                                     .one_host = c->identity.one_host,
	                                     .answer = c->hooks->answer,
	                                     .alert = c->hooks->alert,
	                                     .needs = c->hooks->needs,
	                                     .linked = env_linked,
	                                     .carried = c->hooks->carried,
	                                     .served = c->hooks->served,
	                                     .ctx = c};

	return coll_control_open(&env, &c->info, &c->control, err);
}

coll_status coll_context_open(struct coll_context **ctx, const struct coll_context_hooks *hooks, const coll_config *cfg,
                              const struct coll_settings *settings, const struct coll_identity *id,
                              struct coll_shared_group *group, struct coll_error_box *err)
{
	struct coll_context *c = calloc(1, sizeof(*c));
	coll_status st;

	if (!c)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for a context");
	c->spin_scale = 1;
	atomic_init(&c->core_sharers, 1);
	coll_errno_clear();
	c->mark = coll_fork_mark();
	c->hooks = hooks;
	c->settings = *settings;
	c->identity = *id;
	c->rank = id->rank;
	c->size = id->size;
	if (cfg)
		c->interrupt = (struct coll_interrupt){cfg->interrupt, cfg->interrupt_arg};
	if (group) {
		c->group = group;
		atomic_fetch_add_explicit(&group->users, 1, memory_order_relaxed);
	}
	coll_sleepers_init(&c->sleepers);
	c->birth_counter = coll_ticks_counter();
	coll_moment_take(&c->birth, c->birth_counter);
	c->wake_fd = coll_net->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->service_wake_fd = coll_net->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&c->links_lock, NULL);
	pthread_mutex_init(&c->comms_lock, NULL);
	pthread_mutex_init(&c->closing_lock, NULL);
	coll_bootstrap_host_id(&c->settings, c->info.host_id, sizeof(c->info.host_id));
	st = fill_peer_info(c, err);
	if (st == COLL_OK)
		st = open_log(c, cfg, err);
	if (st == COLL_OK && id->passed_over[0])
		coll_log(&c->logger, COLL_LOG_INFO, "launcher %s; passed over: %s", id->launcher, id->passed_over);
	if (st == COLL_OK && (c->wake_fd < 0 || c->service_wake_fd < 0))
		st = coll_error_set(err, COLL_ERR_SYSTEM, "cannot make an eventfd: %s",
		                    coll_errno_take("no reason given").text);
	if (st == COLL_OK)
		st = hooks->open(c, err);
	if (st == COLL_OK && c->size > 1)
		st = open_control(c, err);
	if (st == COLL_OK)
		st = coll_transports_open(c, group, err);
	if (st != COLL_OK) {
		coll_context_close(&c);
		return st;
	}
	*ctx = c;
	return COLL_OK;
}

/* ---- Join ---- */

enum use { BY_NOBODY, IN_THIS_NAMESPACE, ELSEWHERE };

/* Of a peer that nothing reaches, the transport has a reason to tell. */
static enum use use_of(struct coll_context *c, const struct coll_opened_transport *w)
{
	enum use use = BY_NOBODY;

	for (int r = 0; r < c->size && use != ELSEWHERE; r++) {
		const struct coll_opened_transport *by = r == c->rank ? NULL : coll_context_choose(c, r, NULL, 0);

		if (r == c->rank || (by && by != w))
			continue;
		use = by && coll_one_network(&c->peer_infos[r], &c->info) ? IN_THIS_NAMESPACE : ELSEWHERE;
	}
	return use;
}

/* What listens at ports and reaches no peer is closed, and what reaches only peers of this network namespace keeps to
 * loopback. No link is open yet. */
static void confine(struct coll_context *c)
{
	for (int i = c->ntransports - 1; i >= 0; i--) {
		struct coll_opened_transport *w = &c->transports[i];
		const enum use use = coll_transports[w->position]->ports ? use_of(c, w) : ELSEWHERE;

		if (use == IN_THIS_NAMESPACE)
			w->table.confine(w->inst);
		if (use != BY_NOBODY)
			continue;
		w->table.fini(w->inst);
		coll_transport_hook_unwrap(w->hook);
		c->ntransports--;
		memmove(w, w + 1, (size_t)(c->ntransports - i) * sizeof(*w));
		memset(&c->transports[c->ntransports], 0, sizeof(*w));
	}
}

static int ranks_here(const struct coll_context *ctx)
{
	int here = 0;

	for (int r = 0; r < ctx->size; r++)
		here += ctx->host_of[r] == ctx->host_of[ctx->rank];
	return here;
}

coll_status coll_context_join(struct coll_context *ctx, const struct coll_peer_info *peer_infos,
                              struct coll_error_box *err)
{
	coll_status st;

	ctx->peer_infos = malloc((size_t)ctx->size * sizeof(*peer_infos));
	ctx->processes = calloc((size_t)ctx->size, sizeof(*ctx->processes));
	if (!ctx->peer_infos || !ctx->processes)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for the peer info of %d ranks", ctx->size);
	memcpy(ctx->peer_infos, peer_infos, (size_t)ctx->size * sizeof(*peer_infos));
	for (int r = 0; r < ctx->size; r++)
		coll_peer_info_end_texts(&ctx->peer_infos[r]);
	st = coll_context_check_peers(ctx, err);
	coll_session_key(ctx->identity.job_key, ctx->peer_infos, ctx->size, ctx->session_key);
	explicit_bzero(ctx->identity.job_key, sizeof(ctx->identity.job_key));
	coll_session_forget(ctx->peer_infos, ctx->size);
	coll_session_forget(&ctx->info, 1);
	if (st == COLL_OK)
		st = coll_locality_find(ctx, err);
	if (st != COLL_OK || ctx->size == 1)
		return st;
	confine(ctx);
	coll_descriptors_allow(ctx, coll_descriptors_needed(ranks_here(ctx), ctx->size - ranks_here(ctx)));
	st = coll_control_join(ctx->control, ctx->peer_infos, ctx->rank, ctx->size);
	if (st != COLL_OK)
		return coll_error_set(err, st, "out of memory for the control plane");
	if (!ctx->settings.service)
		return COLL_OK;
	ctx->hooks->join(ctx);
	coll_other_jobs_enter(ctx);
	return coll_service_start(ctx, err);
}

/* ---- Links ---- */

struct coll_opened_transport *coll_context_choose(struct coll_context *ctx, int process, char *why, size_t why_bytes)
{
	const struct coll_peer_info *peer = &ctx->peer_infos[process];
	size_t used = 0;

	if (why_bytes)
		why[0] = 0;
	for (int i = 0; i < ctx->ntransports; i++) {
		struct coll_opened_transport *w = &ctx->transports[i];
		size_t len;
		const uint8_t *address = coll_peer_info_part(peer, peer->transport[w->position], &len);
		char reason[96] = "not available there";

		if (coll_transports[w->position]->shared && ctx->host_of[process] != ctx->host_of[ctx->rank])
			snprintf(reason, sizeof(reason), "it is on another host");
		else if (len > 0 && w->table.reachable(w->inst, address, len, reason, sizeof(reason)))
			return w;
		if (used < why_bytes)
			used += (size_t)snprintf(why + used, why_bytes - used, "%s%s: %s", used ? "; " : "",
			                         w->table.name, reason);
	}
	coll_transports_add_unopened(ctx, why, why_bytes, used);
	return NULL;
}

static coll_status open_link(struct coll_context *ctx, int process, struct coll_error_box *err)
{
	struct coll_process *p = &ctx->processes[process];
	const struct coll_peer_info *info = &ctx->peer_infos[process];
	char why[400];
	struct coll_opened_transport *w = coll_context_choose(ctx, process, why, sizeof(why));
	const uint8_t *address;
	size_t len;
	coll_status st;

	if (!w)
		return coll_error_set(err, COLL_ERR_CONFIG,
		                      "[COLL-1104] no transport reaches rank %d on host %.63s (%s)", process,
		                      info->host_name, why);
	address = coll_peer_info_part(info, info->transport[w->position], &len);
	coll_errno_clear();
	st = w->table.link_open(w->inst, &info->id, address, len, &p->link);
	if (st != COLL_OK)
		return coll_error_set(err, st, "cannot open a %s link to rank %d on host %.63s: %s", w->table.name,
		                      process, info->host_name, coll_errno_take(coll_status_string(st)).text);
	coll_log(&ctx->logger, COLL_LOG_DEBUG, "link to rank %d on host %s over %s", process, info->host_name,
	         w->table.name);
	p->opened = w;
	w->active = true;
	return COLL_OK;
}

bool coll_context_link_counts(struct coll_context *ctx, int process, struct coll_link_counts *counts)
{
	const struct coll_process *p = &ctx->processes[process];
	bool any;

	pthread_mutex_lock(&ctx->links_lock);
	any = p->link && p->opened->table.link_counts(p->link, counts);
	pthread_mutex_unlock(&ctx->links_lock);
	return any;
}

coll_status coll_context_link(struct coll_context *ctx, int process, struct coll_opened_transport **opened, void **link,
                              struct coll_error_box *err)
{
	struct coll_process *p = &ctx->processes[process];
	coll_status st = COLL_OK;

	pthread_mutex_lock(&ctx->links_lock);
	if (!p->link)
		st = open_link(ctx, process, err);
	pthread_mutex_unlock(&ctx->links_lock);
	if (st != COLL_OK)
		return st;
	*opened = p->opened;
	*link = p->link;
	st = p->opened->table.link_status(p->link);
	/* What this process lacks, a note says. */
	if (st != COLL_OK && st != COLL_AGAIN && st != COLL_ERR_MEMORY && st != COLL_ERR_SYSTEM)
		coll_error_set(err, st, "the %s link to rank %d on host %.63s is broken", p->opened->table.name,
		               process, ctx->peer_infos[process].host_name);
	return st;
}

int coll_context_progress(struct coll_context *ctx)
{
	int moved = 0;

	for (int i = 0; i < ctx->ntransports; i++)
		if (ctx->transports[i].active)
			moved += ctx->transports[i].table.progress(ctx->transports[i].inst);
	if (!ctx->service_running && ctx->control)
		coll_service_once(ctx);
	if (atomic_load_explicit(&ctx->nclosing, memory_order_relaxed) > 0)
		ctx->hooks->progress_closing(ctx);
	return moved;
}

/* ---- Users ---- */

void coll_context_retain(struct coll_context *ctx)
{
	atomic_fetch_add_explicit(&ctx->users, 1, memory_order_relaxed);
}

bool coll_context_leave(struct coll_context *ctx)
{
	/* The last user ends the context. acq_rel orders the work of the other users before that. */
	return atomic_fetch_sub_explicit(&ctx->users, 1, memory_order_acq_rel) == 1;
}

void coll_context_release(struct coll_context **ctx)
{
	struct coll_context *c = *ctx;

	*ctx = NULL;
	if (coll_context_leave(c))
		c->hooks->end(c);
}

/* ---- Close ---- */

static void free_tables(struct coll_context *c)
{
	coll_history_close(&c->history);
	for (int i = 0; i < c->ninside; i++)
		free(c->inside[i].group_of);
	free(c->inside_text);
	free(c->tuned);
	free(c->other_jobs); /* of a forked child: its descriptor is closed */
	free(c->host_of);
	free(c->oversubscribed);
	free(c->processes);
	free(c->peer_infos);
	free(c->opening);
	explicit_bzero(c->session_key, sizeof(c->session_key));
	free(c);
}

void coll_context_forget(struct coll_context *c)
{
	if (coll_context_leave(c))
		free_tables(c);
}

void coll_context_close(struct coll_context **ctx)
{
	struct coll_context *c = *ctx;

	if (!c)
		return;
	*ctx = NULL;
	c->hooks->stop(c);
	coll_service_stop(c);
	c->hooks->close(c);
	coll_other_jobs_leave(c);
	coll_control_close(&c->control, COLL_DELAY_CONTROL_CLOSE_MS);
	if (c->hooks->closed)
		c->hooks->closed(c);
	for (int i = 0; i < c->ntransports; i++)
		c->transports[i].table.close(c->transports[i].inst);
	for (int r = 0; c->processes && r < c->size; r++)
		if (c->processes[r].link)
			c->processes[r].opened->table.link_close(c->processes[r].link);
	for (int i = 0; i < c->ntransports; i++) {
		c->transports[i].table.fini(c->transports[i].inst);
		coll_transport_hook_unwrap(c->transports[i].hook);
	}
	coll_device_close(&c->device);
	coll_shared_group_release(&c->group);
	coll_sleepers_fini(&c->sleepers);
	if (c->wake_fd >= 0)
		coll_net->close(c->wake_fd);
	if (c->service_wake_fd >= 0)
		coll_net->close(c->service_wake_fd);
	if (c->logger.file)
		coll_fd_close(c->logger.file);
	pthread_mutex_destroy(&c->links_lock);
	pthread_mutex_destroy(&c->comms_lock);
	pthread_mutex_destroy(&c->closing_lock);
	free_tables(c);
}
