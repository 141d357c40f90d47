/*
 * The command that leads to the agent of another host: the words of --ssh, the host, and one word for its shell. In an
 * allocation of Slurm without --ssh: srun, which starts a step on that host beside those that run there.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collrun.h"

/* 'text' for a shell. */
static char *quoted(const char *text)
{
	char *q = must(malloc(4 * strlen(text) + 3)), *at = q;

	*at++ = '\'';
	for (; *text; text++) {
		if (*text == '\'')
			at = stpcpy(at, "'\\''");
		else
			*at++ = *text;
	}
	strcpy(at, "'");
	return q;
}

/* A host that is gone is noticed, and nobody is asked. */
static const char ssh[] =
        "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=10 -o ServerAliveCountMax=3";
/* The variables of the allocation say how many tasks a step has, and where: here it is one, on one host. Frames do not
 * end in newlines, for which srun would wait. */
static const char srun[] = "srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --overlap --mem=0 --cpu-bind=none --mpi=none "
                           "--quiet --unbuffered -w";

static bool is_installed(const char *program)
{
	const char *path = getenv("PATH");
	char *copy = must(strdup(path ? path : "")), *save = NULL, file[PATH_MAX];
	bool found = false;

	for (char *t = strtok_r(copy, ":", &save); t && !found; t = strtok_r(NULL, ":", &save))
		found = snprintf(file, sizeof(file), "%s/%s", t, program) < (int)sizeof(file) &&
		        access(file, X_OK) == 0;
	free(copy);
	return found;
}

void link_choose(struct options *o)
{
	const char *given = getenv("COLLRUN_SSH");

	if (!o->ssh && given && *given)
		o->ssh = given;
	if (!o->ssh && o->allocation && strncmp(o->allocation, "SLURM_", 6) == 0 && is_installed("srun"))
		o->ssh = srun;
	if (!o->ssh)
		o->ssh = ssh;
}

void link_words(const struct options *o, const char *host, char *words[LINK_WORDS_MAX])
{
	static char *copy, *command;
	char self[PATH_MAX] = "collrun", *save = NULL, *path;
	const ssize_t got = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int n = 0;

	if (got > 0)
		self[got] = 0;
	free(copy);
	free(command);
	copy = must(strdup(o->ssh));
	path = quoted(o->remote ? o->remote : self);
	command = must(malloc(strlen(path) + 16));
	sprintf(command, "%s --agent", path);
	free(path);
	for (char *t = strtok_r(copy, " \t", &save); t && n < LINK_WORDS_MAX - 5; t = strtok_r(NULL, " \t", &save))
		words[n++] = t;
	words[n++] = (char *)host;
	if (o->ssh == srun) { /* there is no shell that takes a command apart */
		words[n++] = (char *)"sh";
		words[n++] = (char *)"-c";
	}
	words[n++] = command;
	words[n] = NULL;
}
