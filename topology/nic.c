/*
 * Reads /sys/class/infiniband and /sys/class/net each time; keeps nothing.
 */
#include "topology/nic.h"

#include <stdio.h>
#include <stdlib.h>

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
