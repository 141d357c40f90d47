/*
 * Rates of links: what is read, what is refused and why.
 */
#include <string.h>

#include "base/link_rates.h"
#include "tests/plain.h"

TEST(link_rates, names_and_rates)
{
	struct coll_link_rate list[COLL_LINK_RATES_MAX];
	char why[200] = "";

	CHECK(coll_link_rates_parse("", list, why, sizeof(why)) == 0);
	CHECK(coll_link_rates_parse("eth0:1000,mlx5_0:1:250", list, why, sizeof(why)) == 2, "%s", why);
	CHECK(strcmp(list[1].name, "mlx5_0:1") == 0 && list[1].mbps == 250 && list[0].mbps == 1000);
	CHECK(coll_link_rate_of(list, 2, "eth0") == 1000 && coll_link_rate_of(list, 2, "mlx5_0:1") == 250);
	CHECK(coll_link_rate_of(list, 2, "eth") == 0 && coll_link_rate_of(list, 1, "mlx5_0:1") == 0);
	CHECK(coll_link_rates_parse("a-name-of-23-characters:4000000", list, why, sizeof(why)) == 1, "%s", why);
	CHECK(list[0].mbps == 4000000);
}

TEST(link_rates, what_is_wrong_is_named)
{
	static const char *const wrong[][2] = {
	        {"eth0", "'eth0': expected NAME:RATE"},
	        {"eth0:", "'eth0:': expected a rate"},
	        {":5", "':5': expected NAME:RATE"},
	        {"eth0:fast", "'fast': expected a rate"},
	        {"eth0:0", "'0': expected a rate in Mb/s from 1 to 4000000"},
	        {"eth0:-1", "'-1': expected a rate"},
	        {"eth0:+1", "'+1': expected a rate"},
	        {"eth0: 1", "' 1': expected a rate"},
	        {"eth0:4000001", "'4000001': expected a rate"},
	        {"eth0:99999999999999999999", "expected a rate"},
	        {"eth0:1,", "'': expected NAME:RATE"},
	        {",eth0:1", "'': expected NAME:RATE"},
	        {"eth0:1,eth0:2", "'eth0' has two rates"},
	        {"a-name-of-24-characters-:1", "expected NAME:RATE"},
	        {"eth0:1 ,eth1:2", "'1 ': expected a rate"},
	};
	struct coll_link_rate list[COLL_LINK_RATES_MAX];
	char why[200];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		why[0] = 0;
		CHECK(coll_link_rates_parse(wrong[i][0], list, why, sizeof(why)) == -1, "%s", wrong[i][0]);
		CHECK(strstr(why, wrong[i][1]) != NULL, "%s: %s", wrong[i][0], why);
	}
}

TEST(link_rates, one_too_many)
{
	struct coll_link_rate list[COLL_LINK_RATES_MAX];
	char text[16 * (COLL_LINK_RATES_MAX + 1)] = "", why[200] = "";
	size_t used = 0;

	for (int i = 0; i <= COLL_LINK_RATES_MAX; i++) {
		if (i == COLL_LINK_RATES_MAX)
			CHECK(coll_link_rates_parse(text, list, why, sizeof(why)) == COLL_LINK_RATES_MAX, "%s", why);
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%se%d:%d", i > 0 ? "," : "", i, i + 1);
	}
	CHECK(coll_link_rates_parse(text, list, why, sizeof(why)) == -1 && strcmp(why, "more than 32 rates") == 0, "%s",
	      why);
}

TEST(link_rates, one_alone)
{
	char why[200] = "";
	uint32_t mbps = 7;

	CHECK(coll_link_rate_parse_one("", &mbps, why, sizeof(why)) && mbps == 0);
	CHECK(coll_link_rate_parse_one("500", &mbps, why, sizeof(why)) && mbps == 500);
	CHECK(!coll_link_rate_parse_one("5G", &mbps, why, sizeof(why)) && strstr(why, "'5G'") != NULL && mbps == 500);
}
