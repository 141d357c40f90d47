/*
 * Reads /sys/class/infiniband; owns nothing.
 */
#include "ports.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/first_line.h"

/* "4: ACTIVE" is ACTIVE. */
static void read_state(const char *sys, struct coll_rdma_port *p)
{
	char text[64];
	const char *name;

	coll_first_line(text, sizeof(text), "%s/class/infiniband/%s/ports/%u/state", sys, p->device, p->number);
	name = strchr(text, ' ');
	snprintf(p->state, sizeof(p->state), "%.23s", name ? name + 1 : "?");
	p->active = strcmp(p->state, "ACTIVE") == 0;
	coll_first_line(p->layer, sizeof(p->layer), "%s/class/infiniband/%s/ports/%u/link_layer", sys, p->device,
	                p->number);
	coll_first_line(p->rate, sizeof(p->rate), "%s/class/infiniband/%s/ports/%u/rate", sys, p->device, p->number);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int visible(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static void free_list(struct dirent **list, int n)
{
	for (int i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

static int list_ports(const char *sys, const char *device, struct coll_rdma_port *ports, int max)
{
	char dir[PATH_MAX];
	struct dirent **list = NULL;
	int n, count = 0;

	snprintf(dir, sizeof(dir), "%s/class/infiniband/%s/ports", sys, device);
	n = scandir(dir, &list, visible, by_name);
	for (int i = 0; i < n && count < max; i++) {
		struct coll_rdma_port *p = &ports[count++];

		*p = (struct coll_rdma_port){.number = (unsigned)strtoul(list[i]->d_name, NULL, 10)};
		snprintf(p->device, sizeof(p->device), "%.63s", device);
		read_state(sys, p);
	}
	free_list(list, n);
	return count;
}

int coll_rdma_ports_list(const char *sys, struct coll_rdma_port *ports, int max)
{
	char dir[PATH_MAX];
	struct dirent **list = NULL;
	int n, count = 0;

	snprintf(dir, sizeof(dir), "%s/class/infiniband", sys);
	n = scandir(dir, &list, visible, by_name);
	for (int i = 0; i < n; i++)
		count += list_ports(sys, list[i]->d_name, ports + count, max - count);
	free_list(list, n);
	return count;
}

bool coll_rdma_ports_gid(const char *sys, const struct coll_rdma_port *port, int index, struct coll_rdma_gid *gid)
{
	const char *device = port->device;
	const unsigned n = port->number;

	if (!coll_first_line(gid->text, sizeof(gid->text), "%s/class/infiniband/%s/ports/%u/gids/%d", sys, device, n,
	                     index) ||
	    strspn(gid->text, "0:") == strlen(gid->text))
		return false;
	coll_first_line(gid->type, sizeof(gid->type), "%s/class/infiniband/%s/ports/%u/gid_attrs/types/%d", sys, device,
	                n, index);
	coll_first_line(gid->interface, sizeof(gid->interface), "%s/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%d",
	                sys, device, n, index);
	return true;
}
