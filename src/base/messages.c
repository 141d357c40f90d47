/*
 * Messages: see messages.h.
 */
#include "base/messages.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const struct coll_message_row coll_message_rows[] = {
#define MESSAGE(id, status, meaning, action) {id, (coll_status)(status), meaning, action},
#include "base/messages_rows.h"
#undef MESSAGE
};

const int coll_message_count = sizeof(coll_message_rows) / sizeof(coll_message_rows[0]);

/* "[COLL-", four digits, "] " */
enum { PREFIX = 6, DIGITS = 4, IN_FRONT = PREFIX + DIGITS + 2 };

const struct coll_message_row *coll_message_find(int id)
{
	for (int i = 0; i < coll_message_count; i++)
		if (coll_message_rows[i].id == id)
			return &coll_message_rows[i];
	return NULL;
}

static bool begins_with_id(const char *text)
{
	if (strncmp(text, "[COLL-", PREFIX) != 0)
		return false;
	for (int i = 0; i < DIGITS; i++)
		if (!isdigit((unsigned char)text[PREFIX + i]))
			return false;
	return strncmp(text + PREFIX + DIGITS, "] ", 2) == 0;
}

struct coll_message_text coll_message_split(coll_status status, const char *text)
{
	struct coll_message_text m = {.text = text};

	if (begins_with_id(text)) {
		snprintf(m.tag, sizeof(m.tag), " %.*s", IN_FRONT - 1, text);
		m.text = text + IN_FRONT;
		return m;
	}
	for (int i = 0; i < coll_message_count && status != COLL_OK; i++)
		if (coll_message_rows[i].status == status)
			snprintf(m.tag, sizeof(m.tag), " [COLL-%04d]", coll_message_rows[i].id);
	return m;
}
