/*
 * Everything around the model: tokenizer, sampler, optimiser, generation,
 * checkpoint; and that a small model learns.
 */
#include "gpt/blas.h"
#include "gpt/checkpoint.h"
#include "gpt/dataset.h"
#include "gpt/generate.h"
#include "gpt/optim.h"
#include "gpt/rng.h"
#include "gpt/sampler.h"
#include "gpt/test_util.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

Test(tokenizer, gives_back_every_byte)
{
	const uint8_t text[] = "Gr\xc3\xbc\xc3\x9f"
	                       "e,\n\x00\xff tabs\tand all";
	struct gpt_tokenizer t;
	int32_t tokens[sizeof(text)];

	for (int v = GPT_VOCAB_CHAR; v <= GPT_VOCAB_BYTE; v++) {
		gpt_tokenizer_init(&t, (enum gpt_vocab)v, text, sizeof(text));
		cr_assert_eq(gpt_tokenizer_encode(&t, text, sizeof(text), tokens), sizeof(text));
		for (size_t i = 0; i < sizeof(text); i++) {
			cr_assert(tokens[i] >= 0 && tokens[i] < t.size);
			cr_assert_eq(t.byte_of[tokens[i]], text[i]);
		}
	}
	cr_assert_eq(t.size, 256);
}

/* Pieces, merges by either way, the cache and special tokens: whatever the text, it comes back. */
Test(tokenizer, bpe_gives_back_every_byte)
{
	static const char text[] =
	        "it's the ring, the tree and the rank of the ring; 12 34 12 34  the\n\nthe gr\xc3\xbcn \xe4\xb8\xad";
	struct gpt_bpe *b = gpt_bpe_train((const uint8_t *)text, strlen(text), 270, "<|endoftext|>");
	uint8_t random[3000];
	int32_t tokens[3000];

	cr_assert_not_null(b);
	cr_assert_eq(gpt_bpe_size(b), 270);
	cr_assert_geq(gpt_bpe_find(b, (const uint8_t *)" the", 4), 256);
	cr_assert_eq(gpt_bpe_find(b, (const uint8_t *)"<|endoftext|>", 13), 269);
	cr_assert_eq(gpt_bpe_encode(b, (const uint8_t *)" the the", 8, true, tokens), 2);
	cr_assert_eq(gpt_bpe_encode(b, (const uint8_t *)"<|endoftext|>", 13, true, tokens), 1);
	cr_assert_gt(gpt_bpe_encode(b, (const uint8_t *)"<|endoftext|>", 13, false, tokens), 1);
	for (int len = 0; len <= 3000; len += len < 20 ? 1 : 149) {
		size_t at = 0;
		long n;

		/* One letter is one long piece, random bytes are many short ones. */
		for (int i = 0; i < len; i++)
			random[i] = len % 2 ? 't' : (uint8_t)gpt_random(7, (uint64_t)i);
		n = gpt_bpe_encode(b, random, (size_t)len, false, tokens);
		for (long i = 0; i < n; i++) {
			size_t bytes;
			const uint8_t *of = gpt_bpe_bytes(b, tokens[i], &bytes);

			cr_assert(at + bytes <= (size_t)len && memcmp(of, random + at, bytes) == 0,
			          "%d bytes: token %ld", len, i);
			at += bytes;
		}
		cr_assert_eq(at, (size_t)len);
	}
	gpt_bpe_close(&b);
	cr_assert_null(b);
}

Test(tokenizer, char_vocabulary_is_the_distinct_bytes)
{
	struct gpt_tokenizer t;
	int32_t tokens[4];

	gpt_tokenizer_init(&t, GPT_VOCAB_CHAR, (const uint8_t *)"banana", 6);
	cr_assert_eq(t.size, 3);
	cr_assert_eq(t.byte_of[0], 'a');
	cr_assert_eq(t.byte_of[2], 'n');
	/* A byte the vocabulary lacks is left out. */
	cr_assert_eq(gpt_tokenizer_encode(&t, (const uint8_t *)"bxn", 3, tokens), 2);
	cr_assert_eq(tokens[1], 2);
}

Test(sampler, permutes)
{
	static const uint64_t sizes[] = {1, 2, 3, 5, 16, 17, 64, 257, 1000, 4096, 4097};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
		for (uint64_t key = 0; key < 5; key++) {
			const uint64_t n = sizes[s];
			char *seen = calloc(n, 1);

			for (uint64_t x = 0; x < n; x++) {
				uint64_t y = gpt_permute(key, n, x);

				cr_assert_lt(y, n);
				cr_assert(!seen[y], "n %lu key %lu: %lu twice", n, key, y);
				seen[y] = 1;
			}
			free(seen);
		}
}

Test(sampler, every_start_once_per_epoch_and_epochs_differ)
{
	struct gpt_sampler s;
	int count[93] = {0}, same = 0;

	gpt_sampler_init(&s, 7, 100, 7);
	cr_assert_eq(s.window_count, 93);
	for (uint64_t q = 0; q < 3 * 93; q++) {
		size_t start = gpt_sampler_start(&s, q);

		/* A window and its last target lie inside the text. */
		cr_assert_lt(start + 7, 100);
		count[start]++;
		same += q >= 93 && start == gpt_sampler_start(&s, q - 93);
	}
	for (int i = 0; i < 93; i++)
		cr_assert_eq(count[i], 3);
	cr_assert_lt(same, 40);
}

/* Tokens that say where they are: two segments, of both sizes. */
static uint16_t narrow[300];
static uint32_t wide[300];
static const struct gpt_segment two[] = {{narrow, 2, 300, "narrow", 1024}, {wide, 4, 300, "wide", 0}};

static void number_tokens(void)
{
	for (uint32_t i = 0; i < 300; i++) {
		narrow[i] = (uint16_t)i;
		wide[i] = 300 + i;
	}
}

/* Of a source by itself the order is that of the sampler, whatever the number of sequences before. */
Test(dataset, one_source_is_read_as_before)
{
	struct gpt_source s = {.segments = two, .segment_count = 2, .from = 5, .count = 595, .stride = 1, .weight = 2};
	struct gpt_dataset d = {.sources = &s, .source_count = 1, .context = 9, .seed = 7};
	struct gpt_bad_token bad;
	struct gpt_sampler as;
	int32_t out[10];
	int source;

	number_tokens();
	gpt_sampler_init(&as, 7, 595, 9);
	cr_assert_eq(gpt_dataset_open(&d, &source), 0);
	for (uint64_t q = 0; q < 5000; q += q < 2000 ? 1 : 37) {
		const struct gpt_window w = gpt_dataset_window(&d, q);

		cr_assert_eq(w.first, 5 + gpt_sampler_start(&as, q), "%lu", q);
		cr_assert_eq(w.count, 10);
		cr_assert_eq(gpt_dataset_copy(&d, &w, 600, out, &bad), 0);
		for (int i = 0; i < 10; i++)
			cr_assert_eq(out[i], (int32_t)w.first + i);
	}
	s.count = 9;
	cr_assert_eq(gpt_dataset_open(&d, &source), -1);
}

/* --stride context: each token at most once an epoch, all but a few at the ends, from offsets that differ. */
Test(dataset, windows_side_by_side)
{
	struct gpt_source s = {.segments = two, .segment_count = 2, .count = 600, .stride = 9, .weight = 1};
	struct gpt_dataset d = {.sources = &s, .source_count = 1, .context = 9, .seed = 7};
	uint64_t q = 0;
	bool moved = false;
	int source;

	for (s.count = 10; s.count <= 600; s.count += s.count < 40 ? 1 : 280) {
		cr_assert_eq(gpt_dataset_open(&d, &source), 0);
		q = 0;
		for (int epoch = 0; epoch < 3; epoch++) {
			int read[600] = {0}, sum = 0;

			for (uint64_t w = 0; w < d.windows; w++) {
				const struct gpt_window at = gpt_dataset_window(&d, q++);

				cr_assert_leq(at.first + 10, s.count);
				for (int i = 0; i < 9; i++)
					cr_assert_eq(read[at.first + (uint64_t)i]++, 0);
			}
			for (uint64_t i = 0; i < s.count; i++)
				sum += read[i];
			cr_assert_gt(sum + 18, (int)s.count);
			moved |= epoch && !read[0] != !read[4];
		}
	}
	cr_assert(moved);
}

/* Weights are kept exactly in every block, each window of a source once in an epoch of its own. */
Test(dataset, a_mixture_has_its_weights)
{
	struct gpt_source s[3] = {{.segments = two, .segment_count = 1, .count = 300, .stride = 1, .weight = 3},
	                          {.segments = two + 1, .segment_count = 1, .count = 40, .stride = 1, .weight = 1},
	                          {.segments = two, .segment_count = 2, .count = 60, .stride = 1, .weight = 1e-9}};
	struct gpt_dataset d = {.sources = s, .source_count = 2, .context = 9, .seed = 3};
	int counts[3] = {0}, of_one[300] = {0}, source;

	cr_assert_eq(gpt_dataset_open(&d, &source), 0);
	cr_assert_eq(d.windows, 291 + 31);
	for (uint64_t q = 0; q < 10 * GPT_SLOTS; q++) {
		const struct gpt_window w = gpt_dataset_window(&d, q);

		counts[w.source]++;
		if (w.source == 0)
			of_one[w.first]++;
	}
	cr_assert_eq(counts[0], 7680);
	cr_assert_eq(counts[1], 2560);
	for (int i = 0; i < 291; i++)
		cr_assert(of_one[i] == 7680 / 291 || of_one[i] == 7680 / 291 + 1, "window %d: %d times", i, of_one[i]);
	d.source_count = 3;
	cr_assert_eq(gpt_dataset_open(&d, &source), 0);
	cr_assert_eq(s[2].slots, 1);
	cr_assert_eq(s[0].slots + s[1].slots + s[2].slots, GPT_SLOTS);
}

Test(dataset, documents_and_tokens_that_are_none)
{
	static const struct gpt_span spans[] = {{0, 4}, {4, 20}, {20, 22}, {22, 300}, {300, 310}};
	struct gpt_source s = {
	        .segments = two, .segment_count = 2, .from = 1, .count = 4, .documents = spans, .weight = 1};
	struct gpt_dataset d = {.sources = &s, .source_count = 1, .context = 9, .seed = 3};
	struct gpt_bad_token bad;
	int seen[5] = {0}, source;
	int32_t out[10];

	number_tokens();
	cr_assert_eq(gpt_dataset_open(&d, &source), 0);
	for (uint64_t q = 0; q < 8; q++) {
		const struct gpt_window w = gpt_dataset_window(&d, q);
		int i = 1;

		while (spans[i].first != w.first)
			i++;
		cr_assert_lt(i, 5);
		seen[i]++;
		cr_assert_eq(w.count, i == 2 ? 2 : 10);
	}
	for (int i = 1; i < 5; i++)
		cr_assert_eq(seen[i], 2);
	cr_assert_eq(gpt_dataset_plain_count(&d), 4);
	cr_assert_eq(gpt_dataset_plain_window(&d, 1).first, 20);
	cr_assert_eq(gpt_dataset_copy(&d, &(struct gpt_window){0, 10, 295}, 302, out, &bad), -1);
	cr_assert_str_eq(bad.name, "wide");
	cr_assert_eq(bad.at_bytes, 8);
	cr_assert_eq(bad.token, 302);
	s = (struct gpt_source){.segments = two, .segment_count = 2, .from = 500, .count = 100};
	cr_assert_eq(gpt_dataset_plain_count(&d), 11);
	cr_assert_eq(gpt_dataset_plain_window(&d, 10).first, 590);
}

Test(sampler, validation_windows_have_targets)
{
	cr_assert_eq(gpt_sampler_val_windows(0, 8), 0);
	cr_assert_eq(gpt_sampler_val_windows(8, 8), 0);
	cr_assert_eq(gpt_sampler_val_windows(9, 8), 1);
	cr_assert_eq(gpt_sampler_val_windows(16, 8), 1);
	cr_assert_eq(gpt_sampler_val_windows(17, 8), 2);
}

Test(sampler, validation_windows_are_spread)
{
	for (size_t all = 1; all < 60; all++)
		for (size_t count = 1; count <= all; count++) {
			cr_assert_eq(gpt_sampler_val_window(0, count, all), 0);
			for (size_t i = 1; i < count; i++) {
				const size_t step = gpt_sampler_val_window(i, count, all) -
				                    gpt_sampler_val_window(i - 1, count, all);

				cr_assert(step == all / count || step == all / count + 1);
			}
			cr_assert(gpt_sampler_val_window(count - 1, count, all) < all);
		}
}

Test(optim, schedule_climbs_then_falls)
{
	struct gpt_optim_config c = GPT_OPTIM_CONFIG_INIT;

	c.lr = 1;
	c.warmup_steps = 10;
	c.total_steps = 110;
	cr_assert_float_eq(gpt_optim_rate(&c, 0), 0.1, 1e-12);
	cr_assert_float_eq(gpt_optim_rate(&c, 9), 1, 1e-12);
	cr_assert_float_eq(gpt_optim_rate(&c, 10), 1, 1e-12);
	cr_assert_float_eq(gpt_optim_rate(&c, 60), 0.55, 1e-12);
	cr_assert_float_eq(gpt_optim_rate(&c, 110), 0.1, 1e-12);
	for (int s = 11; s < 110; s++)
		cr_assert(gpt_optim_rate(&c, s) < gpt_optim_rate(&c, s - 1));
	/* No warm-up, no steps left: no division by zero. */
	c.warmup_steps = c.total_steps = 0;
	cr_assert_float_eq(gpt_optim_rate(&c, 0), 0.1, 1e-12);
}

static const struct gpt_shape tiny = {17, 8, 2, 2, 16};

/* The first step of Adam moves each weight by lr, whatever its gradient's size;
 * decay acts on matrices only. */
Test(optim, first_step)
{
	struct gpt_optim_config c = GPT_OPTIM_CONFIG_INIT;
	struct gpt_model *m = gpt_model_create(&tiny, 1, gpt_kernels_best(), NULL);
	const size_t n = gpt_param_count(&tiny);
	const struct gpt_tensor *t;
	struct gpt_optim *o;
	double norm;
	int count;

	c.lr = 0.01;
	c.weight_decay = 0.5;
	c.clip = 1;
	c.total_steps = 100;
	o = gpt_optim_create(m, &c);
	for (size_t i = 0; i < n; i++) {
		gpt_model_params(m)[i] = 2;
		gpt_model_grads(m)[i] = i % 2 ? 3 : -3;
	}
	norm = gpt_optim_step(o, m); /* the macro would call it twice */
	cr_assert_float_eq(norm, 3 * sqrt((double)n), 1e-3);
	t = gpt_model_tensors(m, &count);
	for (int i = 0; i < count; i++)
		for (size_t j = t[i].offset; j < t[i].offset + t[i].count; j++) {
			double want = 2 - 0.01 * (j % 2 ? 1 : -1) - (t[i].decay ? 0.01 * 0.5 * 2 : 0);

			cr_assert_float_eq(gpt_model_params(m)[j], want, 1e-4, "%s", t[i].name);
		}
	gpt_optim_destroy(&o);
	gpt_model_destroy(&m);
}

/* With momentum off, a step is lr * g / |g| of the clipped gradient. */
Test(optim, clips_and_survives_infinity)
{
	struct gpt_optim_config c = GPT_OPTIM_CONFIG_INIT;
	struct gpt_model *m = gpt_model_create(&tiny, 1, gpt_kernels_best(), NULL);
	struct gpt_optim *o;
	double norm;

	/* eps so large that the update is lr * g / eps: its size shows the clipping. */
	c = (struct gpt_optim_config){.lr = 1, .eps = 1e6, .clip = 1, .total_steps = 10, .floor = 1};
	o = gpt_optim_create(m, &c);
	gpt_model_grads(m)[5] = 30;
	gpt_model_grads(m)[6] = 40;
	norm = gpt_optim_step(o, m);
	cr_assert_float_eq(norm, 50, 1e-9);
	cr_assert_float_eq(gpt_model_params(m)[5] * -1e6, 0.6, 1e-5);
	cr_assert_float_eq(gpt_model_params(m)[6] * -1e6, 0.8, 1e-5);
	gpt_model_grads(m)[6] = INFINITY;
	norm = gpt_optim_step(o, m);
	cr_assert(!isfinite(norm));
	cr_assert_float_eq(gpt_model_params(m)[5] * -1e6, 0.6, 1e-5);
	gpt_optim_destroy(&o);
	gpt_model_destroy(&m);
}

Test(model, layout_fills_the_arena)
{
	static const struct gpt_shape shapes[] = {{2, 1, 1, 1, 1}, {97, 128, 4, 4, 128}, {50257, 1024, 12, 12, 768}};

	for (int s = 0; s < 2; s++) {
		struct gpt_model *m = gpt_model_create(&shapes[s], 1, gpt_kernels_best(), NULL);
		size_t next = 0;
		int count;
		const struct gpt_tensor *t = gpt_model_tensors(m, &count);

		for (int i = 0; i < count; i++) {
			cr_assert_eq(t[i].offset, next);
			next += t[i].count;
		}
		cr_assert_eq(next, gpt_param_count(&shapes[s]));
		gpt_model_destroy(&m);
	}
	/* GPT-2's smallest has 124 million. */
	cr_assert_eq(gpt_param_count(&shapes[2]), 124439808);
}

/* Matrices and embeddings decay; gains and biases do not. */
Test(model, what_decays)
{
	struct gpt_model *m = gpt_model_create(&tiny, 1, gpt_kernels_best(), NULL);
	int count, decaying = 0;
	const struct gpt_tensor *t = gpt_model_tensors(m, &count);

	for (int i = 0; i < count; i++) {
		cr_assert_eq(t[i].decay, !strstr(t[i].name, "gain") && !strstr(t[i].name, "bias"), "%s", t[i].name);
		decaying += t[i].decay;
	}
	cr_assert_eq(decaying, 2 + 4 * tiny.layers);
	gpt_model_destroy(&m);
}

Test(model, impossible_shapes_are_refused)
{
	cr_assert_not_null(gpt_shape_problem(&(struct gpt_shape){1, 8, 1, 1, 8}));
	cr_assert_not_null(gpt_shape_problem(&(struct gpt_shape){8, 0, 1, 1, 8}));
	cr_assert_not_null(gpt_shape_problem(&(struct gpt_shape){8, 8, 1, 3, 8}));
	cr_assert_null(gpt_model_create(&(struct gpt_shape){8, 8, 1, 3, 8}, 1, gpt_kernels_best(), NULL));
	cr_assert_null(gpt_shape_problem(&tiny));
}

Test(model, same_seed_same_weights)
{
	struct gpt_model *a = gpt_model_create(&tiny, 1, gpt_kernels_best(), NULL);
	struct gpt_model *b = gpt_model_create(&tiny, 3, &gpt_kernels_scalar, NULL);
	const size_t bytes = gpt_param_count(&tiny) * sizeof(gpt_real);

	gpt_model_init(a, 3);
	gpt_model_init(b, 3);
	cr_assert_eq(memcmp(gpt_model_params(a), gpt_model_params(b), bytes), 0);
	gpt_model_init(b, 4);
	cr_assert_neq(memcmp(gpt_model_params(a), gpt_model_params(b), bytes), 0);
	gpt_model_destroy(&a);
	gpt_model_destroy(&b);
}

/* Sequences that count modulo the vocabulary: 30 steps must learn a good part. */
static double learn(struct gpt_model *m, int steps, double *before)
{
	struct gpt_optim_config c = GPT_OPTIM_CONFIG_INIT;
	int32_t tokens[64], targets[64];
	struct gpt_optim *o;
	double first = 0, last = 0;

	c.total_steps = steps;
	c.lr = 1e-2;
	o = gpt_optim_create(m, &c);
	for (int s = 0; s < steps; s++) {
		for (int i = 0; i < 64; i++) {
			tokens[i] = (int32_t)((gpt_random(9, (uint64_t)(s * 8 + i / 8)) + (uint64_t)i % 8) % 17);
			targets[i] = (tokens[i] + 1) % 17;
		}
		gpt_model_zero_grads(m);
		last = gpt_model_train(m, tokens, targets, 8, 8, 1.0f / 64) / 64;
		first = s ? first : last;
		gpt_optim_step(o, m);
	}
	gpt_optim_destroy(&o);
	*before = first;
	return last;
}

Test(model, loss_falls)
{
	struct gpt_model *m = gpt_model_create(&tiny, 8, gpt_kernels_best(), NULL);
	gpt_real logits[17];
	double before, after;

	gpt_model_init(m, 1);
	after = learn(m, 30, &before);
	cr_assert_float_eq(before, log(17), 0.2);
	cr_assert_lt(after, 0.7 * before);
	learn(m, 200, &before);
	gpt_model_predict(m, (const int32_t[]){4, 5, 6}, 3, logits);
	cr_assert_eq(gpt_pick_token(logits, 17, 0, 0, 0.5), 7);
	gpt_model_destroy(&m);
}

/* What comes later in a sequence must not change the loss of what came before. */
Test(model, is_causal)
{
	struct gpt_model *m = gpt_model_create(&tiny, 1, gpt_kernels_best(), NULL);
	gpt_real a[17], b[17];
	int32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	double before;

	gpt_model_init(m, 1);
	before = gpt_model_loss(m, tokens, tokens + 1, 1, 4);
	tokens[5] = 0;
	cr_assert_eq(gpt_model_loss(m, tokens, tokens + 1, 1, 4), before);
	gpt_model_predict(m, tokens, 3, a);
	gpt_model_predict(m, tokens + 1, 3, b);
	cr_assert_gt(distance(a, b, 17), 1e-6);
	gpt_model_destroy(&m);
}

Test(generate, picks)
{
	const gpt_real logits[5] = {0, 2, 1, -1, 2.5f};
	int count[5] = {0};
	double weight[5], sum = 0;

	for (int i = 0; i < 5; i++)
		sum += weight[i] = exp(logits[i] / 0.5);
	for (int i = 0; i < 20000; i++) {
		gpt_real x[5];
		int top2;

		memcpy(x, logits, sizeof(x));
		cr_assert_eq(gpt_pick_token(x, 5, 0, 0, gpt_uniform(1, i)), 4);
		memcpy(x, logits, sizeof(x));
		top2 = gpt_pick_token(x, 5, 2, 2, gpt_uniform(1, i));
		cr_assert(top2 == 4 || top2 == 1);
		memcpy(x, logits, sizeof(x));
		count[gpt_pick_token(x, 5, 0.5, 0, gpt_uniform(1, i))]++;
	}
	for (int i = 0; i < 5; i++)
		cr_assert_float_eq(count[i] / 20000.0, weight[i] / sum, 0.015, "token %d", i);
}

struct text {
	uint8_t bytes[64];
	int count;
};

static void append(void *arg, uint8_t byte)
{
	struct text *t = arg;

	t->bytes[t->count++] = byte;
}

Test(generate, runs_past_the_context_and_repeats_itself)
{
	const struct gpt_shape shape = {3, 4, 1, 1, 4};
	struct gpt_model *m = gpt_model_create(&shape, 1, gpt_kernels_best(), NULL);
	const struct gpt_generate g = {20, 1, 0, 5, false}, slow = {20, 1, 0, 5, true};
	struct gpt_tokenizer t;
	struct text a = {.count = 0}, b = {.count = 0};

	gpt_tokenizer_init(&t, GPT_VOCAB_CHAR, (const uint8_t *)"abc", 3);
	gpt_model_init(m, 1);
	cr_assert_eq(gpt_generate(m, &t, &g, "abcabcab?", append, &a), 0);
	cr_assert_eq(gpt_generate(m, &t, &g, "abcabcab?", append, &b), 0);
	cr_assert_eq(a.count, 20);
	cr_assert_eq(memcmp(a.bytes, b.bytes, 20), 0);
	b.count = 0;
	cr_assert_eq(gpt_generate(m, &t, &slow, "abcabcab?", append, &b), 0);
	cr_assert_eq(memcmp(a.bytes, b.bytes, 20), 0);
	cr_assert_eq(gpt_generate(m, &t, &g, "", append, &a), 0);
	gpt_model_destroy(&m);
}

/* Flip each of some bytes of a checkpoint: none may be taken for whole. */
static void check_damage(const char *path)
{
	struct gpt_checkpoint c;
	FILE *f = fopen(path, "r+b");
	long len;

	fseek(f, 0, SEEK_END);
	len = ftell(f);
	for (long at = 0; at < len; at += 97) {
		int byte;

		fseek(f, at, SEEK_SET);
		byte = fgetc(f);
		fseek(f, at, SEEK_SET);
		fputc(byte ^ 4, f);
		fflush(f);
		cr_assert_eq(gpt_checkpoint_read(path, &c), -1, "byte %ld", at);
		fseek(f, at, SEEK_SET);
		fputc(byte, f);
		fflush(f);
	}
	for (long left = len - 1; left >= 0; left = left ? left / 3 : -1) {
		cr_assert_eq(ftruncate(fileno(f), left), 0);
		errno = 0;
		cr_assert_eq(gpt_checkpoint_read(path, &c), -1, "cut to %ld", left);
		cr_assert_eq(errno, EILSEQ);
	}
	fclose(f);
}

/* As earlier versions did. */
static int write_checkpoint(const char *path, struct gpt_model *m, const struct gpt_tokenizer *t, uint64_t step)
{
	const struct gpt_shape *s = gpt_model_shape(m);
	struct {
		char magic[8];
		uint32_t numbers[8];
		uint64_t step, weight_count, signature, ranks, extra_bytes;
		uint8_t byte_of[256];
	} h = {"",
	       {t->vocab, (uint32_t)s->vocab, (uint32_t)s->context, (uint32_t)s->layers, (uint32_t)s->heads,
	        (uint32_t)s->width, (uint32_t)t->size, 1},
	       step,
	       gpt_param_count(s)};
	const size_t len_bytes = h.weight_count * sizeof(float);
	uint64_t sum;
	FILE *f = fopen(path, "w");
	bool good;

	memcpy(h.magic, "collgpt3", sizeof(h.magic));
	memcpy(h.byte_of, t->byte_of, sizeof(h.byte_of));
	sum = gpt_checksum(gpt_checksum(gpt_checksum(0, &h, sizeof(h)), gpt_model_params(m), len_bytes), "", 0);
	good = f && fwrite(&h, sizeof(h), 1, f) == 1 && fwrite(gpt_model_params(m), len_bytes, 1, f) == 1 &&
	       fwrite(&sum, sizeof(sum), 1, f) == 1;
	return f && fclose(f) == 0 && good ? 0 : -1;
}

Test(checkpoint, reads_what_was_written_and_nothing_else)
{
	struct gpt_model *m = gpt_model_create(&tiny, 1, gpt_kernels_best(), NULL);
	const size_t bytes = gpt_param_count(&tiny) * sizeof(float);
	char path[64];
	struct gpt_tokenizer t;
	struct gpt_checkpoint c;

	snprintf(path, sizeof(path), "/tmp/gpt_checkpoint_test.%d", (int)getpid());
	gpt_model_init(m, 1);
	gpt_tokenizer_init(&t, GPT_VOCAB_CHAR, (const uint8_t *)"abcdefghijklmnopq", 17);
	cr_assert_eq(write_checkpoint(path, m, &t, 99), 0);
	cr_assert_eq(gpt_checkpoint_read(path, &c), 0);
	cr_assert_eq(memcmp(&c.shape, &tiny, sizeof(tiny)), 0);
	cr_assert_eq(c.step, 99);
	cr_assert_eq(c.tokenizer.size, 17);
	cr_assert_eq(memcmp(c.tokenizer.token_of, t.token_of, sizeof(t.token_of)), 0);
	cr_assert_eq(memcmp(c.weights, gpt_model_params(m), bytes), 0);
	gpt_checkpoint_free(&c);
	check_damage(path);
	unlink(path);
	cr_assert_eq(gpt_checkpoint_read("/nonexistent/dir/x", &c), -1);
	cr_assert_eq(errno, ENOENT);
	gpt_model_destroy(&m);
}

Test(blas, mends_only_what_is_slow)
{

	cr_assert_str_eq(gpt_blas_mend("Prescott", true, true), "SkylakeX");
	cr_assert_str_eq(gpt_blas_mend("Sandybridge", true, false), "Haswell");
	cr_assert_null(gpt_blas_mend("Haswell", true, true));
	cr_assert_null(gpt_blas_mend("Cooperlake", true, true));
	cr_assert_null(gpt_blas_mend("Prescott", false, false));
}
