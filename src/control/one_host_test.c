/*
 * What two processes say of themselves, and whether they are on one host: by marks of addresses, in either order.
 */
#include "control/one_host.h"

#include <string.h>

#include "tests/plain.h"

static struct coll_peer_info with(int n, const uint32_t *marks)
{
	struct coll_peer_info info = {.host_id = "boot/net", .name_space = 5, .machine = 6};

	memcpy(info.marks, marks, (size_t)n * sizeof(*marks));
	return info;
}

static void judge(int line, const struct coll_peer_info *a, const struct coll_peer_info *b, bool one)
{
	CHECK(coll_one_host(a, b) == one && coll_one_host(b, a) == one, "line %d", line);
	CHECK(coll_one_network(a, b) == one && coll_one_network(b, a) == one, "line %d", line);
	CHECK(coll_one_machine(a, b) == one && coll_one_machine(b, a) == one, "line %d", line);
	CHECK(coll_copies(a, b) == !one && coll_copies(b, a) == !one, "line %d", line);
}

/* Two lists of marks, each ascending. */
#define JUDGE(one, n, m, ...)                                                                         \
	do {                                                                                          \
		static const uint32_t marks[] = {__VA_ARGS__};                                        \
		const struct coll_peer_info a = with((n), marks), b = with((m), marks + (n));         \
		static_assert((n) <= COLL_HOST_MARKS && (m) <= COLL_HOST_MARKS, "what a list holds"); \
		judge(__LINE__, &a, &b, (one));                                                       \
	} while (0)

TEST(one_host, addresses_decide)
{
	JUDGE(true, 2, 2, 3, 9, 3, 9);
	JUDGE(false, 1, 1, 3, 9);
	JUDGE(true, 1, 3, 5, 3, 5, 9);        /* two came between the starts */
	JUDGE(true, 0, 2, 3, 9);              /* told that all are on one host, or without addresses */
	JUDGE(false, 2, 2, 3, 9, 5, 9);       /* copies with an address in common, the greater one */
	JUDGE(false, 2, 2, 3, 5, 3, 9);       /* the smaller one */
	JUDGE(false, 3, 3, 1, 3, 7, 3, 4, 7); /* two in common */
	JUDGE(false, 4, 2, 1, 2, 3, 4, 4, 5); /* one of them has more */
}

/* A full list may have lost its greatest. */
TEST(one_host, full_lists_say_less)
{
	JUDGE(true, 8, 8, 1, 2, 3, 4, 5, 6, 7, 8, 2, 3, 4, 5, 6, 7, 8, 9);
	JUDGE(true, 8, 3, 1, 2, 3, 4, 5, 6, 7, 8, 2, 3, 9);
	JUDGE(false, 8, 8, 1, 2, 3, 4, 5, 6, 7, 9, 2, 3, 4, 5, 6, 7, 8, 9);
	JUDGE(false, 8, 3, 1, 2, 3, 4, 6, 7, 8, 9, 2, 5, 9);
}

TEST(one_host, names_divide)
{
	static const uint32_t marks[] = {3, 9};
	const struct coll_peer_info a = with(2, marks);
	struct coll_peer_info b = a;

	strcpy(b.host_id, "mars"); /* COLL_HOST_ID */
	CHECK(!coll_one_host(&a, &b) && coll_one_network(&a, &b) && coll_one_machine(&a, &b) && !coll_copies(&a, &b));
	b = a;
	b.name_space = 7; /* a container of the machine */
	b.marks[0] = 4;
	CHECK(!coll_one_host(&a, &b) && !coll_one_network(&a, &b) && coll_one_machine(&a, &b) && !coll_copies(&a, &b));
	b = a;
	b.name_space = 0; /* hidden */
	CHECK(coll_one_host(&a, &b) && !coll_one_network(&a, &b));
}
