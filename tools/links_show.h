/*
 * What coll-links has measured, shown: a matrix, and the links that are far behind others of their kind. Pure: numbers
 * in, text out.
 *
 * Pairs of ranks on one host are compared with such pairs, pairs of hosts with pairs of hosts. Of a pair of hosts the
 * best of all pairs of ranks counts, so a rank that is busy with something else makes no slow link. What is far behind
 * is at most a fourth of the usual rate, or takes at least four times as long.
 */
#ifndef COLL_TOOLS_LINKS_SHOW_H
#define COLL_TOOLS_LINKS_SHOW_H

#include <stdbool.h>

#include "base/text.h"

struct links {
	int n;
	const char *const *host; /* by rank */
	/* n x n, from the rank of the row to that of the column; 0 where nothing was measured. */
	const double *us;   /* half of a round trip */
	const double *mb_s; /* MB/s, one way */
};

enum links_form { LINKS_TEXT, LINKS_JSON, LINKS_SVG };

/* Whether a link is far behind. */
bool links_show(const struct links *l, enum links_form form, struct coll_text *out);

/* Which pairs to measure again before they are shown: pairs, n x n, gets 1 at [a * n + b] for ranks a < b whose link is
 * far behind, of two hosts at their first ranks. False: out of memory. */
bool links_far(const struct links *l, unsigned char *pairs);

#endif
