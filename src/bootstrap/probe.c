/*
 * Finds rank, size and job of this process: a table of launchers, each with the variables that identify it.
 * This file and slurm.c are the only ones that read environment variables of other programs (a launcher's
 * variables are facts about the process, not settings). Launchers may be nested: the innermost that is complete is
 * obeyed, and the identity says which were passed over. If none is complete, what is incomplete or out of range is
 * refused with the names of the variables: a job that starts wrong would hang later, without a visible cause.
 */
#include "bootstrap/probe.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/number.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/id.h"
#include "bootstrap/munge.h"
#include "bootstrap/secret.h"
#include "bootstrap/slurm.h"

enum { WORDS_BYTES = 640 };

struct found {
	int rank, size, local_rank, local_size;
};

struct probe {
	const coll_config *cfg;
	const struct coll_settings *settings;
	struct coll_identity *id;
	struct coll_error_box *err;
	char *words; /* WORDS_BYTES, of a launcher's fill(): what is public about the job and of no other */
};

struct launcher {
	const char *name;
	const char *rank_name, *size_name; /* in messages */
	/* OK: this launcher started us, *f is filled. AGAIN: no trace of it. */
	coll_status (*detect)(const struct probe *p, struct found *f);
	/* How the ranks meet, when COLL_ROOT does not say. */
	coll_status (*fill)(const struct probe *p);
};

/* ---- Reading variables ------------------------------------------------- */

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

/* OK, AGAIN when unset, or a refusal. */
static coll_status env_int(const struct probe *p, const char *name, int *value)
{
	const char *v = env(name);

	if (!v)
		return COLL_AGAIN;
	if (coll_number_parse(v, INT_MIN, INT_MAX, value))
		return COLL_OK;
	return coll_error_set(p->err, COLL_ERR_CONFIG, "[COLL-1106] %s=%.60s: expected a whole number", name, v);
}

static coll_status check_range(const struct probe *p, const struct launcher *l, const struct found *f)
{
	if (f->size < 1)
		return coll_error_set(p->err, COLL_ERR_CONFIG, "%s=%d: a job has at least one rank", l->size_name,
		                      f->size);
	if (f->rank < 0 || f->rank >= f->size)
		return coll_error_set(p->err, COLL_ERR_CONFIG, "%s=%d is not below %s=%d", l->rank_name, f->rank,
		                      l->size_name, f->size);
	if (f->local_size >= 0 && (f->local_size < 1 || f->local_size > f->size))
		return coll_error_set(p->err, COLL_ERR_CONFIG, "%s: %d local ranks in a job of %d", l->name,
		                      f->local_size, f->size);
	if (f->local_rank >= 0 && f->local_size >= 0 && f->local_rank >= f->local_size)
		return coll_error_set(p->err, COLL_ERR_CONFIG, "%s: local rank %d is not below local size %d", l->name,
		                      f->local_rank, f->local_size);
	return COLL_OK;
}

/* The pattern of most launchers: two variables that must both be there, two that
 * may. */
static coll_status detect_env(const struct probe *p, const char *rank, const char *size, const char *local_rank,
                              const char *local_size, struct found *f)
{
	coll_status r = env_int(p, rank, &f->rank), s, lr, ls;

	if (r != COLL_OK && r != COLL_AGAIN)
		return r;
	s = env_int(p, size, &f->size);
	if (s != COLL_OK && s != COLL_AGAIN)
		return s;
	if (r == COLL_AGAIN && s == COLL_AGAIN)
		return COLL_AGAIN;
	if (r == COLL_AGAIN || s == COLL_AGAIN)
		return coll_error_set(p->err, COLL_ERR_CONFIG, "[COLL-1110] %s is set but %s is not",
		                      r == COLL_OK ? rank : size, r == COLL_OK ? size : rank);
	lr = env_int(p, local_rank, &f->local_rank);
	if (lr != COLL_OK && lr != COLL_AGAIN)
		return lr;
	ls = env_int(p, local_size, &f->local_size);
	return ls == COLL_AGAIN ? COLL_OK : ls;
}

/* ---- Names ------------------------------------------------------------- */

/* The words by which the ranks of one host meet: see meeting_file.h. */
static void unix_from(const struct probe *p)
{
	snprintf(p->id->unix_name, sizeof(p->id->unix_name), "%016llx%016llx",
	         (unsigned long long)coll_hash_bytes(3, p->words, strlen(p->words)),
	         (unsigned long long)coll_hash_bytes(4, p->words, strlen(p->words)));
}

/* An address that ends at this host: all ranks are here, and need no port. */
static bool is_loopback(const char *host)
{
	struct coll_address a;

	return strcmp(host, "localhost") == 0 || (coll_address_numeric(&a, host, 0) && coll_address_is_loopback(&a));
}

/* Rank 0 takes one of several ports, which the words choose. */
static void ports_from(const struct probe *p, const char *host, uint16_t port)
{
	snprintf(p->id->root_host, sizeof(p->id->root_host), "%s", host);
	p->id->root_port = port;
	p->id->root_ports = true;
	p->id->port_seed = coll_hash_bytes(5, p->words, strlen(p->words)) | 1;
}

/* host:port, [address]:port, host (then the secret chooses the ports), unix:name. A loopback address is as a name.
 * Ranks may name another host differently. */
static coll_status read_root(const struct probe *p)
{
	const char *t = p->settings->root, *colon = strrchr(t, ':'), *host_end;
	struct coll_identity *id = p->id;
	int port = 0;

	if (strncmp(t, "unix:", 5) == 0) {
		if (!t[5] || strlen(t + 5) >= sizeof(id->unix_name))
			return coll_error_set(p->err, COLL_ERR_CONFIG,
			                      "[COLL-1106] COLL_ROOT=%s: expected a name of 1 to %zu bytes", t,
			                      sizeof(id->unix_name) - 1);
		snprintf(id->unix_name, sizeof(id->unix_name), "%s", t + 5);
		snprintf(p->words, WORDS_BYTES, "%s", t);
		return COLL_OK;
	}
	host_end = colon ? colon : t + strlen(t);
	if (*t == '[' && t[strlen(t) - 1] == ']')
		colon = NULL, host_end = t + strlen(t);
	if (colon && !coll_number_parse(colon + 1, 0, 65535, &port))
		port = -1;
	if (*t == '[' && host_end > t + 1 && host_end[-1] == ']')
		t++, host_end--;
	if (port < 0 || host_end == t || host_end - t >= (ptrdiff_t)sizeof(id->root_host))
		return coll_error_set(p->err, COLL_ERR_CONFIG, "[COLL-1106] COLL_ROOT=%s: expected host:port",
		                      p->settings->root);
	snprintf(p->words, WORDS_BYTES, "root|%d", port);
	snprintf(id->root_host, sizeof(id->root_host), "%.*s", (int)(host_end - t), t);
	if (is_loopback(id->root_host)) {
		snprintf(id->unix_name, sizeof(id->unix_name), "loopback %d", port);
		id->root_host[0] = '\0';
		return COLL_OK;
	}
	id->root_port = (uint16_t)port;
	id->root_ports = port == 0;
	return COLL_OK;
}

/* ---- Launchers --------------------------------------------------------- */

static coll_status detect_explicit(const struct probe *p, struct found *f)
{
	const struct coll_settings *s = p->settings;

	if (s->rank == -1 && s->size == 0)
		return COLL_AGAIN;
	if (s->rank == -1 || s->size == 0)
		return coll_error_set(p->err, COLL_ERR_CONFIG, "[COLL-1110] %s is set but %s is not",
		                      s->size ? "COLL_SIZE" : "COLL_RANK", s->size ? "COLL_RANK" : "COLL_SIZE");
	*f = (struct found){s->rank, s->size, s->local_rank, s->local_size};
	return COLL_OK;
}

static coll_status fill_explicit(const struct probe *p)
{
	return coll_error_set(p->err, COLL_ERR_CONFIG,
	                      "[COLL-1110] COLL_RANK=%d and COLL_SIZE=%d are set but COLL_ROOT=host:port is not",
	                      p->id->rank, p->id->size);
}

static coll_status detect_torchrun(const struct probe *p, struct found *f)
{
	const char *addr = env("MASTER_ADDR"), *port = env("MASTER_PORT");
	const bool own_way = p->settings->root[0] || (p->cfg && (p->cfg->id || p->cfg->exchange));
	coll_status st;

	/* One of these words alone is anybody's. */
	if (!env("TORCHELASTIC_RUN_ID") && (!env("RANK") || !env("WORLD_SIZE")))
		return COLL_AGAIN;
	st = detect_env(p, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", f);
	if (st == COLL_OK && f->size > 1 && f->rank >= 0 && f->rank < f->size && !own_way && (!addr || !port))
		return coll_error_set(p->err, COLL_ERR_CONFIG,
		                      "[COLL-1110] RANK and WORLD_SIZE are set but %s is not (or set "
		                      "COLL_ROOT=host:port instead)",
		                      addr ? "MASTER_PORT" : "MASTER_ADDR");
	return st;
}

/*
 * On one host, which a loopback address says too, a Unix socket, which needs no port. Across hosts MASTER_PORT
 * belongs to torchrun's own store if a variable says so; then rank 0 uses one of the
 * ports derived from the job's name. Without that variable rank 0 tries
 * MASTER_PORT first, and the derived ports if another process holds it.
 */
static coll_status fill_torchrun(const struct probe *p)
{
	const char *addr = env("MASTER_ADDR"), *port = env("MASTER_PORT"), *run = env("TORCHELASTIC_RUN_ID");
	const char *store = env("TORCHELASTIC_USE_AGENT_STORE");
	struct coll_identity *id = p->id;
	int number = 0;

	if (!coll_number_parse(port, 1, 65535, &number))
		return coll_error_set(p->err, COLL_ERR_CONFIG, "[COLL-1106] MASTER_PORT=%.60s: expected 1 to 65535",
		                      port);
	if (strlen(addr) >= sizeof(id->root_host))
		return coll_error_set(p->err, COLL_ERR_CONFIG, "MASTER_ADDR is too long");
	snprintf(p->words, WORDS_BYTES, "torchrun|%s|%s|%.100s", addr, port, run ? run : "");
	if (id->local_size == id->size || is_loopback(addr))
		unix_from(p);
	else
		ports_from(p, addr, store && strcasecmp(store, "true") == 0 ? 0 : (uint16_t)number);
	return COLL_OK;
}

static coll_status detect_openmpi(const struct probe *p, struct found *f)
{
	return detect_env(p, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
	                  "OMPI_COMM_WORLD_LOCAL_SIZE", f);
}

static coll_status fill_openmpi(const struct probe *p)
{
	static const char *const servers[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3",
	                                      "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"};
	const char *job = env("PMIX_NAMESPACE"), *server = NULL;
	/* Of one job; random as a rule. It does not count as a secret: the launcher does not promise to keep it. */
	const char *of_job = env("OMPI_MCA_orte_precondition_transports");

	if (!job)
		job = env("OMPI_MCA_ess_base_jobid");
	if (!job)
		job = env("OMPI_MCA_orte_ess_jobid");
	if (!job)
		return coll_error_set(p->err, COLL_ERR_CONFIG,
		                      "[COLL-1110] OMPI_COMM_WORLD_RANK is set but neither PMIX_NAMESPACE nor "
		                      "OMPI_MCA_ess_base_jobid names the job: set COLL_ROOT=host:port");
	if (p->id->local_size != p->id->size) {
		snprintf(p->id->publish, sizeof(p->id->publish), "pmix");
		return COLL_OK;
	}
	for (size_t i = 0; i < sizeof(servers) / sizeof(servers[0]) && !server; i++)
		server = env(servers[i]);
	snprintf(p->words, WORDS_BYTES, "openmpi|%.200s|%.250s|%.100s", job, server ? server : "",
	         of_job ? of_job : "");
	unix_from(p);
	return COLL_OK;
}

static coll_status detect_mpich(const struct probe *p, struct found *f)
{
	if (coll_slurm_pmi_is_inherited())
		return COLL_AGAIN;
	return detect_env(p, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", f);
}

/* The process at the other end of PMI_FD, when that is a Unix socket, and when it
 * started: equal on all ranks of one host, and never again. */
static bool pmi_server(int fd, char *text, size_t len_bytes)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);
	char path[40], stat[512] = "", *p;
	FILE *f;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)peer.pid);
	f = fopen(path, "re");
	if (f) {
		stat[fread(stat, 1, sizeof(stat) - 1, f)] = 0;
		fclose(f);
	}
	p = strrchr(stat, ')'); /* start time is the 22nd word, the 20th after the name */
	for (int word = 2; p && word < 22; word++) {
		p = strchr(p, ' ');
		p = p ? p + 1 : NULL;
	}
	if (!p)
		return false;
	snprintf(text, len_bytes, "mpich|%d|%llu", (int)peer.pid, strtoull(p, NULL, 10));
	return true;
}

/*
 * On one host the launcher's identity names the job and its PMI is left alone, so
 * that MPI in the same process finds it as it was. Across hosts PMI carries the
 * address of rank 0.
 */
static coll_status fill_mpich(const struct probe *p)
{
	int fd;
	coll_status st = env_int(p, "PMI_FD", &fd);

	if (st == COLL_AGAIN)
		return coll_error_set(
		        p->err, COLL_ERR_CONFIG,
		        "[COLL-1110] PMI_RANK and PMI_SIZE are set but PMI_FD is not: set COLL_ROOT=host:port");
	if (st != COLL_OK)
		return st;
	if (p->id->local_size == p->id->size && pmi_server(fd, p->words, WORDS_BYTES)) {
		unix_from(p);
		return COLL_OK;
	}
	snprintf(p->id->publish, sizeof(p->id->publish), "pmi");
	if (p->id->local_size < 0)
		snprintf(p->id->launcher, sizeof(p->id->launcher), "pmi1");
	return COLL_OK;
}

/* A batch script carries SLURM_PROCID too; only a step has an id. */
static coll_status detect_srun(const struct probe *p, struct found *f)
{
	const char *step = env("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID";
	const bool tasks = env("SLURM_STEP_NUM_TASKS");
	coll_status st;
	int local;

	if (!env("SLURM_PROCID") || !env(step) || !env("SLURM_JOB_ID"))
		return COLL_AGAIN;
	st = detect_env(p, "SLURM_PROCID", tasks ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID", "", f);
	if (st == COLL_OK && env("SLURM_STEP_NUM_NODES") && env_int(p, "SLURM_STEP_NUM_NODES", &local) == COLL_OK &&
	    local == 1)
		f->local_size = f->size;
	else if (st == COLL_OK && env_int(p, "SLURM_NNODES", &local) == COLL_OK && local == 1)
		f->local_size = f->size;
	return st;
}

static coll_status fill_srun(const struct probe *p)
{
	const char *step = env("SLURM_STEP_ID"), *nodes = env("SLURM_STEP_NODELIST"),
	           *again = env("SLURM_RESTART_COUNT");
	char host[sizeof(p->id->root_host)];

	snprintf(p->words, WORDS_BYTES, "srun|%.100s|%.100s%s%.20s", env("SLURM_JOB_ID"),
	         step ? step : env("SLURM_STEPID"), again ? "|" : "", again ? again : "");
	if (p->id->local_size != p->id->size && coll_slurm_has_pmix()) {
		snprintf(p->id->publish, sizeof(p->id->publish), "pmix");
		return COLL_OK;
	}
	if (p->id->local_size == p->id->size)
		unix_from(p);
	else if (nodes && coll_slurm_first_host(nodes, host, sizeof(host)))
		ports_from(p, host, 0);
	else
		return coll_error_set(
		        p->err, COLL_ERR_CONFIG,
		        "[COLL-1111] srun started %d ranks on several hosts, and SLURM_STEP_NODELIST does "
		        "not name them: set COLL_ROOT=host:port of rank 0, or start with srun --mpi=pmix",
		        p->id->size);
	return COLL_OK;
}

/* From the innermost to the outermost, as they are nested. */
static const struct launcher launchers[] = {
        {"explicit", "COLL_RANK", "COLL_SIZE", detect_explicit, fill_explicit},
        {"torchrun", "RANK", "WORLD_SIZE", detect_torchrun, fill_torchrun},
        {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", detect_openmpi, fill_openmpi},
        {"mpich", "PMI_RANK", "PMI_SIZE", detect_mpich, fill_mpich},
        {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", detect_srun, fill_srun},
};
enum { LAUNCHERS = sizeof(launchers) / sizeof(launchers[0]) };

/* ---- The decision ------------------------------------------------------ */

static void adopt(const struct probe *p, const char *name, const struct found *f)
{
	p->id->rank = f->rank;
	p->id->size = f->size;
	p->id->local_rank = f->local_rank;
	p->id->local_size = f->local_size;
	snprintf(p->id->launcher, sizeof(p->id->launcher), "%s", name);
}

/* Launchers that are nested leave their variables to those inside: a word about each that is not obeyed. */
static void pass_over(const struct probe *p, const struct launcher *l, const struct found *f)
{
	char *text = p->id->passed_over;
	const size_t at = strlen(text), room = sizeof(p->id->passed_over) - at;

	if (f)
		snprintf(text + at, room, "%s%s (%s=%d of %s=%d)", at ? ", " : "", l->name, l->rank_name, f->rank,
		         l->size_name, f->size);
	else
		snprintf(text + at, room, "%s%s (incomplete)", at ? ", " : "", l->name);
}

/* Find the launcher, *winner NULL: none. The first that is complete, and COLL_* in any case; that one is incomplete is
 * an error if no other is complete. */
static coll_status detect(const struct probe *p, const struct launcher **winner, struct found *won)
{
	struct coll_error_box first, later;
	const struct launcher *incomplete = NULL;

	coll_error_clear(&first);
	*winner = NULL;
	for (int i = 0; i < LAUNCHERS; i++) {
		const struct probe quiet = {p->cfg, p->settings, p->id, incomplete ? &later : &first};
		struct found f = {-1, 0, -1, -1};
		coll_status st;

		coll_error_clear(&later);
		st = launchers[i].detect(&quiet, &f);
		if (st == COLL_AGAIN)
			continue;
		if (st == COLL_OK)
			st = check_range(&quiet, &launchers[i], &f);
		if (st != COLL_OK && !*winner && !incomplete)
			incomplete = &launchers[i];
		if (st != COLL_OK && i == 0)
			break;
		if (st == COLL_OK && !*winner) {
			*winner = &launchers[i];
			*won = f;
		} else if (st != COLL_OK || f.rank != won->rank || f.size != won->size) {
			pass_over(p, &launchers[i], st == COLL_OK ? &f : NULL);
		}
	}
	if (*winner || !incomplete)
		return COLL_OK;
	if (p->err)
		*p->err = first;
	return COLL_ERR_CONFIG;
}

static coll_status check_config(const struct probe *p, bool *explicit)
{
	const coll_config *c = p->cfg;

	*explicit = false;
	if (!c)
		return COLL_OK;
	if (c->rank == -1 && c->size == 0)
		return COLL_OK;
	if (c->rank < 0 || c->size < 1 || c->rank >= c->size)
		return coll_error_set(
		        p->err, COLL_ERR_CONFIG,
		        "coll_config.rank is %d and coll_config.size is %d: give both, 0 <= rank < size, or "
		        "neither (-1 and 0)",
		        c->rank, c->size);
	*explicit = true;
	return COLL_OK;
}

/* Choose the rendezvous of the ranks; l is the launcher that can supply it, NULL for none. */
static coll_status choose_meeting(const struct probe *p, const struct launcher *l)
{
	if (p->id->size == 1)
		return COLL_OK;
	if (p->cfg && (p->cfg->exchange || p->cfg->id)) {
		struct coll_places places;

		snprintf(p->id->launcher, sizeof(p->id->launcher), p->cfg->exchange ? "callback" : "id");
		if (p->cfg->exchange)
			return COLL_OK;
		p->id->secret = coll_secret_unique_id;
		return coll_id_read(p->cfg->id, &places, p->id->job_key, p->err);
	}
	if (p->settings->root[0])
		return read_root(p);
	if (l)
		return l->fill(p);
	return coll_error_set(
	        p->err, COLL_ERR_CONFIG,
	        "[COLL-1111] coll_config has rank %d of %d but no rendezvous address: set coll_config.id, "
	        "coll_config.exchange or COLL_ROOT=host:port",
	        p->id->rank, p->id->size);
}

static coll_status identify_explicit(const struct probe *p)
{
	const struct found mine = {p->cfg->rank, p->cfg->size, -1, -1};
	const bool own_way = p->cfg->exchange || p->cfg->id || p->settings->root[0] || mine.size == 1;
	const struct launcher *l = NULL;
	struct found f = mine;
	coll_status st = own_way ? COLL_OK : detect(p, &l, &f);

	if (st != COLL_OK)
		return st;
	if (l && (f.rank != mine.rank || f.size != mine.size))
		return coll_error_set(p->err, COLL_ERR_CONFIG,
		                      "[COLL-1111] coll_config has rank %d of %d, %s has rank %d of %d, and no other "
		                      "rendezvous address is set",
		                      mine.rank, mine.size, l->name, f.rank, f.size);
	adopt(p, l ? l->name : "explicit", &f);
	return choose_meeting(p, l);
}

static coll_status identify(const struct probe *p)
{
	const struct launcher *l;
	struct found f = {0, 1, 0, 1};
	coll_status st = detect(p, &l, &f);

	if (st != COLL_OK)
		return st;
	if (!l && p->settings->root[0])
		return coll_error_set(
		        p->err, COLL_ERR_CONFIG,
		        "[COLL-1110] COLL_ROOT=%s is set but the rank of this process is not: set COLL_RANK and "
		        "COLL_SIZE",
		        p->settings->root);
	if (!l && p->cfg && (p->cfg->id || p->cfg->exchange))
		return coll_error_set(p->err, COLL_ERR_CONFIG,
		                      "coll_config.%s is given but not coll_config.rank and coll_config.size",
		                      p->cfg->id ? "id" : "exchange");
	adopt(p, l ? l->name : "alone", &f);
	if (l == &launchers[0] && env("COLLRUN_JOB"))
		snprintf(p->id->launcher, sizeof(p->id->launcher), "collrun");
	return choose_meeting(p, l);
}

/* Ranks of srun that found no secret: munge is to carry one. False: it cannot, and others says what else may be done.
 */
static bool use_munge(const struct probe *p, char *others, size_t others_bytes)
{
	char why[100];

	if (strncmp(p->words, "srun|", 5) != 0 || !p->id->root_host[0] || coll_identity_has_secret(p->id))
		return false;
	if (coll_munge_there(why, sizeof(why))) {
		snprintf(p->id->publish, sizeof(p->id->publish), "munge");
		return true;
	}
	snprintf(others, others_bytes, "start with srun --mpi=pmi2; or run munged on each host (%s); or ", why);
	return false;
}

/* An id has a secret of its own, and so has one that a launcher will carry. */
static coll_status find_secret(const struct probe *p)
{
	struct coll_identity *id = p->id;
	char others[200] = "";
	coll_status st;

	if (id->size == 1 || id->publish[0] || coll_identity_has_secret(id))
		return COLL_OK;
	st = coll_secret_find(p->settings, p->words, id, p->err);
	if (st == COLL_OK && strcmp(p->words, "root|0") == 0 && !id->port_seed)
		return coll_error_set(
		        p->err, COLL_ERR_CONFIG,
		        "[COLL-1111] COLL_ROOT=%s names no port: add one, or set the same COLL_JOB_KEY on all "
		        "ranks (the port is derived from the key)",
		        p->settings->root);
	if (st != COLL_OK || use_munge(p, others, sizeof(others)))
		return st;
	return coll_secret_check(p->settings->insecure || (p->cfg && p->cfg->insecure), others, id, p->err);
}

coll_status coll_bootstrap_identify(const coll_config *cfg, const struct coll_settings *settings,
                                    struct coll_identity *id, struct coll_error_box *err)
{
	char words[WORDS_BYTES] = "";
	const struct probe p = {cfg, settings, id, err, words};
	bool explicit;
	coll_status st;

	memset(id, 0, sizeof(*id));
	id->local_rank = id->local_size = -1;
	coll_secret_take();
	st = check_config(&p, &explicit);
	if (st == COLL_OK)
		st = explicit ? identify_explicit(&p) : identify(&p);
	if (st == COLL_OK)
		st = find_secret(&p);
	if (st != COLL_OK)
		return st;
	id->root_bind = id->rank == 0 && id->root_host[0];
	id->one_host = id->unix_name[0] || id->size == 1;
	return COLL_OK;
}

coll_status coll_bootstrap_probe(const coll_config *cfg, const struct coll_settings *settings, struct coll_identity *id,
                                 struct coll_error_box *err)
{
	struct coll_places places;
	coll_unique_id shared;
	const uint64_t begun_ns = coll_clock_ns();
	coll_status st = coll_bootstrap_identify(cfg, settings, id, err);

	id->begun_ns = begun_ns;
	if (st != COLL_OK || !id->publish[0])
		return st;
	st = coll_id_publish(settings, id, begun_ns + (uint64_t)settings->create_timeout_ms * 1000000u, &shared, err);
	id->secret = strcmp(id->publish, "munge") == 0 ? coll_secret_munge : coll_secret_unique_id;
	return st == COLL_OK ? coll_id_read(&shared, &places, id->job_key, err) : st;
}
