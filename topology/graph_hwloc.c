/*
 * hwloc's XML as a graph: see graph_hwloc.h. First all of it is read (hwloc_objects.h), then cores, devices and
 * distances are taken from that.
 */
#include "topology/graph_hwloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll_build.h"
#include "topology/hwloc_devices.h"
#include "topology/hwloc_distances.h"
#include "topology/hwloc_objects.h"
#include "topology/xml.h"

/* ---- The file ----------------------------------------------------------- */

static bool read_root(struct coll_hwloc_reader *r)
{
	const enum coll_xml_event e = coll_xml_next(&r->x);
	const char *version;

	if (e != COLL_XML_OPEN)
		return false;
	if (strcmp(r->x.tag, "system") == 0)
		return coll_xml_fail(&r->x, "this is a file of NCCL, not of hwloc");
	if (strcmp(r->x.tag, "topology") != 0)
		return coll_xml_fail(&r->x, "<%s> where hwloc has <topology>", r->x.tag);
	version = coll_xml_attribute(&r->x, "version");
	if (!version || strncmp(version, "2.", 2) != 0)
		return coll_xml_fail(&r->x, "format %.8s of hwloc; format 2 is read here", version ? version : "1");
	return true;
}

static bool read_all(struct coll_hwloc_reader *r)
{
	for (;;) {
		const enum coll_xml_event e = coll_xml_next(&r->x);
		bool ok = true;

		if (e == COLL_XML_END)
			return r->count > 0 || coll_xml_fail(&r->x, "there is no machine");
		if (e == COLL_XML_ERROR)
			return false;
		if (e != COLL_XML_OPEN)
			continue;
		if (strcmp(r->x.tag, "object") == 0 && r->count == 0)
			ok = coll_hwloc_read_objects(r);
		else if (strcmp(r->x.tag, "cpukind") == 0)
			ok = coll_hwloc_read_kind(r);
		else if (strncmp(r->x.tag, "distances2", 10) == 0)
			ok = coll_hwloc_read_distances(r);
		else
			ok = coll_xml_skip(&r->x);
		if (!ok)
			return false;
	}
}

/* Everything has been read: what is what. */
static bool take_all(struct coll_hwloc_reader *r)
{
	if (!coll_hwloc_place_cores(r))
		return false;
	coll_hwloc_add_devices(r);
	coll_hwloc_take_distances(r);
	coll_graph_disbelieve(r->g);
	return true;
}

struct coll_graph *coll_graph_hwloc_text(const char *name, char *text, size_t len_bytes, char *why, size_t why_bytes)
{
	struct coll_hwloc_reader *r = calloc(1, sizeof(*r));
	struct coll_graph *g = coll_graph_new();
	bool ok = r && g;

	if (ok) {
		r->g = g;
		coll_xml_begin(&r->x, name, text, len_bytes, why, why_bytes);
		ok = read_root(r) && read_all(r) && take_all(r);
	} else {
		snprintf(why, why_bytes, "%s: out of memory", name);
	}
	for (int i = 0; r && i < r->matrices; i++) {
		free(r->matrix[i].index);
		free(r->matrix[i].pci);
	}
	if (r) {
		free(r->core_of);
		free(r->list);
	}
	free(r);
	if (ok)
		return g;
	free(g);
	return NULL;
}

struct coll_graph *coll_graph_hwloc_file(const char *path, char *why, size_t why_bytes)
{
	return coll_xml_graph(path, coll_graph_hwloc_text, why, why_bytes);
}

/* ---- hwloc itself ------------------------------------------------------- */

#if COLL_HAVE_HWLOC

#include <hwloc.h>

#if HWLOC_API_VERSION >= 0x00030000
enum { EXPORT_FLAGS = HWLOC_TOPOLOGY_EXPORT_XML_FLAG_V2 };
#else
enum { EXPORT_FLAGS = 0 };
#endif

/* The names of PCI products come from a table of libpciaccess: it is large, read anew each time, and never freed. sysfs
 * has the devices, and says more of their rates than a name. The others, where hwloc has them as plugins, start drivers
 * and connect to displays, which takes seconds; they only name what is known by then. */
static void leave_out(hwloc_topology_t t)
{
#if HWLOC_API_VERSION >= 0x00020100
	static const char *const names[] = {"pci", "cuda", "opencl", "gl", "levelzero"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, names[i]);
#else
	(void)t;
#endif
}

/* synthetic: NULL for this host. */
static struct coll_graph *from_hwloc(const char *synthetic, char *why, size_t why_bytes)
{
	struct coll_graph *g = NULL;
	hwloc_topology_t t;
	char *xml = NULL, *text;
	int len = 0;

	if (hwloc_topology_init(&t) < 0) {
		snprintf(why, why_bytes, "hwloc cannot start");
		return NULL;
	}
	hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	leave_out(t);
	if (synthetic && hwloc_topology_set_synthetic(t, synthetic) < 0)
		snprintf(why, why_bytes, "hwloc does not understand \"%s\"", synthetic);
	else if (hwloc_topology_load(t) < 0 || hwloc_topology_export_xmlbuffer(t, &xml, &len, EXPORT_FLAGS) < 0 ||
	         len < 1)
		snprintf(why, why_bytes, "hwloc cannot read this host");
	/* len counts the zero at the end. The buffer is hwloc's, and ours to change only as a copy. */
	text = xml ? malloc((size_t)len) : NULL;
	if (text) {
		memcpy(text, xml, (size_t)len);
		text[len - 1] = 0;
		g = coll_graph_hwloc_text("hwloc", text, (size_t)len - 1, why, why_bytes);
	}
	free(text);
	if (xml)
		hwloc_free_xmlbuffer(t, xml);
	hwloc_topology_destroy(t);
	return g;
}

#else

static struct coll_graph *from_hwloc(const char *synthetic, char *why, size_t why_bytes)
{
	(void)synthetic;
	snprintf(why, why_bytes, "built without hwloc");
	return NULL;
}

#endif

struct coll_graph *coll_graph_hwloc_live(char *why, size_t why_bytes)
{
	return from_hwloc(NULL, why, why_bytes);
}

struct coll_graph *coll_graph_hwloc_synthetic(const char *description, char *why, size_t why_bytes)
{
	return from_hwloc(description, why, why_bytes);
}
