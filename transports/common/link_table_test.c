/*
 * The last passes over the links: counted, never timed.
 */
#include "tests/plain.h"
#include "transports/common/link_table.h"

enum { LINKS = 5, PASSES = 4 };

struct owing {
	struct coll_link_table links;
	int passes, asked;
};

struct debtor {
	struct coll_peer_link base;
	struct owing *to;
	int left; /* passes after which it owes nothing */
};

static bool begin(void *inst, struct coll_peer_link *l)
{
	((struct debtor *)l)->to = inst;
	((struct debtor *)l)->left = l->slot == LINKS - 1 ? PASSES : 1;
	return true;
}

static void pass(void *inst)
{
	((struct owing *)inst)->passes++;
}

static bool owes(struct coll_peer_link *l)
{
	struct debtor *d = (struct debtor *)l;

	d->to->asked++;
	CHECK((d->to->asked - 1) / LINKS + 1 == d->to->passes, "link %u was asked out of its pass", l->slot);
	return --d->left > 0;
}

static void make_links(struct owing *o)
{
	coll_link_table_init(&o->links, sizeof(struct debtor), begin, o);
	pthread_mutex_lock(&o->links.lock);
	for (uint32_t i = 0; i < LINKS; i++)
		REQUIRE(coll_link_table_new(&o->links, &(struct coll_process_id){{7, i}}, i) != NULL);
	pthread_mutex_unlock(&o->links.lock);
}

TEST(link_table, the_end_serves_all_once_a_pass)
{
	struct owing o = {0};

	make_links(&o);
	coll_link_table_flush(&o.links, pass, owes, 20000);
	CHECK(o.passes == PASSES && o.asked == PASSES * LINKS, "%d passes, %d links asked", o.passes, o.asked);
	coll_link_table_fini(&o.links);
}

TEST(link_table, without_links_nothing_is_served)
{
	struct owing o = {0};

	coll_link_table_init(&o.links, sizeof(struct debtor), begin, &o);
	coll_link_table_flush(&o.links, pass, owes, 20000);
	CHECK(o.passes == 0);
	coll_link_table_fini(&o.links);
}
