/*
 * The command line of collrun and its hosts. Whatever is wrong is refused by
 * name with exit status 2; nothing is started before all of it is understood.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "coll/coll.h"
#include "collrun.h"
#include "tools/common/host.h"

enum { USAGE = 2, RANKS_MAX = 1 << 20 };

static const char help[] =
        "usage: collrun -n N [options] program [arguments]\n"
        "       collrun -H host1:2,host2:2 [options] program [arguments]\n"
        "\n"
        "Start N processes of program, the ranks of one job, and wait for them.\n"
        "\n"
        "  -n, -np N             number of ranks (default: all slots of the hosts)\n"
        "  -H, --host LIST       hosts and their slots: a:2,b:2 (one slot without a number)\n"
        "      --hostfile FILE   the same, a line each: \"a:2\", \"a slots=2\" or \"a 2\"; # comments\n"
        "  -x NAME[=VALUE]       give this variable to all ranks (COLL_* always go along)\n"
        "      --bind KIND       bind ranks to a core each, to a numa node each, or none (default)\n"
        "      --output DIR      write DIR/rank.R.out and DIR/rank.R.err instead of our own output\n"
        "      --prefix          begin each line of output with its rank (default), or\n"
        "      --no-prefix       leave lines as they are\n"
        "      --timeout S       end the job after S seconds (exit status 124)\n"
        "      --ssh COMMAND     instead of \"ssh -o BatchMode=yes\" (or COLLRUN_SSH)\n"
        "      --remote PATH     collrun on the other hosts (default: the path of this one)\n"
        "      --root HOST[:PORT]  where rank 0 is reached, when the choice by route is wrong\n"
        "  -v, --verbose         say what is started and how each rank ends\n"
        "      --                the options end here\n"
        "  -V, --version; -h, --help\n"
        "\n"
        "The exit status is that of the first rank that failed (128 + signal if it was\n"
        "killed), 0 if none did. After a failure the others have 3 s to end by themselves.\n";

static int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int refuse(const char *format, ...)
{
	va_list ap;

	fputs("collrun: ", stderr);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputs(" (try --help)\n", stderr);
	return USAGE;
}

/* ---- Hosts ------------------------------------------------------------- */

static int add_host(struct options *o, const char *name, int slots)
{
	if (!*name || *name == '-')
		return refuse("\"%s\" is not a host name", name);
	for (int i = 0; i < o->host_count; i++) {
		if (strcmp(o->hosts[i].name, name) == 0) {
			o->hosts[i].slots += slots;
			return -1;
		}
	}
	o->hosts = must(realloc(o->hosts, (size_t)(o->host_count + 1) * sizeof(*o->hosts)));
	o->hosts[o->host_count++] = (struct host){.name = must(strdup(name)), .slots = slots};
	return -1;
}

/* "a", "a:2", "[::1]:2", "fe80::1" (more than one colon: no slots) */
static int add_host_text(struct options *o, const char *text)
{
	char name[256];
	const char *colon = strrchr(text, ':');
	int slots = 1;

	if (colon && strchr(text, ':') != colon && colon > text && colon[-1] != ']')
		colon = NULL;
	if (colon && !coll_number_parse(colon + 1, 1, RANKS_MAX, &slots))
		return refuse("host \"%s\": expected a number of slots after the colon", text);
	snprintf(name, sizeof(name), "%.*s", (int)(colon ? colon - text : (long)strlen(text)), text);
	if (*name == '[' && name[strlen(name) - 1] == ']') {
		name[strlen(name) - 1] = 0;
		memmove(name, name + 1, strlen(name));
	}
	return add_host(o, name, slots);
}

static int add_host_list(struct options *o, const char *list)
{
	char *copy = must(strdup(list)), *save = NULL;
	int rc = -1;

	if (strspn(list, ",") == strlen(list))
		rc = refuse("-H \"%s\": it names no host", list);
	for (char *t = strtok_r(copy, ",", &save); t && rc < 0; t = strtok_r(NULL, ",", &save))
		rc = add_host_text(o, t);
	free(copy);
	return rc;
}

static int add_host_line(struct options *o, char *line, const char *path, int number)
{
	char *save = NULL, *name = strtok_r(line, " \t\r\n", &save), *more = strtok_r(NULL, " \t\r\n", &save);
	int slots;

	if (!name || *name == '#')
		return -1;
	if (!more || *more == '#')
		return add_host_text(o, name);
	if (strncmp(more, "slots=", 6) == 0)
		more += 6;
	if (!coll_number_parse(more, 1, RANKS_MAX, &slots))
		return refuse("%s:%d: \"%s\" is not a number of slots", path, number, more);
	return add_host(o, name, slots);
}

static int all_slots(const struct options *o)
{
	int slots = 0;

	for (int i = 0; i < o->host_count; i++)
		slots += o->hosts[i].slots;
	return slots;
}

static int read_host_file(struct options *o, const char *path)
{
	FILE *f = fopen(path, "re");
	const int before = all_slots(o);
	char *line = NULL;
	size_t cap = 0;
	int rc = -1;

	if (!f)
		return refuse("--hostfile %s: %s", path, strerror(errno));
	errno = 0;
	for (int n = 1; rc < 0 && getline(&line, &cap, f) > 0; n++)
		rc = add_host_line(o, line, path, n);
	if (rc < 0 && !feof(f)) /* a directory can be opened, too */
		rc = refuse("--hostfile %s: %s", path, strerror(errno));
	else if (rc < 0 && all_slots(o) == before)
		rc = refuse("--hostfile %s: it names no host", path);
	free(line);
	fclose(f);
	return rc;
}

/* An address of one of our own interfaces. */
static bool own_address(const char *text)
{
	unsigned char four[4], six[16];
	const bool is4 = inet_pton(AF_INET, text, four) == 1, is6 = inet_pton(AF_INET6, text, six) == 1;
	struct ifaddrs *list = NULL;
	bool found = false;

	if ((!is4 && !is6) || getifaddrs(&list) < 0)
		return false;
	for (struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
		if (i->ifa_addr && is4 && i->ifa_addr->sa_family == AF_INET)
			found = memcmp(&((struct sockaddr_in *)i->ifa_addr)->sin_addr, four, 4) == 0;
		if (i->ifa_addr && is6 && i->ifa_addr->sa_family == AF_INET6)
			found = memcmp(&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr, six, 16) == 0;
	}
	freeifaddrs(list);
	return found;
}

/* No name server is asked: what is not evidently this host is reached by ssh. */
static bool is_local(const char *name)
{
	char self[256] = "";
	size_t n;

	gethostname(self, sizeof(self) - 1);
	n = strcspn(self, ".");
	return strcmp(name, "localhost") == 0 || strcmp(name, self) == 0 ||
	       (strlen(name) == n && strncmp(name, self, n) == 0) || own_address(name);
}

/* All names of this host are one host. */
static void merge_local(struct options *o)
{
	int kept = 0, first = -1;

	for (int i = 0; i < o->host_count; i++) {
		o->hosts[i].local = is_local(o->hosts[i].name);
		if (o->hosts[i].local && first >= 0) {
			o->hosts[first].slots += o->hosts[i].slots;
			free((void *)o->hosts[i].name);
			continue;
		}
		if (o->hosts[i].local)
			first = kept;
		o->hosts[kept++] = o->hosts[i];
	}
	o->host_count = kept;
}

/* Ranks fill the hosts in order. */
static int place_ranks(struct options *o)
{
	int slots, rank = 0;

	if (o->host_count == 0 && o->size == 0)
		return refuse("the number of ranks is missing: give -n or -H");
	if (o->host_count == 0)
		add_host(o, "localhost", o->size);
	merge_local(o);
	slots = all_slots(o);
	if (o->size == 0)
		o->size = slots;
	if (o->size > slots)
		return refuse("-n %d: the hosts have %d slots", o->size, slots);
	for (int i = 0; i < o->host_count; i++) {
		struct host *h = &o->hosts[i];

		h->ranks = must(calloc((size_t)h->slots, sizeof(*h->ranks)));
		while (h->rank_count < h->slots && rank < o->size)
			h->ranks[h->rank_count++] = rank++;
	}
	while (o->host_count > 0 && o->hosts[o->host_count - 1].rank_count == 0) {
		o->host_count--;
		free(o->hosts[o->host_count].ranks);
		free((void *)o->hosts[o->host_count].name);
	}
	return -1;
}

/* ---- Environment ------------------------------------------------------- */

static void add_env(struct options *o, const char *pair)
{
	const size_t n = (size_t)(strchr(pair, '=') - pair) + 1;

	for (int i = 0; i < o->env_count; i++) {
		if (strncmp(o->env[i], pair, n) == 0) {
			free(o->env[i]);
			o->env[i] = must(strdup(pair));
			return;
		}
	}
	o->env = must(realloc(o->env, (size_t)(o->env_count + 2) * sizeof(*o->env)));
	o->env[o->env_count++] = must(strdup(pair));
	o->env[o->env_count] = NULL;
}

static int forward(struct options *o, const char *text)
{
	const char *value;
	char *pair;

	if (!*text || *text == '=')
		return refuse("-x %s: expected NAME or NAME=VALUE", text);
	if (strchr(text, '=')) {
		add_env(o, text);
		return -1;
	}
	value = getenv(text);
	if (!value)
		return refuse("-x %s: no such variable", text);
	pair = must(malloc(strlen(text) + strlen(value) + 2));
	sprintf(pair, "%s=%s", text, value);
	add_env(o, pair);
	free(pair);
	return -1;
}

static void forward_own(struct options *o)
{
	extern char **environ;

	for (char **e = environ; *e; e++)
		if (strncmp(*e, "COLL_", 5) == 0 && strchr(*e, '='))
			add_env(o, *e);
}

/* ---- The command line -------------------------------------------------- */

enum option_id {
	OPT_N,
	OPT_HOST,
	OPT_HOSTFILE,
	OPT_X,
	OPT_BIND,
	OPT_OUTPUT,
	OPT_PREFIX,
	OPT_NO_PREFIX,
	OPT_TIMEOUT,
	OPT_SSH,
	OPT_REMOTE,
	OPT_ROOT,
	OPT_VERBOSE,
	OPT_VERSION,
	OPT_HELP
};

static const struct {
	const char *name;
	enum option_id id;
	bool value;
} table[] = {
        {"-n", OPT_N, true},
        {"-np", OPT_N, true},
        {"-H", OPT_HOST, true},
        {"--host", OPT_HOST, true},
        {"--hostfile", OPT_HOSTFILE, true},
        {"-x", OPT_X, true},
        {"--bind", OPT_BIND, true},
        {"--output", OPT_OUTPUT, true},
        {"--prefix", OPT_PREFIX, false},
        {"--no-prefix", OPT_NO_PREFIX, false},
        {"--timeout", OPT_TIMEOUT, true},
        {"--ssh", OPT_SSH, true},
        {"--remote", OPT_REMOTE, true},
        {"--root", OPT_ROOT, true},
        {"-v", OPT_VERBOSE, false},
        {"--verbose", OPT_VERBOSE, false},
        {"-V", OPT_VERSION, false},
        {"--version", OPT_VERSION, false},
        {"-h", OPT_HELP, false},
        {"--help", OPT_HELP, false},
};

static int set_bind(struct options *o, const char *value)
{
	if (!coll_topology_bind_named(value, &o->bind))
		return refuse("--bind %s: expected core, numa or none", value);
	if (o->bind != COLL_BIND_NONE && !coll_topology_known())
		return refuse("--bind %s: this collrun was built without hwloc", value);
	return -1;
}

static int set_timeout(struct options *o, const char *value)
{
	char *end;

	o->timeout_s = strtod(value, &end);
	if (end == value || *end || !(o->timeout_s > 0) || o->timeout_s > 1e9)
		return refuse("--timeout %s: expected a number of seconds", value);
	return -1;
}

static int apply(struct options *o, enum option_id id, const char *value)
{
	switch (id) {
	case OPT_N:
		return coll_number_parse(value, 1, RANKS_MAX, &o->size)
		               ? -1
		               : refuse("-n %s: expected a number of ranks", value);
	case OPT_HOST: return add_host_list(o, value);
	case OPT_HOSTFILE: return read_host_file(o, value);
	case OPT_X: return forward(o, value);
	case OPT_BIND: return set_bind(o, value);
	case OPT_OUTPUT: o->output = value; return -1;
	case OPT_PREFIX: o->prefix = true; return -1;
	case OPT_NO_PREFIX: o->prefix = false; return -1;
	case OPT_TIMEOUT: return set_timeout(o, value);
	case OPT_SSH: o->ssh = value; return -1;
	case OPT_REMOTE: o->remote = value; return -1;
	case OPT_ROOT: o->root = value; return -1;
	case OPT_VERBOSE: o->verbose = true; return -1;
	case OPT_VERSION:
		printf("collrun %d.%d.%d\n", COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
		return 0;
	case OPT_HELP: fputs(help, stdout); return 0;
	}
	return USAGE;
}

/* One option at argv[*i]; "--name=value" and "--name value" are the same. */
static int parse_one(struct options *o, int argc, char **argv, int *i)
{
	const char *arg = argv[*i], *eq = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
	const size_t n = eq ? (size_t)(eq - arg) : strlen(arg);

	for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++) {
		if (strlen(table[k].name) != n || strncmp(table[k].name, arg, n) != 0)
			continue;
		if (!table[k].value)
			return eq ? refuse("%.*s takes no value", (int)n, arg) : apply(o, table[k].id, NULL);
		if (!eq && ++*i >= argc)
			return refuse("%s needs a value", arg);
		return apply(o, table[k].id, eq ? eq + 1 : argv[*i]);
	}
	return refuse("unknown option %s", arg);
}

int options_parse(struct options *o, int argc, char **argv)
{
	const char *ssh = getenv("COLLRUN_SSH");
	int rc = -1, i = 1;

	memset(o, 0, sizeof(*o));
	o->prefix = true;
	o->ssh = ssh && *ssh ? ssh : "ssh -o BatchMode=yes";
	forward_own(o);
	for (; i < argc && argv[i][0] == '-' && rc < 0; i++) {
		if (strcmp(argv[i], "--") == 0) {
			i++;
			break;
		}
		rc = parse_one(o, argc, argv, &i);
	}
	if (rc >= 0)
		return rc;
	if (i >= argc)
		return refuse("no program given");
	o->program = argv + i;
	return place_ranks(o);
}

void options_free(struct options *o)
{
	for (int i = 0; i < o->host_count; i++) {
		free(o->hosts[i].ranks);
		free((void *)o->hosts[i].name);
	}
	for (int i = 0; i < o->env_count; i++)
		free(o->env[i]);
	free(o->hosts);
	free(o->env);
	memset(o, 0, sizeof(*o));
}
