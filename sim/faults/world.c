/*
 * See world.h. Processes have two threads, as a program with the library has: one serves the control plane, the other
 * one makes the call. The first process is the adversary, which carries the plan out.
 */
#include "sim/faults/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "control/connect.h"
#include "members/changes.h"
#include "members/changes_state.h"
#include "members/proposal.h"
#include "net/net.h"
#include "sim/jobs/network.h"

static const uint64_t MS = 1000000, COMM = 0x77, key[2] = {3, 4};
enum { SETTLED_MS = 300, HEALED_MS = 7000, LIMIT_MS = 12500, CALL_MS = 5000, NAP_MS = 15 };

static struct world world;

/* ---- What a control plane asks of the library above it ---- */

static bool no_answer(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a)
{
	(void)ctx, (void)process, (void)q, (void)a;
	return false;
}

static bool needs_all(void *ctx, uint64_t comm)
{
	(void)ctx, (void)comm;
	return true;
}

/* The communicator ends, so calls of the program end, which then comes to this one. */
static void on_alert(void *context, uint64_t comm)
{
	const struct coll_context *ctx = context;
	struct member *m = &world.member[ctx->rank];

	if ((comm == 0 || comm == COMM) && m->alert_ns == 0)
		m->alert_ns = sim_now_ns();
}

static void on_carried(void *ctx, int process, bool words, const uint8_t *bytes)
{
	check_message(&world, &world.member[((const struct coll_context *)ctx)->rank], bytes);
	coll_changes_on_message(ctx, process, words, bytes);
}

/* ---- A member ---- */

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static void open_plane(struct member *m)
{
	struct coll_peer_info *info = &world.peer_infos[m->rank];
	struct coll_context *ctx = m->ctx = must(calloc(1, sizeof(*ctx)));
	const int host = m->plan->host_of[m->rank];
	struct coll_error_box err;

	m->comm = must(calloc(1, sizeof(*m->comm)));
	m->settings.timeout_ms = 30000;
	m->settings.unreachable_ms = (int)m->plan->unreachable_ms;
	pthread_mutex_init(&ctx->comms_lock, NULL);
	ctx->rank = m->rank;
	ctx->size = m->plan->members;
	ctx->wake_fd = coll_net->eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	snprintf(info->host_id, sizeof(info->host_id), "host-%d", host);
	info->process = (int32_t)sim_process_number(m->process);
	info->name_space = info->process_space = info->machine = (uint64_t)host + 1;
	info->id = (struct coll_process_id){{(uint64_t)m->rank + 1, sim_now_ns()}};

	const struct coll_control_env env = {.settings = &m->settings,
	                                     .logger = &m->logger,
	                                     .job_key = key,
	                                     .self = info->id,
	                                     .wake_fd = ctx->wake_fd,
	                                     .alarm = &m->alarm,
	                                     .host_id = info->host_id,
	                                     .answer = no_answer,
	                                     .alert = on_alert,
	                                     .needs = needs_all,
	                                     .carried = on_carried,
	                                     .served = coll_changes_serve,
	                                     .ctx = ctx};

	if (coll_control_open(&env, info, &ctx->control, &err) != COLL_OK)
		check_violation(&world, "member %d cannot open its control plane", m->rank);
	/* A process is a host, for the simulated network; those of one host of the plan have an address in common. */
	memset(info->marks, 0, sizeof(info->marks));
	info->marks[0] = (uint32_t)host + 1;
	m->comm->ctx = ctx;
	m->comm->id = COMM;
	m->comm->rank = m->rank;
	m->comm->size = m->comm->rank_map.size = m->comm->rank_map.processes = m->plan->members;
	if (m->rank == m->plan->leaver)
		ctx->gone[0] = COMM;
	else
		ctx->comms = m->comm;
}

static void look_at_voter(const struct member *m)
{
	const struct coll_change *c = m->ctx->changes ? m->ctx->changes->first : NULL;

	if (c && c->decided)
		check_decision(&world, m, &c->value);
}

static void *service(void *arg)
{
	struct member *m = arg;
	struct coll_control *c = m->ctx->control;

	for (;;) {
		struct pollfd p = {.fd = coll_control_fd(c), .events = POLLIN};

		coll_net->poll(&p, 1, coll_control_timeout_ms(c));
		coll_control_service(c);
		look_at_voter(m);
	}
	return NULL;
}

/* ---- Its program ---- */

static void count_ballot(const struct coll_proposal *p, enum coll_ballot_phase before)
{
	uint64_t *count = world.outcome->count;
	const struct coll_ballot *b = &p->ballot;

	count[WORLD_GIVEN_UP] += b->phase == COLL_BALLOT_IDLE && before != COLL_BALLOT_IDLE;
	count[WORLD_TAKEN_OVER] += b->phase == COLL_BALLOT_PROPOSES && before == COLL_BALLOT_PREPARES && b->best != 0;
	if (b->phase != COLL_BALLOT_DECIDED || before == COLL_BALLOT_DECIDED)
		return;
	for (int r = 0; r < b->size; r++)
		if (p->member[r].standing == COLL_STANDING_ENDED) {
			count[WORLD_LAST_WORDS]++;
			break;
		}
}

/* As coll_comm_shrink() waits; who has waited for long looks more rarely, which saves the simulator most of its work.
 */
static coll_status wait_for(struct member *m, struct coll_proposal *p)
{
	const uint64_t since = sim_now_ns(), until = since + CALL_MS * MS;
	coll_status st = COLL_AGAIN;

	while (st == COLL_AGAIN && sim_now_ns() < until) {
		const int nap_ms = sim_now_ns() - since < 20 * MS ? COLL_DELAY_MEMBERS_LOOK_MS : NAP_MS;
		struct pollfd wake = {.fd = m->ctx->wake_fd, .events = POLLIN};
		const enum coll_ballot_phase before = p->ballot.phase;
		bool moved = false;
		uint64_t count;

		st = coll_change_step(p, &moved);
		count_ballot(p, before);
		if (st == COLL_AGAIN && !moved && coll_net->poll(&wake, 1, nap_ms) > 0)
			(void)!coll_net->read(m->ctx->wake_fd, &count, sizeof(count));
	}
	return st;
}

static void call(struct member *m)
{
	struct coll_proposal *p = NULL;

	if (world.first_call_ns == 0)
		world.first_call_ns = sim_now_ns();
	if (coll_change_begin(m->comm, &p) != COLL_OK) {
		check_violation(&world, "member %d: the call was refused", m->rank);
		return;
	}
	if (wait_for(m, p) == COLL_OK) {
		coll_change_take(p, &m->value);
		m->decided = true;
		world.decided_ns = sim_now_ns();
		check_decision(&world, m, &m->value);
	}
	coll_change_end(&p);
}

static bool all_opened(void *arg)
{
	(void)arg;
	for (int m = 0; m < world.plan->members; m++)
		if (!world.member[m].opened)
			return false;
	return true;
}

static bool has_begun(void *arg)
{
	(void)arg;
	return world.begun_ns != 0;
}

static bool is_alerted(void *arg)
{
	return ((struct member *)arg)->alert_ns != 0;
}

static void live(const void *arg, int rank)
{
	struct member *m = &world.member[rank];

	(void)arg;
	m->process = sim_process_self();
	open_plane(m);
	m->opened = true;
	sim_wait(all_opened, NULL, SIM_NEVER);
	if (coll_control_join(m->ctx->control, world.peer_infos, rank, m->plan->members) != COLL_OK)
		abort();
	sim_thread_start(m->process, service, m);
	m->joined = true;
	sim_wait(has_begun, NULL, SIM_NEVER);
	if (rank == m->plan->leaver)
		sim_wait(NULL, NULL, SIM_NEVER);
	if (sim_wait(is_alerted, m, world.begun_ns + m->plan->call_ns[rank]))
		sim_sleep(m->plan->late_ns[rank]);
	while (!m->decided)
		call(m);
	sim_wait(NULL, NULL, SIM_NEVER);
}

/* ---- Faults ---- */

static bool is_over(void *arg)
{
	(void)arg;
	return world.outcome->violation[0] || check_all_decided(&world);
}

static void process_ended(struct sim_process *p)
{
	for (int m = 0; m < world.plan->members; m++)
		if (world.member[m].process == p) {
			world.member[m].ended = true;
			world.member[m].ended_ns = sim_now_ns();
		}
}

static int lowest_living(void)
{
	int m = 0;

	while (m < world.plan->members - 1 && world.member[m].ended)
		m++;
	return m;
}

static int left_alive(void)
{
	int n = 0;

	for (int m = 0; m < world.plan->members; m++)
		n += !world.member[m].ended;
	return n;
}

/* Somebody who has no key. */
static void make_noise(const struct member *m, uint32_t how)
{
	const struct sockaddr_in in = {.sin_family = AF_INET,
	                               .sin_port = htons(world.peer_infos[m->rank].control_port),
	                               .sin_addr.s_addr =
	                                       htonl(0x0a000000u | (uint32_t)sim_process_number(m->process))};
	bool in_progress = false;
	char bytes[600];
	int fd;

	if (how % 2) {
		fd = coll_net->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		coll_net->connect(fd, (const struct sockaddr *)&in, sizeof(in));
		sim_sleep(MS);
	} else {
		fd = coll_link_connect(&world.peer_infos[m->rank], NULL, 0, &in_progress);
	}
	if (fd < 0)
		return;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)sim_below(256);
	if (how % 3)
		coll_net->send(fd, bytes, sim_below(sizeof(bytes)) + 1, MSG_NOSIGNAL);
	if (how % 4)
		coll_net->close(fd);
}

static void for_host(const struct member *of, void (*fn)(struct sim_process *p, bool on), bool on)
{
	for (int m = 0; m < world.plan->members; m++)
		if (world.plan->host_of[m] == world.plan->host_of[of->rank])
			fn(world.member[m].process, on);
}

static void set_deaf(struct sim_process *p, bool on)
{
	sim_network_one_way(p, on, false);
}

static void set_mute(struct sim_process *p, bool on)
{
	sim_network_one_way(p, false, on);
}

/* on: it begins; else what lasted is over. */
static void carry_out(const struct plan_fault *f, struct member *m, bool on)
{
	switch (f->kind) {
	case PLAN_KILL:
		if (on && left_alive() > 1)
			sim_process_end(m->process, SIGKILL);
		break;
	case PLAN_DIE_IN:
		if (on && left_alive() > 1)
			sim_network_dies_within(m->process, f->arg);
		break;
	case PLAN_STOP:
		if (!m->ended)
			sim_process_stop(m->process, on);
		break;
	case PLAN_CUT: for_host(m, sim_network_cut, on); break;
	case PLAN_DEAF: for_host(m, set_deaf, on); break;
	case PLAN_MUTE: for_host(m, set_mute, on); break;
	case PLAN_PART:
		for (int i = 0; i < world.plan->members; i++)
			sim_network_side(world.member[i].process, on && (f->arg >> world.plan->host_of[i] % 7 & 1));
		break;
	case PLAN_RESET:
		if (on)
			sim_network_reset(m->process);
		break;
	case PLAN_FULL: sim_network_full(m->process, on); break;
	case PLAN_NOISE:
		if (on && !m->ended)
			make_noise(m, f->arg);
		break;
	case PLAN_KINDS: break;
	}
}

static void heal(void)
{
	for (int i = 0; i < world.plan->members; i++) {
		struct member *m = &world.member[i];

		sim_network_dies_within(m->process, 0);
		sim_network_full(m->process, false);
		sim_network_cut(m->process, false);
		sim_network_side(m->process, 0);
		sim_network_one_way(m->process, false, false);
		if (!m->ended)
			sim_process_stop(m->process, false);
	}
	world.healed_ns = sim_now_ns();
}

/* Until nobody is left who waits for a decision. */
static void play(uint32_t faults)
{
	struct {
		const struct plan_fault *fault;
		struct member *member;
		uint64_t next_ns;
		bool on;
	} at[PLAN_FAULTS_MAX] = {{0}};
	const uint64_t end_ns = world.begun_ns + HEALED_MS * MS;
	int n = 0;

	for (int i = 0; i < world.plan->nfaults; i++)
		if (faults >> i & 1) {
			at[n].fault = &world.plan->fault[i];
			at[n++].next_ns = world.begun_ns + world.plan->fault[i].at_ns;
		}
	while (!world.outcome->violation[0]) {
		int next = -1;

		for (int i = 0; i < n; i++)
			if (at[i].next_ns < end_ns && (next < 0 || at[i].next_ns < at[next].next_ns))
				next = i;
		if (next < 0)
			break;
		if (sim_wait(is_over, NULL, at[next].next_ns))
			break;
		at[next].on = !at[next].on;
		if (at[next].on)
			at[next].member =
			        &world.member[at[next].fault->who < 0 ? lowest_living() : at[next].fault->who];
		carry_out(at[next].fault, at[next].member, at[next].on);
		at[next].next_ns = at[next].on ? sim_now_ns() + at[next].fault->for_ns : SIM_NEVER;
	}
	heal();
}

/* ---- A job ---- */

static bool all_joined(void *arg)
{
	(void)arg;
	for (int m = 0; m < world.plan->members; m++)
		if (!world.member[m].joined)
			return false;
	return true;
}

void world_run(const struct plan *p, uint32_t faults, struct outcome *o)
{
	const uint64_t begun_ns = sim_now_ns();
	static struct plan plan;

	plan = *p;
	world.plan = &plan;
	world.outcome = o;
	sim_reseed(coll_mix64(p->seed));
	sim_on_end(process_ended);
	if (p->shows_ends)
		sim_network_shows_ends();
	for (int m = 0; m < p->members; m++) {
		world.member[m].plan = &plan;
		world.member[m].rank = m;
		sim_process_start(live, NULL, m);
	}
	sim_wait(all_joined, NULL, SIM_NEVER);
	if (!p->first_calls_at_once)
		sim_sleep(SETTLED_MS * MS);
	world.begun_ns = sim_now_ns();
	play(faults);
	if (check_can_decide(&world))
		sim_wait(is_over, NULL, world.healed_ns + LIMIT_MS * MS);
	check_end(&world);
	o->trace = sim_trace();
	o->virtual_s = (double)(sim_now_ns() - begun_ns) * 1e-9;
	o->done = true;
}
