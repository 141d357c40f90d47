/*
 * The hosts of a job: from lists, from files, from the allocation of a scheduler (collrun_allocation.c), or this one.
 * Which of them are this host, and which rank runs on which. No name server is asked.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "collrun_options.h"

int hosts_add(struct options *o, const char *name, int slots)
{
	if (!*name || *name == '-')
		return options_refuse("\"%s\" is not a host name", name);
	for (int i = 0; i < o->host_count; i++) {
		if (strcmp(o->hosts[i].name, name) == 0) {
			o->hosts[i].slots += slots;
			return -1;
		}
	}
	o->hosts = must(realloc(o->hosts, (size_t)(o->host_count + 1) * sizeof(*o->hosts)));
	o->hosts[o->host_count++] = (struct host){.name = must(strdup(name)), .slots = slots};
	return -1;
}

/* "a", "a:2", "[::1]:2", "fe80::1" (more than one colon: no slots) */
static int add_host_text(struct options *o, const char *text)
{
	char name[256];
	const char *colon = strrchr(text, ':');
	int slots = 1;

	if (colon && strchr(text, ':') != colon && colon > text && colon[-1] != ']')
		colon = NULL;
	if (colon && !coll_number_parse(colon + 1, 1, RANKS_MAX, &slots))
		return options_refuse("host \"%s\": expected a number of slots after the colon", text);
	snprintf(name, sizeof(name), "%.*s", (int)(colon ? colon - text : (long)strlen(text)), text);
	if (*name == '[' && name[strlen(name) - 1] == ']') {
		name[strlen(name) - 1] = 0;
		memmove(name, name + 1, strlen(name));
	}
	return hosts_add(o, name, slots);
}

int hosts_add_list(struct options *o, const char *list)
{
	char *copy = must(strdup(list)), *save = NULL;
	int rc = -1;

	if (strspn(list, ",") == strlen(list))
		rc = options_refuse("-H \"%s\": it names no host", list);
	for (char *t = strtok_r(copy, ",", &save); t && rc < 0; t = strtok_r(NULL, ",", &save))
		rc = add_host_text(o, t);
	free(copy);
	return rc;
}

static int add_host_line(struct options *o, char *line, const char *path, int number)
{
	char *save = NULL, *name = strtok_r(line, " \t\r\n", &save), *more = strtok_r(NULL, " \t\r\n", &save);
	int slots;

	if (!name || *name == '#')
		return -1;
	if (!more || *more == '#')
		return add_host_text(o, name);
	if (strncmp(more, "slots=", 6) == 0)
		more += 6;
	if (!coll_number_parse(more, 1, RANKS_MAX, &slots))
		return options_refuse("%s:%d: \"%s\" is not a number of slots", path, number, more);
	return hosts_add(o, name, slots);
}

static int all_slots(const struct options *o)
{
	int slots = 0;

	for (int i = 0; i < o->host_count; i++)
		slots += o->hosts[i].slots;
	return slots;
}

int hosts_read_file(struct options *o, const char *path)
{
	FILE *f = fopen(path, "re");
	const int before = all_slots(o);
	char *line = NULL;
	size_t cap = 0;
	int rc = -1;

	if (!f)
		return options_refuse("--hostfile %s: %s", path, strerror(errno));
	errno = 0;
	for (int n = 1; rc < 0 && getline(&line, &cap, f) > 0; n++)
		rc = add_host_line(o, line, path, n);
	if (rc < 0 && !feof(f)) /* a directory can be opened, too */
		rc = options_refuse("--hostfile %s: %s", path, strerror(errno));
	else if (rc < 0 && all_slots(o) == before)
		rc = options_refuse("--hostfile %s: it names no host", path);
	free(line);
	fclose(f);
	return rc;
}

/* An address of one of our own interfaces. */
static bool own_address(const char *text)
{
	unsigned char four[4], six[16];
	const bool is4 = inet_pton(AF_INET, text, four) == 1, is6 = inet_pton(AF_INET6, text, six) == 1;
	struct ifaddrs *list = NULL;
	bool found = false;

	if ((!is4 && !is6) || getifaddrs(&list) < 0)
		return false;
	for (struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
		if (i->ifa_addr && is4 && i->ifa_addr->sa_family == AF_INET)
			found = memcmp(&((struct sockaddr_in *)i->ifa_addr)->sin_addr, four, 4) == 0;
		if (i->ifa_addr && is6 && i->ifa_addr->sa_family == AF_INET6)
			found = memcmp(&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr, six, 16) == 0;
	}
	freeifaddrs(list);
	return found;
}

/* No name server is asked: what is not evidently this host is reached by ssh. */
static bool is_local(const char *name)
{
	char self[256] = "";
	size_t n;

	gethostname(self, sizeof(self) - 1);
	n = strcspn(self, ".");
	return strcmp(name, "localhost") == 0 || strcmp(name, self) == 0 ||
	       (strlen(name) == n && strncmp(name, self, n) == 0) || own_address(name);
}

/* All names of this host are one host. */
static void merge_local(struct options *o)
{
	int kept = 0, first = -1;

	for (int i = 0; i < o->host_count; i++) {
		o->hosts[i].local = is_local(o->hosts[i].name);
		if (o->hosts[i].local && first >= 0) {
			o->hosts[first].slots += o->hosts[i].slots;
			free((void *)o->hosts[i].name);
			continue;
		}
		if (o->hosts[i].local)
			first = kept;
		o->hosts[kept++] = o->hosts[i];
	}
	o->host_count = kept;
}

/* Where there are more ranks than slots, hosts take one more each in turn until there is room. */
static void add_slots(struct options *o)
{
	int slots = all_slots(o);

	for (int i = 0; slots < o->size; i = (i + 1) % o->host_count, slots++)
		o->hosts[i].slots++;
}

/* Ranks fill the hosts in order. */
int hosts_place(struct options *o)
{
	int slots, rank = 0, rc;

	if (o->host_count == 0 && (rc = allocation_read(o)) >= 0)
		return rc;
	if (o->host_count == 0 && o->size == 0)
		return options_refuse("the number of ranks is missing: give -n or -H");
	if (o->host_count == 0)
		hosts_add(o, "localhost", o->size);
	merge_local(o);
	slots = all_slots(o);
	if (o->size == 0)
		o->size = slots;
	if (o->size > slots && !o->oversubscribe && !o->allocation)
		return options_refuse("-n %d: the hosts have %d slots (--oversubscribe takes more)", o->size, slots);
	if (o->size > RANKS_MAX)
		return options_refuse("%d ranks: at most %d", o->size, RANKS_MAX);
	add_slots(o);
	for (int i = 0; i < o->host_count; i++) {
		struct host *h = &o->hosts[i];

		h->ranks = must(calloc((size_t)h->slots, sizeof(*h->ranks)));
		while (h->rank_count < h->slots && rank < o->size)
			h->ranks[h->rank_count++] = rank++;
	}
	while (o->host_count > 0 && o->hosts[o->host_count - 1].rank_count == 0) {
		o->host_count--;
		free(o->hosts[o->host_count].ranks);
		free((void *)o->hosts[o->host_count].name);
	}
	return -1;
}

/* ---- What would be done ------------------------------------------------- */

void hosts_print(const struct options *o)
{
	char *words[LINK_WORDS_MAX];

	printf("%d rank%s on %d host%s%s%s\n", o->size, o->size > 1 ? "s" : "", o->host_count,
	       o->host_count > 1 ? "s" : "", o->allocation ? ", the allocation of " : "",
	       o->allocation ? o->allocation : "");
	for (int i = 0; i < o->host_count; i++)
		for (int k = 0; k < o->hosts[i].rank_count; k++)
			printf("rank %d on %s, local rank %d of %d\n", o->hosts[i].ranks[k], o->hosts[i].name, k,
			       o->hosts[i].rank_count);
	for (int i = 0; i < o->host_count; i++) {
		printf("%s:", o->hosts[i].name);
		if (!o->hosts[i].local) {
			link_words(o, o->hosts[i].name, words);
			for (int k = 0; words[k]; k++)
				printf(" %s", words[k]);
		} else {
			printf(" here");
		}
		printf("\n");
	}
	printf("each rank:");
	for (int i = 0; o->program[i]; i++)
		printf(" %s", o->program[i]);
	printf("\n");
}
