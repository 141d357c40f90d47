/*
 * See own_failure.h. Owns nothing.
 */
#include "comm/own_failure.h"

#include <stdio.h>
#include <string.h>

#include "base/delay.h"
#include "base/messages.h"
#include "bootstrap/exchange.h"
#include "control/gossip.h"

/* What the others read: it names this rank, behind the number of the message. */
static void name_rank(char *text, size_t len_bytes, int rank, coll_status st, const char *message)
{
	const struct coll_message_text m = coll_message_split(st, message[0] ? message : coll_status_string(st));
	char name[32];

	snprintf(name, sizeof(name), "rank %d ", rank);
	snprintf(text, len_bytes, "%s%s%s%s%s", m.tag[0] ? m.tag + 1 : "", m.tag[0] ? " " : "",
	         strncmp(m.text, name, strlen(name)) == 0 ? "" : name,
	         strncmp(m.text, name, strlen(name)) == 0 ? "" : "cannot create the communicator: ", m.text);
}

void coll_own_failure_report(struct coll_context *ctx, uint64_t comm, coll_status st, const struct coll_error_box *err,
                             bool own)
{
	struct coll_note n = {
	        .kind = COLL_GOSSIP_FAIL, .status = st, .process = err->rank, .origin = ctx->rank, .comm = comm};
	char text[sizeof(err->message) + 80];

	if (!ctx->control)
		return;
	if (n.process < 0 && (own || st == COLL_ERR_SYSTEM || st == COLL_ERR_MEMORY)) {
		n.process = ctx->rank;
		name_rank(text, sizeof(text), ctx->rank, st, err->message);
	} else {
		snprintf(text, sizeof(text), "%s", err->message);
	}
	snprintf(n.text, sizeof(n.text), "%.250s", text);
	coll_control_report(ctx->control, &n);
	coll_control_flush(ctx->control, COLL_DELAY_FAILURE_FLUSH_MS);
}

void coll_own_failure_tell(const coll_config *cfg, const struct coll_settings *settings, const struct coll_identity *id,
                           coll_status st, const struct coll_error_box *err)
{
	char text[sizeof(err->message) + 80];
	const struct coll_absent why = {st, err->rank >= 0 ? err->rank : id->rank, text};

	if (id->size < 2 || (cfg && cfg->exchange))
		return;
	name_rank(text, sizeof(text), id->rank, st, err->message);
	coll_bootstrap_absent(cfg, settings, id, &why);
}
