/*
 * This host's digest: see host_digest.h.
 */
#include "topology/host_digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/hash.h"
#include "base/own_user.h"
#include "topology/graph_hwloc.h"
#include "topology/nic.h"
#include "topology/rates.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

extern char **environ;

/* Jobs, logins and containers have cgroups and namespaces of their own, and nobody removes the files. */
enum { FILES = 64 };

struct coll_graph *coll_host_graph(char *note, size_t note_bytes)
{
	struct coll_graph *g = coll_graph_hwloc_live(note, note_bytes);

	if (g && note_bytes)
		note[0] = 0;
	if (!g)
		g = coll_graph_new();
	if (g) {
		coll_rates_read_sys(g, COLL_TOPOLOGY_SYS);
		coll_rates_read_kernel(g);
	}
	return g;
}

static bool hwloc_is_configured(void)
{
	for (char **e = environ; e && *e; e++)
		if (strncmp(*e, "HWLOC_", 6) == 0)
			return true;
	return false;
}

static uint64_t hash_file(uint64_t h, const char *path)
{
	char text[512];
	FILE *f = fopen(path, "re");

	while (f) {
		const size_t n = fread(text, 1, sizeof(text), f);

		h = coll_hash_bytes(h, text, n);
		if (n < sizeof(text)) {
			fclose(f);
			break;
		}
	}
	return h;
}

static uint64_t hash_inode(uint64_t h, const char *path)
{
	struct stat st = {0};

	(void)stat(path, &st);
	return coll_hash_combine(h, (uint64_t)st.st_ino);
}

/* The kernel gives the inode of a namespace that has ended to another one, but never its number. */
static uint64_t hash_network(uint64_t h)
{
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint64_t netns = 0;
	socklen_t len = sizeof(netns);

	if (fd >= 0) {
		if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &netns, &len) < 0)
			netns = 0; /* before Linux 5.14 */
		close(fd);
	}
	return hash_inode(coll_hash_combine(h, netns), "/proc/self/ns/net");
}

bool coll_host_digest_path(char *path, size_t path_bytes, uint64_t *key)
{
	const char *folder = "/dev/shm";
	uint64_t h = coll_hash_combine(COLL_DIGEST_VERSION, (uint64_t)geteuid());

	if (hwloc_is_configured() || coll_user_of(geteuid()) != COLL_USER_OWN)
		return false;
	if (access(folder, W_OK | X_OK) != 0)
		folder = getenv("XDG_RUNTIME_DIR");
	if (!folder || folder[0] != '/')
		return false;
	h = hash_file(h, "/proc/sys/kernel/random/boot_id");
	h = hash_file(h, "/proc/self/cgroup");
	h = hash_inode(h, "/proc/self/ns/cgroup");
	*key = hash_network(h);
	return snprintf(path, path_bytes, "%s/libcoll-digest-%u-%02x", folder, (unsigned)geteuid(),
	                (unsigned)(*key % FILES)) < (int)path_bytes;
}

/* What hwloc could not read this time is not kept. */
static bool make(void *arg, struct coll_digest *d)
{
	struct coll_host_digest *host = arg;
	struct coll_graph *g = coll_host_graph(host->note, sizeof(host->note));

	d->len_bytes = g ? coll_digest_write(g, d->bytes) : 0;
	d->hash = g ? coll_digest_hash(d->bytes, d->len_bytes) : 0;
	free(g);
	return host->note[0] == 0;
}

void coll_host_digest_obtain(struct coll_host_digest *d)
{
	const uint64_t began_ns = coll_clock_ns();
	char path[256];
	uint64_t key;

	memset(d, 0, sizeof(*d));
	if (coll_host_digest_path(path, sizeof(path), &key))
		d->cached = coll_digest_cache_obtain(path, key, COLL_DELAY_DIGEST_WAIT_MS, make, d, &d->digest);
	else
		(void)make(d, &d->digest);
	d->load_ms = (double)(coll_clock_ns() - began_ns) / (double)COLL_NS_PER_MS;
}
