/*
 * The command line of collrun. Whatever is wrong is refused by name with exit status 2; nothing is started before all
 * of it is understood.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "base/number.h"
#include "coll/coll.h"
#include "collrun_options.h"
#include "tools/common/host.h"

enum { USAGE = 2 };

static const char help[] =
        "usage: collrun -n N [options] program [arguments]\n"
        "       collrun -H host1:2,host2:2 [options] program [arguments]\n"
        "\n"
        "Start N processes of program, the ranks of one job, and wait for them.\n"
        "\n"
        "  -n, --np N            number of ranks (default: all slots of the hosts)\n"
        "  -H, --host LIST       hosts and their slots: a:2,b:2 (one slot without a number). Without\n"
        "                        hosts, those of the allocation: Slurm, PBS, LSF, Grid Engine\n"
        "      --hostfile FILE   the same, a line each: \"a:2\", \"a slots=2\" or \"a 2\"; # comments\n"
        "      --oversubscribe   let hosts have more ranks than slots\n"
        "  -x NAME[=VALUE]       give this variable to all ranks (COLL_* always go along)\n"
        "      --bind KIND       bind ranks to a core each, to a numa node each, or none (default)\n"
        "      --stdin RANK      give standard input to rank 0 (0, default), or leave it alone (none)\n"
        "      --output DIR      write DIR/rank.R.out and DIR/rank.R.err instead of our own output\n"
        "      --prefix          begin each line of output with its rank, or\n"
        "      --no-prefix       leave lines as they are (default: once a second rank writes)\n"
        "      --grace S         seconds that ranks have to end by themselves after a failure or a\n"
        "                        signal (default 3; 0: for ever). A second signal ends them at once\n"
        "      --timeout S       end the job after S seconds (exit status 124)\n"
        "      --restart N       start the whole job anew when it fails, up to N times\n"
        "      --ssh COMMAND     instead of ssh and its options, or srun in Slurm (or COLLRUN_SSH)\n"
        "      --remote PATH     collrun on the other hosts (default: the path of this one)\n"
        "      --root HOST[:PORT]  where rank 0 is reached, when the choice by route is wrong\n"
        "      --dry-run         print the placement and the commands, and start nothing\n"
        "  -v, --verbose         say what is started and how each rank ends\n"
        "      --                the options end here\n"
        "  -V, --version; -h, --help\n"
        "\n"
        "INT, TERM and HUP end the job; USR1, USR2, TSTP, CONT and WINCH go to all ranks. The exit\n"
        "status is that of the first rank that failed (128 + signal if it was killed), 0 if none did.\n";

int options_refuse(const char *format, ...)
{
	va_list ap;

	fputs("collrun: ", stderr);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputs(" (try --help)\n", stderr);
	return USAGE;
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
		return options_refuse("-x %s: expected NAME or NAME=VALUE", text);
	if (strchr(text, '=')) {
		add_env(o, text);
		return -1;
	}
	value = getenv(text);
	if (!value)
		return options_refuse("-x %s: no such variable", text);
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
	OPT_OVERSUBSCRIBE,
	OPT_X,
	OPT_BIND,
	OPT_STDIN,
	OPT_OUTPUT,
	OPT_PREFIX,
	OPT_NO_PREFIX,
	OPT_GRACE,
	OPT_TIMEOUT,
	OPT_RESTART,
	OPT_SSH,
	OPT_REMOTE,
	OPT_ROOT,
	OPT_DRY_RUN,
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
        {"--np", OPT_N, true},
        {"-H", OPT_HOST, true},
        {"--host", OPT_HOST, true},
        {"--hostfile", OPT_HOSTFILE, true},
        {"--oversubscribe", OPT_OVERSUBSCRIBE, false},
        {"-x", OPT_X, true},
        {"--bind", OPT_BIND, true},
        {"--stdin", OPT_STDIN, true},
        {"--output", OPT_OUTPUT, true},
        {"--prefix", OPT_PREFIX, false},
        {"--no-prefix", OPT_NO_PREFIX, false},
        {"--grace", OPT_GRACE, true},
        {"--timeout", OPT_TIMEOUT, true},
        {"--restart", OPT_RESTART, true},
        {"--ssh", OPT_SSH, true},
        {"--remote", OPT_REMOTE, true},
        {"--root", OPT_ROOT, true},
        {"--dry-run", OPT_DRY_RUN, false},
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
		return options_refuse("--bind %s: expected core, numa or none", value);
	if (o->bind != COLL_BIND_NONE && !coll_topology_known())
		return options_refuse("--bind %s: this collrun was built without hwloc", value);
	return -1;
}

static int set_seconds(const char *name, const char *value, double least, double *seconds)
{
	char *end;

	*seconds = strtod(value, &end);
	if (end == value || *end || !(*seconds >= least) || *seconds > 1e9)
		return options_refuse("%s %s: expected a number of seconds", name, value);
	return -1;
}

static int set_stdin(struct options *o, const char *value)
{
	o->input = strcmp(value, "0") == 0;
	return o->input || strcmp(value, "none") == 0 ? -1 : options_refuse("--stdin %s: expected 0 or none", value);
}

static int apply(struct options *o, enum option_id id, const char *value)
{
	switch (id) {
	case OPT_N:
		return coll_number_parse(value, 1, RANKS_MAX, &o->size)
		               ? -1
		               : options_refuse("-n %s: expected a number of ranks", value);
	case OPT_HOST: return hosts_add_list(o, value);
	case OPT_HOSTFILE: return hosts_read_file(o, value);
	case OPT_OVERSUBSCRIBE: o->oversubscribe = true; return -1;
	case OPT_X: return forward(o, value);
	case OPT_BIND: return set_bind(o, value);
	case OPT_STDIN: return set_stdin(o, value);
	case OPT_OUTPUT: o->output = value; return -1;
	case OPT_PREFIX: o->prefix = PREFIX_ALWAYS; return -1;
	case OPT_NO_PREFIX: o->prefix = PREFIX_NEVER; return -1;
	case OPT_GRACE: return set_seconds("--grace", value, 0, &o->grace_s);
	case OPT_TIMEOUT: return set_seconds("--timeout", value, 1e-9, &o->timeout_s);
	case OPT_RESTART:
		return coll_number_parse(value, 0, RANKS_MAX, &o->restarts)
		               ? -1
		               : options_refuse("--restart %s: expected a number of times", value);
	case OPT_SSH: o->ssh = value; return -1;
	case OPT_REMOTE: o->remote = value; return -1;
	case OPT_ROOT: o->root = value; return -1;
	case OPT_DRY_RUN: o->dry_run = true; return -1;
	case OPT_VERBOSE: o->verbose = true; return -1;
	case OPT_VERSION: printf("collrun %s\n", coll_version_text()); return 0;
	case OPT_HELP: fputs(help, stdout); return 0;
	}
	return USAGE;
}

static int unknown(const char *arg, size_t name_bytes)
{
	const char *names[sizeof(table) / sizeof(table[0])];
	char name[64];

	for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++)
		names[k] = table[k].name;
	snprintf(name, sizeof(name), "%.*s", (int)name_bytes, arg);
	return options_refuse("unknown option %s%s", arg,
	                      coll_guess(name, names, sizeof(table) / sizeof(table[0])).text);
}

/* One option at argv[*i]; "--name=value" and "--name value" are the same, and so are "-n2" and "-n 2". */
static int parse_one(struct options *o, int argc, char **argv, int *i)
{
	const char *arg = argv[*i], *eq = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
	const size_t n = eq ? (size_t)(eq - arg) : strlen(arg);

	for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++) {
		if (strlen(table[k].name) != n || strncmp(table[k].name, arg, n) != 0)
			continue;
		if (!table[k].value)
			return eq ? options_refuse("%.*s takes no value", (int)n, arg) : apply(o, table[k].id, NULL);
		if (!eq && ++*i >= argc)
			return options_refuse("%s needs a value", arg);
		return apply(o, table[k].id, eq ? eq + 1 : argv[*i]);
	}
	if (strncmp(arg, "-np", 3) == 0 && arg[3] >= '0' && arg[3] <= '9')
		return apply(o, OPT_N, arg + 3);
	if (strncmp(arg, "-n", 2) == 0 && arg[2] >= '0' && arg[2] <= '9')
		return apply(o, OPT_N, arg + 2);
	if (strncmp(arg, "-x", 2) == 0 && strchr(arg, '='))
		return apply(o, OPT_X, arg + 2);
	return unknown(arg, n);
}

int options_parse(struct options *o, int argc, char **argv)
{
	int rc = -1, i = 1;

	memset(o, 0, sizeof(*o));
	o->input = true;
	o->grace_s = 3;
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
		return options_refuse("no program given");
	o->program = argv + i;
	rc = hosts_place(o);
	link_choose(o);
	if (rc >= 0 || !o->dry_run)
		return rc;
	hosts_print(o);
	return 0;
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
