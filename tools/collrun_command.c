/*
 * The command that leads to the agent of another host: the words of --ssh, the host, and one word for its shell.
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
	for (char *t = strtok_r(copy, " \t", &save); t && n < LINK_WORDS_MAX - 3; t = strtok_r(NULL, " \t", &save))
		words[n++] = t;
	words[n++] = (char *)host;
	words[n++] = command;
	words[n] = NULL;
}
