/*
 * The last cache before memory, as the kernel describes it. Not sysconf(): of AMD's processors glibc
 * 2.36 tells all last caches of a package for one, in a virtual machine also those that it has no part
 * of. Reads sysfs each time; keeps nothing.
 */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/topology.h"

enum { INDEX_MAX = 16, CACHE_DEFAULT = 32 << 20 };

/* One file of a cache's directory. */
static bool value(const char *cpu, int index, const char *name, char *buf, size_t len_bytes)
{
	char path[512];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/cache/index%d/%s", cpu, index, name);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(buf, (int)len_bytes, f) != NULL;
	fclose(f);
	return ok;
}

/* "32768K", "2M"; 0: neither. */
static size_t bytes_of(const char *text)
{
	char *end;
	const unsigned long long n = strtoull(text, &end, 10);
	const int shift = toupper(*end) == 'K' ? 10 : toupper(*end) == 'M' ? 20 : toupper(*end) == 'G' ? 30 : 0;

	return end == text || n > SIZE_MAX >> shift ? 0 : (size_t)n << shift;
}

/* Bits of "00000000,0000ff00". */
static int ones(const char *map)
{
	int n = 0;

	for (; *map; map++)
		if (isxdigit((unsigned char)*map))
			n += __builtin_popcount(
			        (unsigned)(isdigit((unsigned char)*map) ? *map - '0' : tolower(*map) - 'a' + 10));
	return n;
}

size_t coll_topology_cache_of(const char *cpu, int *sharers)
{
	size_t best = 0;
	int top = 0;

	for (int i = 0; i < INDEX_MAX; i++) {
		char level[32], type[32], size[64], map[4096];
		size_t bytes;

		if (!value(cpu, i, "level", level, sizeof(level)))
			break;
		if (atoi(level) <= top || !value(cpu, i, "type", type, sizeof(type)) || *type == 'I' ||
		    !value(cpu, i, "size", size, sizeof(size)))
			continue;
		bytes = bytes_of(size);
		if (bytes == 0)
			continue;
		top = atoi(level);
		best = bytes;
		*sharers = value(cpu, i, "shared_cpu_map", map, sizeof(map)) && ones(map) > 0 ? ones(map) : 1;
	}
	return best;
}

size_t coll_topology_caches(int *count)
{
	char cpu[64];
	cpu_set_t usable;
	int sharers = 1, here = 0;
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t bytes;

	*count = 1;
	if (sched_getaffinity(0, sizeof(usable), &usable) != 0)
		return CACHE_DEFAULT;
	while (here < COLL_CPUS_MAX - 1 && !CPU_ISSET((size_t)here, &usable))
		here++;
	snprintf(cpu, sizeof(cpu), "/sys/devices/system/cpu/cpu%d", here);
	bytes = coll_topology_cache_of(cpu, &sharers);
	if (bytes == 0)
		return CACHE_DEFAULT;
	if (cpus > sharers)
		*count = (int)cpus / sharers;
	return bytes;
}
