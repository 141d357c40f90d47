/*
 * The transports of a context: opens those that the list of the settings allows, in its order, and is what they call
 * back. See transports.h. It opens no links.
 */
#include "context/transports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errno_text.h"
#include "base/hash.h"
#include "control/gossip.h"
#include "control/one_host.h"
#include "control/ping.h"
#include "topology/host_nics.h"
#include "topology/nic.h"
#include "topology/rates.h"
#include "topology/topology.h"
#include "transports/common/dummy.h"
#include "transports/hook/hook.h"
#include "transports/loop/group.h"

struct closed_transport {
	char why[160]; /* empty: it is open, or not allowed */
	int level;     /* how loudly that has been said */
};

/* How the opening went. */
struct coll_opening {
	struct closed_transport closed[COLL_TRANSPORTS]; /* by the position */
	struct closed_transport *now;                    /* that of the transport that is being opened */
	struct coll_host_nics *nics;                     /* meanwhile */
};

/* ---- Callbacks for transports ---- */

static const char *env_setting(void *ctx, const char *name)
{
	const struct coll_context *c = ctx;

	return coll_settings_text(&c->settings, name);
}

static void env_log(void *ctx, int level, const char *format, ...)
{
	const struct coll_context *c = ctx;
	struct closed_transport *now = c->opening ? c->opening->now : NULL;
	va_list ap;

	va_start(ap, format);
	coll_log_v(&c->logger, level, format, ap);
	va_end(ap);
	if (!now || level > COLL_LOG_INFO)
		return;
	va_start(ap, format);
	vsnprintf(now->why, sizeof(now->why), format, ap);
	va_end(ap);
	now->level = level < now->level ? level : now->level;
}

static uint32_t env_nic_mbps(void *ctx, const char *nic)
{
	return coll_rates_of_nic(COLL_TOPOLOGY_SYS, nic);
}

static bool env_nic_constant(void *ctx, const char *nic)
{
	(void)ctx;
	return coll_rates_are_constant(nic);
}

static enum coll_nic_distance env_nic_distance(void *ctx, const char *nic)
{
	struct coll_context *c = ctx;

	return (enum coll_nic_distance)coll_host_nics_crossing(c->opening->nics, nic);
}

static int process_of(const struct coll_context *c, const struct coll_process_id *id)
{
	for (int r = 0; r < c->size; r++)
		if (c->peer_infos[r].id.word[0] == id->word[0] && c->peer_infos[r].id.word[1] == id->word[1])
			return r;
	return -1;
}

static void env_link_down(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause)
{
	struct coll_context *c = ctx;
	const bool alive = why == COLL_ERR_CORRUPT || why == COLL_ERR_MEMORY || why == COLL_ERR_SYSTEM;
	struct coll_note n = {.kind = alive ? COLL_GOSSIP_FAIL : COLL_GOSSIP_DEATH, .status = why};

	n.process = c->processes ? process_of(c, peer) : -1;
	n.origin = c->rank;
	if (n.process < 0 || !c->control || atomic_load_explicit(&c->stopping, memory_order_relaxed))
		return;
	atomic_store_explicit(&c->processes[n.process].down,
	                      why == COLL_ERR_PEER_SILENT ? COLL_LINK_UNREACHED : COLL_LINK_BROKEN,
	                      memory_order_relaxed);
	snprintf(n.text, sizeof(n.text), "%s", cause);
	if (why == COLL_ERR_MEMORY || why == COLL_ERR_SYSTEM)
		snprintf(n.text, sizeof(n.text), "[COLL-4104] rank %d lost its link to rank %d: %.180s", c->rank,
		         n.process, cause);
	else if (n.kind == COLL_GOSSIP_FAIL)
		snprintf(n.text, sizeof(n.text), "link between rank %d and rank %d: %.180s", c->rank, n.process, cause);
	coll_control_report(c->control, &n);
}

/* The address of a process over which it met the others. */
static bool env_met(void *ctx, const struct coll_process_id *peer, struct coll_ip *ip)
{
	struct coll_context *c = ctx;
	const int process = c->processes ? process_of(c, peer) : -1;

	if (process < 0 || !c->peer_infos[process].has_met)
		return false;
	*ip = c->peer_infos[process].met;
	return true;
}

uint32_t coll_context_round_trip_us(const struct coll_context *c, int a, int b)
{
	const struct coll_peer_info *x = &c->peer_infos[a], *y = &c->peer_infos[b];
	const bool near = c->host_of[a] == c->host_of[b] || (x->site != 0 && x->site >> 16 == y->site >> 16);

	if (near || !x->has_met || !y->has_met)
		return 0;
	return x->met_us > y->met_us ? x->met_us : y->met_us;
}

static uint32_t env_round_trip_us(void *ctx, const struct coll_process_id *peer)
{
	const struct coll_context *c = ctx;
	const int process = c->processes ? process_of(c, peer) : -1;

	return process < 0 ? 0 : coll_context_round_trip_us(c, c->rank, process);
}

static bool env_copies(void *ctx, const struct coll_process_id *a, const struct coll_process_id *b)
{
	const struct coll_context *c = ctx;
	const bool can = c->info.marks[0] && c->processes;
	const int first = can ? process_of(c, a) : -1, second = can ? process_of(c, b) : -1;

	return first >= 0 && second >= 0 && coll_copies(&c->peer_infos[first], &c->peer_infos[second]);
}

static uint64_t env_heard_ns(void *ctx, const struct coll_process_id *peer)
{
	struct coll_context *c = ctx;
	const int process = c->processes ? process_of(c, peer) : -1;

	/* At the end of a context the control plane goes first. */
	return process < 0 || !c->control ? 0 : coll_control_heard_ns(c->control, process);
}

/* ---- Open ---- */

/* The position of a transport in the list "shm,tcp"; -1: it is absent. An empty list means the
 * order of the registry, without loop, which always needs a group. */
static int turn_of(const char *list, int position, bool have_group)
{
	const char *name = coll_transports[position]->name;
	size_t len = strlen(name);
	int turn = 0;

	if (strcmp(name, "loop") == 0 && !have_group)
		return -1;
	if (!*list)
		return position;
	for (const char *p = list; *p; turn++) {
		size_t n = strcspn(p, ",");

		if (n == len && memcmp(p, name, n) == 0)
			return turn;
		p += n + (p[n] == ',');
	}
	return -1;
}

static coll_status no_transport(const char *list, const char *name, struct coll_error_box *err)
{
	const char *names[COLL_TRANSPORTS];

	for (int i = 0; i < COLL_TRANSPORTS; i++)
		names[i] = coll_transports[i]->name;
	return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1102] COLL_TRANSPORTS=%s: there is no transport '%s'%s",
	                      list, name, coll_guess(name, names, COLL_TRANSPORTS).text);
}

static coll_status check_list(const char *list, struct coll_error_box *err)
{
	for (const char *p = list; *p;) {
		size_t n = strcspn(p, ",");
		char name[32];

		snprintf(name, sizeof(name), "%.*s", (int)n, p);
		if (!coll_transport_find(name))
			return no_transport(list, name, err);
		p += n + (p[n] == ',');
	}
	return COLL_OK;
}

/* Some is left for each of the others. */
static size_t room_for_address(const struct coll_context *c)
{
	const size_t others = (size_t)(COLL_TRANSPORTS - c->ntransports - 1) * COLL_PEER_INFO_OTHER_BYTES;
	const size_t left = sizeof(c->info.bytes) - c->info.used_bytes;

	return left > others ? left - others : 0;
}

static void report_closed(struct closed_transport *closed, const char *name, coll_status st)
{
	const struct closed_transport was = *closed;
	const struct coll_errno_text text = coll_errno_take(was.why[0] ? was.why : coll_status_string(st));
	const bool named = strstr(text.text, name) != NULL;

	snprintf(closed->why, sizeof(closed->why), "%s%s%.140s", named ? "" : name, named ? "" : ": ", text.text);
}

/* With other ranks of its host, or all of this process. */
static bool shares_memory(const struct coll_context *c)
{
	bool shared = false;

	for (int i = 0; i < c->ntransports; i++)
		shared = shared || coll_transports[c->transports[i].position]->shared ||
		         c->transports[i].position == COLL_TRANSPORT_AT_loop;
	return shared;
}

static void undo(struct coll_opened_transport *w)
{
	if (w->inst)
		w->table.fini(w->inst);
	coll_transport_hook_unwrap(w->hook);
	memset(w, 0, sizeof(*w));
}

static uint32_t marks_of(const struct coll_peer_info *info)
{
	return (uint32_t)coll_hash_bytes(0, info->marks, sizeof(info->marks));
}

static struct coll_transport_env env_for(struct coll_context *c, const struct coll_shared_group *group)
{
	return (struct coll_transport_env){.size = sizeof(struct coll_transport_env),
	                                   .self = c->info.id,
	                                   .job_key = c->session_key,
	                                   .host_id = c->info.host_id,
	                                   .host_mark = marks_of(&c->info),
	                                   .one_host = c->identity.one_host,
	                                   .sole = !shares_memory(c),
	                                   .group = group ? group->group : NULL,
	                                   .wake_fd = c->wake_fd,
	                                   .ctx = c,
	                                   .setting = env_setting,
	                                   .log = env_log,
	                                   .link_down = env_link_down,
	                                   .nic_mbps = env_nic_mbps,
	                                   .nic_constant = env_nic_constant,
	                                   .nic_distance = env_nic_distance,
	                                   .met = env_met,
	                                   .round_trip_us = env_round_trip_us,
	                                   .copies = env_copies,
	                                   .heard_ns = env_heard_ns};
}

/* One that cannot be used is left out, and the last thing that it said is the reason, unless a system call was refused.
 */
static coll_status open_transport(struct coll_context *c, const struct coll_transport *t, int position,
                                  struct coll_shared_group *group, struct coll_error_box *err)
{
	struct coll_opened_transport *w = &c->transports[c->ntransports];
	struct closed_transport *closed = &c->opening->closed[position];
	struct coll_transport_env env = env_for(c, group);
	size_t len = 0;
	coll_status st;

	assert(c->ntransports < COLL_TRANSPORTS);
	memset(w, 0, sizeof(*w));
	w->position = position;
	coll_transport_complete(t, &w->table);
	if (c->settings.hook[0]) {
		st = coll_transport_hook_wrap(t, c->settings.hook, c->rank, &w->table, &w->hook, err);
		if (st != COLL_OK)
			return st;
		env.hook = w->hook;
	}
	coll_errno_clear();
	*closed = (struct closed_transport){.level = COLL_LOG_DEBUG};
	c->opening->now = closed;
	st = w->table.open(&env, &w->inst);
	if (st == COLL_OK)
		st = w->table.address(w->inst, c->info.bytes + c->info.used_bytes, room_for_address(c), &len);
	c->opening->now = NULL;
	if (st != COLL_OK) {
		coll_log(&c->logger, COLL_LOG_INFO, "transport %s is not available: %s", t->name,
		         coll_status_string(st));
		undo(w);
		/* A lack of memory or descriptors does not mean that the transport is unavailable.
		 * Skipping it would make this rank choose a different one than its peers. */
		if (st == COLL_ERR_MEMORY || coll_errno_kept_shortage())
			return coll_error_set(err, coll_errno_status(st), "[COLL-4104] transport %s: %s", t->name,
			                      coll_errno_take("out of memory").text);
		report_closed(closed, t->name, st);
		return COLL_OK;
	}
	closed->why[0] = '\0';
	w->table.caps(w->inst, &w->caps);
	c->info.transport[position] = (struct coll_peer_info_part){c->info.used_bytes, (uint16_t)len};
	c->info.used_bytes = (uint16_t)(c->info.used_bytes + len);
	c->ntransports++;
	return COLL_OK;
}

/* The list says which may be used, so the others go on: but who has named one wants to know. */
static void warn_of_named(const struct coll_context *c)
{
	const struct closed_transport *closed = c->opening->closed;

	for (int i = 0; i < COLL_TRANSPORTS && c->settings.transports[0]; i++)
		if (closed[i].why[0] && closed[i].level > COLL_LOG_WARN)
			coll_log(&c->logger, COLL_LOG_WARN,
			         "[COLL-1109] COLL_TRANSPORTS=%s goes on without one that cannot be used here: %s",
			         c->settings.transports, closed[i].why);
}

static coll_status open_or_spare(struct coll_context *c, int position, struct coll_shared_group *group,
                                 struct coll_error_box *err)
{
	const struct coll_transport *t = coll_transports[position];
	struct closed_transport *closed = &c->opening->closed[position];

	if (!t->ports || !shares_memory(c) || !c->identity.one_host || c->settings.host_id[0])
		return open_transport(c, t, position, group, err);
	closed->level = COLL_LOG_ERROR; /* nobody need be warned */
	snprintf(closed->why, sizeof(closed->why), "%s: not opened, since all ranks are on one host", t->name);
	return COLL_OK;
}

coll_status coll_transports_open(struct coll_context *c, struct coll_shared_group *group, struct coll_error_box *err)
{
	struct coll_host_nics nics = {.device = coll_pci_address(c->identity.device)};
	char why[400] = "";
	coll_status st = check_list(c->settings.transports, err);

	c->opening = calloc(1, sizeof(*c->opening));
	if (!c->opening)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for the transports");
	c->opening->nics = &nics;
	/* Open in the order of preference: every rank uses the first transport that reaches a peer. */
	for (int turn = 0; turn < COLL_TRANSPORTS; turn++)
		for (int i = 0; st == COLL_OK && i < COLL_TRANSPORTS; i++)
			if (turn_of(c->settings.transports, i, group != NULL) == turn)
				st = open_or_spare(c, i, group, err);
	coll_host_nics_free(&nics);
	c->opening->nics = NULL;
	if (st != COLL_OK || c->size == 1)
		return st;
	if (c->ntransports > 0) {
		warn_of_named(c);
		return COLL_OK;
	}
	coll_transports_add_unopened(c, why, sizeof(why), 0);
	return coll_error_set(err, COLL_ERR_CONFIG,
	                      "[COLL-1103] no transport of COLL_TRANSPORTS=%s can be used here (%s)",
	                      c->settings.transports, why);
}

void coll_transports_add_unopened(const struct coll_context *ctx, char *why, size_t why_bytes, size_t used)
{
	const struct closed_transport *closed = ctx->opening->closed;

	for (int i = 0; i < COLL_TRANSPORTS; i++)
		if (closed[i].why[0] && used < why_bytes)
			used += (size_t)snprintf(why + used, why_bytes - used, "%s%s", used ? "; " : "", closed[i].why);
	for (int i = 0; i < COLL_TRANSPORTS; i++)
		if (turn_of(ctx->settings.transports, i, ctx->group != NULL) < 0 &&
		    strcmp(coll_transports[i]->name, "loop") != 0 && used < why_bytes)
			used += (size_t)snprintf(why + used, why_bytes - used, "%s%s: not in COLL_TRANSPORTS",
			                         used ? "; " : "", coll_transports[i]->name);
}
