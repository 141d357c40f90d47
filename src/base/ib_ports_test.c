/*
 * Devices as /sys shows them: a tree of our own with a device that has two ports, and one made
 * of software above a network interface.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ib_ports.h"
#include "tests/files.h"
#include "tests/plain.h"

static char root[64];

static void plant(void)
{
	snprintf(root, sizeof(root), "/tmp/rdma_ports_XXXXXX");
	REQUIRE(mkdtemp(root), "%s", root);
	put_file(root, "class/infiniband/mlx5_10/ports/1/state", "4: ACTIVE\n");
	put_file(root, "class/infiniband/mlx5_10/ports/1/link_layer", "InfiniBand\n");
	put_file(root, "class/infiniband/mlx5_10/ports/1/rate", "100 Gb/sec (4X EDR)\n");
	put_file(root, "class/infiniband/mlx5_10/ports/2/state", "1: DOWN\n");
	put_file(root, "class/infiniband/mlx5_10/ports/2/rate", "2.5 Gb/sec (1X SDR)\n");
	put_file(root, "class/infiniband/mlx5_2/ports/1/state", "4: ACTIVE\n");
	put_file(root, "class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
	put_file(root, "class/infiniband/rxe0/ports/1/rate", "-1 Gb/sec\n");
	put_file(root, "class/infiniband/rxe0/ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
	put_file(root, "class/infiniband/rxe0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a4d:0001\n");
	put_file(root, "class/infiniband/rxe0/ports/1/gid_attrs/types/1", "RoCE v2\n");
	put_file(root, "class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1", "eth3\n");
}

static void uproot(void)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	CHECK(system(command) == 0, "%s", command);
}

TEST(ib_ports, listed_with_state)
{
	struct coll_ib_port p[8];
	int n;

	plant();
	n = coll_ib_ports_list(root, p, 8);
	CHECK(n == 4, "%d ports", n);
	CHECK(strcmp(p[0].device, "mlx5_2") == 0 && p[0].active, "%s", p[0].device);
	CHECK(strcmp(p[1].device, "mlx5_10") == 0 && strcmp(p[1].rate, "100 Gb/sec (4X EDR)") == 0, "%s %s",
	      p[1].device, p[1].rate);
	CHECK(p[2].number == 2 && !p[2].active && strcmp(p[2].state, "DOWN") == 0, "%u %s", p[2].number, p[2].state);
	CHECK(strcmp(p[3].device, "rxe0") == 0, "%s", p[3].device);
	CHECK(p[1].mbps == 100000 && p[2].mbps == 2500 && p[3].mbps == 0, "%u %u %u", p[1].mbps, p[2].mbps, p[3].mbps);
	CHECK(coll_ib_ports_list(root, p, 3) == 3, "more than asked for");
	CHECK(coll_ib_ports_list("/nowhere", p, 8) == 0, "ports of nothing");
	uproot();
}

TEST(ib_ports, gids)
{
	const struct coll_ib_port rxe = {.device = "rxe0", .number = 1};
	struct coll_ib_gid gid;

	plant();
	CHECK(!coll_ib_port_gid(root, &rxe, 0, &gid), "an empty one");
	CHECK(!coll_ib_port_gid(root, &rxe, 7, &gid), "one that is not there");
	CHECK(coll_ib_port_gid(root, &rxe, 1, &gid) && strcmp(gid.type, "RoCE v2") == 0 &&
	              strcmp(gid.interface, "eth3") == 0,
	      "%s %s", gid.type, gid.interface);
	uproot();
}
