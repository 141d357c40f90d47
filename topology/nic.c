/*
 * Reads /sys/class/infiniband, /sys/class/net and /sys/devices/system/node each time; keeps
 * nothing. hwloc tells the same distances: it has them from the same table.
 */
#include "topology/nic.h"

#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/first_line.h"

int coll_topology_nic_node(const char *sys, const char *name)
{
	char text[32], below[64];

	if (coll_first_line(text, sizeof(text), "%s/class/infiniband/%s/device/numa_node", sys, name) &&
	    atoi(text) >= 0)
		return atoi(text);
	if (!coll_first_line(below, sizeof(below), "%s/class/infiniband/%s/parent", sys, name))
		snprintf(below, sizeof(below), "%.63s", name);
	if (coll_first_line(text, sizeof(text), "%s/class/net/%s/device/numa_node", sys, below))
		return atoi(text);
	return -1;
}

/* The table has a row for each node that is there, and a column, too; their numbers may have gaps. */
int coll_topology_distance(const char *sys, int from, int to)
{
	char path[PATH_MAX], row[4096];
	char *at = row, *end;
	long d = COLL_TOPOLOGY_NEAR;

	if (from < 0 || to < 0)
		return COLL_TOPOLOGY_NEAR;
	if (!coll_first_line(row, sizeof(row), "%s/devices/system/node/node%d/distance", sys, from))
		return COLL_TOPOLOGY_NEAR;
	for (int node = 0; node <= to; node++) {
		snprintf(path, sizeof(path), "%s/devices/system/node/node%d", sys, node);
		DIR *there = opendir(path);

		if (!there)
			continue;
		closedir(there);
		d = strtol(at, &end, 10);
		if (end == at)
			return COLL_TOPOLOGY_NEAR;
		at = end;
	}
	return (int)d;
}

static bool is_there(const char *sys, const char *class, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/class/%s/%s", sys, class, name) < (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

bool coll_topology_nic_facts(const char *sys, const char *name, int *node, int *distance)
{
	unsigned cpu, here;

	if (!is_there(sys, "infiniband", name) && !is_there(sys, "net", name))
		return false;
	*node = coll_topology_nic_node(sys, name);
	*distance = 0;
	if (getcpu(&cpu, &here) == 0)
		*distance = coll_topology_distance(sys, (int)here, *node) - COLL_TOPOLOGY_NEAR;
	return true;
}
