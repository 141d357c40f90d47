/*
 * Tests of the stand-in driver: a case for each rule of rules.h, and the same case with the rule's
 * planted mistake, which must turn it red. Each runs in a process of its own.
 *
 * usage: softcuda_test LIBRARY [RULE...]       all rules, or these, without and with the mistake
 *        softcuda_test LIBRARY --only RULE     one case in this process
 */
#include "tests/softcuda/cases.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/softcuda/rules.h"

#define CASE_DEFINITION(name, symbol, version, parameters) symbol##_fn name;
CUDA_ABI_FUNCTIONS(CASE_DEFINITION)
__typeof__(&softcuda_count) count_of;
__typeof__(&softcuda_reset) reset_counts;
__typeof__(&softcuda_blocked) blocked_calls;
__typeof__(&softcuda_enqueued) enqueued_ops;
__typeof__(&softcuda_done) done_ops;
__typeof__(&softcuda_queue) queue_of;

#define RULE_NAME(name, text) #name,
static const char *const rules[] = {SOFT_RULES(RULE_NAME)};

static const struct softcuda_case *case_named(const char *name)
{
	const struct softcuda_case *lists[] = {cases_streams, cases_kernels, cases_memory, cases_graphs,
	                                       cases_processes};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		for (const struct softcuda_case *c = lists[i]; c->name; c++)
			if (strcmp(c->name, name) == 0)
				return c;
	return NULL;
}

static void *symbol(void *library, const char *name)
{
	void *p = dlsym(library, name);

	if (!p) {
		printf("%s is not in the library\n", name);
		_exit(1);
	}
	return p;
}

static void load_driver(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	CUdriverProcAddressQueryResult status;

	if (!library) {
		printf("%s\n", dlerror());
		_exit(1);
	}
	cuGetProcAddress = (cuGetProcAddress_v2_fn)symbol(library, "cuGetProcAddress_v2");
	/* The same function by its plain name, and by cuGetProcAddress where the settings let it. */
#define CASE_LOAD(name, symbol_, version, parameters)                     \
	name = (symbol_##_fn)symbol(library, #symbol_);                   \
	{                                                                 \
		void *same;                                               \
                                                                          \
		if (!cuGetProcAddress(#name, &same, version, 0, &status)) \
			TRUE(same == (void *)name);                       \
	}
	CUDA_ABI_FUNCTIONS(CASE_LOAD)
	count_of = (__typeof__(count_of))symbol(library, "softcuda_count");
	reset_counts = (__typeof__(reset_counts))symbol(library, "softcuda_reset");
	blocked_calls = (__typeof__(blocked_calls))symbol(library, "softcuda_blocked");
	enqueued_ops = (__typeof__(enqueued_ops))symbol(library, "softcuda_enqueued");
	done_ops = (__typeof__(done_ops))symbol(library, "softcuda_done");
	queue_of = (__typeof__(queue_of))symbol(library, "softcuda_queue");
}

static void run_here(const char *library, const struct softcuda_case *c)
{
	for (size_t i = 0; i < sizeof(c->env) / sizeof(c->env[0]) && c->env[i]; i++)
		putenv((char *)(uintptr_t)c->env[i]);
	load_driver(library);
	c->run();
	fflush(stdout);
}

/* The case in a process of its own: within 30 s; with a planted mistake within 4 s, and silent. */
static pid_t begin_apart(const char *self, const char *library, const char *rule, bool planted)
{
	const pid_t pid = fork();

	if (pid == 0) {
		if (planted) {
			const int null = open("/dev/null", O_WRONLY);

			setenv("SOFTCUDA_PLANT", rule, 1);
			dup2(null, 1);
			dup2(null, 2);
		}
		alarm(planted ? 4 : 30);
		execl(self, self, library, "--only", rule, (char *)NULL);
		_exit(127);
	}
	return pid;
}

enum { AT_ONCE = 6 };

/* Run rule i without (even) or with (odd) its mistake, several at once; return how many were wrong. */
static int run_all(const char *self, const char *library, const int *which, int count)
{
	struct {
		pid_t pid;
		int run;
	} running[AT_ONCE] = {{0, 0}};
	int wrong = 0;

	for (int begun = 0, ended = 0; ended < 2 * count;) {
		int status, at = 0;
		pid_t pid;

		while (at < AT_ONCE && running[at].pid)
			at++;
		if (at < AT_ONCE && begun < 2 * count) {
			running[at].pid = begin_apart(self, library, rules[which[begun / 2]], begun % 2);
			running[at].run = begun++;
			continue;
		}
		pid = waitpid(-1, &status, 0);
		for (at = 0; at < AT_ONCE && running[at].pid != pid; at++)
			;
		if (at == AT_ONCE)
			continue;
		running[at].pid = 0;
		ended++;
		if (running[at].run % 2 == 0 && status) {
			printf("%s: red, status %#x\n", rules[which[running[at].run / 2]], (unsigned)status);
			wrong++;
		} else if (running[at].run % 2 == 1 && !status) {
			printf("%s: its planted mistake was not noticed\n", rules[which[running[at].run / 2]]);
			wrong++;
		}
		fflush(stdout);
	}
	return wrong;
}

int main(int argc, char **argv)
{
	const int count = (int)(sizeof(rules) / sizeof(rules[0]));
	int which[sizeof(rules) / sizeof(rules[0])], wanted = 0, failed = 0;

	if (argc < 2)
		return 2;
	if (argc == 4 && strcmp(argv[2], "--only") == 0) {
		const struct softcuda_case *c = case_named(argv[3]);

		if (!c)
			return 2;
		run_here(argv[1], c);
		_exit(0); /* queues may still wait */
	}
	for (int i = 0; i < count; i++) {
		bool named = argc == 2;

		for (int j = 2; j < argc; j++)
			named |= strcmp(argv[j], rules[i]) == 0;
		if (named && case_named(rules[i])) {
			which[wanted++] = i;
		} else if (named) {
			printf("%s: has no case\n", rules[i]);
			failed++;
		}
	}
	failed += run_all(argv[0], argv[1], which, wanted);
	printf("%d rules, %d wrong\n", wanted, failed);
	return failed || !wanted;
}
