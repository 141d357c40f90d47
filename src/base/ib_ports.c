/*
 * See ib_ports.h. It reads each time and keeps nothing.
 */
#include "base/ib_ports.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/first_line.h"
#include "base/link_rates.h"

/* The point is one whatever the program's locale. */
static uint32_t mbps_of(const char *text)
{
	char *end;
	const unsigned long whole = strtoul(text, &end, 10);
	unsigned long mbps = whole * 1000;

	if (end == text || whole > COLL_LINK_RATE_MAX / 1000)
		return 0;
	if (end[0] == '.' && end[1] >= '0' && end[1] <= '9') {
		mbps += (unsigned long)(end[1] - '0') * 100;
		end += 2;
	}
	return strncmp(end, " Gb/sec", 7) == 0 ? (uint32_t)mbps : 0;
}

bool coll_ib_port_read(const char *sys, const char *device, unsigned number, struct coll_ib_port *p)
{
	char text[64];
	const char *name;

	*p = (struct coll_ib_port){.number = number};
	snprintf(p->device, sizeof(p->device), "%.63s", device);
	/* "4: ACTIVE" is ACTIVE. */
	if (!coll_first_line(text, sizeof(text), "%s/class/infiniband/%s/ports/%u/state", sys, device, number))
		return false;
	name = strchr(text, ' ');
	snprintf(p->state, sizeof(p->state), "%.23s", name ? name + 1 : "?");
	p->active = strcmp(p->state, "ACTIVE") == 0;
	coll_first_line(p->layer, sizeof(p->layer), "%s/class/infiniband/%s/ports/%u/link_layer", sys, device, number);
	if (coll_first_line(p->rate, sizeof(p->rate), "%s/class/infiniband/%s/ports/%u/rate", sys, device, number))
		p->mbps = mbps_of(p->rate);
	return true;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int visible(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

/* What is in this directory, by name; how many. free_list() it. */
static int list_names(struct dirent ***list, const char *sys, const char *below, const char *end)
{
	char dir[PATH_MAX];
	int n;

	*list = NULL;
	snprintf(dir, sizeof(dir), "%s/class/infiniband%s%s", sys, below, end);
	n = scandir(dir, list, visible, by_name);
	return n > 0 ? n : 0;
}

static void free_list(struct dirent **list, int n)
{
	for (int i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

static int list_ports(const char *sys, const char *device, struct coll_ib_port *ports, int max)
{
	char below[NAME_MAX + 2];
	struct dirent **list;
	int n, count = 0;

	snprintf(below, sizeof(below), "/%s", device);
	n = list_names(&list, sys, below, "/ports");
	for (int i = 0; i < n && count < max; i++)
		coll_ib_port_read(sys, device, (unsigned)strtoul(list[i]->d_name, NULL, 10), &ports[count++]);
	free_list(list, n);
	return count;
}

int coll_ib_ports_list(const char *sys, struct coll_ib_port *ports, int max)
{
	struct dirent **list;
	const int n = list_names(&list, sys, "", "");
	int count = 0;

	for (int i = 0; i < n; i++)
		count += list_ports(sys, list[i]->d_name, ports + count, max - count);
	free_list(list, n);
	return count;
}

bool coll_ib_port_gid(const char *sys, const struct coll_ib_port *port, int index, struct coll_ib_gid *gid)
{
	const char *device = port->device;
	const unsigned n = port->number;

	*gid = (struct coll_ib_gid){.text = ""};
	coll_first_line(gid->type, sizeof(gid->type), "%s/class/infiniband/%s/ports/%u/gid_attrs/types/%d", sys, device,
	                n, index);
	coll_first_line(gid->interface, sizeof(gid->interface), "%s/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%d",
	                sys, device, n, index);
	return coll_first_line(gid->text, sizeof(gid->text), "%s/class/infiniband/%s/ports/%u/gids/%d", sys, device, n,
	                       index) &&
	       strspn(gid->text, "0:") < strlen(gid->text);
}

bool coll_ib_parent(const char *sys, const char *device, char *name, size_t cap)
{
	return coll_first_line(name, cap, "%s/class/infiniband/%s/parent", sys, device);
}

int coll_ib_node(const char *sys, const char *device)
{
	char text[32];

	return coll_first_line(text, sizeof(text), "%s/class/infiniband/%s/device/numa_node", sys, device) ? atoi(text)
	                                                                                                   : -1;
}

bool coll_ib_pci_path(const char *sys, const char *device, char *path, size_t cap)
{
	return snprintf(path, cap, "%s/class/infiniband/%s/device", sys, device) < (int)cap;
}
