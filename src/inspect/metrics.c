/*
 * Metrics: see metrics.h. Reads counters that any thread may read; the first failure to write is said, and ends it.
 */
#include "inspect/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/log.h"
#include "base/proof.h"
#include "base/text.h"
#include "core/comm.h"

struct sums {
	uint64_t calls, waits, waited_ns, in_call_ns;
};

static void sum_up(struct coll_context *ctx, struct sums *s)
{
	pthread_mutex_lock(&ctx->comms_lock);
	for (const struct coll_comm *comm = ctx->comms; comm; comm = comm->next) {
		s->calls += atomic_load_explicit(&comm->recorder.next, memory_order_relaxed);
		if (!comm->waits)
			continue;
		s->waits += atomic_load_explicit(&comm->waits->waits, memory_order_relaxed);
		s->waited_ns += atomic_load_explicit(&comm->waits->waited_ns, memory_order_relaxed);
		s->in_call_ns += atomic_load_explicit(&comm->waits->in_call_ns, memory_order_relaxed);
	}
	pthread_mutex_unlock(&ctx->comms_lock);
}

static void add_head(struct coll_text *t, const char *name, const char *type, const char *help)
{
	coll_text_add(t, "# HELP coll_%s %s\n# TYPE coll_%s %s\n", name, help, name, type);
}

static void add(const struct coll_context *ctx, struct coll_text *t, const char *name, const char *type,
                const char *help, double value)
{
	add_head(t, name, type, help);
	coll_text_add(t, "coll_%s{rank=\"%d\"} %.9g\n", name, ctx->rank, value);
}

/* Each link that is counted, by the rank of the job and its host. */
static void add_links(struct coll_context *ctx, struct coll_text *t)
{
	struct coll_link_counts c;
	struct coll_text busy = {0};

	add_head(t, "link_bytes_total", "counter", "Bytes that the other end of a link has acknowledged.");
	add_head(&busy, "link_busy_seconds_total", "counter", "Time in which such bytes were on their way.");
	for (int p = 0; p < ctx->size; p++) {
		char labels[160];

		if (p == ctx->rank || !coll_context_link_counts(ctx, p, &c))
			continue;
		snprintf(labels, sizeof(labels), "{rank=\"%d\",peer=\"%d\",host=\"%.63s\"}", ctx->rank, p,
		         ctx->peer_infos[p].host_name);
		coll_text_add(t, "coll_link_bytes_total%s %" PRIu64 "\n", labels, c.bytes);
		coll_text_add(&busy, "coll_link_busy_seconds_total%s %.6f\n", labels, (double)c.busy_us * 1e-6);
	}
	coll_text_add(t, "%s", busy.p ? busy.p : "");
	t->failed |= busy.failed;
	coll_text_free(&busy);
}

static void build(struct coll_context *ctx, struct coll_text *t)
{
	const struct coll_mismatch_msg q = {.about = COLL_ABOUT_SLOW, .third = -1};
	struct coll_answer a;
	struct sums s = {0};

	sum_up(ctx, &s);
	ctx->hooks->answer(ctx, ctx->rank, &q, &a);
	add(ctx, t, "operations", "gauge", "Operations begun on the communicators that exist.", (double)s.calls);
	add(ctx, t, "waits", "gauge", "Of these, operations that had to wait.", (double)s.waits);
	add(ctx, t, "waited_seconds", "gauge", "Time in which they stood still.", (double)s.waited_ns * 1e-9);
	add(ctx, t, "in_call_seconds", "gauge", "Time from the first wait of an operation to its end.",
	    (double)s.in_call_ns * 1e-9);
	add(ctx, t, "behind_seconds", "gauge", "How much longer peers have waited in the last 8 s; 0: not behind.",
	    a.slow.behind_ms * 1e-3);
	add_links(ctx, t);
}

/* Under a random name, which nobody can have taken, not even by a link. False: errno says why. */
static bool write_beside(const char *path, const struct coll_text *t)
{
	char beside[COLL_TEXT_MAX + 64];
	uint64_t random;
	bool good;
	FILE *f;

	if (!coll_random(&random, sizeof(random)))
		return false;
	snprintf(beside, sizeof(beside), "%s.%016" PRIx64, path, random);
	f = fopen(beside, "wxe");
	if (!f)
		return false;
	good = fwrite(t->p, 1, t->len_bytes, f) == t->len_bytes;
	good = fclose(f) == 0 && good;
	good = good && rename(beside, path) == 0;
	if (!good) {
		const int error = errno;

		unlink(beside);
		errno = error;
	}
	return good;
}

void coll_metrics_keep(struct coll_context *ctx, uint64_t *last_ns)
{
	const uint64_t now = ctx->settings.metrics_file[0] ? coll_clock_ns() : 0;
	char path[COLL_TEXT_MAX + 32];
	struct coll_text t = {0};

	if (!now || *last_ns == UINT64_MAX ||
	    now - *last_ns < (uint64_t)ctx->settings.metrics_s * 1000 * COLL_NS_PER_MS)
		return;
	*last_ns = now;
	coll_log_path(ctx->settings.metrics_file, ctx->rank, path, sizeof(path));
	build(ctx, &t);
	if (!t.failed && !write_beside(path, &t)) {
		coll_log(&ctx->logger, COLL_LOG_WARN, "[COLL-5118] COLL_METRICS_FILE=%s: %s", path,
		         coll_errno_text(errno).text);
		*last_ns = UINT64_MAX;
	}
	coll_text_free(&t);
}
