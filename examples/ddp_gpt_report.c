/*
 * What rank 0 says: lines, and the curve loss.svg.
 */
#include "ddp_gpt_data.h"
#include "ddp_gpt_metrics.h"
#include "gpt/blas.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the curve, which grows with what was logged. One that memory has no room for is left out. */
void job_add_point(struct job *j, struct point p)
{
	if (j->curve_count == j->curve_room) {
		const long room = j->curve_room ? 2 * j->curve_room : 256;
		struct point *curve = realloc(j->curve, (size_t)room * sizeof(*curve));

		if (!curve)
			return;
		j->curve = curve;
		j->curve_room = room;
	}
	j->curve[j->curve_count++] = p;
}

/* Floating-point operations per token, forward and backward: two per weight and
 * direction, thrice; and what attention does with the tokens before it. */
static double flops_per_token(const struct job *j)
{
	return 6.0 * (double)j->param_count + 12.0 * (double)(j->o.layers * j->o.width * j->o.context);
}

#define SIDE 384

/* The best of some products, as fast as one thread here gets, times threads and ranks. */
static double measure_peak(const struct job *j)
{
	float *x = calloc(3 * (size_t)SIDE * SIDE, sizeof(*x));
	double best = 0;

	for (int i = 0; x && i < 8; i++) {
		const double start = job_now_s();

		gpt_blas_gemm(&(struct gpt_gemm){false, false, SIDE, SIDE, SIDE, 1, 0, x, x + SIDE * SIDE,
		                                 x + 2 * SIDE * SIDE, SIDE, SIDE, SIDE});
		best = fmax(best, 2.0 * SIDE * SIDE * SIDE / (job_now_s() - start));
	}
	free(x);
	return best * (double)j->o.threads * j->size;
}

static void print_buckets(const struct job *j)
{
	const int count = coll_ddp_bucket_count(j->ddp);
	coll_ddp_bucket_info first, last, b;
	size_t most = 0;

	coll_ddp_bucket(j->ddp, 0, &first);
	coll_ddp_bucket(j->ddp, count - 1, &last);
	for (int i = 0; i < count; i++) {
		coll_ddp_bucket(j->ddp, i, &b);
		most = b.count > most ? b.count : most;
	}
	printf("ddp_gpt: %d bucket%s, the first of %zu bytes, the largest of %zu, the last of %zu", count,
	       count > 1 ? "s" : "", first.count * sizeof(float), most * sizeof(float), last.count * sizeof(float));
}

void job_print_start(struct job *j)
{
	coll_ddp_stats stats = COLL_DDP_STATS_INIT;

	if (j->rank)
		return;
	j->peak_flops = j->o.peak_gflops > 0 ? 1e9 * j->o.peak_gflops : measure_peak(j);
	printf("ddp_gpt: %d rank%s, %zu weights (%ld layers, width %ld, %ld heads, context %ld), vocabulary %d\n",
	       j->size, j->size > 1 ? "s" : "", j->param_count, j->o.layers, j->o.width, j->o.heads, j->o.context,
	       gpt_model_shape(j->model)->vocab);
	printf("ddp_gpt: %zu tokens to train on, %zu to validate; %ld tokens per step, %ld steps; kernels %s, BLAS "
	       "%s, %ld thread%s per rank\n",
	       (size_t)job_train_tokens(j), (size_t)job_val_tokens(j), j->o.batch * j->o.context, j->o.steps,
	       gpt_model_device(j->model)->k->name, gpt_blas_core(), j->o.threads, j->o.threads > 1 ? "s" : "");
	print_buckets(j);
	if (coll_ddp_get_stats(j->ddp, &stats, 1) == COLL_OK && stats.bytes_per_s > 0)
		printf(" (measured: %.1f us, %.2f GB/s)", 1e6 * stats.latency_s, 1e-9 * stats.bytes_per_s);
	printf("; mfu = tokens/s x (6 x weights + 12 x layers x width x context) / %.0f GF/s (%s)\n",
	       1e-9 * j->peak_flops, j->o.peak_gflops > 0 ? "given" : "measured");
}

static void format_time(double seconds, char *text, size_t len_bytes)
{
	const long s = (long)(seconds + 0.5);

	if (s >= 3600)
		snprintf(text, len_bytes, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
	else
		snprintf(text, len_bytes, "%ld:%02ld", s / 60, s % 60);
}

void job_print_live(const struct job *j, long step)
{
	const double elapsed = job_now_s() - j->last_log_s;
	const double per_step = elapsed / (double)(step - j->last_log_step);
	char eta[32];

	if (!j->terminal)
		return;
	format_time(per_step * (double)(j->o.steps - step), eta, sizeof(eta));
	printf("\rstep %5ld/%ld  %.0f tokens/s  %.1f ms/step  left %s   ", step, j->o.steps,
	       (double)(j->tokens - j->last_log_tokens) / elapsed, 1e3 * per_step, eta);
	fflush(stdout);
}

/* ---- Slow ranks ------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The middle of n numbers, which are sorted. */
static double median(double *x, long n)
{
	qsort(x, (size_t)n, sizeof(*x), by_size);
	return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

#define SLOW      1.2 /* times the median */
#define FEW_STEPS 10  /* say nothing yet */

/* Ranks that computed much longer than most since the last line. */
static void name_slow_ranks(const struct job *j, long steps)
{
	double *computed = malloc((size_t)j->size * sizeof(*computed)), middle;

	if (!computed || steps < FEW_STEPS || j->size < 2) {
		free(computed);
		return;
	}
	for (int r = 0; r < j->size; r++)
		computed[r] = j->of_ranks[r].computed_s;
	middle = median(computed, j->size);
	for (int r = 0; r < j->size; r++)
		if (middle > 0 && j->of_ranks[r].computed_s > SLOW * middle)
			printf("%srank %d (%s) is slow: %.2f x the median of the computing time\n",
			       j->terminal ? "\r\033[K" : "", r, coll_comm_host(j->comm, r),
			       j->of_ranks[r].computed_s / middle);
	free(computed);
}

void job_report(struct job *j, long step, bool validated, double norm, double rate)
{
	const double elapsed = j->log_s, steps = (double)(step - j->last_log_step);
	const double speed = (double)(j->tokens - j->last_log_tokens) / elapsed;
	const coll_ddp_stats *s = &j->stats;
	struct metrics m = {.step = (double)step,
	                    .loss = j->loss,
	                    .val_loss = validated ? j->val_loss : ABSENT,
	                    .grad_norm = norm,
	                    .stubbed = j->o.overlap ? job_stubbed(j, step - 1) : ABSENT,
	                    .lr = rate,
	                    .tokens_per_s = speed,
	                    .ms_per_step = 1e3 * elapsed / steps,
	                    .comm_share = s->waited_s / elapsed,
	                    .wire_s = s->wire_s,
	                    .waited_s = s->waited_s,
	                    .sent_bytes = (double)s->sent_bytes};
	char val[32] = "", left[32];

	job_add_point(j, (struct point){step, j->loss, validated ? j->val_loss : -1, elapsed / steps, s->wire_s});
	j->last_log_step = step;
	if (j->rank)
		return;
	m.mfu = speed * flops_per_token(j) / j->peak_flops;
	if (validated)
		snprintf(val, sizeof(val), "  val_loss %.4f", j->val_loss);
	format_time(elapsed / steps * (double)(j->o.steps - step), left, sizeof(left));
	printf("%sstep %5ld/%ld  loss %.4f%s  norm %.2f  %.0f tokens/s  %.1f ms/step  comm %.1f %%  mfu %.1f %%  left "
	       "%s%s\n",
	       j->terminal ? "\r" : "", step, j->o.steps, j->loss, val, norm, speed, m.ms_per_step, 100 * m.comm_share,
	       100 * m.mfu, left, j->terminal ? "\033[K" : "");
	name_slow_ranks(j, (long)steps);
	metrics_write(j, &m);
}

/* ---- Overlap ------------------------------------------------------------------ */

/* A step that sends beside the next, which does not: whatever else a machine does befalls both. The
 * first two are no measure: they touch memory for the first time. */
void job_print_overlap(const struct job *j)
{
	const long pairs = j->curve_count / 2 - 1;
	double *exposed, *wire, *sent, *stubbed;

	if (j->rank || !j->o.overlap || j->size == 1 || !(exposed = malloc(4 * (size_t)pairs * sizeof(*exposed))))
		return;
	wire = exposed + pairs;
	sent = wire + pairs;
	stubbed = sent + pairs;
	for (long i = 0; i < pairs; i++) {
		const struct point *p = j->curve + 2 + 2 * i;

		sent[i] = p[0].step_s;
		stubbed[i] = p[1].step_s;
		exposed[i] = sent[i] - stubbed[i];
		wire[i] = p[0].wire_s;
	}
	printf("ddp_gpt: step %.4f s, without communication %.4f s; exposed %.4f s, on the wire %.4f s: overlap %.1f "
	       "%% (medians "
	       "of %ld)\n",
	       median(sent, pairs), median(stubbed, pairs), median(exposed, pairs), median(wire, pairs),
	       100 * (1 - median(exposed, pairs) / median(wire, pairs)), pairs);
	free(exposed);
}

/* ---- The curve --------------------------------------------------------------- */

#define WIDE 640
#define HIGH 360
#define EDGE 50

struct frame {
	double least, most;
	long steps;
};

static double across(const struct frame *f, long step)
{
	return EDGE + (WIDE - 2.0 * EDGE) * (double)step / (double)f->steps;
}

static double down(const struct frame *f, double loss)
{
	return HIGH - EDGE - (HIGH - 2.0 * EDGE) * (loss - f->least) / (f->most - f->least);
}

static void draw_line(FILE *svg, const struct job *j, const struct frame *f, bool val, const char *colour)
{
	fprintf(svg, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", colour);
	for (long i = 0; i < j->curve_count; i++) {
		const double y = val ? j->curve[i].val : j->curve[i].loss;

		if (y >= 0 && isfinite(y))
			fprintf(svg, "%.1f,%.1f ", across(f, j->curve[i].step), down(f, y));
	}
	fprintf(svg, "\"/>\n");
}

static void widen(struct frame *f, double loss)
{
	if (loss < 0 || !isfinite(loss))
		return;
	f->least = fmin(f->least, loss);
	f->most = fmax(f->most, loss);
}

static void draw(FILE *svg, const struct job *j)
{
	struct frame f = {1e30, 0, j->o.steps};

	for (long i = 0; i < j->curve_count; i++) {
		widen(&f, j->curve[i].loss);
		widen(&f, j->curve[i].val);
	}
	if (f.most <= f.least)
		f.most = f.least + 1;
	fprintf(svg,
	        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
	        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
	        WIDE, HIGH);
	for (int i = 0; i <= 4; i++) {
		const double loss = f.least + (f.most - f.least) * i / 4;

		fprintf(svg,
		        "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
		        "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n",
		        EDGE, WIDE - EDGE, down(&f, loss), down(&f, loss), EDGE - 6, down(&f, loss) + 4, loss);
		fprintf(svg, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%ld</text>\n",
		        across(&f, f.steps * i / 4), HIGH - EDGE + 18, f.steps * i / 4);
	}
	draw_line(svg, j, &f, false, "#1f6fb4");
	draw_line(svg, j, &f, true, "#d3541b");
	fprintf(svg,
	        "<text x=\"%d\" y=\"%d\" fill=\"#1f6fb4\">training loss</text><text x=\"%d\" y=\"%d\" "
	        "fill=\"#d3541b\">validation loss</text>\n",
	        WIDE - 200, EDGE - 4, WIDE - 200, EDGE + 12);
	fprintf(svg,
	        "<text x=\"%d\" y=\"20\" text-anchor=\"middle\">%ld layers, width %ld, batch %ld, lr %g, %d "
	        "rank%s</text>\n"
	        "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n"
	        "<text x=\"14\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 14 %d)\">nats per "
	        "token</text>\n</svg>\n",
	        WIDE / 2, j->o.layers, j->o.width, j->o.batch, j->o.lr, j->size, j->size > 1 ? "s" : "", WIDE / 2,
	        HIGH - 12, HIGH / 2, HIGH / 2);
}

/* A picture less is no failure of the training: it is said, and that is all. */
void job_draw_curve(const struct job *j)
{
	char path[4096];
	FILE *svg;

	if (j->rank || !j->o.out || !j->curve_count)
		return;
	snprintf(path, sizeof(path), "%s/loss.svg", j->o.out);
	svg = fopen(path, "we");
	if (!svg) {
		fprintf(stderr, "ddp_gpt: cannot write %s: %s\n", path, strerror(errno));
		return;
	}
	draw(svg, j);
	if (ferror(svg) | fclose(svg))
		fprintf(stderr, "ddp_gpt: cannot write all of %s\n", path);
}
