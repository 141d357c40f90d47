/*
 * The table of measured links: what is printed is read again, and anything else is refused with its line.
 */
#include "topology/measured.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "tests/plain.h"

static struct coll_measured_host hosts[] = {{"a", 956, 955, 0}, {"b.example", 478, 4000000, 1}};
static uint32_t uplinks[] = {500, 1};
static struct coll_measured table = {"2026-11-27T19:10:00Z", "0.1.0", "tcp", 30000, 2, 2, hosts, uplinks};

TEST(measured, a_table_survives_its_text)
{
	char *text = coll_measured_print(&table), why[120] = "";
	struct coll_measured t;

	REQUIRE(text && coll_measured_parse(text, &t, why, sizeof(why)), "%s", why);
	CHECK(t.hosts == 2 && t.sites == 2 && t.hop_ns == 30000 && t.uplink[0] == 500 && t.uplink[1] == 1);
	CHECK(strcmp(t.measured, table.measured) == 0 && strcmp(t.library, "0.1.0") == 0);
	CHECK(strcmp(t.transport, "tcp") == 0);
	for (int h = 0; h < 2; h++)
		CHECK(strcmp(t.host[h].name, hosts[h].name) == 0 && t.host[h].out == hosts[h].out &&
		      t.host[h].in == hosts[h].in && t.host[h].site == hosts[h].site);
	CHECK(coll_measured_find(&t, "b.example") == &t.host[1] && !coll_measured_find(&t, "b"));
	coll_measured_free(&t);
	free(text);
}

#define HEAD "coll-tune 1\ntransport tcp\n"

TEST(measured, what_is_no_table_is_refused)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
	        {"", "lacks hosts"},
	        {"host a out 1 in 1\n", "line 1: it is no table"},
	        {"coll-tune 2\n" HEAD "host a out 1 in 1\n", "line 1: it is no table"},
	        {HEAD, "lacks hosts"},
	        {"coll-tune 1\nhost a out 1 in 1\n", "lacks hosts or their transport"},
	        {HEAD "host a out 0 in 1\n", "line 3: a rate"},
	        {HEAD "host a out 1 in 4000001\n", "line 3: a rate"},
	        {HEAD "host a out 1\n", "line 3: expected"},
	        {HEAD "host a out 1 in 1 more\n", "line 3: more"},
	        {HEAD "host a out 1 in 1 site -3\n", "line 3: more"},
	        {HEAD "host a out 1 in 1\n\n# b\nhost a out 1 in 1\n", "line 6: a host that was there"},
	        {HEAD "host a out 1 in 1 site 0\n", "a site that is not there"},
	        {HEAD "host a out 1 in 1 site 1\nsite 0 uplink 5\n", "a site that is not there"},
	        {HEAD "host a out 1 in 1\nsite 0 uplink 5\n", "of none"},
	        {HEAD "site 1 uplink 5\n", "line 3: sites are numbered"},
	        {HEAD "site 0 uplink 0\n", "line 3: sites are numbered"},
	        {HEAD "site 0 uplink 5 5\n", "line 3: expected"},
	        {HEAD "hop_ns -\n", "line 3: a line of no meaning"},
	        {HEAD "hots a out 1 in 1\n", "line 3: a line of no meaning"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct coll_measured t;
		char why[120] = "";

		CHECK(!coll_measured_parse(cases[i].text, &t, why, sizeof(why)), "case %zu", i);
		CHECK(strstr(why, cases[i].why) && !t.host, "case %zu: %s", i, why);
	}
}

/* No text of bytes does harm; the sanitizers look. */
TEST(measured, damaged_tables_do_no_harm)
{
	struct coll_rng rng = {7};
	char *text = coll_measured_print(&table);

	REQUIRE(text);
	for (int i = 0; i < 3000; i++) {
		const size_t at = coll_rng_next(&rng) % strlen(text);
		const char was = text[at];
		struct coll_measured t;
		char why[40];

		text[at] = (char)(1 + coll_rng_next(&rng) % 255);
		if (coll_measured_parse(text, &t, why, sizeof(why)))
			coll_measured_free(&t);
		if (i % 4)
			text[at] = was;
	}
	free(text);
}
