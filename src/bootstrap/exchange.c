/*
 * The all-gather of bootstrap: turns an identity into a meeting (listeners at
 * the root, places to look at elsewhere) and holds it. With one rank there is
 * nothing to do; with the caller's own exchange nothing of ours is opened.
 */
#include "bootstrap/exchange.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/own_user.h"
#include "base/proof.h"
#include "base/siphash.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/id.h"
#include "bootstrap/id_host.h"
#include "bootstrap/meeting_file.h"
#include "bootstrap/port_owner.h"
#include "bootstrap/rendezvous_roles.h"
#include "bootstrap/resolve.h"
#include "bootstrap/secret.h"
#include "bootstrap/wire.h"

enum { REFUSALS = 5 };

static void nap_ms(int ms)
{
	const struct timespec t = {0, ms * 1000000L};

	nanosleep(&t, NULL);
}

/* The address that was named if it is numeric and ours, else these. */
static bool listen_named(const char *host, uint16_t port, const struct coll_ips *at, struct coll_rendezvous_point *m)
{
	struct coll_address a;
	uint16_t real;

	if (coll_address_numeric(&a, host, port)) {
		if (coll_rendezvous_add(&m->listeners, coll_listen_tcp(&a, port, &real)))
			return true;
		if (errno != EADDRNOTAVAIL)
			return false;
	}
	return coll_rendezvous_listen(&m->listeners, at, port, port, &real);
}

/* Whether a process that has the key answers at one of several places of this host, which share the time. */
static bool own_job_at(const struct coll_address *a, unsigned places, const uint64_t key[2])
{
	const uint64_t until = coll_clock_ns() + COLL_DELAY_NS(PORT_OWNER) / places;
	struct coll_wire w = {.fd = -1};
	int refusals = 0;
	bool yes = false;

	coll_wire_connect(&w, a, key);
	while (!yes && coll_clock_ns() < until && !coll_interrupt_here(false)) {
		struct pollfd p = {.fd = w.fd, .events = coll_wire_events(&w)};

		if (w.state == COLL_WIRE_CLOSED) {
			/* Between its bind and its listen a port is taken and refuses. */
			if (w.stranger || refusals++ == REFUSALS)
				break;
			coll_wire_close(&w);
			nap_ms(COLL_DELAY_PORT_OWNER_AGAIN_MS);
			coll_wire_connect(&w, a, key);
			continue;
		}
		poll(&p, 1, COLL_DELAY_PORT_OWNER_LOOK_MS);
		coll_wire_pump(&w, p.revents);
		yes = w.state == COLL_WIRE_OPEN;
	}
	coll_wire_close(&w);
	return yes;
}

static bool own_job_at_port(const char *host, uint16_t port, const struct coll_ips *at, const uint64_t key[2])
{
	struct coll_address a;
	bool yes = false;

	for (unsigned i = 0; i < at->count && !yes; i++) {
		a.len = coll_ip_to(&at->at[i], port, &a.at);
		yes = own_job_at(&a, at->count, key);
	}
	if (at->count > 0)
		return yes;
	if (!coll_address_numeric(&a, host, port))
		coll_address_numeric(&a, "127.0.0.1", port);
	return own_job_at(&a, 1, key);
}

/* The first port that can be had. Where others will be tried, a taken one may be
 * held by a second process of this job that claims rank 0: the ranks would be torn
 * between the two. Another user's process is none, and would keep rank 0 waiting. */
static bool open_one(const struct coll_identity *id, const struct coll_ips *at, struct coll_rendezvous_point *m,
                     bool *twice)
{
	*twice = false;
	for (int i = 0; i < m->port_count; i++) {
		if (listen_named(id->root_host, m->ports[i], at, m)) {
			snprintf(m->root_text, sizeof(m->root_text), "%s:%u", id->root_host, m->ports[i]);
			return true;
		}
		if (errno != EADDRINUSE)
			return false;
		if (m->port_count > 1 && coll_port_may_be_own(m->ports[i]) &&
		    own_job_at_port(id->root_host, m->ports[i], at, m->key)) {
			*twice = true;
			errno = EADDRINUSE;
			return false;
		}
	}
	errno = EADDRINUSE;
	return false;
}

static coll_status cannot_listen(const struct coll_identity *id, const struct coll_rendezvous_point *m, bool twice,
                                 int error, struct coll_error_box *err)
{
	char owner[96] = "", why[320] = "";

	if (error == EADDRINUSE)
		coll_port_owner(m->ports[0], owner, sizeof(owner));
	if (twice)
		snprintf(why, sizeof(why), " (a second process claims rank 0)");
	else if (error == EADDRINUSE)
		snprintf(why, sizeof(why), " (by %s: another job, or a second process that claims rank 0)%s",
		         *owner ? owner : "a process that the kernel does not name",
		         m->port_count > 1 ? ", and so are the ports behind it: end that process, or name another port"
		                           : ": name another port, or give all ranks a secret, by which rank 0 finds "
		                             "a free one (COLL_JOB_KEY, COLL_KEY_FILE)");
	return coll_error_set(err, COLL_ERR_BOOTSTRAP, "[COLL-4202] rank 0 cannot listen at %s:%u: %s%s", id->root_host,
	                      m->ports[0], coll_errno_text(error).text, why);
}

static coll_status open_tcp(const struct coll_identity *id, struct coll_rendezvous_point *m, struct coll_error_box *err)
{
	const uint64_t give_up = coll_clock_ns() + COLL_DELAY_NS(BIND);
	struct coll_ips at;
	const coll_status st = coll_rendezvous_root_addresses(m->settings, id->root_host, &at, err);
	bool twice;

	if (st == COLL_AGAIN)
		return coll_error_set(
		        err, COLL_ERR_CONFIG,
		        "[COLL-4202] rank 0 cannot listen at %s:%u: COLL_INTERFACE=%s leaves no address of this host",
		        id->root_host, m->ports[0], m->settings->interface);
	if (st != COLL_OK)
		return st;
	for (;;) {
		if (open_one(id, &at, m, &twice))
			return COLL_OK;
		if (errno != EADDRINUSE || coll_clock_ns() > give_up || coll_interrupt_here(false))
			break;
		nap_ms(COLL_DELAY_BIND_AGAIN_MS); /* the previous job may just be leaving */
	}
	return cannot_listen(id, m, twice, errno, err);
}

/* The same at the names that a secret gives, for ranks that see none of the files. True: the listener is there. */
static bool open_named(const struct coll_meeting_words *w, struct coll_rendezvous_point *m, bool *twice)
{
	*twice = false;
	for (int i = 0; m->keyed && i < COLL_MEETING_NAMES && !*twice; i++) {
		struct coll_address a;

		coll_meeting_named(w, i, &a);
		if (coll_rendezvous_add(&m->listeners, coll_listen_unix_at(&a)))
			return true;
		*twice = errno == EADDRINUSE && own_job_at(&a, COLL_MEETING_NAMES, m->key);
	}
	return false;
}

/* A socket of random name, and files that tell it: see meeting_file.h. */
static coll_status open_meeting(const struct coll_meeting_words *w, struct coll_rendezvous_point *m,
                                struct coll_meeting_files *files, struct coll_error_box *err)
{
	const uint64_t give_up = coll_clock_ns() + COLL_DELAY_NS(BIND);
	enum coll_meeting_wrote wrote = COLL_MEETING_TAKEN;
	char name[COLL_MEETING_SOCKET_BYTES];
	struct coll_address a;
	uint64_t random[2];
	bool named, twice;
	int error;

	if (!coll_random(random, sizeof(random)))
		return coll_error_set(err, COLL_ERR_SYSTEM, "no random bytes for the name of a socket: getrandom: %s",
		                      coll_errno_text(errno).text);
	snprintf(name, sizeof(name), "coll-%016llx%016llx", (unsigned long long)random[0],
	         (unsigned long long)random[1]);
	if (!coll_rendezvous_add(&m->listeners, coll_listen_unix(name, &a)))
		return coll_error_set(err, COLL_ERR_BOOTSTRAP, "[COLL-4202] rank 0 cannot listen at unix:%s: %s", name,
		                      coll_errno_text(errno).text);
	coll_meeting_clean();
	for (;;) {
		if (!coll_meeting_held(w))
			wrote = coll_meeting_write(w, name, files);
		if (wrote != COLL_MEETING_TAKEN || coll_clock_ns() > give_up || coll_interrupt_here(false))
			break;
		coll_meeting_remove(files);
		nap_ms(COLL_DELAY_BIND_AGAIN_MS); /* the previous job may just be leaving */
	}
	error = errno;
	twice = wrote == COLL_MEETING_TAKEN;
	named = !twice && open_named(w, m, &twice);
	if (!twice && (named || wrote == COLL_MEETING_WRITTEN))
		return COLL_OK;
	return coll_error_set(err, COLL_ERR_BOOTSTRAP, "[COLL-4202] rank 0 cannot write %s: %s", m->root_text,
	                      twice ? "another process has (a second process claims rank 0)"
	                            : coll_errno_text(error).text);
}

static coll_status find_tcp(const struct coll_identity *id, struct coll_rendezvous_point *m, struct coll_error_box *err)
{
	char why[256] = "";

	while (coll_clock_ns() < m->deadline_ns) {
		if (coll_resolve(id->root_host, m->ports[0], m->deadline_ns, &m->root, why, sizeof(why))) {
			m->root_host = id->root_host;
			return COLL_OK;
		}
		nap_ms(COLL_DELAY_RESOLVE_AGAIN_MS); /* names of hosts that are just starting appear late */
	}
	if (err)
		err->rank = 0;
	return coll_error_set(err, COLL_ERR_BOOTSTRAP, "[COLL-4203] rank 0 cannot be found: %s", why);
}

static coll_status prepare_tcp(const struct coll_identity *id, struct coll_rendezvous_point *m,
                               struct coll_error_box *err)
{
	uint16_t first, last;
	coll_status st = coll_port_range(m->settings, &first, &last, err);

	if (st != COLL_OK)
		return st;
	snprintf(m->root_text, sizeof(m->root_text), "%s:%u", id->root_host, id->root_port);
	m->ports[0] = id->root_port;
	m->port_count = 1;
	if (id->root_ports) {
		coll_rendezvous_ports(id->port_seed, id->root_port, first, last, m->ports);
		m->port_count = COLL_RENDEZVOUS_PORTS;
		snprintf(m->root_text, sizeof(m->root_text), "%s, ports %u, %u ...", id->root_host, m->ports[0],
		         m->ports[1]);
	}
	return id->rank == 0 ? open_tcp(id, m, err) : find_tcp(id, m, err);
}

static coll_status prepare_meeting(const struct coll_identity *id, struct coll_rendezvous_point *m,
                                   struct coll_meeting_files *files, struct coll_error_box *err)
{
	const struct coll_meeting_words w = {id->unix_name, m->key};

	m->unix_only = true;
	m->meeting = id->unix_name;
	coll_meeting_text(&w, m->root_text, sizeof(m->root_text));
	if (!m->keyed && coll_user_of(geteuid()) != COLL_USER_OWN)
		return coll_error_set(
		        err, COLL_ERR_CONFIG,
		        "[COLL-1119] the user of this process, %u, may have no number in its user namespace, so that "
		        "others look the same, and the job has no secret: set one COLL_JOB_KEY on all ranks, or map "
		        "the user (unshare --map-current-user)",
		        (unsigned)geteuid());
	return id->rank == 0 ? open_meeting(&w, m, files, err) : COLL_OK;
}

/* The maker of the id hosts the meeting, and the id says where. */
static coll_status prepare_id(const coll_config *cfg, struct coll_rendezvous_point *m, struct coll_error_box *err)
{
	coll_status st = coll_id_read(cfg->id, &m->root, m->key, err);

	snprintf(m->root_text, sizeof(m->root_text), "coll_config.id");
	m->hosted = true;
	if (st == COLL_OK && coll_id_host_ended(m->key))
		st = coll_error_set(err, COLL_ERR_ARGUMENT,
		                    "the ranks of coll_config.id have met already: an id can be used only once");
	return st;
}

/* Somebody else may have the port of the id by now: then rank 0 is at one that the key gives. */
static coll_status prepare_again(struct coll_rendezvous_point *m, bool root, struct coll_error_box *err)
{
	uint16_t first, last, real, named = 0;
	coll_status st = coll_port_range(m->settings, &first, &last, err);

	for (int i = 0; i < m->root.count && !named; i++)
		named = coll_address_port(&m->root.place[i]);
	coll_rendezvous_ports(coll_siphash24(m->key, "ports", 5) | 1, named, first, last, m->ports);
	m->port_count = COLL_RENDEZVOUS_PORTS;
	for (int i = 0; st == COLL_OK && root && i < m->port_count && m->listeners.count == 0; i++) {
		st = coll_id_listen(m->settings, m->key, m->ports[i], m->ports[i], &m->listeners, &real, err);
		if (st != COLL_OK && errno == EADDRINUSE && i < m->port_count - 1) {
			if (err)
				coll_error_clear(err);
			st = COLL_OK;
		}
	}
	return st;
}

/* The probe has published already: what it left is found again at once. */
static coll_status prepare_published(const struct coll_identity *id, struct coll_rendezvous_point *m,
                                     struct coll_error_box *err)
{
	coll_unique_id shared;
	coll_status st = coll_id_publish(m->settings, id, m->deadline_ns, &shared, err);

	snprintf(m->root_text, sizeof(m->root_text), "the address published by %s", id->publish);
	if (st == COLL_OK)
		st = coll_id_read(&shared, &m->root, m->key, err);
	if (st == COLL_OK && coll_id_met())
		return prepare_again(m, id->rank == 0, err);
	if (st == COLL_OK)
		coll_id_take_listeners(&m->listeners);
	return st;
}

static coll_status prepare(const coll_config *cfg, const struct coll_identity *id, struct coll_rendezvous_point *m,
                           struct coll_meeting_files *files, struct coll_error_box *err)
{
	if (cfg && cfg->id)
		return prepare_id(cfg, m, err);
	if (id->publish[0])
		return prepare_published(id, m, err);
	if (id->unix_name[0])
		return prepare_meeting(id, m, files, err);
	if (id->root_host[0])
		return prepare_tcp(id, m, err);
	return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1111] no rendezvous address for the %d ranks (%s)", id->size,
	                      id->launcher);
}

coll_status coll_bootstrap_exchange(const coll_config *cfg, const struct coll_settings *settings,
                                    const struct coll_identity *id, void *mine, void *all, size_t len_bytes,
                                    struct coll_error_box *err)
{
	const uint64_t begun_ns = id->begun_ns ? id->begun_ns : coll_clock_ns();
	struct coll_rendezvous_point m = {
	        .rank = id->rank,
	        .size = id->size,
	        .key = {id->job_key[0], id->job_key[1]},
	        .keyed = coll_identity_has_secret(id),
	        .deadline_ns = begun_ns + (uint64_t)settings->create_timeout_ms * 1000000u,
	        .settings = settings,
	        .mine = mine,
	        .met = id->met,
	        .complete = id->complete,
	        .complete_arg = id->complete_arg,
	        .untold = id->untold,
	        .all = all,
	        .len_bytes = len_bytes,
	};
	struct coll_meeting_files files = {0};
	coll_status st;

	if (cfg && cfg->exchange) {
		if (cfg->exchange(cfg->exchange_arg, mine, all, len_bytes) == 0)
			return COLL_OK;
		return coll_error_set(err, COLL_ERR_BOOTSTRAP, "coll_config.exchange failed");
	}
	if (id->size == 1) {
		if (cfg && cfg->id)
			coll_id_give_up(cfg->id); /* a job of one rank meets nobody */
		memcpy(all, mine, len_bytes);
		return COLL_OK;
	}
	errno = 0;
	st = prepare(cfg, id, &m, &files, err);
	if (id->untold) /* what else keeps rank 0 from listening keeps it from telling, too */
		*id->untold = st != COLL_OK && coll_errno_is_shortage(errno);
	if (st == COLL_OK)
		st = coll_rendezvous(&m, err);
	coll_meeting_remove(&files);
	/* This process may end after the call, and must not take the meeting of the others with it. */
	if (st == COLL_OK && m.hosted)
		coll_id_host_await(m.key, m.deadline_ns);
	coll_rendezvous_unlisten(&m.listeners);
	coll_id_exchanged(id, st);
	return st;
}

void coll_bootstrap_absent(const coll_config *cfg, const struct coll_settings *settings, const struct coll_identity *id,
                           const struct coll_absent *why)
{
	struct coll_rendezvous_point m = {
	        .rank = id->rank,
	        .size = id->size,
	        .key = {id->job_key[0], id->job_key[1]},
	        .keyed = coll_identity_has_secret(id),
	        .deadline_ns = coll_clock_ns() + COLL_DELAY_NS(RENDEZVOUS_TELL),
	        .settings = settings,
	        .absent = why,
	};
	struct coll_meeting_files files = {0};
	struct coll_error_box err;
	char nothing;

	m.mine = m.all = &nothing;
	coll_error_clear(&err);
	if (prepare(cfg, id, &m, &files, &err) == COLL_OK)
		coll_rendezvous(&m, &err);
	coll_meeting_remove(&files);
	if (m.hosted) /* by this process: it ends when it has told those who come */
		coll_id_host_await(m.key, coll_clock_ns() + COLL_DELAY_NS(RENDEZVOUS_LATE));
	coll_rendezvous_unlisten(&m.listeners);
	coll_id_exchanged(id, why->status);
}
