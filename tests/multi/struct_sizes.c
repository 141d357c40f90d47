/*
 * Structs with struct_size from programs of other versions, at each function that takes one: the first version, a
 * later one whose new members are zero, and one that asks for what this library lacks. The job is this process.
 */
#define PLAIN_OWN_MAIN
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "coll/ddp.h"
#include "plain.h"

/* Room for a struct and what a later version has behind it. */
union room {
	coll_config config;
	coll_operation_desc desc;
	coll_ddp_config ddp;
	coll_ddp_stats stats;
	size_t struct_size;
	unsigned char bytes[256];
};

static coll_comm *comm;
static float x[4];

/* ---- The functions: each is given a struct and returns its status ---- */

static coll_status create(union room *r)
{
	coll_comm *made = NULL;
	coll_status st = coll_comm_create(&made, &r->config);

	CHECK(!made == (st != COLL_OK));
	if (st == COLL_OK)
		CHECK(coll_comm_rank(made) == 0 && coll_barrier(made, NULL) == COLL_OK);
	coll_comm_destroy(&made);
	return st;
}

static coll_status create_all(union room *r)
{
	coll_comm *made[1] = {NULL};
	coll_status st = coll_comm_create_all(made, 1, &r->config);

	coll_comm_destroy(&made[0]);
	return st;
}

static coll_status prepare(union room *r)
{
	coll_operation *op = NULL;
	coll_status st = coll_operation_prepare(&op, &r->desc, comm);

	if (st == COLL_OK)
		CHECK(coll_operation_start(op, NULL) == COLL_OK && coll_operation_wait(op, -1) == COLL_OK);
	coll_operation_destroy(&op);
	return st;
}

static const coll_ddp_param param = {.name = "w", .dim_count = 1, .dims = {4}};

static coll_status train(union room *r)
{
	coll_ddp *ddp = NULL;
	coll_status st = coll_ddp_create(&ddp, &param, 1, &r->ddp, comm);

	if (st == COLL_OK)
		CHECK(coll_ddp_count(ddp) == 4);
	coll_ddp_destroy(&ddp);
	return st;
}

static union room config(void)
{
	union room r = {.bytes = {0}};

	r.config = (coll_config)COLL_CONFIG_INIT;
	r.config.rank = 0;
	r.config.size = 1;
	return r;
}

static union room desc(void)
{
	union room r = {.bytes = {0}};

	r.desc = (coll_operation_desc)COLL_OPERATION_DESC_INIT;
	r.desc.in = r.desc.out = x;
	r.desc.count = 4;
	return r;
}

static union room ddp_config(void)
{
	union room r = {.bytes = {0}};

	r.ddp = (coll_ddp_config)COLL_DDP_CONFIG_INIT;
	return r;
}

static const struct row {
	const char *name;
	size_t first_bytes, bytes;
	union room (*made)(void);
	coll_status (*call)(union room *);
} rows[] = {
        {"create", COLL_SIZED_FIRST(coll_config, settings), sizeof(coll_config), config, create},
        {"create_all", COLL_SIZED_FIRST(coll_config, settings), sizeof(coll_config), config, create_all},
        {"prepare", COLL_SIZED_FIRST(coll_operation_desc, out_offsets), sizeof(coll_operation_desc), desc, prepare},
        {"ddp_create", COLL_SIZED_FIRST(coll_ddp_config, problem_bytes), sizeof(coll_ddp_config), ddp_config, train},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* ---- What is passed ---- */

static void any_size_since_the_first_is_accepted(void)
{
	for (int i = 0; i < ROWS; i++)
		for (size_t bytes = rows[i].first_bytes; bytes <= rows[i].bytes; bytes += sizeof(size_t)) {
			union room r = rows[i].made();

			/* Not read. */
			memset(r.bytes + bytes, 0xff, sizeof(r.bytes) - bytes);
			r.struct_size = bytes;
			CHECK(rows[i].call(&r) == COLL_OK, "%s: %zu bytes: %s", rows[i].name, bytes,
			      coll_last_error(NULL)->message);
			CHECK(r.struct_size == bytes);
		}
}

static void shorter_than_the_first_is_refused(void)
{
	for (int i = 0; i < ROWS; i++) {
		const size_t sizes[] = {0, sizeof(size_t), rows[i].first_bytes - 8, rows[i].first_bytes + 1, SIZE_MAX};

		for (int k = 0; k < 5; k++) {
			union room r = rows[i].made();

			r.struct_size = sizes[k];
			CHECK(rows[i].call(&r) == COLL_ERR_ARGUMENT, "%s: %zu bytes", rows[i].name, sizes[k]);
		}
	}
}

static void longer_is_accepted_if_the_rest_is_zero(void)
{
	for (int i = 0; i < ROWS; i++) {
		union room r = rows[i].made();

		r.struct_size = rows[i].bytes + 16;
		CHECK(rows[i].call(&r) == COLL_OK, "%s", rows[i].name);
		r = rows[i].made();
		r.struct_size = rows[i].bytes + 16;
		r.bytes[rows[i].bytes + 15] = 1;
		CHECK(rows[i].call(&r) == COLL_ERR_ARGUMENT, "%s: the last byte", rows[i].name);
		r.bytes[rows[i].bytes + 15] = 0;
		r.bytes[rows[i].bytes] = 1;
		CHECK(rows[i].call(&r) == COLL_ERR_ARGUMENT, "%s: the first byte", rows[i].name);
	}
}

/* ---- What is filled ---- */

static void filled_is_what_the_program_has(void)
{
	const size_t first = COLL_SIZED_FIRST(coll_ddp_stats, bytes_per_s);
	union room r = {.bytes = {0}};
	coll_ddp *ddp = NULL;

	REQUIRE(coll_ddp_create(&ddp, &param, 1, NULL, comm) == COLL_OK);
	memset(&r, 0xff, sizeof(r));
	r.struct_size = first;
	CHECK(coll_ddp_get_stats(ddp, &r.stats, 0) == COLL_OK && r.struct_size == first && r.stats.steps == 0);
	CHECK(r.bytes[first] == 0xff, "beyond the end");
	r.struct_size = sizeof(r);
	CHECK(coll_ddp_get_stats(ddp, &r.stats, 0) == COLL_OK && r.struct_size == sizeof(r));
	for (size_t i = sizeof(coll_ddp_stats); i < sizeof(r); i++)
		CHECK(r.bytes[i] == 0);
	r.struct_size = first - 8;
	CHECK(coll_ddp_get_stats(ddp, &r.stats, 0) == COLL_ERR_ARGUMENT);
	coll_ddp_destroy(&ddp);
}

int main(void)
{
	coll_config cfg = config().config;

	setenv("COLL_DEBUG", "error", 1);
	setenv("COLL_LOG_FILE", "/dev/null", 1);
	if (coll_comm_create(&comm, &cfg) != COLL_OK)
		return 1;
	PLAIN_RUN(any_size_since_the_first_is_accepted);
	PLAIN_RUN(shorter_than_the_first_is_refused);
	PLAIN_RUN(longer_is_accepted_if_the_rest_is_zero);
	PLAIN_RUN(filled_is_what_the_program_has);
	coll_comm_destroy(&comm);
	return plain_summary();
}
