/*
 * PowerSGD (Vogels, Karimireddy, Jaggi, arXiv 1905.13727): a matrix M of rows x
 * columns is sent as P = M Q and, after the columns of P were made orthonormal,
 * Q = M^T P. Every rank then has the same product P Q^T. Q starts the next step.
 * The error of the product against this rank's M is kept and added next time. Parameters
 * that are vectors, or too small to gain, are sent uncompressed with P.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/base.h"
#include "ddp/ddp_inner.h"
#include "ddp/skinny_gemm.h"

struct matrix {
	int param;   /* of the arena */
	size_t p_at; /* in left */
	size_t q_at; /* in right; SIZE_MAX: plain */
	size_t m_at; /* in kept */
	size_t rows, columns;
};

struct powersgd_state {
	int count;
	struct matrix *matrices;
	size_t left_count, right_count, kept_count;
	float *left;   /* all P, and what is plain */
	float *right;  /* all Q */
	float *kept;   /* all M: gradient and what was missed before */
	float *turned; /* of the Q at hand */
};

static size_t rank_of(const coll_ddp *d)
{
	return d->config.powersgd_rank > 0 ? (size_t)d->config.powersgd_rank : 4;
}

static void release(struct bucket *b)
{
	struct powersgd_state *s = b->scratch;

	if (!s)
		return;
	free(s->matrices);
	free(s->left);
	free(s->right);
	free(s->kept);
	free(s->turned);
	free(s);
	b->scratch = NULL;
}

/* Too small to gain, or no matrix at all. */
static bool goes_plain(const coll_ddp *d, const struct param *p)
{
	const size_t r = rank_of(d), columns = p->rows ? p->count / p->rows : 0;

	return p->dim_count < 2 || (p->rows + columns) * r * 2 > p->count || p->rows < r || columns < r;
}

static size_t load(const coll_ddp *d, const struct param *p)
{
	return goes_plain(d, p) ? p->count : (p->rows + p->count / p->rows) * rank_of(d);
}

static void describe(const coll_ddp *d, struct powersgd_state *s, int param)
{
	const struct param *p = &d->params[param];
	const size_t r = rank_of(d);
	struct matrix *m = &s->matrices[s->count++];

	*m = (struct matrix){param, s->left_count, SIZE_MAX, s->kept_count, p->rows, p->count / p->rows};
	if (goes_plain(d, p)) {
		s->left_count += p->count;
		return;
	}
	m->q_at = s->right_count;
	s->left_count += m->rows * r;
	s->right_count += m->columns * r;
	s->kept_count += p->count;
}

/* The same on all ranks; any full-rank start will do. (Marsaglia's xorshift.) */
static float draw(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return (float)((double)(*x >> 11) * 0x1p-53 - 0.5);
}

static coll_status prepare(coll_ddp *d, struct bucket *b)
{
	struct powersgd_state *s = calloc(1, sizeof(*s));
	uint64_t x = 88172645463325252u;

	b->scratch = s;
	if (s)
		s->matrices = calloc((size_t)(b->last_param - b->first_param + 1), sizeof(*s->matrices));
	if (!s || !s->matrices)
		return ddp_fail(d, COLL_ERR_MEMORY, "no memory for a bucket");
	for (int p = b->first_param; p <= b->last_param; p++)
		if (!d->params[p].buffer && d->params[p].count)
			describe(d, s, p);
	s->left = calloc(s->left_count + 1, sizeof(float));
	s->right = calloc(s->right_count + 1, sizeof(float));
	s->kept = calloc(s->kept_count + 1, sizeof(float));
	s->turned = calloc(s->right_count + 1, sizeof(float));
	if (!s->left || !s->right || !s->kept || !s->turned)
		return ddp_fail(d, COLL_ERR_MEMORY, "no memory for a bucket of %zu numbers", b->count);
	for (size_t i = 0; i < s->right_count; i++)
		s->right[i] = draw(&x);
	return COLL_OK;
}

static int phases(const coll_ddp *d)
{
	return 2;
}

static double square(const float *p, size_t rows, size_t r, size_t k)
{
	double sum = 0;

	for (size_t i = 0; i < rows; i++)
		sum += (double)p[i * r + k] * p[i * r + k];
	return sum;
}

/* Gram and Schmidt, column by column, each twice: once leaves too much where columns are
 * nearly dependent. A column that is nothing but what the others are becomes zero. */
static void orthonormalise(float *p, size_t rows, size_t r)
{
	for (size_t k = 0; k < r; k++) {
		const double before = square(p, rows, r, k);
		double after;

		for (size_t l = 0; l < 2 * k; l++) {
			const size_t other = l % k;
			double dot = 0;

			for (size_t i = 0; i < rows; i++)
				dot += (double)p[i * r + k] * p[i * r + other];
			for (size_t i = 0; i < rows; i++)
				p[i * r + k] -= (float)(dot * p[i * r + other]);
		}
		after = square(p, rows, r, k);
		for (size_t i = 0; i < rows; i++)
			p[i * r + k] = after > 1e-10 * before && after > 0 ? (float)(p[i * r + k] / sqrt(after)) : 0;
	}
}

/* Columns of Q that became zero would stay zero: they begin anew. */
static void refill(float *q, size_t columns, size_t r)
{
	uint64_t x = 88172645463325252u;

	for (size_t k = 0; k < r; k++) {
		if (square(q, columns, r, k) > 0)
			continue;
		for (size_t i = 0; i < columns; i++)
			q[i * r + k] = draw(&x);
	}
}

static coll_status send_mean(coll_ddp *d, float *x, size_t count, coll_comm *comm, coll_stream *stream)
{
	ddp_count(d, count * sizeof(*x), 2.0 * (double)(count * sizeof(*x)) * (d->size - 1) / d->size);
	return coll_all_reduce(x, x, count, COLL_F32, COLL_AVG, comm, stream);
}

static coll_status send_left(coll_ddp *d, struct bucket *b, coll_comm *comm, coll_stream *stream)
{
	struct powersgd_state *s = b->scratch;

	for (int i = 0; i < s->count; i++) {
		const struct matrix *m = &s->matrices[i];
		const float *g = (const float *)d->grads + d->params[m->param].offset;
		float *kept = s->kept + m->m_at;

		if (m->q_at == SIZE_MAX) {
			memcpy(s->left + m->p_at, g, m->rows * m->columns * sizeof(*g));
			continue;
		}
		ddp_thin_times(s->left + m->p_at, kept, g, s->right + m->q_at, m->rows, m->columns, rank_of(d));
	}
	return send_mean(d, s->left, s->left_count, comm, stream);
}

static coll_status send_right(coll_ddp *d, struct bucket *b, coll_comm *comm, coll_stream *stream)
{
	struct powersgd_state *s = b->scratch;

	for (int i = 0; i < s->count; i++) {
		const struct matrix *m = &s->matrices[i];

		if (m->q_at == SIZE_MAX)
			continue;
		orthonormalise(s->left + m->p_at, m->rows, rank_of(d));
		ddp_thin_transposed(s->right + m->q_at, s->kept + m->m_at, s->left + m->p_at, m->rows, m->columns,
		                    rank_of(d));
	}
	return send_mean(d, s->right, s->right_count, comm, stream);
}

static coll_status start(coll_ddp *d, struct bucket *b, int phase, coll_comm *comm, coll_stream *stream)
{
	return phase ? send_right(d, b, comm, stream) : send_left(d, b, comm, stream);
}

static void finish(coll_ddp *d, struct bucket *b)
{
	const struct powersgd_state *s = b->scratch;
	const size_t r = rank_of(d);

	for (int i = 0; i < s->count; i++) {
		const struct matrix *m = &s->matrices[i];
		float *g = (float *)d->grads + d->params[m->param].offset, *kept = s->kept + m->m_at;
		const float *p = s->left + m->p_at, *q = s->right + m->q_at;

		if (m->q_at == SIZE_MAX) {
			memcpy(g, p, m->rows * m->columns * sizeof(*g));
			continue;
		}
		ddp_thin_product(g, kept, p, q, s->turned, m->rows, m->columns, r);
		refill(s->right + m->q_at, m->columns, r);
	}
}

static size_t kept(const struct bucket *b, struct piece *pieces)
{
	const struct powersgd_state *s = b->scratch;

	pieces[0] = (struct piece){s->right, s->right_count * sizeof(float)};
	pieces[1] = (struct piece){s->kept, s->kept_count * sizeof(float)};
	return 2;
}

const struct wire ddp_wire_powersgd = {"powersgd", load, prepare, release, phases, start, finish, kept};
