/*
 * The host that the test runs on, drawn and dealt out. The expected numbers come from the kernel, not from this
 * library.
 */
#include "tools/common/host.h"

#include <stdio.h>
#include <string.h>

#include "tests/plain.h"

static int first_cpu(const cpu_set_t *s)
{
	for (int c = 0; c < COLL_CPUS_MAX; c++)
		if (CPU_ISSET((size_t)c, s))
			return c;
	return -1;
}

TEST(host, texts)
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
	if (coll_topology_known()) {
		CHECK(coll_topology_draw(picture, sizeof(picture)));
		CHECK(strstr(picture, "Machine") == picture);
		CHECK(strstr(picture, "Core 0 *") != NULL, "%s", picture);
	} else {
		CHECK(!coll_topology_draw(picture, sizeof(picture)));
	}
}

TEST(host, names_of_bindings)
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

TEST(host, places)
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
