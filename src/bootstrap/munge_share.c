/*
 * The store of MUNGE (munge_share.h). Rank 0 takes the first free port of those that the public words of the job
 * choose, and a thread hands its credential to everybody who connects: only ranks of this user can open it. The thread
 * reads nothing and holds one connection at a time, so strangers cost it one send each. The others try the ports in
 * turn; what they find counts if this user sealed it for this job.
 *
 * The thread ends when the ranks have met, or at the deadline. Not here: the meeting itself (exchange.c), and what a
 * credential is (munge.h).
 */
#include "bootstrap/munge_share.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/interrupt.h"
#include "base/thread.h"
#include "bootstrap/listeners.h"
#include "bootstrap/munge.h"
#include "bootstrap/resolve.h"

enum { TEXT_BYTES = 512, WHY_BYTES = 200 };

struct service {
	struct coll_rendezvous_listeners listeners;
	uint64_t deadline_ns;
	char credential[COLL_CREDENTIAL_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Under lock; its thread frees it. A fork has no thread, and its descriptors are closed. */
static struct service *running;
static uint32_t running_mark;

/* ---- Rank 0 ------------------------------------------------------------- */

static void hand_over(const struct service *s, int listener)
{
	const int fd = COLL_FD(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));

	if (fd < 0) { /* no descriptor is free: whoever came waits in the queue */
		poll(NULL, 0, COLL_DELAY_RENDEZVOUS_LISTEN_AGAIN_MS);
		return;
	}
	/* It fits in the empty buffer of a socket. */
	send(fd, s->credential, strlen(s->credential), MSG_NOSIGNAL);
	coll_fd_close(fd);
}

static void serve(const struct service *s)
{
	struct pollfd p[COLL_RENDEZVOUS_LISTENERS];
	bool shut = false;

	for (int i = 0; i < s->listeners.count; i++)
		p[i] = (struct pollfd){.fd = s->listeners.fd[i], .events = POLLIN};
	while (!shut && coll_clock_ns() < s->deadline_ns) {
		poll(p, (nfds_t)s->listeners.count, (int)((s->deadline_ns - coll_clock_ns()) / COLL_NS_PER_MS) + 1);
		for (int i = 0; i < s->listeners.count && !shut; i++) {
			shut = p[i].revents & (POLLHUP | POLLERR | POLLNVAL);
			if (!shut && p[i].revents)
				hand_over(s, p[i].fd);
		}
	}
}

static void *run(void *arg)
{
	struct service *s = arg;

	serve(s);
	pthread_mutex_lock(&lock);
	if (running == s)
		running = NULL;
	pthread_mutex_unlock(&lock);
	coll_rendezvous_unlisten(&s->listeners);
	free(s);
	return NULL;
}

void coll_munge_share_end(void)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; running && coll_fork_owns(running_mark) && i < running->listeners.count; i++)
		shutdown(running->listeners.fd[i], SHUT_RDWR); /* wakes its thread */
	running = NULL;
	pthread_mutex_unlock(&lock);
}

static coll_status start(struct service *s, struct coll_error_box *err)
{
	pthread_t thread;
	int e;

	pthread_mutex_lock(&lock);
	running = s;
	running_mark = coll_fork_mark();
	e = coll_thread_start(&thread, COLL_THREAD_STACK_BYTES, run, s);
	if (e)
		running = NULL;
	else
		pthread_detach(thread);
	pthread_mutex_unlock(&lock);
	return e ? coll_error_set(err, COLL_ERR_SYSTEM, "cannot start the thread that hands the key to other ranks: %s",
	                          coll_errno_thread(e).text)
	         : COLL_OK;
}

static coll_status listen_for_ranks(const struct coll_settings *settings, const struct coll_identity *who,
                                    const uint16_t ports[COLL_RENDEZVOUS_PORTS], struct service *s,
                                    struct coll_error_box *err)
{
	struct coll_ips at;
	const coll_status st = coll_rendezvous_root_addresses(settings, who->root_host, &at, err);
	uint16_t real;

	if (st != COLL_OK && st != COLL_AGAIN)
		return st;
	errno = EADDRNOTAVAIL;
	for (int i = 0; st == COLL_OK && i < COLL_RENDEZVOUS_PORTS; i++)
		if (coll_rendezvous_listen(&s->listeners, &at, ports[i], ports[i], &real))
			return COLL_OK;
	return coll_error_set(err, COLL_ERR_BOOTSTRAP, "[COLL-4202] rank 0 cannot listen at %s, ports %u, %u ...: %s",
	                      who->root_host, ports[0], ports[1], coll_errno_text(errno).text);
}

static coll_status give(const struct coll_settings *settings, const struct coll_identity *who,
                        const uint16_t ports[COLL_RENDEZVOUS_PORTS], const char *text, uint64_t deadline_ns,
                        struct coll_error_box *err)
{
	struct service *s = calloc(1, sizeof(*s));
	char why[WHY_BYTES];
	coll_status st;

	if (!s)
		return coll_error_set(err, COLL_ERR_MEMORY, "no memory for the key of the job");
	s->deadline_ns = deadline_ns;
	if (coll_munge_seal(text, s->credential, why, sizeof(why)))
		st = listen_for_ranks(settings, who, ports, s, err);
	else
		st = coll_error_set(err, COLL_ERR_BOOTSTRAP,
		                    "[COLL-1119] %s: start with srun --mpi=pmi2, or make a key file", why);
	if (st == COLL_OK)
		st = start(s, err);
	if (st != COLL_OK) {
		coll_rendezvous_unlisten(&s->listeners);
		free(s);
	}
	return st;
}

/* ---- The others --------------------------------------------------------- */

/* Wait for events, until_ns at most. False: nothing has come. */
static bool wait_for(int fd, short events, uint64_t until_ns)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
		const uint64_t now = coll_clock_ns();
		const int left_ms = now < until_ns ? (int)((until_ns - now) / COLL_NS_PER_MS) + 1 : 0;
		const int ready = poll(&p, 1, coll_interrupt_limit_ms(left_ms));

		if (ready > 0)
			return true;
		if (coll_interrupt_here(ready < 0) || coll_clock_ns() >= until_ns)
			return false;
	}
}

/* What stands at a place, up to its end. */
static bool read_place(int fd, const struct coll_address *a, uint64_t until_ns, char *text, size_t cap)
{
	int error = 0;
	socklen_t len = sizeof(error);
	size_t n = 0;

	if (connect(fd, (const struct sockaddr *)&a->at, a->len) < 0 && errno != EINPROGRESS)
		return false;
	if (!wait_for(fd, POLLOUT, until_ns)) {
		errno = ETIMEDOUT;
		return false;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error) {
		errno = error ? error : errno;
		return false;
	}
	while (n < cap - 1) {
		const ssize_t got = recv(fd, text + n, cap - 1 - n, 0);

		if (got < 0 && errno == EAGAIN && wait_for(fd, POLLIN, until_ns))
			continue;
		if (got < 0)
			return false;
		if (got == 0)
			break;
		n += (size_t)got;
	}
	text[n] = 0;
	return true;
}

/* Who sealed it, for which job: "libcoll SEED SIZE TEXT". */
static void wrap(const struct coll_identity *who, const char *text, char *wrapped, size_t cap)
{
	snprintf(wrapped, cap, "libcoll %016" PRIx64 " %d %s", who->port_seed, who->size, text);
}

static bool unwrap(const struct coll_identity *who, const char *wrapped, char *text, size_t cap)
{
	char head[80];

	wrap(who, "", head, sizeof(head));
	if (strncmp(wrapped, head, strlen(head)) != 0)
		return false;
	return (size_t)snprintf(text, cap, "%s", wrapped + strlen(head)) < cap;
}

static bool ask_place(const struct coll_identity *who, const struct coll_address *a, uint64_t deadline_ns, char *text,
                      size_t cap, char *why)
{
	const uint64_t try_ns = coll_clock_ns() + COLL_DELAY_NS(ROOT_TRY_PORT);
	const int fd = COLL_FD(socket(a->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	char credential[COLL_CREDENTIAL_BYTES], wrapped[TEXT_BYTES], at[80], said[WHY_BYTES / 2];
	bool there = fd >= 0 &&
	             read_place(fd, a, try_ns < deadline_ns ? try_ns : deadline_ns, credential, sizeof(credential));
	bool mine = false;

	coll_address_text(a, at, sizeof(at));
	if (!there) {
		if (!*why || errno != ECONNREFUSED) /* a stranger's port says less */
			snprintf(why, WHY_BYTES, "%.60s: %.100s", at, coll_errno_text(errno).text);
	} else if (!coll_munge_open(credential, wrapped, sizeof(wrapped), said, sizeof(said))) {
		snprintf(why, WHY_BYTES, "%.60s: %.100s", at, said);
	} else {
		mine = unwrap(who, wrapped, text, cap);
		if (!mine)
			snprintf(why, WHY_BYTES, "%.60s: another job of this user", at);
		explicit_bzero(wrapped, sizeof(wrapped));
	}
	if (fd >= 0)
		coll_fd_close(fd);
	return mine;
}

static bool ask_host(const struct coll_identity *who, const uint16_t ports[COLL_RENDEZVOUS_PORTS], uint64_t deadline_ns,
                     char *text, size_t cap, char *why)
{
	struct coll_places places = {0};

	if (!coll_resolve(who->root_host, 0, deadline_ns, &places, why, WHY_BYTES))
		return false;
	for (int k = 0; k < COLL_RENDEZVOUS_PORTS; k++) {
		for (int i = 0; i < places.count; i++) {
			if (coll_clock_ns() >= deadline_ns || coll_interrupt_here(false))
				return false;
			coll_address_set_port(&places.place[i], ports[k]);
			if (ask_place(who, &places.place[i], deadline_ns, text, cap, why))
				return true;
		}
	}
	return false;
}

static coll_status take(const struct coll_identity *who, const uint16_t ports[COLL_RENDEZVOUS_PORTS], char *text,
                        size_t cap, uint64_t deadline_ns, struct coll_error_box *err)
{
	int pause_ms = COLL_DELAY_ROOT_PAUSE_MIN_MS;
	char why[WHY_BYTES] = "";

	while (!ask_host(who, ports, deadline_ns, text, cap, why)) {
		const struct timespec pause = {0, pause_ms * (long)COLL_NS_PER_MS};

		if (coll_interrupt_here(false))
			return coll_error_set(err, COLL_ERR_ABORTED, "[COLL-3301] rank %d was interrupted", who->rank);
		if (coll_clock_ns() >= deadline_ns) {
			if (err)
				err->rank = 0;
			return coll_error_set(
			        err, COLL_ERR_BOOTSTRAP,
			        "[COLL-4203] rank 0 hands out no key at %.100s, ports %u, %u ... (%s): it has "
			        "not started, or has another secret than munge, a key file for one",
			        who->root_host, ports[0], ports[1], why);
		}
		nanosleep(&pause, NULL);
		pause_ms = 2 * pause_ms < COLL_DELAY_ROOT_PAUSE_MAX_MS ? 2 * pause_ms : COLL_DELAY_ROOT_PAUSE_MAX_MS;
	}
	return COLL_OK;
}

/* ---- All ---------------------------------------------------------------- */

coll_status coll_munge_share(const struct coll_settings *settings, const struct coll_identity *who, char *text,
                             size_t cap, uint64_t deadline_ns, struct coll_error_box *err)
{
	uint16_t ports[COLL_RENDEZVOUS_PORTS], first, last;
	char wrapped[TEXT_BYTES];
	coll_status st = coll_port_range(settings, &first, &last, err);

	if (st != COLL_OK)
		return st;
	coll_rendezvous_ports(who->port_seed, who->root_port, first, last, ports);
	if (who->rank > 0)
		return take(who, ports, text, cap, deadline_ns, err);
	wrap(who, text, wrapped, sizeof(wrapped));
	st = give(settings, who, ports, wrapped, deadline_ns, err);
	explicit_bzero(wrapped, sizeof(wrapped));
	return st;
}
