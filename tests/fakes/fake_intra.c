/*
 * The intranode object of tests: see fake_intra.h.
 */
#include "tests/fakes/fake_intra.h"

#include "context/context.h"
#include "intra/central_move.h"
#include "intra/cico.h"
#include "intra/cma.h"
#include "intra/eager_bcast.h"
#include "intra/eager_block.h"
#include "intra/eager_chunk.h"
#include "intra/eager_line.h"
#include "intra/enter.h"
#include "intra/pair_bcast.h"
#include "intra/pair_stream.h"
#include "intra/pair_swap.h"
#include "intra/zero_copy.h"

struct fake_intra fake_intra;

#define FAKE_POLL(name)                                                                                       \
	coll_status coll_intra_poll_##name(void *arg, const struct coll_job *job, struct coll_intra_state *s) \
	{                                                                                                     \
		return COLL_OK;                                                                               \
	}
FAKE_POLL(eager_line_reduce)
FAKE_POLL(barrier)
FAKE_POLL(eager_lines)
FAKE_POLL(eager_chunk)
FAKE_POLL(eager_bcast)
FAKE_POLL(wide_bcast)
FAKE_POLL(zero_copy)
FAKE_POLL(pair_swap)
FAKE_POLL(cma)
FAKE_POLL(pair_stream)
FAKE_POLL(pair_bcast)
FAKE_POLL(cico)
FAKE_POLL(central)

bool coll_intra_passes_zero_copy(void *arg, const struct coll_job *job)
{
	return false;
}

void coll_intra_position(void *arg, const struct coll_job *job, const struct coll_intra_state *s,
                         struct coll_run_where *where)
{
	where->peer = -1;
}

void coll_intra_position_central(void *arg, const struct coll_job *job, const struct coll_intra_state *s,
                                 struct coll_run_where *where)
{
	where->peer = -1;
}

coll_status coll_intra_create(struct coll_intra **intra, const struct coll_intra_fabric *fabric,
                              const struct coll_channel_key *key, int rank, int size, size_t payload_bytes, bool alone)
{
	fake_intra.created++;
	fake_intra.fabric = *fabric;
	fake_intra.payload_bytes = payload_bytes;
	*intra = &fake_intra.object;
	return COLL_OK;
}

/* No process can be reached. */
coll_status coll_context_link(struct coll_context *ctx, int process, struct coll_opened_transport **opened, void **link,
                              struct coll_error_box *err)
{
	return COLL_ERR_PEER_DEAD;
}
