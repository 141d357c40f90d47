/*
 * coll-faults: the agreement of src/members over real control planes, on the simulated network and clock, with faults.
 * Each seed is one job in a process of its own. A seed that fails is cut to the faults that it needs.
 *
 * usage: coll-faults [--seeds A..B | --seconds S] [--members N] [--twice K]   K: one in K seeds runs twice
 *        coll-faults --seed S [--only N,N] [--members N]
 *        coll-faults-planted --mutants [--seeds A..B] [--mutant N]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/planted.h"
#include "sim/faults/world.h"

enum { JOBS = 2, JOB_S = 60 /* of the processor */ };

/* The linker's names: the simulated ones are for simulated processes. */
pid_t __real_fork(void);
pid_t __real_waitpid(pid_t pid, int *status, int options);
int __real_clock_gettime(clockid_t clock, struct timespec *t);

#ifdef COLL_PLANTED
enum coll_planted coll_planted;
static const char *const mutants[] = {
        "decide: last words of the dead are not looked at",
        "decide: any number of promises is enough",
        "decide: accepting does not raise what was promised",
        "decide: what others have accepted is not taken over",
        "decide: of several, that of the lowest ballot is",
        "decide: a ballot below the promised one is accepted",
        "decide: the answer goes before the words are written",
        "decide: half of the voters are enough",
        "decide: last words that name this ballot count as an answer",
        "decide: a ballot goes on though last words name a higher one",
        "decide: who is suspected does not count",
        "decide: a promise forgets what was accepted",
        "detect: the dead do not count before their words are read",
        "detect: nor do the dead of other hosts",
        "detect: nor those that are only reported",
        "", /* DECIDE_END */
        "changes: answers do not wait until all of the host have the words",
        "changes: who could not take the words counts as having them",
        "changes: who has had some words gets no others",
        "changes: of the words of a process the first ones are kept",
        "changes: answers go to who asked first",
        "changes: who has destroyed the communicator does not say so",
        "changes: a promise does not end the communicator",
        "changes: a voter answers only while its program is in the call",
        "changes: an answer counts as that of the next member",
        "changes: a refusal counts as an acceptance",
        "changes: a promise does not say what was accepted",
        "changes: who has the decision does not answer with it",
        "proposal: a call that ends takes the voter with it",
        "proposal: the next ballot has the number of the last",
        "proposal: who does not answer is not asked again",
        "proposal: who is reported as dead counts as ended",
        "proposal: last words are not looked at",
        "proposal: nobody but member 0 begins ballots",
        "proposal: who has not answered at once is suspected",
        "proposal: nobody is suspected for silence",
        "proposal: what is proposed is who lives now",
        "carry: words that wait behind an end are not read",
        "words: words count as written that were not sent",
        "proposal: a call that ends takes its ballot and its turn with it",
        "proposal: a ballot that is stuck does not say so",
        "turn: a ballot whose owner is reported as dead is overtaken at once",
};
_Static_assert(sizeof(mutants) / sizeof(mutants[0]) == COLL_PLANTED_CHANGE_END - COLL_PLANTED_DECIDE_FIRST, "each");
#endif

static struct options {
	uint64_t first, last, seed;
	double seconds;
	int members, twice, mutant;
	uint32_t only;
	bool one, mutants;
} opt = {.first = 1, .last = 1000, .twice = 8, .only = UINT32_MAX};

static double now_s(void)
{
	struct timespec t;

	__real_clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- Jobs in processes of their own ---- */

static struct slot {
	pid_t pid;
	uint64_t seed;
	struct outcome *outcome; /* shared with its process */
} slots[JOBS];

static void start(struct slot *s, uint64_t seed, uint32_t only)
{
	const struct rlimit limit = {JOB_S, JOB_S};
	struct plan plan;

	memset(s->outcome, 0, sizeof(*s->outcome));
	s->seed = seed;
	fflush(stdout);
	s->pid = __real_fork();
	if (s->pid < 0) {
		perror("fork");
		_Exit(2);
	}
	if (s->pid > 0)
		return;
	setrlimit(RLIMIT_CPU, &limit);
	plan_draw(&plan, seed, opt.members);
	world_run(&plan, only, s->outcome);
	_Exit(0);
}

static void finish(struct slot *s)
{
	int status = 0;

	__real_waitpid(s->pid, &status, 0);
	s->pid = 0;
	if (!s->outcome->done && !s->outcome->violation[0])
		snprintf(s->outcome->violation, sizeof(s->outcome->violation), "its process ended with status %#x",
		         (unsigned)status);
}

static const struct outcome *run_one(uint64_t seed, uint32_t only)
{
	start(&slots[0], seed, only);
	finish(&slots[0]);
	return slots[0].outcome;
}

/* ---- A seed that fails ---- */

/* Leave out what it does not need; the violation may become another one. */
static uint32_t cut(uint64_t seed)
{
	struct plan plan;
	uint32_t only;

	plan_draw(&plan, seed, opt.members);
	only = (uint32_t)(((uint64_t)1 << plan.nfaults) - 1);
	for (int i = plan.nfaults - 1; i >= 0; i--)
		if (run_one(seed, only & ~((uint32_t)1 << i))->violation[0])
			only &= ~((uint32_t)1 << i);
	return only;
}

static void report(uint64_t seed)
{
	const uint32_t only = cut(seed);
	const char *comma = "";

	printf("coll-faults%s --seed %llu", opt.mutant ? "-planted" : "", (unsigned long long)seed);
	if (opt.mutant)
		printf(" --mutant %d", opt.mutant);
	if (opt.members)
		printf(" --members %d", opt.members);
	printf(" --only ");
	for (int i = 0; i < PLAN_FAULTS_MAX; i++)
		if (only >> i & 1) {
			printf("%s%d", comma, i);
			comma = ",";
		}
	printf("%s: %s\n", only ? "" : "none", run_one(seed, only)->violation);
}

/* ---- Many seeds ---- */

struct sum {
	uint64_t jobs, failed, first_failed, twice, unequal;
	uint64_t count[WORLD_COUNTS];
	double virtual_s, healed_s;
};

static void take(struct sum *sum, struct slot *s)
{
	const struct outcome *o = s->outcome;
	const uint64_t trace = o->trace, seed = s->seed;

	sum->jobs++;
	sum->virtual_s += o->virtual_s;
	if (o->healed_s > sum->healed_s)
		sum->healed_s = o->healed_s;
	for (int i = 0; i < WORLD_COUNTS; i++)
		sum->count[i] += o->count[i];
	if (o->violation[0]) {
		if (sum->failed++ == 0)
			sum->first_failed = seed;
		if (!opt.mutant)
			printf("seed %llu: %s\n", (unsigned long long)seed, o->violation);
		return;
	}
	if (opt.mutant || seed % (uint64_t)opt.twice != 0)
		return;
	sum->twice++;
	start(s, seed, UINT32_MAX);
	finish(s);
	if (s->outcome->trace != trace) {
		sum->unequal++;
		printf("seed %llu: another trace the second time\n", (unsigned long long)seed);
	}
}

/* Until the seeds or the time are over, or one has failed for a mutant. */
static struct sum run_seeds(void)
{
	const double begun = now_s();
	struct sum sum = {0};
	uint64_t next = opt.first;
	int running = 0;

	do {
		for (int i = 0; i < JOBS; i++) {
			struct slot *s = &slots[i];
			const bool more = next <= opt.last && !(opt.mutant && sum.failed) && sum.failed < 20 &&
			                  !(opt.seconds > 0 && now_s() - begun > opt.seconds);

			if (s->pid) {
				finish(s);
				running--;
				take(&sum, s);
			}
			if (more) {
				start(s, next++, UINT32_MAX);
				running++;
			}
		}
	} while (running > 0);
	return sum;
}

static int campaign(void)
{
	static const char *const what[WORLD_COUNTS] = {
	        "decided", "without a majority", "last words used", "taken over", "given up", "excluded", "leavers"};
	const double begun = now_s();
	const struct sum sum = run_seeds();
	const double took = now_s() - begun;

	printf("%llu seeds, %.0f virtual seconds, %.0f seeds/s; run twice %llu, unequal %llu; last decision %.2f s "
	       "after the "
	       "faults\n",
	       (unsigned long long)sum.jobs, sum.virtual_s, (double)(sum.jobs + sum.twice) / took,
	       (unsigned long long)sum.twice, (unsigned long long)sum.unequal, sum.healed_s);
	for (int i = 0; i < WORLD_COUNTS; i++)
		printf("%s%s %llu", i ? ", " : "", what[i], (unsigned long long)sum.count[i]);
	printf("\n%llu violations\n", (unsigned long long)sum.failed);
	if (sum.failed)
		report(sum.first_failed);
	return sum.failed || sum.unequal ? 1 : 0;
}

static int show(void)
{
	struct plan plan;
	const struct outcome *o;

	plan_draw(&plan, opt.seed, opt.members);
	plan_print(&plan);
	o = run_one(opt.seed, opt.only);
	printf("trace %016llx, %.3f virtual seconds: %s\n", (unsigned long long)o->trace, o->virtual_s,
	       o->violation[0] ? o->violation : "no violation");
	return o->violation[0] != 0;
}

/* ---- Planted defects ---- */

#ifdef COLL_PLANTED
static int all_mutants(void)
{
	int found = 0, all = 0;

	for (int m = 1; m <= (int)(sizeof(mutants) / sizeof(mutants[0])); m++) {
		const double begun = now_s();
		struct sum sum;

		if (!mutants[m - 1][0])
			continue;
		opt.mutant = m;
		coll_planted = COLL_PLANTED_DECIDE_FIRST + m - 1;
		sum = run_seeds();
		all++;
		found += sum.failed > 0;
		printf("%2d %-70s %s %6llu seeds %5.1f s\n", m, mutants[m - 1], sum.failed ? "found in" : "NOT FOUND",
		       (unsigned long long)sum.jobs, now_s() - begun);
		fflush(stdout);
	}
	printf("%d of %d found\n", found, all);
	return found < all;
}
#endif

/* ---- The command line ---- */

static uint32_t mask_of(const char *list)
{
	uint32_t mask = 0;

	for (const char *at = list; *at >= '0' && *at <= '9';) {
		char *end;

		mask |= (uint32_t)1 << (strtoul(at, &end, 10) % 32);
		at = *end == ',' ? end + 1 : end;
	}
	return mask;
}

static bool read_option(const char *name, const char *value)
{
	const char *dots = strstr(value, "..");

	if (strcmp(name, "--seeds") == 0 && dots) {
		opt.first = strtoull(value, NULL, 10);
		opt.last = strtoull(dots + 2, NULL, 10);
	} else if (strcmp(name, "--seconds") == 0) {
		opt.seconds = atof(value);
		opt.last = UINT64_MAX - 1;
	} else if (strcmp(name, "--members") == 0) {
		opt.members = atoi(value);
	} else if (strcmp(name, "--twice") == 0) {
		opt.twice = atoi(value);
	} else if (strcmp(name, "--seed") == 0) {
		opt.one = true;
		opt.seed = strtoull(value, NULL, 10);
	} else if (strcmp(name, "--only") == 0) {
		opt.only = mask_of(value);
	} else if (strcmp(name, "--mutant") == 0) {
		opt.mutant = atoi(value);
	} else {
		return false;
	}
	return opt.members <= PLAN_MEMBERS_MAX && opt.twice > 0;
}

int main(int argc, char **argv)
{
	alarm(0);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--mutants") == 0)
			opt.mutants = true;
		else if (i + 1 >= argc || !read_option(argv[i], argv[i + 1]))
			return fprintf(stderr, "coll-faults: %s: see the head of sim/faults/coll_faults.c\n", argv[i]),
			       2;
		else
			i++;
	}
	for (int i = 0; i < JOBS; i++) {
		slots[i].outcome = mmap(NULL, sizeof(*slots[i].outcome), PROT_READ | PROT_WRITE,
		                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (slots[i].outcome == MAP_FAILED)
			return 2;
	}
#ifdef COLL_PLANTED
	if (opt.mutants)
		return all_mutants();
	if (opt.mutant)
		coll_planted = COLL_PLANTED_DECIDE_FIRST + opt.mutant - 1;
#endif
	return opt.one ? show() : campaign();
}
