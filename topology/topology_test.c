/*
 * Topology of the host the test runs on: counts follow the affinity, places stay
 * inside it. The expected numbers come from the kernel, not from this library.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/plain.h"
#include "topology/cache.h"
#include "topology/topology.h"

static int first_cpu(const cpu_set_t *s)
{
	for (int c = 0; c < COLL_CPUS_MAX; c++)
		if (CPU_ISSET((size_t)c, s))
			return c;
	return -1;
}

TEST(topology, cores_follow_affinity)
{
	cpu_set_t all, one;

	REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
	CHECK(coll_topology_cores() >= 1);
	CHECK(coll_topology_cores() <= CPU_COUNT(&all));
	CPU_ZERO(&one);
	CPU_SET((size_t)first_cpu(&all), &one);
	REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
	CHECK(coll_topology_cores() == 1);
	REQUIRE(sched_setaffinity(0, sizeof(all), &all) == 0);
}

static void put(const char *dir, const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	REQUIRE(f != NULL);
	fputs(text, f);
	fclose(f);
}

static void put_cache(const char *cpu, int index, const char *level, const char *type, const char *size,
                      const char *map)
{
	char dir[128];

	snprintf(dir, sizeof(dir), "%s/cache/index%d", cpu, index);
	REQUIRE(mkdir(dir, 0700) == 0);
	put(dir, "level", level);
	put(dir, "type", type);
	put(dir, "size", size);
	put(dir, "shared_cpu_map", map);
}

/* As a machine with eight caches of eight CPUs tells it; instructions do not count. */
TEST(topology, last_cache_of_a_cpu)
{
	char cpu[] = "/tmp/coll-topology-XXXXXX", text[128];
	int sharers = 0;

	REQUIRE(mkdtemp(cpu) != NULL);
	CHECK(coll_topology_cache_of(cpu, &sharers) == 0);
	snprintf(text, sizeof(text), "%s/cache", cpu);
	REQUIRE(mkdir(text, 0700) == 0);
	put_cache(cpu, 0, "1\n", "Data\n", "32K\n", "00000000,00000001\n");
	put_cache(cpu, 1, "9\n", "Instruction\n", "64K\n", "00000000,00000001\n");
	put_cache(cpu, 2, "3\n", "Unified\n", "32768K\n", "00000000,0000ff00\n");
	put_cache(cpu, 3, "2\n", "Unified\n", "1M\n", "00000000,00000001\n");
	CHECK(coll_topology_cache_of(cpu, &sharers) == 32u << 20);
	CHECK(sharers == 8, "%d", sharers);
	snprintf(text, sizeof(text), "rm -r %s", cpu);
	CHECK(system(text) == 0);
}

/* Sixteen CPUs, four caches, and what a process may use of them; of CPU 15 nothing is told. */
TEST(topology, caches_of_the_usable_cpus)
{
	static const struct {
		unsigned cpus;
		int count;
	} cases[] = {{0xf, 1},    {0x1e, 2},   {0x7fff, 4}, {0xffff, 4}, {0x100, 1},
	             {0x3000, 1}, {0x1111, 4}, {0x1100, 2}, {0x8000, 1}};
	char root[] = "/tmp/coll-topology-XXXXXX", cpu[64], text[128], map[32];

	REQUIRE(mkdtemp(root) != NULL);
	for (int c = 0; c < 15; c++) {
		snprintf(cpu, sizeof(cpu), "%s/cpu%d", root, c);
		snprintf(text, sizeof(text), "%s/cache", cpu);
		REQUIRE(mkdir(cpu, 0700) == 0 && mkdir(text, 0700) == 0);
		snprintf(map, sizeof(map), "00000000,%08x\n", 0xfu << c / 4 * 4);
		put_cache(cpu, 0, "3\n", "Unified\n", "32768K\n", map);
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cpu_set_t usable;
		int count = -1;

		CPU_ZERO(&usable);
		for (size_t c = 0; c < 16; c++)
			if (cases[i].cpus >> c & 1)
				CPU_SET(c, &usable);
		CHECK(coll_topology_caches(root, &usable, &count) == 32u << 20);
		CHECK(count == cases[i].count, "CPUs %x: %d", cases[i].cpus, count);
	}
	snprintf(text, sizeof(text), "rm -r %s", root);
	CHECK(system(text) == 0);
}

/* The largest cache of the CPU is the one that the kernel tells, read here anew. */
TEST(topology, caches_of_this_host)
{
	char path[128], size[32] = "", unit = 'K';
	size_t told = 0, kib;
	cpu_set_t usable;
	int count = 0;

	REQUIRE(sched_getaffinity(0, sizeof(usable), &usable) == 0);
	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/size", first_cpu(&usable), i);
		FILE *f = fopen(path, "r");

		if (f && fgets(size, sizeof(size), f) && sscanf(size, "%zu%c", &kib, &unit) == 2 && unit == 'K' &&
		    kib << 10 > told)
			told = kib << 10;
		if (f)
			fclose(f);
	}
	if (told == 0)
		SKIP("the kernel tells of no caches");
	CHECK(coll_topology_caches("/sys/devices/system/cpu", &usable, &count) == told, "%zu", told);
	CHECK(count >= 1 && count <= sysconf(_SC_NPROCESSORS_ONLN), "%d", count);
}
