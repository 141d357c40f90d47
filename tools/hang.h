/*
 * What holds a job up, as its dumps tell: each local rank in a line or two, then a
 * verdict. Pure: dumps in, text out.
 * The dumps are put in the order of the ranks.
 */
#ifndef COLL_TOOLS_HANG_H
#define COLL_TOOLS_HANG_H

#include "base/text.h"
#include "dump.h"
#include "inspect_client.h"

/* One answer of each context; silent: processes that did not answer. Returns whether
 * a rank is held up. */
bool hang_explain(struct dump_list *list, const struct door_silent *silent, struct coll_text *out);

#endif
