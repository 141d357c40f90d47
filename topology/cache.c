/*
 * The last cache before memory, as the kernel describes it. Not sysconf(): of AMD's processors glibc
 * 2.36 tells all last caches of a package for one, in a virtual machine also those that it has no part
 * of. Reads sysfs each time; keeps nothing.
 */
#include "topology/cache.h"

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

/* The CPUs of "00000000,0000ff00": from the end on, each digit four of them. */
static int cpus_of(const char *map, cpu_set_t *set)
{
	size_t cpu = 0;

	CPU_ZERO(set);
	for (const char *at = map + strlen(map); at > map;) {
		const int c = (unsigned char)*--at;

		if (!isxdigit(c))
			continue;
		const unsigned digit = (unsigned)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);

		for (size_t bit = 0; bit < 4; bit++, cpu++)
			if (digit >> bit & 1 && cpu < COLL_CPUS_MAX)
				CPU_SET(cpu, set);
	}
	return CPU_COUNT(set);
}

/* The last-level cache of a CPU, and the CPUs that share it; none if that is unknown. */
static size_t last_cache(const char *cpu, cpu_set_t *sharers)
{
	size_t best = 0;
	int top = 0;

	CPU_ZERO(sharers);
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
		cpus_of(value(cpu, i, "shared_cpu_map", map, sizeof(map)) ? map : "", sharers);
	}
	return best;
}

size_t coll_topology_cache_of(const char *cpu, int *sharers)
{
	cpu_set_t set;
	const size_t bytes = last_cache(cpu, &set);

	if (bytes)
		*sharers = CPU_COUNT(&set) ? CPU_COUNT(&set) : 1;
	return bytes;
}

size_t coll_topology_caches(const char *cpus, const cpu_set_t *used, int *count)
{
	cpu_set_t left = *used, sharers;
	size_t first = 0;

	*count = 0;
	for (size_t cpu = 0; cpu < COLL_CPUS_MAX && CPU_COUNT(&left) > 0; cpu++) {
		char path[256];
		size_t bytes;

		if (!CPU_ISSET(cpu, &left))
			continue;
		snprintf(path, sizeof(path), "%s/cpu%zu", cpus, cpu);
		bytes = last_cache(path, &sharers);
		first = first ? first : bytes;
		*count += bytes > 0;
		CPU_SET(cpu, &sharers);
		/* Read once for each cache: the CPUs that share this one are done. */
		CPU_AND(&sharers, &sharers, &left);
		CPU_XOR(&left, &left, &sharers);
	}
	if (first)
		return first;
	*count = 1;
	return CACHE_DEFAULT;
}
