/*
 * The simulated machine: see machine.h. It owns processes, threads, time and the order in which
 * threads run. Invariant: one thread runs; every other one waits in sim_wait(), or has ended. It
 * knows nothing of networks or of the library.
 */
#include "sim/jobs/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "sim/jobs/fiber.h"

enum {
	THREADS_MAX = 4096,
	PROCESSES_MAX = 4096,
	HOOKS_MAX = 4,
	FIRST_PID = 1000,
	LIMIT_REAL_S = 120, /* then the system ends the program */
	PREEMPT_ONE_IN = 8,
	LOOK_NS = 200,
	SLICE_NS = 50000 /* a thread that only computes runs for so long */
};
static const uint64_t MS = 1000000, TIME_MAX = 36000ull * 1000 * 1000000; /* ten hours */

struct sim_process {
	pid_t number, parent;
	bool lives, stopped, waited_for;
	int status;
	void (*body)(const void *arg, int rank);
	const void *arg;
	int rank;
};

struct sim_thread {
	struct sim_fiber *fiber;
	struct sim_process *process;
	void *(*run)(void *arg);
	void *arg, *result;
	bool ended;
	/* While it does not run. */
	bool (*ready)(void *arg);
	void *ready_arg;
	uint64_t until_ns;
	bool timed_out;
	unsigned yields; /* in a row */
	int locks;
	uint64_t number;
	void *values[SIM_KEYS_MAX];
};

struct event {
	uint64_t ns, order;
	void (*fn)(void *arg);
	void *arg;
};

static struct {
	uint64_t now_ns, seed, random, trace, threads_made;
	uint64_t slice_ns; /* the thread that runs makes way after that */
	struct sim_thread *threads[THREADS_MAX];
	int nthreads;
	struct sim_thread *running;
	bool in_event;
	struct sim_process *processes[PROCESSES_MAX];
	int nprocesses;
	struct event *events; /* a heap: the next one first */
	size_t nevents, events_cap;
	uint64_t events_made;
	struct sim_fiber *dead; /* of a thread that has ended: freed by the next one */
	void (*hooks[HOOKS_MAX])(struct sim_process *p);
	int nhooks;
} m;

/* ---- Time and chance ---- */

uint64_t sim_now_ns(void)
{
	return m.now_ns;
}

uint64_t sim_seed(void)
{
	return m.seed;
}

void sim_reseed(uint64_t seed)
{
	m.seed = seed;
	m.random = coll_mix64(seed);
}

uint64_t sim_trace(void)
{
	return m.trace;
}

uint64_t sim_below(uint64_t n)
{
	m.random = coll_mix64(m.random + 0x9e3779b97f4a7c15u);
	return m.random % n;
}

/* A look at the clock takes time, so that loops that only look at it end, and others get their turn. */
static uint64_t read_clock(void *arg)
{
	(void)arg;
	m.now_ns += LOOK_NS;
	if (m.now_ns > m.slice_ns && m.running->locks == 0 && !m.in_event)
		sim_wait(NULL, NULL, m.now_ns);
	return m.now_ns;
}

static bool before(const struct event *a, const struct event *b)
{
	return a->ns != b->ns ? a->ns < b->ns : a->order < b->order;
}

void sim_at(uint64_t ns, void (*fn)(void *arg), void *arg)
{
	size_t i = m.nevents++;

	if (m.nevents > m.events_cap) {
		m.events_cap = m.events_cap ? 2 * m.events_cap : 256;
		m.events = realloc(m.events, m.events_cap * sizeof(*m.events));
		if (!m.events)
			abort();
	}
	m.events[i] = (struct event){ns, m.events_made++, fn, arg};
	for (; i > 0 && before(&m.events[i], &m.events[(i - 1) / 2]); i = (i - 1) / 2) {
		struct event e = m.events[i];

		m.events[i] = m.events[(i - 1) / 2];
		m.events[(i - 1) / 2] = e;
	}
}

static struct event take_event(void)
{
	const struct event first = m.events[0];
	size_t i = 0;

	m.events[0] = m.events[--m.nevents];
	for (;;) {
		size_t k = 2 * i + 1;
		struct event e = m.events[i];

		if (k + 1 < m.nevents && before(&m.events[k + 1], &m.events[k]))
			k++;
		if (k >= m.nevents || !before(&m.events[k], &m.events[i]))
			return first;
		m.events[i] = m.events[k];
		m.events[k] = e;
		i = k;
	}
}

static void fire_events(void)
{
	while (m.nevents > 0 && m.events[0].ns <= m.now_ns) {
		const struct event e = take_event();

		m.in_event = true;
		e.fn(e.arg);
		m.in_event = false;
	}
}

/* ---- Who runs next ---- */

static void nothing_moves(const char *why)
{
	fprintf(stderr, "simulator: %s at %.6f s, seed %llu\n", why, (double)m.now_ns * 1e-9,
	        (unsigned long long)m.seed);
	for (int i = 0; i < m.nthreads; i++)
		fprintf(stderr, "  thread %d of process %d%s\n", i, (int)m.threads[i]->process->number,
		        m.threads[i]->process->stopped ? ", stopped" : "");
	_Exit(3);
}

static bool can_run(struct sim_thread *t)
{
	if (t->process->stopped)
		return false;
	if (t->ready && t->ready(t->ready_arg)) {
		t->timed_out = false;
		return true;
	}
	t->timed_out = true;
	return t->until_ns <= m.now_ns;
}

static struct sim_thread *choose(void)
{
	static struct sim_thread *able[THREADS_MAX];
	int n = 0;

	for (;;) {
		uint64_t next = SIM_NEVER;

		fire_events();
		for (int i = 0; i < m.nthreads; i++) {
			struct sim_thread *t = m.threads[i];

			if (can_run(t))
				able[n++] = t;
			else if (!t->process->stopped && t->until_ns < next)
				next = t->until_ns;
		}
		if (n > 0) {
			struct sim_thread *t = able[sim_below((uint64_t)n)];

			m.trace = coll_mix64(m.trace ^ m.now_ns ^ t->number << 48);
			return t;
		}
		if (m.nevents > 0 && m.events[0].ns < next)
			next = m.events[0].ns;
		if (next == SIM_NEVER)
			nothing_moves("nothing can move any more");
		if (next > TIME_MAX)
			nothing_moves("the program does not end");
		if (next > m.now_ns)
			m.now_ns = next;
	}
}

static void go_on(struct sim_thread *from)
{
	struct sim_thread *to;

	m.now_ns += 200 + sim_below(800);
	to = choose();
	m.running = to;
	m.slice_ns = m.now_ns + SLICE_NS;
	if (to != from)
		sim_fiber_switch(from->fiber, to->fiber);
	if (m.dead) {
		sim_fiber_free(m.dead);
		m.dead = NULL;
	}
}

bool sim_wait(bool (*ready)(void *arg), void *arg, uint64_t until_ns)
{
	struct sim_thread *t = m.running;

	if (m.in_event)
		nothing_moves("an event waits");
	t->ready = ready;
	t->ready_arg = arg;
	t->until_ns = until_ns;
	go_on(t);
	t->ready = NULL;
	return !t->timed_out;
}

void sim_sleep(uint64_t ns)
{
	m.running->yields = 0;
	sim_wait(NULL, NULL, m.now_ns + ns);
}

void sim_yield(void)
{
	struct sim_thread *t = m.running;
	const unsigned n = t->yields++;

	sim_wait(NULL, NULL, m.now_ns + (n < 16 ? 1000 : n < 64 ? 50000 : MS));
}

void sim_preempt(void)
{
	if (!m.in_event && m.running->locks == 0 && sim_below(PREEMPT_ONE_IN) == 0)
		sim_wait(NULL, NULL, m.now_ns);
}

/* ---- Threads ---- */

static void forget_thread(struct sim_thread *t)
{
	for (int i = 0; i < m.nthreads; i++)
		if (m.threads[i] == t)
			m.threads[i] = m.threads[--m.nthreads];
}

/* The thread that runs has ended; its fiber is freed by whoever runs next. */
static void leave(void)
{
	struct sim_thread *t = m.running;

	t->ended = true;
	forget_thread(t);
	if (m.nthreads == 0)
		nothing_moves("all threads have ended");
	m.now_ns += 200;
	m.running = choose();
	m.slice_ns = m.now_ns + SLICE_NS;
	if (m.dead)
		sim_fiber_free(m.dead);
	m.dead = t->fiber;
	sim_fiber_switch(t->fiber, m.running->fiber);
	abort();
}

static void enter(void *arg)
{
	struct sim_thread *t = arg;

	if (m.dead) {
		sim_fiber_free(m.dead);
		m.dead = NULL;
	}
	t->ready = NULL;
	t->result = t->run(t->arg);
	leave();
}

static struct sim_thread *add_thread(struct sim_process *in)
{
	struct sim_thread *t = calloc(1, sizeof(*t));

	if (!t || m.nthreads == THREADS_MAX)
		abort();
	t->process = in;
	t->number = m.threads_made++;
	m.threads[m.nthreads++] = t;
	return t;
}

struct sim_thread *sim_thread_start(struct sim_process *in, void *(*run)(void *arg), void *arg)
{
	struct sim_thread *t = add_thread(in);

	t->run = run;
	t->arg = arg;
	t->fiber = sim_fiber_new(enter, t);
	return t;
}

struct sim_thread *sim_thread_self(void)
{
	return m.running;
}

static bool has_ended(void *arg)
{
	return ((struct sim_thread *)arg)->ended;
}

void *sim_thread_join(struct sim_thread *t)
{
	void *result;

	while (!t->ended)
		sim_wait(has_ended, t, SIM_NEVER);
	result = t->result;
	free(t);
	return result;
}

void **sim_thread_values(void)
{
	return m.running->values;
}

int *sim_thread_locks(void)
{
	return &m.running->locks;
}

/* ---- Processes ---- */

static struct sim_process *add_process(pid_t parent)
{
	struct sim_process *p = calloc(1, sizeof(*p));

	if (!p || m.nprocesses == PROCESSES_MAX)
		abort();
	p->number = FIRST_PID + m.nprocesses;
	p->parent = parent;
	p->lives = true;
	m.processes[m.nprocesses++] = p;
	return p;
}

static void *first_thread(void *arg)
{
	struct sim_process *p = arg;

	p->body(p->arg, p->rank);
	sim_process_end(p, 0);
	return NULL;
}

pid_t sim_process_start(void (*body)(const void *arg, int rank), const void *arg, int rank)
{
	struct sim_process *p = add_process(sim_process_self()->number);

	p->body = body;
	p->arg = arg;
	p->rank = rank;
	sim_thread_start(p, first_thread, p);
	return p->number;
}

struct sim_process *sim_process_self(void)
{
	return m.running->process;
}

pid_t sim_process_number(const struct sim_process *p)
{
	return p->number;
}

pid_t sim_process_parent(const struct sim_process *p)
{
	return p->parent;
}

struct sim_process *sim_process_find(pid_t number)
{
	return number >= FIRST_PID && number < FIRST_PID + m.nprocesses ? m.processes[number - FIRST_PID] : NULL;
}

bool sim_process_lives(const struct sim_process *p)
{
	return p->lives;
}

void sim_on_end(void (*fn)(struct sim_process *p))
{
	m.hooks[m.nhooks++] = fn;
}

void sim_process_end(struct sim_process *p, int status)
{
	const bool own = p == m.running->process;

	if (p->lives) {
		p->lives = false;
		p->status = status;
		for (int i = 0; i < m.nhooks; i++)
			m.hooks[i](p);
		for (int i = m.nthreads - 1; i >= 0; i--) {
			struct sim_thread *t = m.threads[i];

			if (t->process == p && t != m.running) {
				forget_thread(t);
				sim_fiber_free(t->fiber);
				free(t);
			}
		}
	}
	if (own)
		leave();
}

void sim_process_stop(struct sim_process *p, bool stop)
{
	p->stopped = stop;
	if (stop && p == m.running->process)
		sim_wait(NULL, NULL, m.now_ns);
}

static struct sim_process *child_to_report(pid_t number, int options, bool *any)
{
	const pid_t self = sim_process_self()->number;

	for (int i = 0; i < m.nprocesses; i++) {
		struct sim_process *p = m.processes[i];

		if (p->parent != self || p->waited_for || (number > 0 && p->number != number))
			continue;
		*any = true;
		if (!p->lives || ((options & WUNTRACED) && p->stopped))
			return p;
	}
	return NULL;
}

pid_t sim_process_wait(pid_t number, int *status, int options)
{
	struct sim_process *p;
	bool any = false;

	while (!(p = child_to_report(number, options, &any)) && any && !(options & WNOHANG))
		sim_sleep(MS / 10);
	if (!p)
		return any ? 0 : -1;
	if (p->lives) {
		if (status)
			*status = 0x137f; /* stopped */
		return p->number;
	}
	p->waited_for = true;
	if (status)
		*status = p->status;
	return p->number;
}

/* ---- The beginning ---- */

static const struct coll_clock_source virtual_clock = {read_clock, NULL};

__attribute__((constructor)) static void begin(void)
{
	const char *seed = getenv("SIM_SEED");

	m.seed = seed ? strtoull(seed, NULL, 10) : 1;
	m.random = coll_mix64(m.seed);
	m.now_ns = 1000 * 1000 * MS;
	m.slice_ns = SIM_NEVER; /* 0 often means "never" */
	m.running = add_thread(add_process(0));
	m.running->fiber = sim_fiber_main();
	setvbuf(stdout, NULL, _IOLBF, 0);
	setenv("COLL_JOBS_FILE", "none", 1); /* real jobs do not change what simulated ones do */
	coll_clock_take(&virtual_clock);
	alarm(LIMIT_REAL_S);
}
