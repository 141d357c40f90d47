/*
 * The texts of entry points that find no object, or one of the parent: see entry.h. Takes no lock of the object: in a
 * child nobody is left to release it.
 */
#include "core/entry.h"

#include <stdio.h>
#include <unistd.h>

#include "base/messages.h"
#include "core/thread_error.h"

void coll_entry_refuse(const struct coll_context *ctx, const char *what, const char *kind)
{
	struct coll_error_box box;
	struct coll_message_text m;
	char text[sizeof(box.message) + 64];

	coll_error_clear(&box);
	snprintf(box.kind, sizeof(box.kind), "%s", kind);
	if (ctx)
		coll_error_set(&box, COLL_ERR_ARGUMENT,
		               "[COLL-1220] this process (pid %d) was forked from the one that made the %s (pid %d): "
		               "it can only destroy it, and create others",
		               (int)getpid(), what, (int)ctx->info.process);
	else
		coll_error_set(&box, COLL_ERR_ARGUMENT, "the %s is NULL", what);
	m = coll_message_split(box.status, box.message);
	snprintf(text, sizeof(text), "%s: %s%s", kind, m.text, m.tag);
	coll_thread_error_keep(&box, text);
	if (ctx)
		coll_log(&ctx->logger, COLL_LOG_INFO, "%s", text);
}
