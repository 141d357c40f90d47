/*
 * Topology of the host the test runs on: counts follow the affinity, places stay
 * inside it. The expected numbers come from the kernel, not from this library.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/plain.h"
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

TEST(topology, caches_of_this_host)
{
	int count = 0;

	CHECK(coll_topology_caches(&count) >= 64u << 10);
	CHECK(count >= 1);
}

TEST(topology, texts)
{
	static char picture[64 << 10];
	char text[256];
	cpu_set_t s;

	CPU_ZERO(&s);
	coll_topology_cpus_text(&s, text, sizeof(text));
	CHECK(strcmp(text, "") == 0);
	CPU_SET(0, &s);
	CPU_SET(1, &s);
	CPU_SET(2, &s);
	CPU_SET(9, &s);
	coll_topology_cpus_text(&s, text, sizeof(text));
	CHECK(strcmp(text, "0-2,9") == 0, "%s", text);
	CHECK(coll_topology_describe(text, sizeof(text)));
	if (coll_topology_known()) {
		CHECK(strstr(text, "core") != NULL, "%s", text);
		CHECK(coll_topology_draw(picture, sizeof(picture)));
		CHECK(strstr(picture, "Machine") == picture);
		CHECK(strstr(picture, "Core 0 *") != NULL, "%s", picture);
	} else {
		CHECK(!coll_topology_draw(picture, sizeof(picture)));
	}
}

TEST(topology, names_of_bindings)
{
	enum coll_topology_bind k;

	CHECK(coll_topology_bind_named("none", &k) && k == COLL_BIND_NONE);
	CHECK(coll_topology_bind_named("core", &k) && k == COLL_BIND_CORE);
	CHECK(coll_topology_bind_named("numa", &k) && k == COLL_BIND_NUMA);
	CHECK(!coll_topology_bind_named("socket", &k));
}

/* Every rank gets something inside what is allowed; with no more ranks than cores
 * nobody shares; with more the shares are even. */
static void check_cores(int ranks, int cores, const cpu_set_t *all)
{
	int load[COLL_CPUS_MAX] = {0};

	for (int r = 0; r < ranks; r++) {
		cpu_set_t s, inside;
		char why[96] = "";

		REQUIRE(coll_topology_place(COLL_BIND_CORE, r, ranks, &s, why, sizeof(why)), "%s", why);
		CPU_AND(&inside, &s, all);
		CHECK(CPU_EQUAL(&inside, &s) && CPU_COUNT(&s) >= 1);
		load[first_cpu(&s)]++;
	}
	for (int c = 0; c < COLL_CPUS_MAX; c++)
		CHECK(load[c] <= (ranks + cores - 1) / cores, "%d of %d ranks on CPU %d", load[c], ranks, c);
}

TEST(topology, places)
{
	char why[96] = "";
	cpu_set_t all, s;

	REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
	if (!coll_topology_known()) {
		CHECK(!coll_topology_place(COLL_BIND_CORE, 0, 1, &s, why, sizeof(why)));
		CHECK(strstr(why, "hwloc") != NULL);
		SKIP("built without hwloc");
	}
	for (int ranks = 1; ranks <= 9; ranks++)
		check_cores(ranks, coll_topology_cores(), &all);
	REQUIRE(coll_topology_place(COLL_BIND_NUMA, 2, 3, &s, why, sizeof(why)), "%s", why);
	CHECK(CPU_COUNT(&s) >= 1);
}
