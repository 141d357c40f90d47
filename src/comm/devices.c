/*
 * Devices of ranks, at creation. A device is opened before the program has the communicator, so that no call
 * opens, loads or creates anything; the context owns it.
 */
#include "comm/devices.h"

#include <assert.h>

#include "comm/device_ring.h"
#include "comm/survey.h"
#include "devcall/copier.h"
#include "devcall/device_call.h"
#include "devcall/mapped_region.h"

coll_status coll_comm_devices_choose(const coll_config *cfg, const struct coll_settings *settings, int n,
                                     struct coll_device_choice *choice, struct coll_error_box *err)
{
	const char *text = cfg && cfg->device ? cfg->device : settings->device;
	coll_status st = coll_device_parse(text, choice, err);

	if (st == COLL_OK && choice->n > 1 && choice->n < n)
		return coll_error_set(err, COLL_ERR_CONFIG,
		                      "[COLL-1106] device %.80s: %d devices for %d ranks of this process", text,
		                      choice->n, n);
	if (st == COLL_OK && choice->n > 1 && n == 1)
		return coll_error_set(
		        err, COLL_ERR_CONFIG,
		        "[COLL-1106] device %.80s: one rank has one device; lists are for coll_comm_create_all()",
		        text);
	return st == COLL_OK ? coll_device_probe(choice, settings->cuda_library, err) : st;
}

coll_status coll_comm_devices_open(struct coll_context *ctx, const struct coll_device_choice *choice, int local_rank,
                                   struct coll_error_box *err)
{
	coll_status st = COLL_OK;

	if (choice->wanted)
		st = coll_device_open(choice, ctx->settings.cuda_library, ctx->rank, local_rank, &ctx->device, err);
	if (ctx->device)
		coll_log(&ctx->logger, COLL_LOG_INFO, "device %s: %s%s%s", ctx->device->name, ctx->device->about,
		         ctx->device->lacks[0] ? ", without " : "", ctx->device->lacks);
	coll_device_attach(ctx);
	return st == COLL_OK ? coll_copier_create(ctx, err) : st;
}

int coll_comm_devices_local_rank(const struct coll_context *ctx)
{
	int before = 0;

	if (ctx->identity.local_rank >= 0)
		return ctx->identity.local_rank;
	for (int r = 0; r < ctx->rank; r++)
		before += ctx->host_of[r] == ctx->host_of[ctx->rank];
	return before;
}

bool coll_comm_devices_any(const struct coll_comm *comm)
{
	for (int r = 0; r < comm->size; r++)
		if (coll_comm_peer_info(comm, r)->device)
			return true;
	return false;
}

static_assert(sizeof(struct coll_mapped_export) % 4 == 0, "it travels in units of 4 bytes");
static_assert(sizeof(struct coll_mapped_verdict) % 4 == 0, "it travels in units of 4 bytes");

static void offer(struct coll_comm *comm, struct coll_mapped_export *export)
{
	coll_mapped_offer(comm, export);
	export->pci = coll_pci_address(comm->ctx->device->pci);
}

static void find_ring(const struct coll_mapped_export *exports, int ranks, struct coll_device_ring *ring)
{
	uint64_t pci[COLL_MAPPED_RANKS_MAX];

	for (int r = 0; r < ranks; r++)
		pci[r] = exports[r].pci;
	coll_device_ring_here(pci, ranks, ring);
}

static void agree(struct coll_comm *comm, const struct coll_mapped_verdict *verdicts, struct coll_device_ring *ring)
{
	struct coll_mapped_order order = {.about = ring->about};

	for (int r = 0; r < comm->size; r++)
		if (verdicts[r].order != verdicts[0].order) {
			coll_device_ring_by_rank(comm->size, "the ranks see different machines", ring);
			break;
		}
	coll_device_ring_peers(ring, comm->rank, order.peer);
	coll_mapped_agree(comm, verdicts, &order);
}

coll_status coll_comm_devices_connect(struct coll_comm *comm)
{
	struct coll_device_ring ring;
	struct coll_mapped_export export, exports[COLL_MAPPED_RANKS_MAX];
	struct coll_mapped_verdict verdict, verdicts[COLL_MAPPED_RANKS_MAX];
	coll_status st;

	if (!coll_mapped_eligible(comm))
		return COLL_OK;
	offer(comm, &export);
	st = coll_survey_gather(comm, &export, exports, sizeof(export));
	if (st == COLL_OK) {
		coll_mapped_map(comm, exports, &verdict);
		find_ring(exports, comm->size, &ring);
		verdict.order = coll_device_ring_hash(&ring);
		st = coll_survey_gather(comm, &verdict, verdicts, sizeof(verdict));
	}
	if (st == COLL_OK)
		agree(comm, verdicts, &ring);
	return st;
}

void coll_comm_devices_connect_all(struct coll_comm **comms, int n)
{
	struct coll_device_ring ring;
	struct coll_mapped_export exports[COLL_MAPPED_RANKS_MAX];
	struct coll_mapped_verdict verdicts[COLL_MAPPED_RANKS_MAX];

	if (!coll_mapped_eligible(comms[0]))
		return;
	for (int r = 0; r < n; r++)
		offer(comms[r], &exports[r]);
	for (int r = 0; r < n; r++)
		coll_mapped_map(comms[r], exports, &verdicts[r]);
	find_ring(exports, n, &ring);
	for (int r = 0; r < n; r++)
		agree(comms[r], verdicts, &ring);
}
