/*
 * The simulated data path: see links.h. It owns, per instance, which peers are gone; bytes and
 * credits are loop's. Invariant: a pair of loop whose one process has ended is closed on that side
 * before the other context hears of it, as a real transport marks its link first.
 */
#include "sim/jobs/links.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/hash.h"
#include "net/net.h"
#include "transports/loop/group.h"
#include "transports/loop/loop.h"
#include "transports/registry.h"

enum { SHM, TCP, KINDS, DOWN_MAX = 256 };
static const uint64_t US = 1000, MS = 1000000;

struct down {
	struct coll_process_id peer;
	coll_status why;
};

/* An instance of one of the two transports. It stays when its process ends. */
struct end {
	struct end *next;
	struct loop_inst *loop;
	struct sim_process *process;
	struct coll_process_id self;
	coll_status gone; /* OK: it can be reached */
	int kind, service_fd;
	uint64_t unreachable_ms;
	struct down down[DOWN_MAX];
	int ndown;
};

static struct end *ends;
/* Broken while both processes live: loop would free them too soon, so they stay. */
static struct loop_pair *broken[DOWN_MAX];
static int nbroken;
static struct coll_loop_group *groups[KINDS];

static struct end *end_of(const void *inst)
{
	struct end *e = ends;

	while (e && e->loop != inst)
		e = e->next;
	return e;
}

static struct end *end_named(const struct coll_process_id *id, int kind)
{
	struct end *e = ends;

	while (e && (!coll_same_process(&e->self, id) || e->kind != kind))
		e = e->next;
	return e;
}

/* ---- Ends of links ---- */

static void tell(struct end *e, const struct coll_process_id *peer, coll_status why)
{
	const uint64_t one = 1;

	if (e->ndown == DOWN_MAX || e->service_fd < 0)
		return;
	e->down[e->ndown++] = (struct down){*peer, why};
	coll_net->write(e->service_fd, &one, sizeof(one));
}

/* As coll_loop_ring(), without the lock: an event is outside all threads and cannot wait. */
static void ring(const struct loop_bell *bell)
{
	const uint64_t one = 1;

	if (!bell->dead && bell->wake_fd >= 0)
		coll_net->write(bell->wake_fd, &one, sizeof(one));
}

/* The link of `to` to the process of `from` breaks. */
static void break_link(struct end *to, const struct end *from)
{
	for (struct loop_link *l = to->loop->links; l; l = l->next) {
		struct loop_pair *pair = l->pair;

		if (!coll_same_process(&pair->id[!l->side], &from->self) || atomic_load(&pair->closed[!l->side]))
			continue;
		atomic_store(&pair->closed[!l->side], true);
		ring(pair->bell[l->side]);
		tell(to, &from->self, from->gone);
	}
}

static void break_links(void *arg)
{
	struct end *from = arg;

	for (struct end *to = ends; to; to = to->next)
		if (to != from && to->kind == from->kind && to->loop && sim_process_lives(to->process))
			break_link(to, from);
}

static void process_ended(struct sim_process *p)
{
	for (struct end *e = ends; e; e = e->next)
		if (e->process == p && e->loop && e->gone == COLL_OK) {
			e->gone = COLL_ERR_PEER_DEAD;
			e->service_fd = -1;
			e->loop->bell->dead = true;
			sim_at(sim_now_ns() + (e->kind == SHM ? 20 : 60) * US + sim_below(500 * US), break_links, e);
		}
}

static bool is_broken(const struct loop_pair *pair)
{
	for (int i = 0; i < nbroken; i++)
		if (broken[i] == pair)
			return true;
	return false;
}

static void keep_pairs(const struct end *e)
{
	for (struct loop_link *l = e->loop->links; l; l = l->next)
		if (!is_broken(l->pair) && nbroken < DOWN_MAX)
			broken[nbroken++] = l->pair;
}

static void host_gone(void *arg)
{
	struct end *cut = arg;

	if (cut->gone != COLL_OK || !cut->loop)
		return;
	cut->gone = COLL_ERR_PEER_SILENT;
	keep_pairs(cut);
	break_links(cut);
	for (struct end *e = ends; e; e = e->next)
		if (e != cut && e->kind == TCP && e->loop && sim_process_lives(e->process) && e->gone == COLL_OK) {
			struct end silent = *e;

			silent.gone = COLL_ERR_PEER_SILENT;
			break_link(cut, &silent);
		}
}

void sim_links_cut(struct sim_process *p)
{
	for (struct end *e = ends; e; e = e->next)
		if (e->process == p && e->kind == TCP && e->loop)
			sim_at(sim_now_ns() + e->unreachable_ms * MS + sim_below(50 * MS), host_gone, e);
}

/* ---- The table ---- */

static coll_status open_kind(const struct coll_transport_env *env, void **inst, int kind)
{
	struct coll_transport_env inner = *env;
	struct end *e = calloc(1, sizeof(*e));
	coll_status st = e ? COLL_OK : COLL_ERR_MEMORY;

	if (st == COLL_OK && !groups[kind])
		st = coll_loop_group_create(&groups[kind]);
	inner.group = groups[kind];
	if (st == COLL_OK)
		st = coll_transport_loop.open(&inner, inst);
	if (st != COLL_OK) {
		free(e);
		return st;
	}
	*e = (struct end){.next = ends, .loop = *inst, .process = sim_process_self(), .self = env->self, .kind = kind};
	e->unreachable_ms = (uint64_t)atoi(env->setting(env->ctx, "COLL_UNREACHABLE_MS"));
	if (e->unreachable_ms > (uint64_t)atoi(env->setting(env->ctx, "COLL_TIMEOUT_MS")))
		e->unreachable_ms = (uint64_t)atoi(env->setting(env->ctx, "COLL_TIMEOUT_MS"));
	e->service_fd = coll_net->eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	ends = e;
	return COLL_OK;
}

static coll_status open_shm(const struct coll_transport_env *env, void **inst)
{
	return open_kind(env, inst, SHM);
}

static coll_status open_tcp(const struct coll_transport_env *env, void **inst)
{
	return open_kind(env, inst, TCP);
}

static void fini(void *inst)
{
	struct end *e = end_of(inst);

	if (!e)
		return;
	coll_net->close(e->service_fd);
	e->service_fd = -1;
	e->loop = NULL;
	coll_transport_loop.fini(inst);
}

/* Processes of one host have the same host id. */
static coll_status address(void *inst, void *buf, size_t cap, size_t *len_bytes)
{
	const struct loop_inst *in = inst;
	const uint64_t host = coll_hash_bytes(1, in->env.host_id, strlen(in->env.host_id));

	if (cap < sizeof(host))
		return COLL_ERR_ARGUMENT;
	memcpy(buf, &host, sizeof(host));
	*len_bytes = sizeof(host);
	return COLL_OK;
}

static bool reachable(void *inst, const void *a, size_t len_bytes, char *why, size_t why_bytes)
{
	uint64_t own;
	size_t n = 0;

	if (end_of(inst)->kind == TCP)
		return true;
	if (address(inst, &own, sizeof(own), &n) == COLL_OK && n == len_bytes && memcmp(&own, a, n) == 0)
		return true;
	if (why && why_bytes)
		strncpy(why, "on another host", why_bytes - 1);
	return false;
}

static coll_status link_open(void *inst, const struct coll_process_id *peer, const void *a, size_t len_bytes,
                             void **link)
{
	const coll_status st = coll_transport_loop.link_open(inst, peer, a, len_bytes, link);
	const struct end *e = end_of(inst), *other = end_named(peer, e->kind);

	if (st == COLL_OK && other && other->gone != COLL_OK)
		sim_at(sim_now_ns() + sim_below(MS), break_links, (void *)other);
	return st;
}

static void link_close(void *link)
{
	struct loop_link *l = link, **at = &l->inst->links;

	if (!is_broken(l->pair)) {
		coll_transport_loop.link_close(link);
		return;
	}
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	free(l);
}

/* Memory is not loaned: loop takes it back only when the thread of the other rank has looked, as ranks of one process
 * do, and the real transports need no thread of the peer for it. */
static void caps(void *inst, struct coll_transport_caps *caps)
{
	coll_transport_loop.caps(inst, caps);
	caps->post_ref = false;
	caps->cross_host = end_of(inst)->kind == TCP;
}

static int service_fd(void *inst)
{
	return end_of(inst)->service_fd;
}

static void service(void *inst)
{
	struct end *e = end_of(inst);
	const struct coll_transport_env *env = &e->loop->env;
	uint64_t count;

	if (coll_net->read(e->service_fd, &count, sizeof(count)) < 0)
		return;
	for (int i = 0; i < e->ndown; i++)
		env->link_down(env->ctx, &e->down[i].peer, e->down[i].why,
		               e->down[i].why == COLL_ERR_PEER_DEAD ? "its process has ended"
		                                                    : "its host does not acknowledge");
	e->ndown = 0;
}

static coll_status open_absent(const struct coll_transport_env *env, void **inst)
{
	(void)env, (void)inst;
	return COLL_ERR_UNSUPPORTED;
}

static const struct coll_transport absent = {
        .size = sizeof(struct coll_transport), .name = "rdma", .open = open_absent};
static struct coll_transport shm, tcp;

const struct coll_transport *const coll_transports[COLL_TRANSPORTS] = {
        [COLL_TRANSPORT_AT_loop] = &coll_transport_loop,
        [COLL_TRANSPORT_AT_shm] = &shm,
        [COLL_TRANSPORT_AT_rdma] = &absent,
        [COLL_TRANSPORT_AT_tcp] = &tcp,
};

const struct coll_transport *coll_transport_find(const char *name)
{
	for (int i = 0; i < COLL_TRANSPORTS; i++)
		if (strcmp(coll_transports[i]->name, name) == 0)
			return coll_transports[i];
	return NULL;
}

__attribute__((constructor)) static void begin(void)
{
	shm = coll_transport_loop;
	shm.name = "shm";
	shm.open = open_shm;
	shm.fini = fini;
	shm.caps = caps;
	shm.post_ref = NULL;
	shm.address = address;
	shm.reachable = reachable;
	shm.link_open = link_open;
	shm.link_close = link_close;
	shm.service_fd = service_fd;
	shm.service = service;
	tcp = shm;
	tcp.name = "tcp";
	tcp.open = open_tcp;
	sim_on_end(process_ended);
}
