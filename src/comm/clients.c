/*
 * Clients of the service thread: see clients.h. Each may be missing, for lack of memory or of something to do.
 */
#include "comm/clients.h"

#include "context/context.h"
#include "context/service.h"
#include "inspect/inspector.h"
#include "watch/slow.h"

void coll_clients_join(struct coll_context *ctx)
{
	ctx->inspector = coll_inspector_open(ctx);
	if (ctx->inspector)
		coll_service_add(ctx, coll_inspector_client(ctx->inspector));
	ctx->slow = coll_slow_open(ctx);
	if (ctx->slow)
		coll_service_add(ctx, coll_slow_client(ctx->slow));
}

void coll_clients_close(struct coll_context *ctx)
{
	coll_inspector_close(&ctx->inspector);
	coll_slow_close(&ctx->slow);
}
