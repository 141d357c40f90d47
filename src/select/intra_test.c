/*
 * Which communicators have memory for intranode operations, by agreed facts.
 */
#include "select/intra.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_intra.h"
#include "tests/fakes/fake_select.h"
#include "tests/plain.h"

static struct coll_comm *comm;
static struct coll_opened_transport shm;

static void setup(void)
{
	fake_intra = (struct fake_intra){.created = 0};
	comm = fake_comm_open(0, 4);
	comm->rank_map.hosts = 1;
	comm->ctx->settings.intra = true;
	comm->ctx->settings.intra_bytes = 1000;
	shm = (struct coll_opened_transport){.caps = {.offers = true}};
	comm->intra = &fake_intra.object;
}

TEST(intra, only_ranks_of_one_host_that_share_memory)
{
	setup();
	coll_select_intra_facts(comm, &shm);
	CHECK(comm->intra_bytes == 960 && comm->intra_transport == &shm, "whole lines");
	setup();
	comm->rank_map.hosts = 2;
	coll_select_intra_facts(comm, &shm);
	CHECK(comm->intra_bytes == 0);
	CHECK(coll_select_intra_prepare(comm) == COLL_OK && fake_intra.created == 0);
	setup();
	comm->ctx->settings.intra = false;
	coll_select_intra_facts(comm, &shm);
	CHECK(comm->intra_bytes == 0);
	setup();
	shm.caps.offers = false;
	coll_select_intra_facts(comm, &shm);
	CHECK(comm->intra_bytes == 0);
	setup();
	comm->size = 5;
	coll_select_intra_facts(comm, &shm);
	CHECK(comm->intra_bytes == 0, "no row is for so many");
}

TEST(intra, creation_binds_the_table)
{
	setup();
	comm->intra = NULL;
	coll_select_intra_facts(comm, &shm);
	fake_select_reset();
	CHECK(coll_select_intra_prepare(comm) == COLL_OK && fake_intra.created == 1 && fake_select.bound == 1);
	CHECK(comm->intra == &fake_intra.object && fake_intra.payload_bytes == 960);
}
