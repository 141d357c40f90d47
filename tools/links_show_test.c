/*
 * What coll-links shows of made-up matrices: the links of the slow host are named, and no others.
 */
#include "links_show.h"

#include <string.h>

#include "tests/plain.h"

enum { N = 8 };

static const char *const hosts[N] = {"a", "a", "b", "b", "c", "c", "d", "d"};
static double us[N * N], mb_s[N * N];
static const struct links links = {.n = N, .host = hosts, .us = us, .mb_s = mb_s};

static void setup(void)
{
	for (int a = 0; a < N; a++)
		for (int b = 0; b < N; b++) {
			us[a * N + b] = a / 2 == b / 2 ? 0.4 : 30 + (a * 3 + b) % 7;
			mb_s[a * N + b] = a / 2 == b / 2 ? 5000 : 60 + (a * 5 + b) % 60;
		}
}

static int count(const char *text, const char *word)
{
	int n = 0;

	for (const char *p = text; (p = strstr(p, word)); p += strlen(word))
		n++;
	return n;
}

TEST(links_show, equal_links_are_not_marked)
{
	struct coll_text text = {0};

	setup();
	CHECK(!links_show(&links, LINKS_TEXT, &text) && !text.failed);
	CHECK(strstr(text.p, "no link is far behind") && !strstr(text.p, "slow:"), "%s", text.p);
	coll_text_free(&text);
}

TEST(links_show, the_links_of_one_host_of_four)
{
	struct coll_text text = {0}, json = {0}, svg = {0};

	setup();
	for (int r = 0; r < 6; r++)
		for (int d = 6; d < 8; d++)
			mb_s[d * N + r] = 2.4; /* its way out alone */
	CHECK(links_show(&links, LINKS_TEXT, &text) && links_show(&links, LINKS_JSON, &json) &&
	      links_show(&links, LINKS_SVG, &svg));
	CHECK(count(text.p, "slow: link ") == 3 && count(text.p, "slow: ") == 3, "%s", text.p);
	CHECK(strstr(text.p, "slow: link a-d: 2.4 MB/s") && strstr(text.p, "slow: link b-d: ") &&
	              strstr(text.p, "slow: link c-d: "),
	      "%s", text.p);
	CHECK(count(json.p, "\"ranks\":[") == 3 && strstr(json.p, "\"hosts\":[\"b\",\"d\"]"), "%s", json.p);
	CHECK(count(svg.p, "stroke=\"red\"") == 24 && strstr(svg.p, "</svg>"), "%d", count(svg.p, "stroke=\"red\""));
	coll_text_free(&text);
	coll_text_free(&json);
	coll_text_free(&svg);
}

TEST(links_show, what_is_measured_again)
{
	unsigned char pairs[N * N], none[N * N] = {0};

	setup();
	CHECK(links_far(&links, pairs) && memcmp(pairs, none, sizeof(pairs)) == 0);
	for (int r = 0; r < 6; r++)
		for (int d = 6; d < 8; d++)
			mb_s[d * N + r] = 2.4;
	us[2 * N + 3] = 4;
	none[2 * N + 3] = none[0 * N + 6] = none[2 * N + 6] = none[4 * N + 6] = 1;
	CHECK(links_far(&links, pairs) && memcmp(pairs, none, sizeof(pairs)) == 0);
}

TEST(links_show, a_rank_that_was_busy_makes_no_slow_link)
{
	struct coll_text text = {0};

	setup();
	for (int r = 0; r < 6; r++)
		mb_s[7 * N + r] = mb_s[r * N + 7] = 2.4;
	CHECK(!links_show(&links, LINKS_TEXT, &text), "%s", text.p);
	coll_text_free(&text);
	setup();
	mb_s[2 * N + 3] = 900; /* within a host of its own kind */
	us[0 * N + 1] = 4;
	CHECK(links_show(&links, LINKS_TEXT, &text));
	CHECK(strstr(text.p, "slow: rank 0-rank 1 on a: 4.0 us") &&
	              strstr(text.p, "slow: rank 2-rank 3 on b: 900.0 MB/s") && !strstr(text.p, "slow: link"),
	      "%s", text.p);
	coll_text_free(&text);
}
