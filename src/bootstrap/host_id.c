/*
 * The name of "this host" as far as sharing memory and abstract Unix sockets
 * goes: the boot of the kernel and the network namespace, because
 * abstract sockets (over which shared memory is handed) end at its border. The host name counts only where one of
 * these is hidden: containers on the network of their host have names of their own. And of the
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
		/* Abstract sockets, over which memory is handed, end with the network namespace. */
		const uint64_t space = coll_bootstrap_name_space();

		snprintf(buf, len_bytes, "%.20s/%016llx/%016llx", settings->host_id,
		         (unsigned long long)coll_hash_bytes(5, settings->host_id, strlen(settings->host_id)),
		         (unsigned long long)space);
		return;
	}
	boot_id(boot, sizeof(boot));
	/* Many machines have the same number of a namespace, and with a boot of unknown name it says nothing. */
	if (stat("/proc/self/ns/net", &net) == 0 && boot[0] != '?') {
		snprintf(buf, len_bytes, "%s/%lx", boot, (unsigned long)net.st_ino);
		return;
	}
	gethostname(name, sizeof(name) - 1);
	snprintf(buf, len_bytes, "%s/%s/%lx", boot, name, (unsigned long)net.st_ino);
}

uint64_t coll_bootstrap_name_space(void)
{
	char text[32];
	const ssize_t n = readlink("/proc/self/ns/net", text, sizeof(text));

	return n > 0 ? coll_hash_bytes(coll_bootstrap_machine(), text, (size_t)n) : 0;
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

uint64_t coll_bootstrap_process_space(void)
{
	struct stat space;

	return stat("/proc/self/ns/pid", &space) == 0 ? coll_mix64((uint64_t)space.st_ino) | 1 : 0;
}
