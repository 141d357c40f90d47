/*
 * The model's memory: the table of tensors, the arenas, the activations.
 */
#include "gpt/model_inner.h"
#include "gpt/rng.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN_BYTES 64

static void *zeroed(size_t count, size_t size)
{
	const size_t len_bytes = (count * size + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
	void *p = aligned_alloc(ALIGN_BYTES, len_bytes ? len_bytes : ALIGN_BYTES);

	return p ? memset(p, 0, len_bytes) : NULL;
}

const char *gpt_shape_problem(const struct gpt_shape *s)
{
	if (s->vocab < 2)
		return "the vocabulary needs at least two tokens";
	if (s->context < 1 || s->layers < 1 || s->heads < 1 || s->width < 1)
		return "layers, heads, width and context must be positive";
	if (s->width % s->heads)
		return "the width must be a multiple of the number of heads";
	return NULL;
}

static int tensor_count(const struct gpt_shape *s)
{
	return BEFORE_LAYERS + s->layers * PER_LAYER + AFTER_LAYERS;
}

struct layout {
	struct gpt_tensor *next;
	size_t offset;
};

/* layer < 0: not in a block. */
static void put(struct layout *l, int layer, const char *name, size_t rows, size_t count, bool decay, double init,
                double centre)
{
	struct gpt_tensor *t = l->next++;

	if (layer < 0)
		snprintf(t->name, sizeof(t->name), "%s", name);
	else
		snprintf(t->name, sizeof(t->name), "h.%d.%s", layer, name);
	t->offset = l->offset;
	t->count = count;
	t->rows = rows;
	t->decay = decay;
	t->init = init;
	t->centre = centre;
	l->offset += count;
}

static void put_layer(struct layout *l, const struct gpt_shape *s, int layer)
{
	/* As GPT-2: 0.02, and less where a block adds to the residual stream,
	 * so that its variance does not grow with depth. */
	const double residual = 0.02 / sqrt(2.0 * s->layers);
	const size_t c = s->width;
	const struct {
		const char *name;
		size_t rows, count;
		double init, centre;
	} rows[PER_LAYER] = {
	        {"ln_1.gain", 1, c, 0, 1},
	        {"ln_1.bias", 1, c, 0, 0},
	        {"attn.qkv.weight", 3 * c, 3 * c * c, 0.02, 0},
	        {"attn.qkv.bias", 1, 3 * c, 0, 0},
	        {"attn.proj.weight", c, c * c, residual, 0},
	        {"attn.proj.bias", 1, c, 0, 0},
	        {"ln_2.gain", 1, c, 0, 1},
	        {"ln_2.bias", 1, c, 0, 0},
	        {"mlp.up.weight", 4 * c, 4 * c * c, 0.02, 0},
	        {"mlp.up.bias", 1, 4 * c, 0, 0},
	        {"mlp.down.weight", c, 4 * c * c, residual, 0},
	        {"mlp.down.bias", 1, c, 0, 0},
	};

	for (int i = 0; i < PER_LAYER; i++)
		put(l, layer, rows[i].name, rows[i].rows, rows[i].count, rows[i].init > 0, rows[i].init,
		    rows[i].centre);
}

static size_t lay_out(const struct gpt_shape *s, struct gpt_tensor *tensors)
{
	struct layout l = {tensors, 0};

	put(&l, -1, "wpe", s->context, (size_t)s->context * s->width, true, 0.01, 0);
	for (int i = 0; i < s->layers; i++)
		put_layer(&l, s, i);
	put(&l, -1, "ln_f.gain", 1, s->width, false, 0, 1);
	put(&l, -1, "ln_f.bias", 1, s->width, false, 0, 0);
	put(&l, -1, "wte", s->vocab, (size_t)s->vocab * s->width, true, 0.02, 0);
	return l.offset;
}

size_t gpt_param_count(const struct gpt_shape *s)
{
	const size_t c = s->width;

	return ((size_t)s->vocab + s->context) * c + s->layers * (12 * c * c + 13 * c) + 2 * c;
}

struct gpt_tensor *gpt_shape_tensors(const struct gpt_shape *s, int *count)
{
	struct gpt_tensor *tensors = zeroed(tensor_count(s), sizeof(*tensors));

	if (tensors)
		lay_out(s, tensors);
	*count = tensor_count(s);
	return tensors;
}

/* Hand out pieces of the activation arena; with base NULL only count them. */
static gpt_real *take(gpt_real *base, size_t *used, size_t count)
{
	const size_t unit = ALIGN_BYTES / sizeof(gpt_real);
	gpt_real *p = base ? base + *used : NULL;

	*used += (count + unit - 1) / unit * unit;
	return p;
}

static void place_layer(struct layer_acts *a, const struct gpt_shape *s, size_t rows, gpt_real *base, size_t *used)
{
	const size_t c = s->width;

	a->in = take(base, used, rows * c);
	a->mean1 = take(base, used, rows);
	a->rstd1 = take(base, used, rows);
	a->norm1 = take(base, used, rows * c);
	a->qkv = take(base, used, rows * 3 * c);
	a->lse = take(base, used, rows * s->heads);
	a->mixed = take(base, used, rows * c);
	a->mid = take(base, used, rows * c);
	a->mean2 = take(base, used, rows);
	a->rstd2 = take(base, used, rows);
	a->norm2 = take(base, used, rows * c);
	a->up = take(base, used, rows * 4 * c);
	a->gelu = take(base, used, rows * 4 * c);
}

static size_t place(struct gpt_model *m, gpt_real *base)
{
	const size_t rows = m->max_rows, c = m->shape.width;
	size_t used = 0;

	for (int i = 0; i < m->shape.layers; i++)
		place_layer(&m->layers[i], &m->shape, rows, base, &used);
	m->delta = take(base, &used, rows * c);
	m->last = take(base, &used, rows * c);
	m->meanf = take(base, &used, rows);
	m->rstdf = take(base, &used, rows);
	m->normf = take(base, &used, rows * c);
	m->logits = take(base, &used, (size_t)gpt_head_rows(m) * m->shape.vocab);
	m->loss = take(base, &used, gpt_head_rows(m));
	m->dres = take(base, &used, rows * c);
	m->dnorm = take(base, &used, rows * c);
	m->dwide = take(base, &used, rows * 4 * c);
	m->ddrop = take(base, &used, rows * c);
	m->zeros = take(base, &used, c);
	return used;
}

/* ids, starts and rows of the groups, then the places to sort by. */
static bool allocate_groups(struct gpt_model *m)
{
	const size_t rows = m->max_rows;

	m->group_memory = zeroed(3 * rows + 1 + (size_t)m->shape.vocab, sizeof(int32_t));
	m->groups.id = m->group_memory;
	m->groups.row = m->group_memory + rows;
	m->groups.start = m->group_memory + 2 * rows;
	return m->group_memory != NULL;
}

static bool allocate_threads(struct gpt_model *m, const struct gpt_kernels *k)
{
	m->devs = calloc((size_t)m->threads, sizeof(*m->devs));
	if (m->threads > 1)
		m->team = gpt_team_create(m->threads);
	if (!m->devs || (m->threads > 1 && !m->team))
		return false;
	for (int i = 0; i < m->threads; i++) {
		struct gpt_device *d = &m->devs[i];

		*d = (struct gpt_device){.k = k, .team = m->team, .index = i, .count = m->threads};
		d->work_count = k->work_count(m->shape.context, m->shape.width / m->shape.heads, m->shape.width);
		d->work = zeroed(d->work_count, sizeof(gpt_real));
		m->memory.scratch += d->work_count * sizeof(gpt_real);
		if (!d->work)
			return false;
	}
	return true;
}

static void count_memory(struct gpt_model *m)
{
	const size_t wide = 4 * (size_t)m->shape.width, lse = (size_t)m->shape.heads;

	m->memory.weights = m->memory.grads = m->param_count * sizeof(gpt_real);
	m->memory.activations = place(m, NULL) * sizeof(gpt_real);
	m->memory.logits = (size_t)gpt_head_rows(m) * m->shape.vocab * sizeof(gpt_real);
	m->memory.largest_of_rows = (size_t)m->max_rows * (wide > lse ? wide : lse) * sizeof(gpt_real);
}

static bool allocate(struct gpt_model *m, const struct gpt_model_options *o)
{
	m->tensors = zeroed(m->tensor_count, sizeof(*m->tensors));
	m->layers = zeroed(m->shape.layers, sizeof(*m->layers));
	if (!m->tensors || !m->layers)
		return false;
	m->param_count = lay_out(&m->shape, m->tensors);
	m->owns_params = !o->weights;
	m->params = o->weights ? o->weights : zeroed(m->param_count, sizeof(gpt_real));
	m->owns_grads = !o->grads;
	m->grads = o->grads ? o->grads : zeroed(m->param_count, sizeof(gpt_real));
	m->lookup = o->lookup;
	count_memory(m);
	m->acts = zeroed(place(m, NULL), sizeof(gpt_real));
	if (!m->params || !m->grads || !m->acts || !allocate_groups(m) || !allocate_threads(m, o->kernels))
		return false;
	place(m, m->acts);
	return true;
}

struct gpt_model *gpt_model_open(const struct gpt_shape *shape, const struct gpt_model_options *o)
{
	struct gpt_model *m = gpt_shape_problem(shape) ? NULL : calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->shape = *shape;
	m->threads = o->threads > 1 ? o->threads : 1;
	m->hooks = o->hooks;
	m->max_rows = o->max_batch * shape->context;
	m->tensor_count = tensor_count(shape);
	if (!allocate(m, o))
		gpt_model_destroy(&m);
	return m;
}

struct gpt_model *gpt_model_create(const struct gpt_shape *shape, int max_batch, const struct gpt_kernels *kernels,
                                   gpt_real *grads)
{
	const struct gpt_model_options o = {.max_batch = max_batch, .kernels = kernels, .grads = grads};

	return gpt_model_open(shape, &o);
}

void gpt_model_destroy(struct gpt_model **model)
{
	struct gpt_model *m = *model;

	if (!m)
		return;
	gpt_team_destroy(&m->team);
	for (int i = 0; m->devs && i < m->threads; i++)
		free(m->devs[i].work);
	free(m->devs);
	free(m->tensors);
	free(m->layers);
	if (m->owns_params)
		free(m->params);
	if (m->owns_grads)
		free(m->grads);
	free(m->acts);
	free(m->group_memory);
	free(m);
	*model = NULL;
}

/* Each number is a function of (seed, its index) alone. */
void gpt_model_init(struct gpt_model *m, uint64_t seed)
{
	for (int i = 0; i < m->tensor_count; i++) {
		const struct gpt_tensor *t = &m->tensors[i];

		for (size_t j = 0; j < t->count; j++)
			m->params[t->offset + j] =
			        (gpt_real)(t->centre + (t->init > 0 ? t->init * gpt_normal(seed, t->offset + j) : 0));
	}
}

void gpt_model_set_dropout(struct gpt_model *m, double rate, uint64_t seed, uint64_t step, uint64_t first_sequence)
{
	m->drop_rate = rate;
	m->drop_seed = seed;
	m->drop_step = step;
	m->drop_first = first_sequence;
}

void gpt_model_set_smoothing(struct gpt_model *m, double smooth)
{
	m->smooth = (gpt_real)smooth;
}

struct gpt_memory gpt_model_memory(const struct gpt_model *m)
{
	return m->memory;
}

struct gpt_team *gpt_model_team(struct gpt_model *m)
{
	return m->team;
}

const struct gpt_shape *gpt_model_shape(const struct gpt_model *m)
{
	return &m->shape;
}

struct gpt_device *gpt_model_device(struct gpt_model *m)
{
	return &m->devs[0];
}

gpt_real *gpt_model_params(struct gpt_model *m)
{
	return m->params;
}

gpt_real *gpt_model_grads(struct gpt_model *m)
{
	return m->grads;
}

const struct gpt_tensor *gpt_model_tensors(const struct gpt_model *m, int *count)
{
	*count = m->tensor_count;
	return m->tensors;
}
