/*
 * Errors of a communicator: kept for coll_last_error(), and sent to the other ranks when the
 * communicator fails.
 */
#include "core/error.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/delay.h"
#include "base/messages.h"
#include "control/first_finder.h"
#include "control/gossip.h"
#include "control/last_error.h"
#include "core/dead.h"
#include "core/fabric.h"
#include "core/label.h"
#include "core/thread_error.h"
#include "intra/zero_copy.h"

struct coll_rank_name coll_comm_name(const struct coll_comm *comm, int rank)
{
	struct coll_rank_name name;
	const bool known = rank >= 0 && rank < comm->size;

	/* A group that is being made: the program does not have its numbers. */
	if (known && comm->parent)
		snprintf(name.text, sizeof(name.text), "rank %d of the job", coll_comm_process(comm, rank));
	else if (known && coll_comm_process(comm, rank) != rank)
		snprintf(name.text, sizeof(name.text), "rank %d (rank %d of the job)", rank,
		         coll_comm_process(comm, rank));
	else
		snprintf(name.text, sizeof(name.text), "rank %d", rank);
	return name;
}

/* Copy a box to what coll_last_error() returns. */
static void expose(const struct coll_comm *comm, const struct coll_error_box *b, struct coll_kept_error *kept)
{
	const struct coll_message_text m = coll_message_split(b->status, b->message);
	const char *name = coll_label_of(comm);

	snprintf(kept->message, sizeof(kept->message), "rank %d of %d%s%s%s: %s%s%s%s", comm->rank, comm->size,
	         name[0] ? " (" : "", name, name[0] ? ")" : "", b->kind, b->kind[0] ? ": " : "", m.text, m.tag);
	kept->error = (coll_error){.status = b->status,
	                           .rank = b->rank,
	                           .host = b->host,
	                           .operation = b->operation,
	                           .kind = b->kind,
	                           .step = b->step,
	                           .link = b->link,
	                           .elapsed_s = b->elapsed_s,
	                           .exit_status = b->exit_status,
	                           .message = kept->message};
	if (b->status == COLL_ERR_PEER_LATE && kept != &comm->refused) {
		kept->error.late = comm->late.ranks ? comm->late.ranks : &comm->late.one;
		kept->error.late_count = comm->late.count;
	}
}

/* When a failed call returns, the caller may reuse its buffers. Closing the channels revokes
 * buffers that peers may read. Otherwise a peer would take what the caller writes next for data of
 * the call. The runs of a failed communicator are not polled any more. */
static void withdraw_collectives(struct coll_comm *comm)
{
	/* The code that found the failure has handed over any inline operation. */
	assert(!atomic_load_explicit(&comm->inflight.current, memory_order_relaxed));
	coll_intra_revoke(comm->intra);
	coll_comm_fabric_close(&comm->collective);
	for (int i = 0; comm->captured && i < 2; i++)
		coll_comm_fabric_close(&comm->captured[i]);
}

static void withdraw(struct coll_comm *comm)
{
	withdraw_collectives(comm);
	coll_comm_fabric_close(&comm->pairs);
	/* Other threads may be receiving tagged messages. */
	pthread_mutex_lock(&comm->tagged.lock);
	comm->tagged.closed = true;
	if (comm->tagged.own)
		coll_comm_fabric_close(&comm->tagged.own->fabric);
	pthread_mutex_unlock(&comm->tagged.lock);
}

/* The other ranks must receive the cause before they see this process end. So the first rank that
 * reports it waits until its note is sent. If the note is already known here, another rank has sent
 * it. The caller of an abort flushes it. */
static void announce(struct coll_comm *comm, struct coll_note *note, const char *cause)
{
	struct coll_control *control = comm->ctx->control;
	bool news;

	if (!control)
		return;
	note->comm = comm->id;
	note->operation = comm->sequence;
	snprintf(note->text, sizeof(note->text), "%.255s", cause);
	news = coll_control_report(control, note);
	coll_control_state_error(control, note);
	if (news && !atomic_load_explicit(&comm->aborted, memory_order_relaxed))
		coll_control_flush(control, COLL_DELAY_FAILURE_FLUSH_MS);
}

static void fill(struct coll_comm *comm, coll_status status, int culprit, const char *cause, const char *circumstances)
{
	struct coll_error_box *b = &comm->box;
	const struct coll_opened_transport *opened;

	b->status = status;
	b->rank = culprit;
	b->exit_status =
	        status == COLL_ERR_ABORTED ? atomic_load_explicit(&comm->exit_status, memory_order_relaxed) : 0;
	snprintf(b->message, sizeof(b->message), "%.400s%.200s", cause, circumstances);
	if (culprit < 0 || culprit >= comm->size)
		return;
	opened = comm->ctx->processes[coll_comm_process(comm, culprit)].opened;
	snprintf(b->host, sizeof(b->host), "%s", coll_comm_peer_info(comm, culprit)->host_name);
	if (opened)
		snprintf(b->link, sizeof(b->link), "%s", opened->table.name);
}

/* A line of the log about this communicator, with its label. */
static void log_text(struct coll_comm *comm, enum coll_log_level level, coll_status status, const char *kind,
                     const char *text)
{
	const struct coll_message_text m = coll_message_split(status, text);

	coll_log(&comm->ctx->logger, level, "%s%s%s%s%s", coll_comm_label(comm).text, kind, kind[0] ? ": " : "", m.text,
	         m.tag);
}

/* The note of a death; text "": it is not there. */
static void death_of(const struct coll_context *ctx, int process, struct coll_note *n)
{
	const struct coll_held_note *at = NULL;

	do
		*n = (struct coll_note){0};
	while (coll_control_fact(ctx->control, &at, n) && (n->kind != COLL_GOSSIP_DEATH || n->process != process));
	n->status = n->after_status ? n->after_status : n->status;
}

static bool found_first(const struct coll_comm *comm, uint64_t id, bool waits)
{
	waits &= comm->ctx->settings.service;
	return coll_control_found_first(comm->ctx->control, id, waits ? COLL_DELAY_FIRST_FINDER_MS : 0);
}

/* Another rank has this failure in its log, or will have. Who aborts waits for nobody. */
static bool logged_elsewhere(const struct coll_comm *comm)
{
	if (comm->told_failure || !comm->ended || !comm->ctx->control)
		return comm->told_failure;
	return !found_first(comm, comm->id, !atomic_load_explicit(&comm->aborted, memory_order_relaxed));
}

/* The same of a death, which ends calls of many ranks, and of each rank on all communicators with that member. Where a
 * host is out of reach, that took long enough, and the rank that decides may be there. */
static bool death_is_logged(const struct coll_comm *comm, int dead, const char *cause)
{
	struct coll_note death, told = {.kind = COLL_GOSSIP_FAIL,
	                                .status = COLL_ERR_PEER_DEAD,
	                                .process = dead,
	                                .origin = comm->ctx->rank,
	                                .comm = coll_control_death_id(dead)};

	snprintf(told.text, sizeof(told.text), "%.255s", cause);
	if (!coll_control_report(comm->ctx->control, &told))
		return true;
	death_of(comm->ctx, dead, &death);
	return !found_first(comm, told.comm, death.status != COLL_ERR_PEER_SILENT);
}

/* The rank that found it first has an error in its log; the others return it, and log it for whoever wants to read so
 * much. An abort with a status is in the log already. */
static void log_failure(struct coll_comm *comm, const struct coll_kept_error *kept, bool logged)
{
	const struct coll_error_box *b = &comm->box;

	log_text(comm, logged ? COLL_LOG_INFO : COLL_LOG_ERROR, b->status, b->kind, b->message);
	comm->ctx->hooks->failed(
	        comm->ctx, b->rank >= 0 && b->rank < comm->size ? coll_comm_process(comm, b->rank) : -1, kept->message);
}

/* Send the note first, then revoke the memory. Logging comes last, because it runs user code and
 * may take long. */
coll_status coll_comm_fail_for(struct coll_comm *comm, coll_status status, int process, const char *cause,
                               const char *circumstances)
{
	struct coll_note note = {.kind = COLL_GOSSIP_FAIL,
	                         .status = status,
	                         .process = process,
	                         /* Told of a lost link: its end found it. */
	                         .origin = comm->told_failure && process >= 0 ? process : comm->ctx->rank};
	struct coll_kept_error *kept = coll_comm_dead(comm) ? &coll_comm_dead(comm)->ended : &comm->lost;

	if (comm->ended)
		return comm->ended;
	fill(comm, status, process >= 0 ? coll_comm_rank_of(comm, process) : -1, cause, circumstances);
	expose(comm, &comm->box, kept);
	comm->ended = status;
	if (!comm->failed)
		comm->failed = status;
	/* Of a call that differs only its last barrier may show it; behind an error the others still call, which says
	 * nothing. */
	if (!comm->closing || (status == COLL_ERR_MISMATCH && !coll_control_has_erred(comm->ctx->control)))
		announce(comm, &note, cause);
	withdraw(comm);
	if (!comm->closing)
		log_failure(comm, kept, comm->box.exit_status != 0 || logged_elsewhere(comm));
	return status;
}

coll_status coll_comm_fail(struct coll_comm *comm, coll_status status, int culprit, const char *cause,
                           const char *circumstances)
{
	const bool member = culprit >= 0 && culprit < comm->size;

	return coll_comm_fail_for(comm, status, member ? coll_comm_process(comm, culprit) : -1, cause, circumstances);
}

/* The others know of the death from the note that this rank has it from. Communicators that are being made or destroyed
 * end, and so do those that serve devices. */
coll_status coll_comm_lose_member(struct coll_comm *comm, int rank, coll_status status, int process, const char *cause,
                                  const char *circumstances)
{
	struct coll_note note = {.kind = status == COLL_ERR_PEER_DEAD ? COLL_GOSSIP_DEATH : COLL_GOSSIP_FAIL,
	                         .status = status,
	                         .process = process,
	                         .origin = comm->ctx->rank};

	if (comm->ended)
		return comm->ended;
	if (comm->closing || comm->parent || comm->stage || !coll_comm_note_dead(comm, rank))
		return coll_comm_fail_for(comm, status, process, cause, circumstances);
	coll_comm_fabric_close_peer(&comm->pairs, rank);
	if (comm->failed)
		return comm->failed;
	fill(comm, status, process >= 0 ? coll_comm_rank_of(comm, process) : -1, cause, circumstances);
	coll_comm_dead(comm)->box = comm->box;
	expose(comm, &coll_comm_dead(comm)->box, &comm->lost);
	comm->failed = status;
	snprintf(note.text, sizeof(note.text), "%.255s", cause);
	coll_control_state_error(comm->ctx->control, &note);
	withdraw_collectives(comm);
	log_failure(comm, &comm->lost, death_is_logged(comm, coll_comm_process(comm, rank), cause));
	return comm->failed;
}

/* With a status the program may end before it makes another call that would log the error, and the launcher reads it
 * there. */
bool coll_comm_abort_locally(struct coll_comm *comm, int exit_status, const char *reason)
{
	struct coll_note note = {.kind = COLL_GOSSIP_FAIL, .status = COLL_ERR_ABORTED, .exit_status = exit_status};
	char with[40] = "";

	if (atomic_exchange(&comm->abort_claimed, true))
		return false;
	note.process = comm->ctx->rank;
	note.origin = comm->ctx->rank;
	note.comm = comm->id;
	if (exit_status)
		snprintf(with, sizeof(with), " with exit status %d", exit_status);
	snprintf(comm->abort_text, sizeof(comm->abort_text), "[COLL-3301] %s aborted the communicator%s: %s",
	         coll_comm_name(comm, comm->rank).text, with, reason ? reason : "no reason given");
	atomic_store_explicit(&comm->exit_status, exit_status, memory_order_relaxed);
	snprintf(note.text, sizeof(note.text), "%s", comm->abort_text);
	atomic_store_explicit(&comm->aborted, true, memory_order_release);
	atomic_fetch_or_explicit(&comm->attention, COLL_ATTENTION_ALARM, memory_order_release);
	if (comm->ctx->control)
		coll_control_report(comm->ctx->control, &note);
	if (exit_status)
		log_text(comm, COLL_LOG_ERROR, COLL_ERR_ABORTED, "", comm->abort_text);
	return true;
}

coll_status coll_comm_refuse(struct coll_comm *comm, const char *kind, coll_status status, const char *format, ...)
{
	/* This is not the box of calls: drivers may be writing to that one about operations in
	 * flight. */
	struct coll_error_box *b = &comm->refusal;
	struct coll_message_text m;
	va_list ap;

	coll_error_clear(b);
	b->status = status;
	snprintf(b->kind, sizeof(b->kind), "%s", kind);
	va_start(ap, format);
	vsnprintf(b->message, sizeof(b->message), format, ap);
	va_end(ap);
	expose(comm, b, &comm->refused);
	coll_thread_error_copy(&comm->refused.error);
	if (coll_comm_dead(comm))
		coll_comm_dead(comm)->refused = true;
	m = coll_message_split(status, b->message);
	coll_log(&comm->ctx->logger, COLL_LOG_INFO, "%s%s refused: %s%s", coll_comm_label(comm).text, kind, m.text,
	         m.tag);
	return status;
}

/* An error that follows from one is told as that one. */
void coll_ended_text(const struct coll_context *ctx, int process, const char *name, const struct coll_note *error,
                     char *text, size_t len_bytes)
{
	static const char after[] = " after an error: ";
	const struct coll_peer_info *info = &ctx->peer_infos[process];
	const bool aborted = error->status == COLL_ERR_ABORTED;
	const struct coll_message_text m = coll_message_split((coll_status)error->status, error->text);
	const char *first = m.text;

	for (const char *at = strstr(m.text, after); at; at = strstr(at, after))
		first = at += strlen(after);
	snprintf(text, len_bytes, "%s %s on host %.63s (process %d) left%s%.230s", aborted ? "[COLL-2102]" : m.tag + 1,
	         name, info->host_name, info->process, after, first);
}

void coll_death_text(const struct coll_context *ctx, int process, const char *name, char *text, size_t len_bytes)
{
	const struct coll_peer_info *info = &ctx->peer_infos[process];
	struct coll_note n;

	death_of(ctx, process, &n);
	if (n.after_status)
		coll_ended_text(ctx, process, name, &n, text, len_bytes);
	else
		snprintf(text, len_bytes, "[COLL-2101] %s on host %.63s (process %d) is dead or unreachable: %.200s",
		         name, info->host_name, info->process, n.text);
}

coll_status coll_comm_refuse_dead(struct coll_comm *comm, const char *kind, int rank)
{
	const int process = coll_comm_process(comm, rank);
	struct coll_note n;
	char text[400];
	int culprit;

	coll_death_text(comm->ctx, process, coll_comm_name(comm, rank).text, text, sizeof(text));
	coll_comm_refuse(comm, kind, COLL_ERR_PEER_DEAD, "%s", text);
	death_of(comm->ctx, process, &n);
	culprit = n.after_status && n.after_process >= 0 ? coll_comm_rank_of(comm, n.after_process) : -1;
	coll_comm_refused_for(comm, culprit >= 0 ? culprit : rank);
	coll_comm_death_reported(comm);
	return COLL_ERR_PEER_DEAD;
}

void coll_comm_refused_late(struct coll_comm *comm, const struct coll_comm *child)
{
	const struct coll_error *e = &child->lost.error;
	coll_error *mine = &comm->refused.error;
	int n = 0, *ranks = realloc(comm->refused_late, (size_t)comm->size * sizeof(int));

	if (ranks)
		comm->refused_late = ranks;
	for (int i = 0; ranks && i < e->late_count; i++) {
		const int rank = coll_comm_rank_of(comm, coll_comm_process(child, e->late[i]));

		if (rank >= 0 && n < comm->size)
			ranks[n++] = rank;
	}
	/* Without memory it is the one that is known. */
	mine->late = n > 0 ? ranks : &mine->rank;
	mine->late_count = n > 0 ? n : mine->rank >= 0;
	coll_thread_error_copy(mine);
}

void coll_comm_refused_for(struct coll_comm *comm, int culprit)
{
	comm->refused.error.rank = culprit;
	snprintf(comm->refusal.host, sizeof(comm->refusal.host), "%s", coll_comm_peer_info(comm, culprit)->host_name);
	coll_thread_error_copy(&comm->refused.error);
}
