/*
 * Network devices and distances as /sys shows them: a tree of our own with two NUMA nodes whose
 * numbers have a gap, and an RDMA device made of software above a network interface.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/files.h"
#include "tests/plain.h"
#include "topology/nic.h"

static char root[64];

static void plant(void)
{
	snprintf(root, sizeof(root), "/tmp/topology_nic_XXXXXX");
	REQUIRE(mkdtemp(root), "%s", root);
	put_file(root, "devices/system/node/node0/distance", "10 21\n");
	put_file(root, "devices/system/node/node2/distance", "21 10\n");
	put_file(root, "class/infiniband/mlx5_10/device/numa_node", "2\n");
	put_file(root, "class/infiniband/mlx5_2/device/numa_node", "-1\n");
	put_file(root, "class/infiniband/rxe0/parent", "eth3\n");
	put_file(root, "class/net/eth3/device/numa_node", "0\n");
	put_file(root, "class/net/eth4/device/numa_node", "2\n");
}

static void uproot(void)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	CHECK(system(command) == 0, "%s", command);
}

TEST(topology_nic, nodes)
{
	plant();
	CHECK(coll_topology_nic_node(root, "mlx5_10") == 2);
	CHECK(coll_topology_nic_node(root, "mlx5_2") == -1, "the kernel does not say");
	CHECK(coll_topology_nic_node(root, "rxe0") == 0, "that of eth3");
	CHECK(coll_topology_nic_node(root, "eth4") == 2);
	CHECK(coll_topology_nic_node(root, "eth9") == -1, "none such");
	uproot();
}
