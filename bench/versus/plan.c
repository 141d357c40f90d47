/*
 * See plan.h. Nothing is guessed: what makes no sense ends the program with a sentence.
 */
#include "plan.h"

#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES_MAX = 32, MS_MAX = 10000 };

static const size_t default_sizes[] = {8, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20};

static const char usage_text[] =
        "usage: versus [flags] OLD.so NEW.so\n"
        "Calls two builds of libcoll by turns and prints old time / new time: above 1 the new one is faster.\n"
        "      --blocks N      blocks of each cell, 3 to 1001 (default 9)\n"
        "      --ms T          a turn takes T milliseconds or more; a block has 12 turns of each, above 4 MiB 8 "
        "(default 5)\n"
        "      --below R       cells whose median ratio is below R are repeated with 27 blocks, and fail if their\n"
        "                      upper quartile is below R too; 0: never (default 0.97)\n"
        "      --cells C/B/M   only these: collectives, bytes and buffers, each a list or *, e.g.\n"
        "                      all_reduce,broadcast/8,4K/plain; may be given several times; any bytes may be named\n"
        "                      collectives: all_reduce broadcast all_gather reduce_scatter all_to_all\n"
        "                      buffers: plain library, and device (of CUDA; only if it is named: * is the other two)\n"
        "      --ranks N       processes, 2 to 128 (default 2)\n"
        "      --netns A,B     ranks are spread over these network namespaces (ip netns add), as hosts of those "
        "names;\n"
        "                      @A: a host of that name in this one\n"
        "      --old-setting N=V  a setting of the old library alone: the cost of what it turns off, with one file "
        "twice\n"
        "      --in-place      in place instead of out of place\n"
        "      --touch         rewrite the input before each call: up to 4 KiB inside the time, above outside; not of\n"
        "                      a device\n"
        "      --json FILE     write the results as JSON too\n"
        "  -h, --help          this text\n"
        "Settings come from the environment (COLL_TRANSPORTS=tcp ...). The same file twice shows the noise.\n"
        "Exit status: 0; 1 a cell is slower, a result was wrong or a call failed; 2 nothing was measured.\n";

enum flag { BLOCKS = 256, MS, BELOW, CELLS, RANKS, NETNS, IN_PLACE, TOUCH, JSON, OLD_SETTING };

static const struct option long_flags[] = {
        {"blocks", 1, NULL, BLOCKS}, {"ms", 1, NULL, MS},
        {"below", 1, NULL, BELOW},   {"cells", 1, NULL, CELLS},
        {"ranks", 1, NULL, RANKS},   {"in-place", 0, NULL, IN_PLACE},
        {"touch", 0, NULL, TOUCH},   {"json", 1, NULL, JSON},
        {"netns", 1, NULL, NETNS},   {"old-setting", 1, NULL, OLD_SETTING},
        {"help", 0, NULL, 'h'},      {NULL, 0, NULL, 0},
};

/* ---- Flags ---------------------------------------------------------------- */

static bool parse_double(const char *text, double min, double max, double *value)
{
	char *end;
	const double v = strtod(text, &end);

	if (end == text || *end || !(v >= min && v <= max))
		return false;
	*value = v;
	return true;
}

static bool parse_int(const char *text, int min, int max, int *value)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(text, &end, 10);
	if (errno || end == text || *end || v < min || v > max)
		return false;
	*value = (int)v;
	return true;
}

/* Bytes: whole floats, with K, Ki, M, Mi (powers of 1024). */
static bool parse_size(const char *text, size_t *value)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || *text == '-' || v > (1ULL << 40))
		return false;
	if (*end == 'K' || *end == 'k' || *end == 'M' || *end == 'm') {
		v <<= *end == 'K' || *end == 'k' ? 10 : 20;
		end++;
		if (*end == 'i')
			end++;
	}
	if (*end || v == 0 || v % sizeof(float) || v > (1ULL << 40))
		return false;
	*value = (size_t)v;
	return true;
}

static bool add_cell(struct plan *p, const struct cell *c)
{
	for (int i = 0; i < p->cells; i++)
		if (p->cell[i].kind == c->kind && p->cell[i].len_bytes == c->len_bytes &&
		    p->cell[i].memory == c->memory)
			return true;
	if (p->cells == PLAN_CELLS_MAX)
		return false;
	p->cell[p->cells++] = *c;
	return true;
}

/* One of the three lists of --cells: calls take() with each item, or says which item it does not take. */
static const char *parse_list(char *list, bool (*take)(const char *item, void *arg), void *arg)
{
	char *rest = list, *item;

	while ((item = strsep(&rest, ",")))
		if (!take(item, arg))
			return item;
	return NULL;
}

struct choice {
	bool kind[CELL_KINDS], memory[CELL_MEMORIES];
	size_t size[SIZES_MAX];
	int sizes;
};

static bool take_kind(const char *item, void *arg)
{
	struct choice *c = arg;
	bool found = false;

	for (int k = 0; k < CELL_KINDS; k++)
		if (strcmp(item, "*") == 0 || strcmp(item, cell_kind_names[k]) == 0)
			found = c->kind[k] = true;
	return found;
}

static bool take_size(const char *item, void *arg)
{
	struct choice *c = arg;

	if (strcmp(item, "*") == 0) {
		c->sizes = (int)(sizeof(default_sizes) / sizeof(*default_sizes));
		memcpy(c->size, default_sizes, sizeof(default_sizes));
		return true;
	}
	return c->sizes < SIZES_MAX && parse_size(item, &c->size[c->sizes]) && ++c->sizes;
}

static bool take_memory(const char *item, void *arg)
{
	struct choice *c = arg;
	bool found = false;

	for (int k = 0; k < CELL_MEMORIES; k++)
		if ((strcmp(item, "*") == 0 && k != DEVICE) || strcmp(item, cell_memory_names[k]) == 0)
			found = c->memory[k] = true;
	return found;
}

/* Adds the cells that text chooses. False after a message. */
static bool choose_cells(struct plan *p, const char *text)
{
	static bool (*const take[3])(const char *, void *) = {take_kind, take_size, take_memory};
	static const char *const what[3] = {"collective", "size in bytes", "kind of buffers"};
	struct choice c = {.sizes = 0};
	char copy[1024], *rest = copy, *list;
	int lists = 0;

	if (strlen(text) >= sizeof(copy)) {
		fprintf(stderr, "versus: --cells is too long\n");
		return false;
	}
	strcpy(copy, text);
	for (; (list = strsep(&rest, "/")) && lists < 3; lists++) {
		const char *wrong = parse_list(list, take[lists], &c);

		if (wrong) {
			fprintf(stderr, "versus: --cells %s: '%s' is no %s\n", text, wrong, what[lists]);
			return false;
		}
	}
	if (list || lists != 3) {
		fprintf(stderr, "versus: --cells %s: wants COLLECTIVES/BYTES/BUFFERS, '*' for all\n", text);
		return false;
	}
	for (int k = 0; k < CELL_KINDS; k++)
		for (int s = 0; s < c.sizes && c.kind[k]; s++)
			for (int m = 0; m < CELL_MEMORIES; m++) {
				const struct cell cell = {(enum cell_kind)k, c.size[s], (enum cell_memory)m};

				if (c.memory[m] && !add_cell(p, &cell)) {
					fprintf(stderr, "versus: more than %d cells\n", PLAN_CELLS_MAX);
					return false;
				}
			}
	return true;
}

static bool take_host(const char *item, void *arg)
{
	struct plan *p = arg;

	if (!*item || p->hosts == RANKS_MAX)
		return false;
	p->host[p->hosts++] = (char *)(uintptr_t)item;
	return true;
}

/* One flag; returns NULL, or what its value should have been ("": said already). */
static const char *set(struct plan *p, int flag, const char *v)
{
	double ms;

	switch (flag) {
	case BLOCKS: return parse_int(v, 3, PLAN_BLOCKS_MAX, &p->blocks) ? NULL : "3 to 1001";
	case MS:
		if (!parse_double(v, 0.01, MS_MAX, &ms))
			return "milliseconds, 0.01 to 10000";
		p->how.turn_s = ms / 1000;
		return NULL;
	case BELOW: return parse_double(v, 0, 1e6, &p->below) ? NULL : "a ratio, 0 or more";
	case CELLS: return choose_cells(p, v) ? NULL : "";
	case RANKS: return parse_int(v, 2, RANKS_MAX, &p->ranks) ? NULL : "2 to 128";
	case OLD_SETTING: return (p->how.old_setting = strchr(v, '=') ? v : NULL) ? NULL : "NAME=VALUE";
	case NETNS: return parse_list(strdup(v), take_host, p) ? "names of network namespaces" : NULL;
	case IN_PLACE: p->how.in_place = true; return NULL;
	case TOUCH: p->how.touch = true; return NULL;
	default: p->json = v; return *v ? NULL : "a file name";
	}
}

static const char *flag_name(int flag)
{
	for (const struct option *o = long_flags; o->name; o++)
		if (o->val == flag)
			return o->name;
	return "";
}

static int find_libraries(struct plan *p)
{
	for (int k = 0; k < 2; k++)
		if (!realpath(p->path[k], p->real[k])) {
			fprintf(stderr, "versus: %s library: %s: %s\n", k ? "new" : "old", p->path[k], strerror(errno));
			return PLAN_REFUSED;
		}
	return -1;
}

int plan_parse(struct plan *p, int argc, char **argv)
{
	int flag;

	*p = (struct plan){.ranks = 2, .blocks = 9, .how = {.turn_s = 0.005}, .below = 0.97};
	opterr = 0;
	while ((flag = getopt_long(argc, argv, ":h", long_flags, NULL)) != -1) {
		const char *wants;

		if (flag == 'h') {
			fputs(usage_text, stdout);
			return 0;
		}
		if (flag == ':' || flag == '?') {
			fprintf(stderr, "versus: %s %s\n%s", flag == ':' ? "no value for" : "wrong flag",
			        argv[optind - 1], usage_text);
			return PLAN_REFUSED;
		}
		wants = set(p, flag, optarg);
		if (wants && *wants)
			fprintf(stderr, "versus: --%s %s: wants %s\n", flag_name(flag), optarg, wants);
		if (wants)
			return PLAN_REFUSED;
	}
	if (argc - optind != 2) {
		fprintf(stderr, "versus: wants two libraries, not %d\n%s", argc - optind, usage_text);
		return PLAN_REFUSED;
	}
	if (p->hosts > p->ranks) {
		fprintf(stderr, "versus: %d network namespaces for %d ranks\n", p->hosts, p->ranks);
		return PLAN_REFUSED;
	}
	p->path[0] = argv[optind];
	p->path[1] = argv[optind + 1];
	if (p->cells == 0 && !choose_cells(p, "*/*/*"))
		return PLAN_REFUSED;
	return find_libraries(p);
}
