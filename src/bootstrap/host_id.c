/*
 * The name of "this host" as far as sharing memory and abstract Unix sockets
 * goes: the boot of the kernel, the host name, and the network namespace, because
 * abstract sockets (over which shared memory is handed) end at its border. And of the
 * machine as far as sharing its cores goes: the boot alone, because containers of one
 * machine are hosts of their own and share them all the same.
 */
#include "bootstrap/host_id.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "bootstrap/bootstrap.h"

static void boot_id(char *buf, size_t len_bytes)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	snprintf(buf, len_bytes, "?");
	if (!f)
		return;
	if (!fgets(buf, (int)len_bytes, f))
		snprintf(buf, len_bytes, "?");
	fclose(f);
	buf[strcspn(buf, "\n")] = 0;
}

void coll_bootstrap_host_id(const struct coll_settings *settings, char *buf, size_t len_bytes)
{
	char boot[48], name[64] = "?";
	struct stat net = {0};

	if (settings && settings->host_id[0]) {
		snprintf(buf, len_bytes, "%s", settings->host_id);
		return;
	}
	boot_id(boot, sizeof(boot));
	gethostname(name, sizeof(name) - 1);
	(void)stat("/proc/self/ns/net", &net);
	snprintf(buf, len_bytes, "%s/%s/%lx", boot, name, (unsigned long)net.st_ino);
}

uint64_t coll_bootstrap_machine(void)
{
	char text[64];

	boot_id(text, sizeof(text));
	if (text[0] == '?')
		gethostname(text, sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	return coll_hash_bytes(2, text, strlen(text));
}
