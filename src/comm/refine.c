/*
 * See refine.h.
 */
#include "comm/refine.h"

#include <stdlib.h>

#include "comm/facts.h"
#include "comm/layout.h"
#include "comm/survey.h"
#include "comm/tuned.h"
#include "core/host_rates.h"
#include "core/rails.h"
#include "inflight/drive.h"

/* The communicator has made calls, so it has plans for the layout so far. It is idle. */
static void change_layout(struct coll_comm *comm, struct coll_layout *layout, struct coll_rails *rails)
{
	comm->prepared_for = NULL;
	comm->prepared_memo = NULL;
	for (int i = 0; i < COLL_MEMO_SLOTS; i++) {
		struct coll_memo *m = &comm->memo[i];

		if (m->fastpath_key)
			*m->fastpath_key = 0;
		if (m->valid)
			coll_plan_cache_release(comm->plans, m->plan);
		*m = (struct coll_memo){.valid = false};
	}
	coll_layout_destroy(&comm->layout);
	coll_comm_facts_take_layout(comm, layout);
	coll_rails_destroy(&comm->rails);
	comm->rails = rails;
}

/* By what is known of the hosts now. */
static coll_status find_again(struct coll_comm *comm)
{
	const struct coll_opened_transport *w = coll_comm_facts_transport(comm, true);
	struct coll_host_rates *rates = w && comm->rank_map.hosts > 1 ? coll_host_rates_find(comm, w) : NULL;
	struct coll_layout *layout = NULL;
	struct coll_rails *rails = NULL;
	coll_status st = COLL_OK;

	if (comm->host_rates && !rates)
		st = COLL_ERR_MEMORY;
	if (rates) {
		free(comm->host_rates);
		comm->host_rates = rates;
	}
	if (st != COLL_OK || coll_comm_find_layout(comm, &layout) != COLL_OK ||
	    coll_comm_find_rails(comm, w, layout, &rails) != COLL_OK)
		st = coll_comm_lose(comm, COLL_ERR_MEMORY, comm->rank, "out of memory for the layout");
	if (st == COLL_OK)
		st = coll_survey_compare(comm, layout);
	if (st == COLL_OK) {
		change_layout(comm, layout, rails);
		coll_comm_facts_take_links(comm);
	} else {
		coll_layout_destroy(&layout);
		coll_rails_destroy(&rails);
	}
	return st;
}

coll_status coll_comm_refine(struct coll_comm *comm)
{
	const bool inside = coll_survey_matters(comm);
	coll_status st = COLL_OK;

	coll_survey_warn(comm);
	if (coll_comm_tuned_matters(comm))
		st = coll_comm_tuned_share(comm);
	if (st == COLL_OK && inside)
		st = coll_survey_run(comm);
	return st == COLL_OK && (inside || comm->ctx->tuned) ? find_again(comm) : st;
}
