/*
 * Who is slow, as the processes of a job say it (src/watch/slow.h): a table of all ranks, then who or which link is far
 * behind, as text or as JSON. The verdicts are theirs; here they are only put together.
 */
#ifndef COLL_TOOLS_SLOW_H
#define COLL_TOOLS_SLOW_H

#include "base/text.h"
#include "dump.h"

/* told: dumps with `slow`, which are put in the order of jobs and ranks. Whether a rank or a link is far behind. */
bool slow_explain(struct dump_list *told, struct coll_text *out);
bool slow_json(struct dump_list *told, struct coll_text *out);

#endif
