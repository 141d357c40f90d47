/*
 * Dumps: the state of a context and its last information about its peers, as JSON lines, one object per
 * line (docs/guide/diagnosis.md has every field). Built from data that any thread may read at
 * any time: flight recorders, call records, the control plane's notes and answers.
 */
#ifndef COLL_INSPECT_DUMP_H
#define COLL_INSPECT_DUMP_H

#include "base/text.h"
#include "context/context.h"

/* HEARD: of another process, as it has told this one (job_state.h). BLAMED: a rank that failed because of this one has
 * asked for it. */
enum coll_dump_reason { COLL_DUMP_FAILURE, COLL_DUMP_SIGNALLED, COLL_DUMP_ASKED, COLL_DUMP_HEARD, COLL_DUMP_BLAMED };

/* Append the context's dump. Newest operations only: at most `operations`, and all that
 * have not ended. error: the failure's text or "". Any thread; takes the lock of the
 * context's communicators and the control plane's, neither for long. */
void coll_dump_build(struct coll_context *ctx, enum coll_dump_reason reason, const char *error, size_t operations,
                     struct coll_text *t);

/* Its first line, of a process of the job; and the line of an operation without its times and its end. */
void coll_dump_add_context(const struct coll_context *c, enum coll_dump_reason reason, int process,
                           const struct coll_moment *now, const char *error, struct coll_text *t);
void coll_dump_add_call(const struct coll_op_record *o, struct coll_text *t);

/* Build one and put it where COLL_DUMP_FILE says (appended, in one piece); without that
 * setting, log the last few operations. */
void coll_dump_keep(struct coll_context *ctx, enum coll_dump_reason reason, const char *error);

/* A communicator of the context has failed: keep a dump, of the first failure only, and ask the culprit to keep one,
 * if it is another process that lives. */
void coll_dump_failure(struct coll_context *ctx, int culprit, const char *error);
/* Keep it if another process has asked so, which was first seen at *since_ns (0: not yet). Who is in a call soon fails
 * itself, as a rule, and keeps that dump. The service thread. */
void coll_dump_blamed(struct coll_context *ctx, uint64_t *since_ns);

#endif
