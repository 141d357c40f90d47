/*
 * See nic.h. It reads each time and keeps nothing.
 */
#include "topology/nic.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/first_line.h"
#include "base/ib_ports.h"

int coll_topology_nic_node(const char *sys, const char *name)
{
	const int node = coll_ib_node(sys, name);
	char text[32], below[64];

	if (node >= 0)
		return node;
	if (!coll_ib_parent(sys, name, below, sizeof(below)))
		snprintf(below, sizeof(below), "%.63s", name);
	return coll_first_line(text, sizeof(text), "%s/class/net/%s/device/numa_node", sys, below) ? atoi(text) : -1;
}
