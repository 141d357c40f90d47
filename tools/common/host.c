/*
 * See host.h. Each call loads the topology anew (a few
 * milliseconds) and keeps nothing; none is on a path that matters.
 */
#include "tools/common/host.h"

#include <stdio.h>
#include <string.h>

#include "coll_build.h"

bool coll_topology_bind_named(const char *name, enum coll_topology_bind *kind)
{
	static const char *const names[] = {"none", "core", "numa"};

	for (int i = 0; i < 3; i++) {
		if (strcmp(name, names[i]) == 0) {
			*kind = (enum coll_topology_bind)i;
			return true;
		}
	}
	return false;
}

void coll_topology_cpus_text(const cpu_set_t *set, char *buf, size_t len_bytes)
{
	size_t at = 0;

	if (len_bytes)
		*buf = 0;
	for (int c = 0; c < COLL_CPUS_MAX && at < len_bytes; c++) {
		int last = c;

		if (!CPU_ISSET((size_t)c, set))
			continue;
		while (last + 1 < COLL_CPUS_MAX && CPU_ISSET((size_t)last + 1, set))
			last++;
		at += (size_t)snprintf(buf + at, len_bytes - at, last > c ? "%s%d-%d" : "%s%d", at ? "," : "", c, last);
		c = last;
	}
}

#if COLL_HAVE_HWLOC

#include <hwloc.h>
#include <hwloc/glibc-sched.h>

bool coll_topology_known(void)
{
	return true;
}

static bool load(hwloc_topology_t *t, bool devices)
{
	if (hwloc_topology_init(t) < 0)
		return false;
	if (devices)
		hwloc_topology_set_io_types_filter(*t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	if (hwloc_topology_load(*t) == 0)
		return true;
	hwloc_topology_destroy(*t);
	return false;
}

/* CPUs this thread may run on; NULL when that is unknown. Free it. */
static hwloc_bitmap_t usable_cpus(hwloc_topology_t t)
{
	hwloc_bitmap_t set = hwloc_bitmap_alloc();

	if (set && hwloc_get_cpubind(t, set, HWLOC_CPUBIND_THREAD) == 0 && !hwloc_bitmap_iszero(set))
		return set;
	hwloc_bitmap_free(set);
	return NULL;
}

static int count_of(hwloc_topology_t t, hwloc_obj_type_t type)
{
	return hwloc_get_nbobjs_by_type(t, type);
}

static void append(char *buf, size_t len_bytes, const char *text)
{
	const size_t at = strlen(buf);

	snprintf(buf + at, len_bytes - at, "%s", text);
}

/* ---- As a picture ------------------------------------------------------ */

struct page {
	char *buf;
	size_t len_bytes;
	hwloc_const_bitmap_t usable; /* may be NULL */
};

static void draw_object(struct page *p, hwloc_obj_t o, int depth)
{
	char type[64], attr[128], line[320];
	const bool core = o->type == HWLOC_OBJ_CORE;
	const bool mine = core && p->usable && hwloc_bitmap_intersects(o->cpuset, p->usable);

#if HWLOC_API_VERSION >= 0x00030000
	hwloc_obj_type_snprintf(type, sizeof(type), o, 0, NULL);
	hwloc_obj_attr_snprintf(attr, sizeof(attr), o, " ", 0, NULL);
#else
	hwloc_obj_type_snprintf(type, sizeof(type), o, 0);
	hwloc_obj_attr_snprintf(attr, sizeof(attr), o, " ", 0);
#endif
	snprintf(line, sizeof(line), "%*s%s", 2 * depth, "", type);
	append(p->buf, p->len_bytes, line);
	if (o->type != HWLOC_OBJ_MACHINE && o->logical_index != HWLOC_UNKNOWN_INDEX) {
		snprintf(line, sizeof(line), " %u", o->logical_index);
		append(p->buf, p->len_bytes, line);
	}
	snprintf(line, sizeof(line), "%s%s%s%s%s%s\n", mine ? " *" : "", o->name ? " " : "", o->name ? o->name : "",
	         *attr ? " (" : "", attr, *attr ? ")" : "");
	append(p->buf, p->len_bytes, line);
}

/* Hardware threads are left out, and bridges stand for nothing here. */
static void draw_below(struct page *p, hwloc_obj_t o, int depth)
{
	const bool shown = o->type != HWLOC_OBJ_PU && o->type != HWLOC_OBJ_BRIDGE;

	if (shown)
		draw_object(p, o, depth);
	for (hwloc_obj_t c = o->memory_first_child; c; c = c->next_sibling)
		draw_below(p, c, depth + shown);
	for (hwloc_obj_t c = o->first_child; c; c = c->next_sibling)
		draw_below(p, c, depth + shown);
	for (hwloc_obj_t c = o->io_first_child; c; c = c->next_sibling)
		draw_below(p, c, depth + shown);
}

bool coll_topology_draw(char *buf, size_t len_bytes)
{
	struct page p = {buf, len_bytes, NULL};
	hwloc_topology_t t;
	hwloc_bitmap_t set;

	*buf = 0;
	if (!load(&t, true))
		return false;
	p.usable = set = usable_cpus(t);
	draw_below(&p, hwloc_get_root_obj(t), 0);
	hwloc_bitmap_free(set);
	hwloc_topology_destroy(t);
	return true;
}

/* ---- Binding ----------------------------------------------------------- */

/* The nth object of a type that has usable CPUs; NULL when there are fewer. */
static hwloc_obj_t usable_object(hwloc_topology_t t, hwloc_obj_type_t type, hwloc_const_bitmap_t set, int nth)
{
	for (int i = 0; i < count_of(t, type); i++) {
		hwloc_obj_t o = hwloc_get_obj_by_type(t, type, (unsigned)i);

		if (o->cpuset && hwloc_bitmap_intersects(o->cpuset, set) && nth-- == 0)
			return o;
	}
	return NULL;
}

static int usable_objects(hwloc_topology_t t, hwloc_obj_type_t type, hwloc_const_bitmap_t set)
{
	int n = 0;

	while (usable_object(t, type, set, n))
		n++;
	return n;
}

/* Blocks of neighbours: with as many ranks as objects one each, with more they
 * share evenly, with fewer they spread. */
static bool place_on(hwloc_topology_t t, hwloc_obj_type_t type, hwloc_const_bitmap_t usable, int local_rank,
                     int local_size, cpu_set_t *set)
{
	const int n = usable_objects(t, type, usable);
	const int nth = local_size <= n && type == HWLOC_OBJ_CORE
	                        ? local_rank
	                        : (int)((long long)local_rank * n / (local_size > 0 ? local_size : 1));
	hwloc_obj_t o = n > 0 ? usable_object(t, type, usable, nth) : NULL;
	hwloc_bitmap_t both;

	if (!o)
		return false;
	both = hwloc_bitmap_alloc();
	if (!both)
		return false;
	hwloc_bitmap_and(both, o->cpuset, usable);
	hwloc_cpuset_to_glibc_sched_affinity(t, both, set, sizeof(*set));
	hwloc_bitmap_free(both);
	return true;
}

bool coll_topology_place(enum coll_topology_bind kind, int local_rank, int local_size, cpu_set_t *set, char *why,
                         size_t why_bytes)
{
	hwloc_topology_t t;
	hwloc_bitmap_t usable;
	bool ok;

	if (kind == COLL_BIND_NONE)
		return sched_getaffinity(0, sizeof(*set), set) == 0;
	if (!load(&t, false)) {
		snprintf(why, why_bytes, "hwloc cannot read this host");
		return false;
	}
	usable = usable_cpus(t);
	ok = usable && place_on(t, kind == COLL_BIND_CORE ? HWLOC_OBJ_CORE : HWLOC_OBJ_NUMANODE, usable, local_rank,
	                        local_size, set);
	if (!ok)
		snprintf(why, why_bytes, "hwloc reports no %s that may be used here",
		         kind == COLL_BIND_CORE ? "core" : "NUMA node");
	hwloc_bitmap_free(usable);
	hwloc_topology_destroy(t);
	return ok;
}

#else

bool coll_topology_known(void)
{
	return false;
}

bool coll_topology_draw(char *buf, size_t len_bytes)
{
	*buf = 0;
	return false;
}

bool coll_topology_place(enum coll_topology_bind kind, int local_rank, int local_size, cpu_set_t *set, char *why,
                         size_t why_bytes)
{
	if (kind == COLL_BIND_NONE)
		return sched_getaffinity(0, sizeof(*set), set) == 0;
	snprintf(why, why_bytes, "built without hwloc");
	return false;
}

#endif
