/*
 * NCCL_SOCKET_IFNAME and NCCL_IB_HCA as names of the library: prefixes, whole names behind '=', exclusion by '^'.
 */
#include <string.h>

#include "compat/nccl/variables.h"
#include "tests/plain.h"

static struct ifaddrs host[] = {{.ifa_name = "lo"},    {.ifa_name = "eth0"},    {.ifa_name = "eth1"},
                                {.ifa_name = "eth10"}, {.ifa_name = "docker0"}, {.ifa_name = "eth0"}};
static const struct coll_ib_port ports[] = {{.device = "mlx5_0", .number = 1},
                                            {.device = "mlx5_1", .number = 1},
                                            {.device = "mlx5_1", .number = 2},
                                            {.device = "rxe0", .number = 1}};

static const char *interfaces(const char *variable)
{
	static char names[256];

	for (size_t i = 0; i + 1 < sizeof(host) / sizeof(host[0]); i++)
		host[i].ifa_next = &host[i + 1];
	return nccl_interfaces(variable, host, names, sizeof(names)) ? names : "none";
}

static const char *devices(const char *variable)
{
	static char names[256];

	return nccl_devices(variable, ports, 4, names, sizeof(names)) ? names : "none";
}

TEST(nccl_names, interfaces_by_prefix_whole_and_excluded)
{
	static const char *const cases[][2] = {{"eth", "eth0,eth1,eth10"},
	                                       {"eth1", "eth1,eth10"},
	                                       {"=eth1", "eth1"},
	                                       {"=eth1,docker0", "eth1,docker0"},
	                                       {"=docker", "none"},
	                                       {"ib", "none"},
	                                       {"^docker,lo", "^lo,docker0"},
	                                       {"^=eth1", "^eth1"},
	                                       {"^veth", ""},
	                                       {"^=docker", ""},
	                                       {"eth0,lo", "lo,eth0"},
	                                       {",eth0,", "eth0"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		CHECK(strcmp(interfaces(cases[i][0]), cases[i][1]) == 0, "%s: %s", cases[i][0],
		      interfaces(cases[i][0]));
}

/* Where the excluded ones have no room, the others are named. */
TEST(nccl_names, many_excluded_interfaces)
{
	static struct ifaddrs many[100];
	static char names[100][16];
	char got[64];

	for (int i = 0; i < 100; i++) {
		snprintf(names[i], sizeof(names[i]), i == 50 ? "bond0" : "veth%d", i);
		many[i] = (struct ifaddrs){.ifa_name = names[i], .ifa_next = i < 99 ? &many[i + 1] : NULL};
	}
	CHECK(nccl_interfaces("^veth", many, got, sizeof(got)) && strcmp(got, "bond0") == 0, "%s", got);
	CHECK(!nccl_interfaces("veth", many, got, sizeof(got)));
	CHECK(!nccl_interfaces("^=veth1,bond0,nothing", many + 1, got, 4));
}

TEST(nccl_names, devices_and_ports)
{
	static const char *const cases[][2] = {{"mlx5", "mlx5_0:1,mlx5_1:1,mlx5_1:2"},
	                                       {"mlx5_1:2", "mlx5_1:2"},
	                                       {"=mlx5_1:1,rxe", "mlx5_1:1"},
	                                       {"=mlx5_1:1,rxe0:1", "mlx5_1:1,rxe0:1"},
	                                       {"^mlx5_1", "mlx5_0:1,rxe0:1"},
	                                       {"^=mlx5_1:1", "mlx5_0:1,mlx5_1:2,rxe0:1"},
	                                       {"^mlx4", ""},
	                                       {"^mlx5,rxe", "none"},
	                                       {"bnxt", "none"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		CHECK(strcmp(devices(cases[i][0]), cases[i][1]) == 0, "%s: %s", cases[i][0], devices(cases[i][0]));
}
