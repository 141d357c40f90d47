/*
 * What users tell of NICs and sites, read and taken into a graph.
 */
#include "tools/common/told.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plain.h"

TEST(told, told_rates)
{
	static const char *const wrong[] = {"eth0",
	                                    "eth0:",
	                                    ":5",
	                                    "eth0:fast",
	                                    "eth0:0",
	                                    "eth0:-1",
	                                    "eth0:4000001",
	                                    "eth0:1,",
	                                    ",eth0:1",
	                                    "eth0:1,eth0:2",
	                                    "a-name-that-is-far-too-long:1",
	                                    "eth0:1 ,eth1:2"};
	struct coll_link_rate list[COLL_LINK_RATES_MAX];
	char why[200] = "";
	uint32_t mbps = 7;
	struct coll_graph *g;

	CHECK(coll_link_rates_parse("", list, why, sizeof(why)) == 0);
	CHECK(coll_link_rates_parse("eth0:1000,mlx5_0:1:250", list, why, sizeof(why)) == 2, "%s", why);
	CHECK(strcmp(list[1].name, "mlx5_0:1") == 0 && list[1].mbps == 250 && list[0].mbps == 1000);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		*why = 0;
		CHECK(coll_link_rates_parse(wrong[i], list, why, sizeof(why)) == -1 && *why, "%s", wrong[i]);
	}
	CHECK(coll_link_rate_parse_one("", &mbps, why, sizeof(why)) && mbps == 0);
	CHECK(coll_link_rate_parse_one("500", &mbps, why, sizeof(why)) && mbps == 500);
	CHECK(!coll_link_rate_parse_one("5G", &mbps, why, sizeof(why)));
	g = coll_graph_new();
	REQUIRE(g != NULL && coll_graph_add_nic(g) && coll_graph_add_nic(g));
	snprintf(g->nic[0].name, sizeof(g->nic[0].name), "left");
	snprintf(g->nic[0].rdma, sizeof(g->nic[0].rdma), "verbs_0");
	snprintf(g->nic[1].name, sizeof(g->nic[1].name), "right");
	REQUIRE(coll_link_rates_parse("verbs_0:40000", list, why, sizeof(why)) == 1);
	CHECK(coll_told_apply(g, list, 1) == NULL && g->nic[0].rate.mbps == 40000 && g->nic[0].set && !g->nic[1].set);
	CHECK(g->nic[0].rate.origin == COLL_ORIGIN_TOLD);
	REQUIRE(coll_link_rates_parse("right:1,middle:2", list, why, sizeof(why)) == 2);
	CHECK(strcmp(coll_told_apply(g, list, 2), "middle") == 0 && g->nic[1].rate.mbps != 1, "all or none");
	free(g);
}

TEST(told, told_sites)
{
	struct coll_graph *g = coll_graph_new();
	char why[200] = "";

	REQUIRE(g != NULL);
	CHECK(coll_told_site(g, "north", "500", why, sizeof(why)) && strcmp(g->site, "north") == 0, "%s", why);
	CHECK(g->site_rate.mbps == 500 && g->site_rate.origin == COLL_ORIGIN_TOLD);
	CHECK(!coll_told_site(g, "north west", "", why, sizeof(why)) && strstr(why, "blank") != NULL, "%s", why);
	CHECK(!coll_told_site(g, "a-name-that-is-far-too-long", "", why, sizeof(why)));
	CHECK(!coll_told_site(g, "south", "much", why, sizeof(why)) && strstr(why, "'much'") != NULL, "%s", why);
	CHECK(!coll_told_site(g, "", "5", why, sizeof(why)) && strstr(why, "no name") != NULL, "%s", why);
	CHECK(strcmp(g->site, "north") == 0, "unchanged by what is wrong");
	CHECK(coll_told_site(g, "", "", why, sizeof(why)) && !*g->site && g->site_rate.mbps == 0);
	free(g);
}
