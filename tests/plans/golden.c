/*
 * Golden text: the plans of every algorithm for four ranks, logical and fused, as
 * files to read and to diff. One file per algorithm in golden/.
 *
 *   plan-golden DIR           compare
 *   plan-golden DIR --write   write the files anew, to be reviewed as a diff
 */
#define PLAIN_OWN_MAIN

#include <stdlib.h>

#include "plan/print.h"
#include "tests/plain.h"
#include "tools/plan_set.h"

static const char *dir;
static bool write_anew;

/* All plans of a set as one text; NULL on failure. */
static char *text_of(const struct plan_set *set)
{
	size_t cap = 1 << 16, used = 0;
	char *text = malloc(cap);

	for (int fused = 0; text && fused < 2; fused++)
		for (int r = 0; r < set->size; r++) {
			used += coll_plan_print(plan_set_plans(set, fused)[r], text + used, cap - used);
			if (used >= cap) {
				free(text);
				return NULL;
			}
		}
	return text;
}

static char *read_file(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = calloc(1, 1 << 16);

	if (f && text && fread(text, 1, (1 << 16) - 1, f) == 0)
		text[0] = '\0';
	if (f)
		fclose(f);
	return text;
}

static void check_file(const char *path, const char *text)
{
	char *golden = read_file(path);
	int line = 1;

	REQUIRE(golden);
	for (size_t i = 0; golden[i] && golden[i] == text[i]; i++)
		line += golden[i] == '\n';
	CHECK(strcmp(golden, text) == 0, "%s differs at line %d", path, line);
	free(golden);
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	REQUIRE(f, "%s", path);
	CHECK(fputs(text, f) >= 0);
	CHECK(fclose(f) == 0);
}

static void every_algorithm_emits_its_golden_text(void)
{
	for (size_t i = 0; i < coll_algos_count; i++) {
		const struct coll_algo *a = &coll_algos[i];
		struct plan_set set;
		char path[512], why[256];
		char *text;

		snprintf(path, sizeof(path), "%s/%s.%s.txt", dir, coll_plan_kind_name(a->kind), a->name);
		REQUIRE(plan_set_build(&set, a, 4, plan_kind_has_root(a->kind) ? 1 : 0, false, PLAN_UNIFORM, why,
		                       sizeof(why)) == COLL_OK,
		        "%s", why);
		text = text_of(&set);
		plan_set_free(&set);
		REQUIRE(text);
		if (write_anew)
			write_file(path, text);
		else
			check_file(path, text);
		free(text);
	}
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	dir = argv[1];
	write_anew = argc > 2 && strcmp(argv[2], "--write") == 0;
	PLAIN_RUN(every_algorithm_emits_its_golden_text);
	return plain_summary();
}
