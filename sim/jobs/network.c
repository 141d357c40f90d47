/*
 * The simulated network: see network.h. It owns the descriptors of all simulated processes, numbered
 * from FIRST_FD; a descriptor of the system is never ready here. Invariant: what two ends share is
 * reached through end->peer, which is NULL as soon as the other end is closed. Bytes are never lost
 * or reordered, as in TCP; they are late, or held up by a cut.
 */
#include "sim/jobs/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/hash.h"
#include "net/net.h"

enum { FIRST_FD = 1 << 20, FILES_MAX = 1 << 18, BUFFER_BYTES = 128 << 10, HOSTS_MAX = 4096 };
static const uint64_t US = 1000, MS = 1000000;

enum kind { EVENT, TIMER, EPOLL, SOCKET, LISTENER, STREAM, PROCESS };

struct watch {
	struct watch *next;
	struct file *file;
	struct epoll_event event;
};

struct segment {
	struct segment *next;
	uint64_t at_ns, sent_ns;
	size_t len_bytes, read_bytes;
	char bytes[];
};

struct file {
	enum kind kind;
	struct sim_process *owner;
	int fd;
	uint64_t serial;
	bool waits;             /* a read waits: not O_NONBLOCK */
	uint64_t count;         /* EVENT */
	uint64_t due_ns;        /* TIMER; SIM_NEVER: not set */
	struct sim_process *of; /* PROCESS */
	struct watch *watches;
	/* Sockets. */
	int family;
	struct sockaddr_storage address; /* bound, or being connected to */
	struct file *backlog, *next;     /* LISTENER: accepted next; and the next of these */
	struct file *peer;
	bool connecting;
	unsigned asked_again_s; /* while connecting, 0: not yet */
	uint64_t came_ns;       /* on a backlog: since when */
	int error;
	struct segment *in, **in_end;
	size_t in_bytes;
	uint64_t last_ns;          /* the last segment arrives then */
	uint64_t fin_ns, reset_ns; /* SIM_NEVER: not */
	int reset_error;
	unsigned user_ms, idle_ms;
	uint64_t heard_ns;
};

static struct file *files[FILES_MAX];
static int nfiles;
static uint64_t serials;
static bool cut_off[HOSTS_MAX], leaves[HOSTS_MAX], is_deaf[HOSTS_MAX], is_mute[HOSTS_MAX], is_full[HOSTS_MAX];
static int side_of[HOSTS_MAX];
static unsigned calls_left[HOSTS_MAX]; /* of a process, before it dies; 0: it lives on */
static bool shows_ends;
static uint16_t next_port = 20000;

/* ---- Descriptors ---- */

static struct file *file_of(int fd)
{
	return fd >= FIRST_FD && fd < FIRST_FD + nfiles ? files[fd - FIRST_FD] : NULL;
}

static int add_file(enum kind kind, struct file **out)
{
	struct file *f = calloc(1, sizeof(*f));

	if (!f || nfiles == FILES_MAX) {
		free(f);
		errno = EMFILE;
		return -1;
	}
	f->kind = kind;
	f->owner = sim_process_self();
	f->fd = FIRST_FD + nfiles;
	f->serial = ++serials;
	f->due_ns = f->fin_ns = f->reset_ns = SIM_NEVER;
	f->reset_error = ECONNRESET;
	f->in_end = &f->in;
	files[nfiles++] = f;
	*out = f;
	return f->fd;
}

static int host_of(const struct sim_process *p)
{
	return (int)sim_process_number(p) % HOSTS_MAX;
}

static uint64_t delay_ns(int family)
{
	if (family == AF_UNIX)
		return 2 * US + sim_below(20 * US);
	return 20 * US + sim_below(sim_below(50) == 0 ? 3 * MS : 150 * US);
}

/* ---- Streams ---- */

/* What is sent from one host to another does not arrive. */
static bool is_blocked(int to, int from)
{
	return to != from &&
	       (cut_off[to] || cut_off[from] || side_of[to] != side_of[from] || is_deaf[to] || is_mute[from]);
}

bool sim_network_is_cut(const struct sim_process *a, const struct sim_process *b)
{
	return is_blocked(host_of(a), host_of(b)) || is_blocked(host_of(b), host_of(a));
}

static bool is_held_up(const struct file *to, const struct file *from)
{
	return to->family != AF_UNIX && is_blocked(host_of(to->owner), host_of(from->owner));
}

/* Whether the process that runs dies in this call. */
static bool is_last_call(void)
{
	unsigned *left = &calls_left[host_of(sim_process_self())];

	return *left > 0 && --*left == 0;
}

static void die(void)
{
	sim_process_end(sim_process_self(), SIGKILL);
}

static uint64_t arrival(struct file *to, const struct file *from)
{
	uint64_t at;

	if (is_held_up(to, from))
		return SIM_NEVER;
	at = sim_now_ns() + delay_ns(to->family);
	if (at < to->last_ns && to->last_ns != SIM_NEVER)
		at = to->last_ns;
	to->last_ns = at;
	return at;
}

static void nothing(void *arg)
{
	(void)arg;
}

/* Time stops there, so that whoever waits for it looks. */
static void stop_at(uint64_t ns)
{
	if (ns != SIM_NEVER)
		sim_at(ns, nothing, NULL);
}

static void fail_stream(struct file *f, int error)
{
	f->error = error;
	f->connecting = false;
	if (f->peer) {
		f->peer->peer = NULL;
		f->peer = NULL;
	}
}

/* Without an acknowledgement, until the kernel gives up. */
static uint64_t patience_ms(const struct file *f)
{
	return f->user_ms ? f->user_ms : 130 * 1000;
}

/* What its peer reads when an end is closed: an end, or a reset where bytes were not read. */
static void end_stream(struct file *f)
{
	struct file *p = f->peer;

	if (!p)
		return;
	f->peer = NULL;
	p->peer = NULL;
	if (is_held_up(p, f)) {
		/* Nobody hears of it: the other kernel gives up. */
		p->reset_ns = sim_now_ns() + patience_ms(p) * MS;
		p->reset_error = ETIMEDOUT;
		stop_at(p->reset_ns);
		return;
	}
	if (f->in && f->family != AF_UNIX)
		p->reset_ns = arrival(p, f); /* behind what was sent before */
	else
		p->fin_ns = arrival(p, f);
	stop_at(p->fin_ns < p->reset_ns ? p->fin_ns : p->reset_ns);
}

static void drop_segments(struct file *f)
{
	while (f->in) {
		struct segment *s = f->in;

		f->in = s->next;
		free(s);
	}
	f->in_end = &f->in;
	f->in_bytes = 0;
}

static void close_file(struct file *f)
{
	files[f->fd - FIRST_FD] = NULL;
	while (f->watches) {
		struct watch *w = f->watches;

		f->watches = w->next;
		free(w);
	}
	while (f->backlog) {
		struct file *b = f->backlog;

		f->backlog = b->next;
		close_file(b);
	}
	end_stream(f);
	drop_segments(f);
	free(f);
}

static struct segment *first_segment(const struct file *f)
{
	return f->in && f->in->at_ns <= sim_now_ns() ? f->in : NULL;
}

static uint32_t readiness(const struct file *f);

static bool is_ready(const struct file *f, uint32_t wanted)
{
	return readiness(f) & (wanted | EPOLLERR | EPOLLHUP);
}

static uint32_t stream_readiness(const struct file *f)
{
	uint32_t r = 0;
	const uint64_t now = sim_now_ns();

	if (f->connecting)
		return 0;
	if (f->error || f->reset_ns <= now)
		r |= EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP;
	if (first_segment(f))
		r |= EPOLLIN;
	if (f->fin_ns <= now)
		r |= EPOLLIN | EPOLLRDHUP;
	if (!f->peer || f->peer->in_bytes < BUFFER_BYTES)
		r |= EPOLLOUT;
	return r;
}

static uint32_t epoll_readiness(const struct file *f)
{
	for (const struct watch *w = f->watches; w; w = w->next)
		if (is_ready(w->file, w->event.events))
			return EPOLLIN;
	return 0;
}

static uint32_t readiness(const struct file *f)
{
	switch (f->kind) {
	case EVENT: return EPOLLOUT | (f->count > 0 ? EPOLLIN : 0u);
	case TIMER: return f->due_ns <= sim_now_ns() ? EPOLLIN : 0;
	case EPOLL: return epoll_readiness(f);
	case PROCESS: return sim_process_lives(f->of) ? 0 : EPOLLIN;
	case LISTENER: return f->backlog && f->backlog->came_ns <= sim_now_ns() ? EPOLLIN : 0;
	case STREAM: return stream_readiness(f);
	default: return EPOLLOUT | EPOLLHUP;
	}
}

/* ---- Sockets ---- */

static int net_socket(int domain, int type, int protocol)
{
	struct file *f;
	const int fd = add_file(SOCKET, &f);

	(void)type, (void)protocol;
	if (fd >= 0)
		f->family = domain;
	return fd;
}

static int net_bind(int fd, const struct sockaddr *address, socklen_t len_bytes)
{
	struct file *f = file_of(fd);

	memcpy(&f->address, address, len_bytes);
	if (f->family == AF_INET6 && ((struct sockaddr_in6 *)&f->address)->sin6_port == 0)
		((struct sockaddr_in6 *)&f->address)->sin6_port = htons(next_port++);
	if (f->family == AF_INET && ((struct sockaddr_in *)&f->address)->sin_port == 0)
		((struct sockaddr_in *)&f->address)->sin_port = htons(next_port++);
	return 0;
}

static int net_listen(int fd, int backlog)
{
	(void)backlog;
	file_of(fd)->kind = LISTENER;
	return 0;
}

static int net_accept(int fd, int flags)
{
	struct file *l = file_of(fd), *f = l->backlog;

	(void)flags;
	if (!f || f->came_ns > sim_now_ns()) {
		errno = EAGAIN;
		return -1;
	}
	l->backlog = f->next;
	f->next = NULL;
	return f->fd;
}

static int port_of(const struct sockaddr_storage *a)
{
	return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
	                                      : ((const struct sockaddr_in *)a)->sin_port);
}

/* Who has this address: 10.0.high.low of the host. */
static int host_at(const struct sockaddr_storage *a)
{
	return (int)(ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) & 0xffff);
}

static struct file *find_listener(const struct sockaddr_storage *a)
{
	for (int i = 0; i < nfiles; i++) {
		struct file *f = files[i];

		if (!f || f->kind != LISTENER)
			continue;
		if (a->ss_family == AF_UNIX && f->family == AF_UNIX &&
		    strcmp(((const struct sockaddr_un *)a)->sun_path + 1,
		           ((const struct sockaddr_un *)&f->address)->sun_path + 1) == 0)
			return f;
		if (a->ss_family != AF_UNIX && f->family != AF_UNIX && port_of(a) == port_of(&f->address) &&
		    host_at(a) == host_of(f->owner))
			return f;
	}
	return NULL;
}

static void establish(struct file *f, struct file *listener)
{
	struct file *s, **at = &listener->backlog;

	if (add_file(STREAM, &s) < 0)
		abort();
	s->owner = listener->owner;
	s->family = f->family;
	s->peer = f;
	s->came_ns = sim_now_ns();
	s->heard_ns = f->heard_ns = sim_now_ns();
	f->peer = s;
	f->connecting = false;
	while (*at)
		at = &(*at)->next;
	*at = s;
}

static void finish_connect(void *arg)
{
	const uint64_t serial = (uint64_t)(uintptr_t)arg;
	struct file *f = NULL, *l;
	int host;

	for (int i = 0; i < nfiles && !f; i++)
		if (files[i] && files[i]->serial == serial)
			f = files[i];
	if (!f || !f->connecting)
		return;
	host = host_at(&f->address);
	if (is_blocked(host, host_of(f->owner)) || is_blocked(host_of(f->owner), host)) {
		/* Nobody answers; a kernel asks again after 1, 2, 4 ... seconds. */
		f->asked_again_s = f->asked_again_s ? 2 * f->asked_again_s : 1;
		sim_at(sim_now_ns() + f->asked_again_s * 1000 * MS, finish_connect, arg);
		return;
	}
	l = find_listener(&f->address);
	if (l)
		establish(f, l);
	else
		fail_stream(f, leaves[host] ? EHOSTUNREACH : ECONNREFUSED);
}

static int net_connect(int fd, const struct sockaddr *address, socklen_t len_bytes)
{
	struct file *f = file_of(fd), *l;

	memcpy(&f->address, address, len_bytes);
	f->kind = STREAM;
	if (is_last_call())
		die();
	if (f->family == AF_UNIX) {
		l = find_listener(&f->address);
		if (!l || is_full[host_of(l->owner)]) {
			errno = l ? EAGAIN : ECONNREFUSED;
			return -1;
		}
		establish(f, l);
		return 0;
	}
	f->connecting = true;
	sim_at(sim_now_ns() + 2 * delay_ns(f->family), finish_connect, (void *)(uintptr_t)f->serial);
	errno = EINPROGRESS;
	return -1;
}

static int net_getsockname(int fd, struct sockaddr *address, socklen_t *len_bytes)
{
	const struct file *f = file_of(fd);

	memcpy(address, &f->address, *len_bytes < sizeof(f->address) ? *len_bytes : sizeof(f->address));
	return 0;
}

static int net_getpeername(int fd, struct sockaddr *address, socklen_t *len_bytes)
{
	const struct file *f = file_of(fd);
	const struct sockaddr_in in = {.sin_family = AF_INET,
	                               .sin_addr.s_addr =
	                                       htonl(0x0a000000u | (f->peer ? (uint32_t)host_of(f->peer->owner) : 0))};

	if (!f->peer || f->family == AF_UNIX) {
		errno = ENOTCONN;
		return -1;
	}
	memcpy(address, &in, *len_bytes < sizeof(in) ? *len_bytes : sizeof(in));
	return 0;
}

static int net_getsockopt(int fd, int level, int option, void *value, socklen_t *len_bytes)
{
	struct file *f = file_of(fd);
	int *v = value;

	(void)level, (void)len_bytes;
	*v = option == SO_DOMAIN ? f->family : f->error;
	return 0;
}

static int net_setsockopt(int fd, int level, int option, const void *value, socklen_t len_bytes)
{
	struct file *f = file_of(fd);

	(void)len_bytes;
	if (level == IPPROTO_TCP && option == TCP_USER_TIMEOUT)
		f->user_ms = (unsigned)*(const int *)value;
	if (level == IPPROTO_TCP && option == TCP_KEEPIDLE)
		f->idle_ms = 1000u * (unsigned)*(const int *)value;
	return 0;
}

static ssize_t net_send(int fd, const void *bytes, size_t len_bytes, int flags)
{
	struct file *f = file_of(fd), *p = f->peer;
	const bool last = is_last_call();
	struct segment *s;

	(void)flags;
	if (last && (!p || (len_bytes = sim_below(len_bytes + 1)) == 0))
		die();
	if (f->error || f->reset_ns <= sim_now_ns() || (!p && f->family == AF_UNIX)) {
		errno = f->error ? f->error : f->family == AF_UNIX ? EPIPE : f->reset_error;
		return -1;
	}
	if (f->connecting || (p && p->in_bytes >= BUFFER_BYTES)) {
		errno = EAGAIN;
		return -1;
	}
	if (!p) {
		/* The other end is closed, which this one has not read yet: it answers with a reset. */
		if (f->reset_ns == SIM_NEVER && f->fin_ns != SIM_NEVER) {
			f->reset_ns = (f->fin_ns > sim_now_ns() ? f->fin_ns : sim_now_ns()) + 2 * delay_ns(f->family);
			stop_at(f->reset_ns);
		}
		return (ssize_t)len_bytes;
	}
	s = malloc(sizeof(*s) + len_bytes);
	if (!s)
		abort();
	*s = (struct segment){.at_ns = arrival(p, f), .sent_ns = sim_now_ns(), .len_bytes = len_bytes};
	memcpy(s->bytes, bytes, len_bytes);
	*p->in_end = s;
	p->in_end = &s->next;
	p->in_bytes += len_bytes;
	stop_at(s->at_ns);
	if (last)
		die();
	return (ssize_t)len_bytes;
}

static ssize_t net_recv(int fd, void *bytes, size_t len_bytes, int flags)
{
	struct file *f = file_of(fd);
	struct segment *s = first_segment(f);
	size_t n;

	if (is_last_call())
		die();
	if (s) {
		n = s->len_bytes - s->read_bytes < len_bytes ? s->len_bytes - s->read_bytes : len_bytes;
		memcpy(bytes, s->bytes + s->read_bytes, n);
		if (flags & MSG_PEEK)
			return (ssize_t)n;
		s->read_bytes += n;
		f->in_bytes -= n;
		f->heard_ns = sim_now_ns();
		if (s->read_bytes == s->len_bytes) {
			f->in = s->next;
			if (!f->in)
				f->in_end = &f->in;
			free(s);
		}
		return (ssize_t)n;
	}
	if (f->error || f->reset_ns <= sim_now_ns()) {
		errno = f->error ? f->error : f->reset_error;
		return -1;
	}
	if (f->fin_ns <= sim_now_ns())
		return 0;
	errno = EAGAIN;
	return -1;
}

/* ---- Interfaces ---- */

struct interface {
	struct ifaddrs entry;
	struct sockaddr_in address;
	char name[8];
};

static int net_getifaddrs(struct ifaddrs **all)
{
	struct interface *i = calloc(1, sizeof(*i));

	if (!i)
		return -1;
	strcpy(i->name, "eth0");
	i->address.sin_family = AF_INET;
	i->address.sin_addr.s_addr = htonl(0x0a000000u | (uint32_t)host_of(sim_process_self()));
	i->entry.ifa_name = i->name;
	i->entry.ifa_flags = IFF_UP;
	i->entry.ifa_addr = (struct sockaddr *)&i->address;
	*all = &i->entry;
	return 0;
}

static void net_freeifaddrs(struct ifaddrs *all)
{
	free(all);
}

/* ---- Readiness ---- */

static int net_epoll_create(int flags)
{
	struct file *f;

	(void)flags;
	return add_file(EPOLL, &f);
}

static int net_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
	struct file *f = file_of(epoll), *of = file_of(fd);
	struct watch **at = &f->watches;

	while (*at && (*at)->file != of)
		at = &(*at)->next;
	if (!of || (what == EPOLL_CTL_ADD) == (*at != NULL)) {
		errno = what == EPOLL_CTL_ADD ? EEXIST : ENOENT;
		return -1;
	}
	if (what == EPOLL_CTL_DEL) {
		struct watch *w = *at;

		*at = w->next;
		free(w);
		return 0;
	}
	if (what == EPOLL_CTL_ADD) {
		*at = calloc(1, sizeof(**at));
		if (!*at)
			abort();
		(*at)->file = of;
	}
	(*at)->event = *event;
	return 0;
}

/* Ready ones in a seeded order. */
static int collect(const struct file *f, struct epoll_event *events, int max)
{
	int n = 0;

	for (const struct watch *w = f->watches; w; w = w->next) {
		const uint32_t r = readiness(w->file) & (w->event.events | EPOLLERR | EPOLLHUP);

		if (r && n < max) {
			events[n] = (struct epoll_event){.events = r, .data = w->event.data};
			n++;
		}
	}
	for (int i = n - 1; i > 0; i--) {
		const int k = (int)sim_below((uint64_t)i + 1);
		const struct epoll_event e = events[i];

		events[i] = events[k];
		events[k] = e;
	}
	return n;
}

static bool epoll_is_ready(void *arg)
{
	return epoll_readiness(arg) != 0;
}

static uint64_t deadline(int timeout_ms)
{
	return timeout_ms < 0 ? SIM_NEVER : sim_now_ns() + (uint64_t)timeout_ms * MS;
}

static int net_epoll_wait(int epoll, struct epoll_event *events, int max, int timeout_ms)
{
	struct file *f = file_of(epoll);

	if (timeout_ms != 0 && !epoll_readiness(f))
		sim_wait(epoll_is_ready, f, deadline(timeout_ms));
	return collect(f, events, max);
}

struct polled {
	struct pollfd *fds;
	nfds_t n;
};

static int look(struct pollfd *fds, nfds_t n)
{
	int ready = 0;

	for (nfds_t i = 0; i < n; i++) {
		const struct file *f = file_of(fds[i].fd);

		fds[i].revents = f ? (short)(readiness(f) & ((uint32_t)fds[i].events | POLLERR | POLLHUP)) : 0;
		ready += fds[i].revents != 0;
	}
	return ready;
}

static bool poll_is_ready(void *arg)
{
	const struct polled *p = arg;

	for (nfds_t i = 0; i < p->n; i++) {
		const struct file *f = file_of(p->fds[i].fd);

		if (f && is_ready(f, (uint32_t)p->fds[i].events))
			return true;
	}
	return false;
}

static int net_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	struct polled p = {fds, n};

	if (timeout_ms != 0 && !poll_is_ready(&p))
		sim_wait(poll_is_ready, &p, deadline(timeout_ms));
	else
		sim_preempt();
	return look(fds, n);
}

/* ---- Wake-ups and timers ---- */

static int net_eventfd(unsigned value, int flags)
{
	struct file *f;
	const int fd = add_file(EVENT, &f);

	if (fd >= 0) {
		f->count = value;
		f->waits = !(flags & O_NONBLOCK);
	}
	return fd;
}

static int net_process_open(pid_t process)
{
	struct sim_process *of = sim_process_find(process);
	struct file *f;
	int fd;

	if (!shows_ends || !of) {
		errno = shows_ends ? ESRCH : ENOSYS;
		return -1;
	}
	fd = add_file(PROCESS, &f);
	if (fd >= 0)
		f->of = of;
	return fd;
}

static int net_timerfd_create(int clock, int flags)
{
	struct file *f;
	const int fd = add_file(TIMER, &f);

	(void)clock;
	if (fd >= 0)
		f->waits = !(flags & TFD_NONBLOCK);
	return fd;
}

static int net_timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *was)
{
	struct file *f = file_of(fd);
	const uint64_t ns = (uint64_t)when->it_value.tv_sec * 1000 * MS + (uint64_t)when->it_value.tv_nsec;

	(void)flags, (void)was;
	f->due_ns = ns ? sim_now_ns() + ns : SIM_NEVER;
	stop_at(f->due_ns);
	return 0;
}

static bool file_is_ready(void *arg)
{
	return readiness(arg) & EPOLLIN;
}

static ssize_t net_read(int fd, void *bytes, size_t len_bytes)
{
	struct file *f = file_of(fd);
	uint64_t *count = bytes;

	if (!f)
		return read(fd, bytes, len_bytes);
	if (f->waits && !file_is_ready(f))
		sim_wait(file_is_ready, f, SIM_NEVER);
	if (!file_is_ready(f)) {
		errno = EAGAIN;
		return -1;
	}
	*count = f->kind == TIMER ? 1 : f->count;
	f->count = 0;
	f->due_ns = SIM_NEVER;
	return sizeof(*count);
}

static ssize_t net_write(int fd, const void *bytes, size_t len_bytes)
{
	struct file *f = file_of(fd);

	if (!f)
		return write(fd, bytes, len_bytes);
	f->count += *(const uint64_t *)bytes;
	return (ssize_t)len_bytes;
}

static void forget_watches(const struct file *of)
{
	for (int i = 0; i < nfiles; i++) {
		struct watch **at = files[i] ? &files[i]->watches : NULL;

		while (at && *at) {
			struct watch *w = *at;

			if (w->file != of) {
				at = &w->next;
				continue;
			}
			*at = w->next;
			free(w);
		}
	}
}

static int net_close(int fd)
{
	struct file *f = file_of(fd);

	if (!f)
		return fd >= FIRST_FD ? -1 : close(fd);
	forget_watches(f);
	close_file(f);
	return 0;
}

/* ---- The processor ---- */

static int net_yield(void)
{
	sim_yield();
	return 0;
}

static int net_sleep(const struct timespec *time, struct timespec *left)
{
	(void)left;
	sim_sleep((uint64_t)time->tv_sec * 1000 * MS + (uint64_t)time->tv_nsec);
	return 0;
}

static int net_thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *arg), void *arg)
{
	(void)stack_bytes;
	*thread = (pthread_t)(uintptr_t)sim_thread_start(sim_process_self(), run, arg);
	return 0;
}

static int net_thread_join(pthread_t thread, void **result)
{
	void *r = sim_thread_join((struct sim_thread *)(uintptr_t)thread);

	if (result)
		*result = r;
	return 0;
}

static ssize_t net_random(void *bytes, size_t len_bytes, unsigned flags)
{
	(void)flags;
	for (size_t i = 0; i < len_bytes; i++)
		((unsigned char *)bytes)[i] = (unsigned char)sim_below(256);
	return (ssize_t)len_bytes;
}

/* ---- What happens to processes and hosts ---- */

static void process_ended(struct sim_process *p)
{
	for (int i = 0; i < nfiles; i++)
		if (files[i] && files[i]->owner == p)
			net_close(files[i]->fd);
}

/* A kernel gives a connection up when the other host has acknowledged nothing for so long. */
static void check_cut(void *arg)
{
	const uint64_t now = sim_now_ns();
	bool any = false;

	(void)arg;
	for (int i = 0; i < nfiles; i++) {
		struct file *f = files[i];

		if (!f || f->kind != STREAM || f->family == AF_UNIX || f->connecting || f->error)
			continue;
		if (!f->peer || !sim_network_is_cut(f->owner, f->peer->owner))
			continue;
		const struct segment *s = f->peer->in;
		const uint64_t user = patience_ms(f) * MS;

		while (s && s->at_ns != SIM_NEVER)
			s = s->next;
		any = true;
		if (s ? now - s->sent_ns >= user : f->idle_ms && now - f->heard_ns >= 2 * f->idle_ms * MS) {
			struct file *other = f->peer;

			fail_stream(f, ETIMEDOUT);
			/* The other end hears nothing of it, and gives up by itself. */
			other->reset_ns = now + patience_ms(other) * MS;
			other->reset_error = ETIMEDOUT;
			stop_at(other->reset_ns);
		}
	}
	if (any)
		sim_at(now + 20 * MS, check_cut, NULL);
}

/* What passes and what does not has changed. */
static void look_at_cuts(void)
{
	sim_at(sim_now_ns() + 20 * MS, check_cut, NULL);
	for (int i = 0; i < nfiles; i++)
		for (struct segment *s = files[i] ? files[i]->in : NULL; s; s = s->next)
			if (s->at_ns == SIM_NEVER && files[i]->peer && !is_held_up(files[i], files[i]->peer)) {
				s->at_ns = arrival(files[i], files[i]->peer);
				stop_at(s->at_ns);
			}
}

void sim_network_cut(struct sim_process *p, bool cut)
{
	cut_off[host_of(p)] = cut;
	look_at_cuts();
}

void sim_network_side(struct sim_process *p, int side)
{
	side_of[host_of(p)] = side;
	look_at_cuts();
}

void sim_network_one_way(struct sim_process *p, bool deaf, bool mute)
{
	is_deaf[host_of(p)] = deaf;
	is_mute[host_of(p)] = mute;
	look_at_cuts();
}

void sim_network_full(struct sim_process *p, bool full)
{
	is_full[host_of(p)] = full;
}

void sim_network_dies_within(struct sim_process *p, unsigned calls)
{
	calls_left[host_of(p)] = calls;
}

void sim_network_shows_ends(void)
{
	shows_ends = true;
}

void sim_network_reset(struct sim_process *p)
{
	for (int i = 0; i < nfiles; i++) {
		struct file *f = files[i];

		if (f && f->kind == STREAM && f->owner == p && f->peer) {
			f->peer->error = ECONNRESET;
			fail_stream(f, ECONNRESET);
		}
	}
}

void sim_network_leaves(struct sim_process *p)
{
	leaves[host_of(p)] = true;
}

static const struct coll_net simulated = {
        .socket = net_socket,
        .bind = net_bind,
        .listen = net_listen,
        .accept = net_accept,
        .connect = net_connect,
        .getsockname = net_getsockname,
        .getpeername = net_getpeername,
        .getsockopt = net_getsockopt,
        .setsockopt = net_setsockopt,
        .send = net_send,
        .recv = net_recv,
        .getifaddrs = net_getifaddrs,
        .freeifaddrs = net_freeifaddrs,
        .epoll_create = net_epoll_create,
        .epoll_ctl = net_epoll_ctl,
        .epoll_wait = net_epoll_wait,
        .poll = net_poll,
        .eventfd = net_eventfd,
        .timerfd_create = net_timerfd_create,
        .process_open = net_process_open,
        .timerfd_settime = net_timerfd_settime,
        .read = net_read,
        .write = net_write,
        .close = net_close,
        .yield = net_yield,
        .sleep = net_sleep,
        .thread_start = net_thread_start,
        .thread_join = net_thread_join,
        .random = net_random,
};

__attribute__((constructor)) static void begin(void)
{
	coll_net_take(&simulated);
	sim_on_end(process_ended);
}
