#include "gpt/groups.h"
#include <string.h>

/* A counting sort: place[t] is first the number of rows of token t, then where
 * its next row goes. Rows keep their order within a group. */
void gpt_group_tokens(struct gpt_groups *g, const int32_t *tokens, int rows, int vocab, int32_t *place)
{
	int32_t next = 0;

	memset(place, 0, (size_t)vocab * sizeof(*place));
	for (int r = 0; r < rows; r++)
		place[tokens[r]]++;
	g->count = 0;
	for (int t = 0; t < vocab; t++) {
		const int32_t n = place[t];

		if (n == 0)
			continue;
		g->id[g->count] = t;
		g->start[g->count++] = next;
		place[t] = next;
		next += n;
	}
	g->start[g->count] = next;
	for (int r = 0; r < rows; r++)
		g->row[place[tokens[r]]++] = r;
}
