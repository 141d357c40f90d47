/*
 * What somebody may have meant who wrote a name that there is not: by letters that are inserted, left out, changed or
 * in the wrong order (the distance of Damerau and Levenshtein, without edits inside of an exchange). A third of the
 * letters may differ; of equally near names the first one counts.
 */
#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

enum { LETTERS_MAX = 64 };

static int least(int a, int b)
{
	return a < b ? a : b;
}

static int distance(const char *a, const char *b)
{
	const int na = (int)strlen(a), nb = (int)strlen(b);
	int d[LETTERS_MAX + 1][LETTERS_MAX + 1];

	if (na > LETTERS_MAX || nb > LETTERS_MAX)
		return LETTERS_MAX;
	for (int i = 0; i <= na; i++)
		d[i][0] = i;
	for (int k = 0; k <= nb; k++)
		d[0][k] = k;
	for (int i = 1; i <= na; i++) {
		for (int k = 1; k <= nb; k++) {
			d[i][k] = least(least(d[i - 1][k], d[i][k - 1]) + 1, d[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				d[i][k] = least(d[i][k], d[i - 2][k - 2] + 1);
		}
	}
	return d[na][nb];
}

const char *coll_nearest(const char *word, const char *const *names, size_t count)
{
	const char *found = NULL;
	int best = (int)strlen(word) / 3 + 1;

	for (size_t i = 0; i < count; i++) {
		const int far = distance(word, names[i]);

		if (far < best) {
			best = far;
			found = names[i];
		}
	}
	return found;
}

struct coll_guess coll_guess(const char *word, const char *const *names, size_t count)
{
	const char *near = coll_nearest(word, names, count);
	struct coll_guess guess = {""};

	if (near)
		snprintf(guess.text, sizeof(guess.text), ": did you mean %s?", near);
	return guess;
}
