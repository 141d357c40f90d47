#include "gpt/dataset.h"
#include "gpt/rng.h"
#include <assert.h>

/* Permutes the slots of a block, and offsets of epochs: keys apart from those of windows. */
#define SLOT_KEY   0x736c6f7473u
#define OFFSET_KEY 0x6f6666736574u

/* ---- Slots ---------------------------------------------------------------------------- */

/* By largest remainders, of equals the first; each source has one at least. */
static void count_slots(struct gpt_dataset *d)
{
	double sum = 0;
	int left = GPT_SLOTS;

	for (int s = 0; s < d->source_count; s++)
		sum += d->sources[s].weight;
	for (int s = 0; s < d->source_count; s++) {
		struct gpt_source *of = &d->sources[s];

		of->slots = (int)(of->weight / sum * GPT_SLOTS);
		of->slots += of->slots == 0;
		left -= of->slots;
	}
	for (; left != 0; left -= left > 0 ? 1 : -1) {
		int best = 0;
		double most = -INFINITY;

		for (int s = 0; s < d->source_count; s++) {
			const double lacks = d->sources[s].weight / sum * GPT_SLOTS - d->sources[s].slots;

			if ((left > 0 ? lacks : -lacks) > most && (left > 0 || d->sources[s].slots > 1)) {
				most = left > 0 ? lacks : -lacks;
				best = s;
			}
		}
		d->sources[best].slots += left > 0 ? 1 : -1;
	}
}

static void fill_slots(struct gpt_dataset *d)
{
	uint16_t seen[GPT_SLOTS] = {0};
	int slot = 0;

	for (int s = 0; s < d->source_count; s++)
		for (int i = 0; i < d->sources[s].slots; i++)
			d->source_of[gpt_permute(gpt_random(d->seed, SLOT_KEY), GPT_SLOTS, (uint64_t)slot++)] =
			        (uint16_t)s;
	for (int i = 0; i < GPT_SLOTS; i++)
		d->rank_of[i] = seen[d->source_of[i]]++;
}

/* ---- Sources ---------------------------------------------------------------------------- */

static uint64_t windows_of(const struct gpt_source *s, uint64_t context)
{
	if (s->documents)
		return s->count;
	if (s->count <= context)
		return 0;
	if (s->stride == 1)
		return s->count - context;
	return s->count < 2 * context ? 1 : s->count / context - 1;
}

int gpt_dataset_open(struct gpt_dataset *d, int *source)
{
	assert(d->source_count > 0 && d->source_count <= GPT_SLOTS);
	d->windows = 0;
	for (int s = 0; s < d->source_count; s++) {
		struct gpt_source *of = &d->sources[s];

		/* A source by itself has the order of the seed. */
		of->sampler = (struct gpt_sampler){s ? gpt_random(d->seed, (uint64_t)s) : d->seed,
		                                   windows_of(of, (uint64_t)d->context)};
		*source = s;
		if (of->sampler.window_count == 0)
			return -1;
		d->windows += of->sampler.window_count;
	}
	count_slots(d);
	fill_slots(d);
	return 0;
}

static struct gpt_window document(const struct gpt_dataset *d, int source, uint64_t i)
{
	const struct gpt_source *s = &d->sources[source];
	const struct gpt_span *span = &s->documents[s->from + i];
	const uint64_t count = span->end - span->first, most = (uint64_t)d->context + 1;

	return (struct gpt_window){source, (int)(count < most ? count : most), span->first};
}

/* Windows of an epoch may begin up to here: the last one must end within the source. */
static uint64_t offset_of(const struct gpt_source *s, uint64_t context, uint64_t epoch)
{
	const uint64_t room = s->count - s->sampler.window_count * context;

	return gpt_random(gpt_random(s->sampler.seed, OFFSET_KEY), epoch) % (room < context ? room : context);
}

struct gpt_window gpt_dataset_window(const struct gpt_dataset *d, uint64_t q)
{
	const int source = d->source_of[q % GPT_SLOTS];
	const struct gpt_source *s = &d->sources[source];
	const uint64_t number = q / GPT_SLOTS * (uint64_t)s->slots + d->rank_of[q % GPT_SLOTS];
	const uint64_t place = gpt_sampler_start(&s->sampler, number);
	uint64_t first = place;

	if (s->documents)
		return document(d, source, place);
	if (s->stride != 1)
		first = place * (uint64_t)d->context +
		        offset_of(s, (uint64_t)d->context, number / s->sampler.window_count);
	return (struct gpt_window){source, d->context + 1, s->from + first};
}

/* ---- Validation ---------------------------------------------------------------------------- */

static uint64_t plain_of(const struct gpt_dataset *d, const struct gpt_source *s)
{
	return s->documents ? s->count : gpt_sampler_val_windows(s->count, d->context);
}

uint64_t gpt_dataset_plain_count(const struct gpt_dataset *d)
{
	uint64_t n = 0;

	for (int s = 0; s < d->source_count; s++)
		n += plain_of(d, &d->sources[s]);
	return n;
}

struct gpt_window gpt_dataset_plain_window(const struct gpt_dataset *d, uint64_t i)
{
	int s = 0;

	for (; i >= plain_of(d, &d->sources[s]); s++)
		i -= plain_of(d, &d->sources[s]);
	if (d->sources[s].documents)
		return document(d, s, i);
	return (struct gpt_window){s, d->context + 1, d->sources[s].from + i * (uint64_t)d->context};
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

static int copy_part(const struct gpt_segment *from, uint64_t at, uint64_t n, int vocab, int32_t *out,
                     struct gpt_bad_token *bad)
{
	for (uint64_t i = 0; i < n; i++) {
		const int64_t token = gpt_token_at(from->tokens, from->token_bytes, at + i);

		if (token >= vocab) {
			*bad = (struct gpt_bad_token){from->name,
			                              from->at_bytes + (at + i) * (uint64_t)from->token_bytes, token};
			return -1;
		}
		out[i] = (int32_t)token;
	}
	return 0;
}

int gpt_dataset_copy(const struct gpt_dataset *d, const struct gpt_window *w, int vocab, int32_t *out,
                     struct gpt_bad_token *bad)
{
	const struct gpt_segment *from = d->sources[w->source].segments;
	uint64_t at = w->first, left = (uint64_t)w->count;

	for (; at >= from->count; from++)
		at -= from->count;
	for (; left; from++, at = 0) {
		const uint64_t n = left < from->count - at ? left : from->count - at;

		if (copy_part(from, at, n, vocab, out, bad))
			return -1;
		out += n;
		left -= n;
	}
	return 0;
}
