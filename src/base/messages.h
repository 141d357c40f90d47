/*
 * Messages: the stable ids of errors and warnings, "COLL-3101", one table of what each
 * means and what to do (messages_rows.h).
 *
 * A text with an id of its own begins with it, "[COLL-3101] calls differ". In front, the id
 * is easy to find in the sources, and it survives when the text is cut,
 * quoted or sent to another rank. The text that a user sees ends in the id instead. Texts
 * without an id of their own get that of their status.
 */
#ifndef COLL_BASE_MESSAGES_H
#define COLL_BASE_MESSAGES_H

#include "coll/coll.h"

struct coll_message_row {
	int id;
	coll_status status; /* the row is for texts of this status without an id; COLL_OK: for none */
	const char *meaning;
	const char *action;
};

extern const struct coll_message_row coll_message_rows[];
extern const int coll_message_count;

/* The row of an id, or NULL. */
const struct coll_message_row *coll_message_find(int id);

/* A text apart from its id. */
struct coll_message_text {
	const char *text; /* what follows the id in front, if there is one */
	char tag[16];     /* " [COLL-3101]", to go behind; "": no id, and the status has none (COLL_OK) */
};
struct coll_message_text coll_message_split(coll_status status, const char *text);

#endif
