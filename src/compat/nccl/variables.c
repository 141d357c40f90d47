/*
 * See variables.h. Owns the texts of the settings that it makes. A COLL_ setting of the environment wins over what a
 * variable of NCCL says. Variables that have no effect are named once in the lines of NCCL_DEBUG=INFO.
 */
#include "compat/nccl/variables.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/delay.h"
#include "compat/nccl/error.h"
#include "compat/nccl/say.h"

enum { SETTINGS = 4 };

static char texts[SETTINGS][COLL_TEXT_MAX + 32];
static const char *list[SETTINGS + 1];
static char fault[512]; /* "": none */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- Lists of names ---- */

struct names {
	bool exclude, whole;
	const char *list;
};

static struct names read_names(const char *variable)
{
	struct names n = {.list = variable};

	n.exclude = *n.list == '^';
	n.list += n.exclude;
	n.whole = *n.list == '=';
	n.list += n.whole;
	return n;
}

/* Whether an entry names it. port 0: entries have none. */
static bool fits(const struct names *n, const char *name, unsigned port)
{
	for (const char *p = n->list; *p;) {
		const size_t len = strcspn(p, ","), own = port ? strcspn(p, ":,") : len;
		const bool of_port = own == len || strtoul(p + own + 1, NULL, 10) == port;

		if (own > 0 && of_port && strncmp(p, name, own) == 0 && (!n->whole || strlen(name) == own))
			return true;
		p += len;
		p += strspn(p, ",");
	}
	return false;
}

/* Behind what is there. False: no room. */
static bool add(char *names, size_t names_bytes, const char *name)
{
	const size_t at = strlen(names), len = strlen(name);
	const bool more = at > 0 && names[at - 1] != '^';

	if (at + more + len + 1 > names_bytes)
		return false;
	snprintf(names + at, names_bytes - at, "%s%s", more ? "," : "", name);
	return true;
}

/* Those of the host that fit, or that do not: each once. */
static bool collect(const struct names *n, bool fitting, const struct ifaddrs *all, char *names, size_t names_bytes)
{
	bool room = true;

	for (const struct ifaddrs *i = all; i && room; i = i->ifa_next) {
		bool before = false;

		for (const struct ifaddrs *k = all; k != i; k = k->ifa_next)
			before = before || strcmp(k->ifa_name, i->ifa_name) == 0;
		if (!before && fits(n, i->ifa_name, 0) == fitting)
			room = add(names, names_bytes, i->ifa_name);
	}
	return room;
}

bool nccl_interfaces(const char *variable, const struct ifaddrs *all, char *names, size_t names_bytes)
{
	const struct names n = read_names(variable);

	strcpy(names, n.exclude ? "^" : "");
	if (collect(&n, true, all, names, names_bytes)) {
		if (n.exclude && names[1] == 0)
			names[0] = 0;
		return n.exclude || names[0];
	}
	/* Hosts of containers have hundreds of the excluded kind, and few others. */
	names[0] = 0;
	return n.exclude && collect(&n, false, all, names, names_bytes) && names[0];
}

bool nccl_devices(const char *variable, const struct coll_ib_port *ports, int n_ports, char *names, size_t names_bytes)
{
	const struct names n = read_names(variable);
	int left_out = 0;

	names[0] = 0;
	for (int i = 0; i < n_ports; i++) {
		char name[80];

		if (fits(&n, ports[i].device, ports[i].number) == n.exclude) {
			left_out++;
			continue;
		}
		snprintf(name, sizeof(name), "%s:%u", ports[i].device, ports[i].number);
		if (!add(names, names_bytes, name))
			return false;
	}
	if (n.exclude && left_out == 0)
		names[0] = 0;
	return names[0] || (n.exclude && left_out == 0);
}

/* ---- The environment ---- */

static const char *const obeyed[] = {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_DEBUG", "NCCL_DEBUG_FILE"};

static const char *value_of(int which)
{
	const char *v = getenv(obeyed[which]);

	return v && *v ? v : NULL;
}

/* A setting of the library comes first. */
static bool counts(int which, const char *setting)
{
	return value_of(which) && !getenv(setting);
}

static void set(int *n, const char *name, const char *value)
{
	snprintf(texts[*n], sizeof(texts[*n]), "%s=%s", name, value);
	list[*n] = texts[*n];
	++*n;
}

/* Known here: the variable's value, what is there, and what it became. */
static void take(int *n, int which, const char *setting, bool good, const char *names, const char *what)
{
	if (!good)
		snprintf(fault, sizeof(fault), "%s=%s: no %s of this host fits, or too many do", obeyed[which],
		         value_of(which), what);
	else if (names[0]) {
		nccl_say(NCCL_SAY_INFO, "%s=%s: %s=%s", obeyed[which], value_of(which), setting, names);
		set(n, setting, names);
	}
}

static void take_interfaces(int *n)
{
	char names[COLL_TEXT_MAX];
	struct ifaddrs *all = NULL;
	bool good;

	if (!counts(0, "COLL_INTERFACE") || getifaddrs(&all) != 0)
		return;
	good = nccl_interfaces(value_of(0), all, names, sizeof(names));
	freeifaddrs(all);
	take(n, 0, "COLL_INTERFACE", good, names, "interface");
}

/* A host without a device has nothing to choose from: the variable then says what other hosts have. */
static void take_devices(int *n)
{
	struct coll_ib_port *ports = counts(1, "COLL_RDMA_DEVICE") ? calloc(COLL_IB_PORTS_MAX, sizeof(*ports)) : NULL;
	char names[COLL_TEXT_MAX];
	int have;

	if (!ports)
		return;
	have = coll_ib_ports_list(COLL_IB_SYS, ports, COLL_IB_PORTS_MAX);
	if (have > 0)
		take(n, 1, "COLL_RDMA_DEVICE", nccl_devices(value_of(1), ports, have, names, sizeof(names)), names,
		     "RDMA port");
	free(ports);
}

static void name_others(void)
{
	for (char **e = environ; e && *e; e++) {
		const size_t len = strcspn(*e, "=");
		bool known = strncmp(*e, "NCCL_", 5) != 0;

		for (size_t i = 0; i < sizeof(obeyed) / sizeof(obeyed[0]); i++)
			known = known || (strlen(obeyed[i]) == len && strncmp(*e, obeyed[i], len) == 0);
		if (!known)
			nccl_say(NCCL_SAY_INFO, "%s: has no effect here", *e);
	}
}

/* NCCL has no time limits of its own, and its programs have theirs: so those that concern slow ranks are long. */
static void be_patient(int *n)
{
	char ms[16];

	snprintf(ms, sizeof(ms), "%d", COLL_DELAY_NCCL_CREATE_MS);
	set(n, "COLL_CREATE_TIMEOUT_MS", ms);
	snprintf(ms, sizeof(ms), "%d", COLL_DELAY_NCCL_ARRIVAL_MS);
	set(n, "COLL_ARRIVAL_TIMEOUT_MS", ms);
}

static void begin(void)
{
	int n = 0;

	if (!nccl_say_begin(value_of(2), value_of(3))) {
		nccl_say_begin("WARN", value_of(3));
		nccl_say(NCCL_SAY_WARN, "NCCL_DEBUG=%s: it is VERSION, WARN, INFO or TRACE", value_of(2));
	}
	be_patient(&n);
	take_interfaces(&n);
	take_devices(&n);
	name_others();
	coll_settings_defaults(list, "NCCL's variables");
}

ncclResult_t nccl_variables(const char *function)
{
	pthread_once(&once, begin);
	return fault[0] ? nccl_fail(ncclInvalidUsage, "%s: %s", function, fault) : ncclSuccess;
}
