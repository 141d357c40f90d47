/*
 * What the kernel says without hwloc: how many cores this process may use, and
 * names. Reads sched_getaffinity, sysfs and the container's quota each time; keeps
 * nothing.
 */
#include "topology/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_line(const char *path, char *buf, size_t len_bytes)
{
	FILE *f = fopen(path, "re");
	bool ok;

	if (!f)
		return false;
	ok = fgets(buf, (int)len_bytes, f) != NULL;
	fclose(f);
	return ok;
}

/* Whether cpu is the first usable hardware thread of its core. The list looks like
 * "0,8" or "0-1". */
static bool leads_core(const cpu_set_t *usable, int cpu)
{
	char path[96], list[256];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
	if (!read_line(path, list, sizeof(list)))
		return true;
	for (char *p = list; *p && *p != '\n';) {
		char *end;
		long first = strtol(p, &end, 10), last = first;

		if (end == p)
			return true;
		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		for (long c = first; c <= last && c < cpu; c++)
			if (CPU_ISSET((size_t)c, usable))
				return false;
		p = *end == ',' ? end + 1 : end;
	}
	return true;
}

/* "150000 100000": one and a half CPUs; "max 100000": no limit (0 here). */
static int quota(void)
{
	char text[64];
	long long used = 0, period = 0;

	if (!read_line("/sys/fs/cgroup/cpu.max", text, sizeof(text)) ||
	    sscanf(text, "%lld %lld", &used, &period) != 2 || used <= 0 || period <= 0)
		return 0;
	return (int)((used + period - 1) / period);
}

int coll_topology_cores(void)
{
	const int limit = quota();
	cpu_set_t usable;
	int cores = 0;

	if (sched_getaffinity(0, sizeof(usable), &usable) < 0) {
		cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
	} else {
		for (int c = 0; c < COLL_CPUS_MAX; c++)
			cores += CPU_ISSET((size_t)c, &usable) && leads_core(&usable, c);
	}
	if (limit > 0 && limit < cores)
		cores = limit;
	return cores > 0 ? cores : 1;
}
