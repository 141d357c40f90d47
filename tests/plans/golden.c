/*
 * Golden text: the plans of every algorithm for four ranks, logical and fused, as
 * files to read and to diff. One file per algorithm in golden/.
 *
 *   plan-golden DIR           compare
 *   plan-golden DIR --write   write the files anew, to be reviewed as a diff
 */
#define PLAIN_OWN_MAIN

#include <stdlib.h>

#include "tests/plain.h"
#include "tools/common/print.h"
#include "tools/plan_layout.h"
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

/* layout: NULL, or as coll-plan --layout takes it, with ranks numbered round the hosts. */
static void emits(const struct coll_algo *a, const char *layout_text)
{
	struct coll_layout *layout = NULL;
	struct plan_set set;
	char path[512], why[256];
	char *text;
	int size = 4;

	snprintf(path, sizeof(path), "%s/%s.%s%s%s.txt", dir, coll_plan_kind_name(a->kind), a->name,
	         layout_text ? "." : "", layout_text ? layout_text : "");
	REQUIRE(!layout_text || plan_layout_parse(layout_text, "cyclic", NULL, &layout, &size));
	REQUIRE(plan_set_build_layout(&set, a, layout, size, plan_kind_has_root(a->kind) ? 1 : 0, false, PLAN_UNIFORM,
	                              why, sizeof(why)) == COLL_OK,
	        "%s", why);
	text = text_of(&set);
	plan_set_free(&set);
	coll_layout_destroy(&layout);
	REQUIRE(text);
	if (write_anew)
		write_file(path, text);
	else
		check_file(path, text);
	free(text);
}

static void every_algorithm_emits_its_golden_text(void)
{
	for (size_t i = 0; i < coll_algos_count; i++)
		if (coll_algos[i].cost)
			emits(&coll_algos[i], NULL);
}

static void rows_that_read_the_layout_emit_theirs(void)
{
	for (size_t i = 0; i < coll_algos_count; i++)
		if (coll_algos[i].split) {
			emits(&coll_algos[i], "2x2");
			emits(&coll_algos[i], "1,3");
		}
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	dir = argv[1];
	write_anew = argc > 2 && strcmp(argv[2], "--write") == 0;
	PLAIN_RUN(every_algorithm_emits_its_golden_text);
	PLAIN_RUN(rows_that_read_the_layout_emit_theirs);
	return plain_summary();
}
