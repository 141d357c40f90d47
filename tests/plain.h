/*
 * Checks for test programs that must also run where Criterion is not: cross
 * builds under qemu, and programs where threads race.
 *
 * How to use it:
 *  - A file of TEST(suite, name) { ... } functions, listed in coll_dual_tests:
 *    it becomes a Criterion program where Criterion is found and a plain program
 *    elsewhere (main() is in this header; an argument selects tests by
 *    substring). Write nothing else into such a file that needs Criterion.
 *  - The same, listed in coll_plain_tests: a plain program everywhere. It runs its
 *    tests in the order of the file, after PROGRAM(suite, "ARGUMENTS") { ... } if it
 *    has one: that reads the arguments and returns the number of the one that selects
 *    tests (argc: none does), or -1 if they are wrong. The words of ARGUMENTS before the first bracket are there by
 *    then. It may run tests itself.
 *  - Several such programs in one executable (tests/multi/driver.c): the first argument
 *    is the suite whose PROGRAM and tests run.
 *  - A program with its own main(): define PLAIN_OWN_MAIN before the include, call the
 *    tests through PLAIN_RUN(fn) or plain_run_cases(), end with `return plain_summary();`.
 *  - Helpers shared by several files may use CHECK and REQUIRE freely.
 *
 * CHECK(cond, ...) records a failure and goes on; REQUIRE(cond, ...) returns from
 * the (void) function as well; SKIP(why) ends a test as skipped. The optional
 * arguments are a printf format (a literal) and its values. CHECK may be used by any thread.
 * The last line of output is `N passed, N failed, N skipped`, counted in tests;
 * the exit status is 1 when any failed or none ran.
 */
#ifndef COLL_TESTS_PLAIN_H
#define COLL_TESTS_PLAIN_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define CHECK(cond, ...) ((cond) ? (void)0 : plain_fail(__FILE__, __LINE__, #cond, " " __VA_ARGS__))
#define REQUIRE(cond, ...)                                                      \
	do {                                                                    \
		if (!(cond)) {                                                  \
			plain_fail(__FILE__, __LINE__, #cond, " " __VA_ARGS__); \
			return;                                                 \
		}                                                               \
	} while (0)

/* A test between two statements: what it needs is made, and ended, also where a REQUIRE() ends the test. */
#define TEST_BETWEEN(suite, name, before, after)    \
	static void suite##_##name##_between(void); \
	TEST(suite, name)                           \
	{                                           \
		before;                             \
		suite##_##name##_between();         \
		after;                              \
	}                                           \
	static void suite##_##name##_between(void)

/* The same with a variable of its own, which the test has the address of. */
#define TEST_WITH(suite, name, type, variable, before, after) \
	static void suite##_##name##_with(type *variable);    \
	TEST(suite, name)                                     \
	{                                                     \
		type variable;                                \
                                                              \
		before;                                       \
		suite##_##name##_with(&variable);             \
		after;                                        \
	}                                                     \
	static void suite##_##name##_with(type *variable)

/* One failed check: where, the source text of the check, and its message. */
static inline void plain_fail(const char *file, int line, const char *text, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));

#ifdef COLL_WITH_CRITERION

#include <criterion/criterion.h>

#define TEST(suite, name) Test(suite, name)
#define SKIP(why)         cr_skip(why)

static inline void plain_fail(const char *file, int line, const char *text, const char *fmt, ...)
{
	char message[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	cr_expect(false, "%s:%d: %s%s", file, line, text, message);
}

#else

struct plain_test {
	const char *suite;
	const char *name;
	void (*run)(void);
	struct plain_test *next;
};

struct plain_program {
	const char *suite;
	const char *usage;
	int (*begin)(int argc, char **argv);
	struct plain_program *next;
};

/* Weak: one instance per program, however many of its files include this. */
__attribute__((weak)) struct plain_test *plain_first, **plain_last;
__attribute__((weak)) struct plain_program *plain_programs;
__attribute__((weak)) atomic_int plain_failures; /* of the test that runs */
__attribute__((weak)) const char *plain_skip_why;
__attribute__((weak)) int plain_passed, plain_failed, plain_skipped;

enum { PLAIN_FAILURES_SHOWN = 20 };

#define SKIP(why)                     \
	do {                          \
		plain_skip_why = why; \
		return;               \
	} while (0)

#define TEST(s, n)                                                       \
	static void s##_##n(void);                                       \
	__attribute__((constructor)) static void s##_##n##_add(void)     \
	{                                                                \
		static struct plain_test test = {#s, #n, s##_##n, NULL}; \
                                                                         \
		*(plain_last ? plain_last : &plain_first) = &test;       \
		plain_last = &test.next;                                 \
	}                                                                \
	static void s##_##n(void)

#define PROGRAM(s, u)                                                           \
	static int s##_begin(int argc, char **argv);                            \
	__attribute__((constructor)) static void s##_program(void)              \
	{                                                                       \
		static struct plain_program program = {#s, u, s##_begin, NULL}; \
                                                                                \
		program.next = plain_programs;                                  \
		plain_programs = &program;                                      \
	}                                                                       \
	static int s##_begin(int argc, char **argv)

#define PLAIN_RUN(fn) plain_run("", #fn, fn)

static inline void plain_fail(const char *file, int line, const char *text, const char *fmt, ...)
{
	va_list ap;

	if (atomic_fetch_add(&plain_failures, 1) >= PLAIN_FAILURES_SHOWN)
		return;
	flockfile(stderr);
	fprintf(stderr, "%s:%d: failed: %s", file, line, text);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	funlockfile(stderr);
}

static inline void plain_run(const char *suite, const char *name, void (*run)(void))
{
	int failures;

	atomic_store(&plain_failures, 0);
	plain_skip_why = NULL;
	run();
	failures = atomic_load(&plain_failures);
	if (failures > 0) {
		plain_failed++;
		printf("FAIL %s %s: %d checks failed\n", suite, name, failures);
	} else if (plain_skip_why) {
		plain_skipped++;
		printf("skip %s %s: %s\n", suite, name, plain_skip_why);
	} else {
		plain_passed++;
		printf("ok   %s %s\n", suite, name);
	}
	fflush(stdout);
}

/* The tests of a program with its own main(): all, or those with part in their names. */
struct plain_case {
	const char *name;
	void (*run)(void);
};

#define PLAIN_CASE(fn)  \
	{               \
#fn, fn \
	}

static inline void plain_run_cases(const char *suite, const struct plain_case *cases, size_t count, const char *part)
{
	for (size_t i = 0; i < count; i++)
		if (!part || strstr(cases[i].name, part))
			plain_run(suite, cases[i].name, cases[i].run);
}

/* Prints the last line; returns main()'s exit status. */
static inline int plain_summary(void)
{
	printf("%d passed, %d failed, %d skipped\n", plain_passed, plain_failed, plain_skipped);
	return plain_failed > 0 || plain_passed + plain_skipped == 0;
}

/* Words of a usage that must be given: those before the first that may be left out. */
static inline int plain_words(const char *usage)
{
	int n = 0;

	for (; *usage && *usage != '['; n++)
		usage += strcspn(usage, " "), usage += *usage == ' ';
	return n;
}

/* The tests of a program, or all; of them those with an argument in the names. In a program that says with
 * plain_skip_all() why, none runs. */
static inline int plain_main(const struct plain_program *program, int argc, char **argv)
{
	const int at = !program ? 1 : argc <= plain_words(program->usage) ? -1 : program->begin(argc, argv);
	const char *const part = at >= 0 && at < argc ? argv[at] : "";

	if (at < 0) {
		fprintf(stderr, "usage: %s %s [PART-OF-A-TEST'S-NAME]\n", argv[0], program->usage);
		return 64;
	}
	for (struct plain_test *t = plain_skipped ? NULL : plain_first; t; t = t->next)
		if ((!program || strcmp(t->suite, program->suite) == 0) &&
		    (strstr(t->name, part) || strstr(t->suite, part)))
			plain_run(t->suite, t->name, t->run);
	return plain_summary();
}

/* In PROGRAM(): nothing can be tested here. */
static inline int plain_skip_all(const char *why)
{
	plain_skipped++;
	printf("skip all: %s\n", why);
	return 0;
}

#ifndef PLAIN_OWN_MAIN
__attribute__((weak)) int main(int argc, char **argv)
{
	return plain_main(plain_programs, argc, argv);
}
#endif

#endif
#endif
