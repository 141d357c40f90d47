/*
 * Flags that a program does not know, and what was meant: the nearest of those that its usage names, so that there is
 * no second list of them.
 */
#include "tools/common/flag_guess.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"

enum { FLAGS_MAX = 64, FLAG_BYTES = 32 };

static const char letters[] = "abcdefghijklmnopqrstuvwxyz-";

struct flag_hint flag_guess(const char *usage, const char *flag)
{
	char name[FLAGS_MAX][FLAG_BYTES], word[FLAG_BYTES];
	const char *names[FLAGS_MAX], *near;
	struct flag_hint hint = {""};
	size_t n = 0;

	for (const char *p = usage; n < FLAGS_MAX && (p = strstr(p, "--")); p += strspn(p, letters)) {
		snprintf(name[n], FLAG_BYTES, "%.*s", (int)strspn(p, letters), p);
		names[n] = name[n];
		n++;
	}
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(flag, "="), flag);
	near = strncmp(flag, "--", 2) == 0 ? coll_nearest(word, names, n) : NULL;
	if (near)
		snprintf(hint.text, sizeof(hint.text), ": did you mean %s?", near);
	return hint;
}

void flag_refused(const char *program, const char *usage, int got, char *const *argv)
{
	const char letter[] = {'-', (char)optopt, '\0'}, *flag = argv[optind - 1];

	if (optopt > 0 && optopt < 256 && flag[0] == '-' && flag[1] != '-')
		flag = letter;
	fprintf(stderr, "%s: %s flag %s%s\n", program, got == ':' ? "no value for" : "unknown", flag,
	        got == '?' ? flag_guess(usage, flag).text : "");
}
