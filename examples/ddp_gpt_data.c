/*
 * Data of a run. Rank 0 lists the files and reads texts, which it sends to the others; files of tokens are mapped by
 * every rank, and compared. Then all ranks hold the same sources, and nothing is exchanged any more.
 */
#include "ddp_gpt_data.h"
#include "ddp_gpt_out.h"
#include "ddp_gpt_readers.h"
#include "ddp_gpt_sources.h"
#include "gpt/dataset.h"
#include "gpt/formats/crc32c.h"
#include "gpt/formats/json.h"
#include "gpt/formats/token_file.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TEXT_MOST ((size_t)64 << 20)

/* What rank 0 tells of each file. */
struct file {
	int32_t source; /* those of --data, then those of --val-data */
	int32_t mapped;
	uint64_t len_bytes, documents; /* of a text */
	uint32_t crc32c;
	double weight;
	char path[PATH_MAX];
};

struct data {
	struct file *files;
	uint64_t count; /* of files */
	int train_sources, sources;
	struct texts texts; /* until they are encoded */
	struct reader_options reading;
	struct gpt_segment *segments; /* by file, as the next two */
	int32_t **tokens;
	uint64_t **ends; /* of texts: where the tokens of each document end */
	struct gpt_token_file *maps;
	struct gpt_source *train_of, *val_of;
	struct gpt_span **documents; /* by source, of --documents apart */
	struct gpt_dataset train, val;
};

/* ---- Listing, on rank 0 ------------------------------------------------------------------ */

static struct file *add_file(struct data *d, const char *path, int source, double weight)
{
	struct file *grown = realloc(d->files, (d->count + 1) * sizeof(*grown)), *f;

	if (!grown)
		return NULL;
	d->files = grown;
	f = &grown[d->count];
	memset(f, 0, sizeof(*f));
	f->source = source;
	f->weight = weight;
	if (!realpath(path, f->path) && (size_t)snprintf(f->path, sizeof(f->path), "%s", path) >= sizeof(f->path))
		return NULL;
	d->count++;
	return f;
}

/* All of its documents; the stories if path is NULL. */
static int read_text(struct job *j, const struct reader *r, struct file *f, const char *path)
{
	struct texts *t = &j->data->texts;
	const size_t from = t->len_bytes, documents = t->count;
	char why[PATH_MAX + 256];

	if (r->read(t, path, &j->data->reading, why, sizeof(why)))
		return job_note(j, "%s", why);
	f->len_bytes = t->len_bytes - from;
	f->documents = t->count - documents;
	f->crc32c = gpt_crc32c(0, t->bytes + from, f->len_bytes);
	if (t->len_bytes > TEXT_MOST)
		return job_note(j,
		                "--data %s: more than 64 MiB of text: make a file of tokens of it, once: "
		                "ddp_gpt tokenize --tokenizer PATH --to FILE.bin %s",
		                path, path);
	return 0;
}

static int list_file(struct job *j, const char *path, int source, double weight)
{
	const struct reader *r = reader_find(path);
	struct file *f = add_file(j->data, path ? path : "stories", source, weight);

	if (!f)
		return job_note(j, "--data %s: %s", path, strerror(errno));
	f->mapped = !r->read;
	return f->mapped ? 0 : read_text(j, r, f, path);
}

static int list_sources(struct job *j, const struct option_list *list, int first)
{
	char why[PATH_MAX + 256];

	for (int i = 0; i < list->count; i++) {
		struct source_files files;
		int rc = 0;

		if (source_expand(list->at[i], &files, why, sizeof(why)))
			return job_note(j, "%s", why);
		for (int k = 0; k < files.count && !rc; k++)
			rc = list_file(j, files.paths[k], first + i, files.weight);
		source_free(&files);
		if (rc)
			return rc;
	}
	return 0;
}

static void list_all(struct job *j)
{
	const int stories = j->o.data.count == 0;

	if ((stories && list_file(j, NULL, 0, 1)) || list_sources(j, &j->o.data, 0))
		return;
	list_sources(j, &j->o.val_data, stories ? 1 : (int)j->o.data.count);
}

/* ---- Sharing -------------------------------------------------------------------------------- */

static int share_texts(struct job *j)
{
	struct texts *t = &j->data->texts;
	uint64_t counts[2] = {t->len_bytes, t->count};

	if (job_check(j, coll_broadcast(counts, counts, 2, COLL_U64, 0, j->comm, NULL)))
		return -1;
	if (j->rank) {
		t->bytes = malloc(counts[0] + 1);
		t->ends = malloc((counts[1] + 1) * sizeof(*t->ends));
		t->len_bytes = counts[0];
		t->count = counts[1];
	}
	if (job_check_memory(j, (t->bytes && t->ends) || !counts[1]))
		return -1;
	return job_check(j, coll_broadcast(t->bytes, t->bytes, counts[0], COLL_U8, 0, j->comm, NULL)) ||
	       job_check(j, coll_broadcast(t->ends, t->ends, counts[1], COLL_U64, 0, j->comm, NULL));
}

static int share_files(struct job *j)
{
	struct data *d = j->data;

	if (job_agree(j) || job_check(j, coll_broadcast(&d->count, &d->count, 1, COLL_U64, 0, j->comm, NULL)))
		return -1;
	if (j->rank)
		d->files = calloc(d->count, sizeof(*d->files));
	d->segments = calloc(d->count, sizeof(*d->segments));
	d->tokens = calloc(d->count, sizeof(*d->tokens));
	d->ends = calloc(d->count, sizeof(*d->ends));
	d->maps = calloc(d->count, sizeof(*d->maps));
	if (job_check_memory(j, d->files && d->segments && d->tokens && d->ends && d->maps))
		return -1;
	if (job_check(j, coll_broadcast(d->files, d->files, d->count * sizeof(*d->files), COLL_U8, 0, j->comm, NULL)))
		return -1;
	d->sources = d->files[d->count - 1].source + 1;
	return share_texts(j);
}

/* Every host has the same files. */
static int map_files(struct job *j)
{
	struct data *d = j->data;
	char why[PATH_MAX + 256];

	for (uint64_t i = 0; i < d->count; i++) {
		struct file *f = &d->files[i];
		struct gpt_token_file *map = &d->maps[i];

		if (!f->mapped)
			continue;
		if (gpt_token_file_open(map, f->path, (int)j->o.token_bytes, why, sizeof(why))) {
			job_note(j, "--data: %s", why);
			continue;
		}
		d->segments[i] =
		        (struct gpt_segment){map->tokens, map->token_bytes, map->count, f->path, map->at_bytes};
		f->len_bytes = map->map_bytes;
		f->crc32c = gpt_token_file_crc32c(map);
	}
	return job_agree(j);
}

static int compare_files(struct job *j)
{
	struct data *d = j->data;
	uint32_t *first = malloc(d->count * sizeof(*first));
	int rc = job_check_memory(j, first != NULL);

	for (uint64_t i = 0; i < d->count && !rc; i++)
		first[i] = d->files[i].crc32c;
	if (!rc)
		rc = job_check(j, coll_broadcast(first, first, d->count, COLL_U32, 0, j->comm, NULL));
	for (uint64_t i = 0; i < d->count && !rc; i++)
		if (first[i] != d->files[i].crc32c)
			job_note(j, "--data: %s differs from that of rank 0", d->files[i].path);
	free(first);
	return rc ? rc : job_agree(j);
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

/* The vocabulary of the text, if there is no other. */
static int make_vocabulary(struct job *j)
{
	const struct texts *t = &j->data->texts;
	uint8_t distinct[256];
	bool used[256] = {false};
	int n = 0;

	if (j->init_tokenizer) {
		j->tokenizer.special = j->o.special;
		return 0;
	}
	for (uint64_t i = 0; i < j->data->count && j->o.vocab == GPT_VOCAB_CHAR; i++)
		if (j->data->files[i].mapped)
			return job_refuse(j, "--data %s: tokens of what? Name --tokenizer, --init or --vocab byte",
			                  j->data->files[i].path);
	for (size_t i = 0; i < t->len_bytes; i++)
		used[t->bytes[i]] = true;
	for (int b = 0; b < 256; b++)
		if (used[b])
			distinct[n++] = (uint8_t)b;
	gpt_tokenizer_init(&j->tokenizer, (enum gpt_vocab)j->o.vocab, distinct, (size_t)n);
	return j->tokenizer.size < 2 ? job_refuse(j, "the text is one byte repeated: nothing to learn") : 0;
}

/* The documents of a text, the end token behind each. */
static int encode_file(struct job *j, uint64_t file, size_t document, size_t at)
{
	struct data *d = j->data;
	const struct file *f = &d->files[file];
	const int32_t end = j->tokenizer.end;
	int32_t *tokens = malloc((f->len_bytes + f->documents + 1) * sizeof(*tokens)), *less;
	uint64_t count = 0;

	d->tokens[file] = tokens;
	d->ends[file] = malloc((f->documents + 1) * sizeof(*d->ends[file]));
	for (uint64_t i = 0; i < f->documents && tokens && d->ends[file]; i++) {
		const size_t to = d->texts.ends[document + i];
		const long n = gpt_tokenizer_encode(&j->tokenizer, d->texts.bytes + at, to - at, tokens + count);

		if (n < 0)
			return -1;
		count += (uint64_t)n;
		if (end >= 0)
			tokens[count++] = end;
		d->ends[file][i] = count;
		at = to;
	}
	less = tokens && d->ends[file] ? realloc(tokens, (count + 1) * sizeof(*tokens)) : NULL;
	if (!less)
		return -1;
	d->tokens[file] = less;
	d->segments[file] = (struct gpt_segment){less, 4, count, f->path, 0};
	return 0;
}

static int encode_all(struct job *j)
{
	struct data *d = j->data;
	size_t document = 0, at = 0, left_out = 0;
	bool have = true;

	if (make_vocabulary(j))
		return -1;
	for (uint64_t i = 0; i < d->count && have; i++) {
		const struct file *f = &d->files[i];

		if (f->mapped)
			continue;
		have = encode_file(j, i, document, at) == 0;
		document += f->documents;
		at += f->len_bytes;
		left_out += f->len_bytes - (have ? d->segments[i].count : 0);
	}
	free(d->texts.bytes);
	free(d->texts.ends);
	d->texts = (struct texts){0};
	if (job_check_memory(j, have))
		return -1;
	if (left_out && j->rank == 0 && !j->tokenizer.bpe)
		printf("ddp_gpt: %zu bytes of the text are not in the vocabulary of --init and left out\n", left_out);
	if (j->o.vocab_size && j->o.vocab_size < j->tokenizer.size)
		return job_refuse(j, "--vocab-size %ld is less than the %d tokens of the text", j->o.vocab_size,
		                  j->tokenizer.size);
	return 0;
}

/* ---- Sources ---------------------------------------------------------------------------------- */

/* --stride auto: texts are read from everywhere, files of tokens window by window. */
static int stride_of(const struct job *j, bool mapped)
{
	const bool everywhere = j->o.stride == STRIDE_AUTO ? !mapped : j->o.stride == STRIDE_1;

	return everywhere ? 1 : (int)j->o.context;
}

/* ---- Documents, for --documents apart -------------------------------------------------------- */

struct spans {
	struct gpt_span *at;
	uint64_t count, room;
};

/* What has no target is no document. */
static int add_span(struct spans *s, uint64_t first, uint64_t end)
{
	if (end - first < 2)
		return 0;
	if (s->count == s->room) {
		const uint64_t room = s->room ? 2 * s->room : 256;
		struct gpt_span *grown = realloc(s->at, room * sizeof(*grown));

		if (!grown)
			return -1;
		s->at = grown;
		s->room = room;
	}
	s->at[s->count++] = (struct gpt_span){first, end};
	return 0;
}

/* A document ends with the end token, or with its file. */
static int find_ends(const struct gpt_segment *s, int end, uint64_t from, struct spans *spans)
{
	uint64_t first = 0;
	int rc = 0;

	for (uint64_t i = 0; i < s->count && !rc; i++)
		if (gpt_token_at(s->tokens, s->token_bytes, i) == end) {
			rc = add_span(spans, from + first, from + i + 1);
			first = i + 1;
		}
	return rc || add_span(spans, from + first, from + s->count) ? -1 : 0;
}

/* Of a text it is known where they end, whatever the vocabulary. */
static int add_known_ends(const struct data *d, uint64_t file, uint64_t from, struct spans *spans)
{
	uint64_t first = 0;
	int rc = 0;

	for (uint64_t i = 0; i < d->files[file].documents && !rc; i++) {
		rc = add_span(spans, from + first, from + d->ends[file][i]);
		first = d->ends[file][i];
	}
	return rc;
}

static int find_documents(struct job *j, int source, struct gpt_source *s)
{
	struct data *d = j->data;
	const uint64_t first = (uint64_t)(s->segments - d->segments);
	struct spans spans = {0};
	uint64_t from = 0;
	int rc = 0;

	for (uint64_t i = first; i < first + (uint64_t)s->segment_count && !rc; i++) {
		rc = d->ends[i] ? add_known_ends(d, i, from, &spans)
		                : find_ends(&d->segments[i], j->tokenizer.end, from, &spans);
		from += d->segments[i].count;
	}
	d->documents[source] = spans.at;
	s->documents = spans.at;
	s->count = spans.count;
	return rc;
}

static struct gpt_source source_at(const struct job *j, uint64_t *file)
{
	const struct data *d = j->data;
	const struct file *f = &d->files[*file];
	struct gpt_source s = {.segments = &d->segments[*file], .weight = f->weight, .stride = stride_of(j, f->mapped)};

	for (const int source = f->source; *file < d->count && d->files[*file].source == source; (*file)++) {
		s.segment_count++;
		s.count += d->segments[*file].count;
	}
	return s;
}

/* With --val-data all of --data is learned, else the last tenth of each source is kept back. */
static void cut_validation(struct data *d, int sources_of_data)
{
	for (int i = 0; i < sources_of_data && d->sources == sources_of_data; i++) {
		d->val_of[i] = d->train_of[i];
		d->val_of[i].count = d->train_of[i].count / 10;
		d->train_of[i].count -= d->val_of[i].count;
		d->val_of[i].from = d->train_of[i].count;
	}
	d->train.sources = d->train_of;
	d->train.source_count = sources_of_data;
	d->val.sources = d->sources == sources_of_data ? d->val_of : d->train_of + sources_of_data;
	d->val.source_count = d->sources == sources_of_data ? sources_of_data : d->sources - sources_of_data;
}

static const char *name_of(const struct data *d, int source)
{
	const struct file *f = d->files;

	while (f->source != source)
		f++;
	return f->path;
}

static int open_sets(struct job *j)
{
	struct data *d = j->data;
	const long least = j->o.context + 1;
	int short_one = 0;

	d->train.seed = (uint64_t)j->o.seed;
	d->train.context = d->val.context = (int)j->o.context;
	if (gpt_dataset_open(&d->train, &short_one) == 0 && gpt_dataset_plain_count(&d->val))
		return 0;
	if (j->o.documents == DOCUMENTS_APART)
		return job_refuse(j, "%s has too few documents: ten of two tokens and more, or name --val-data",
		                  name_of(d, short_one));
	if (d->sources != d->train.source_count)
		return job_refuse(j, "%s has too few tokens: --context %ld needs %ld in --data and in --val-data",
		                  name_of(d, short_one), j->o.context, least);
	return job_refuse(j,
	                  "%s has %llu tokens; a tenth of it must hold --context %ld plus one: at least %ld tokens, or "
	                  "name --val-data",
	                  name_of(d, short_one),
	                  (unsigned long long)(d->train_of[short_one].count + d->val_of[short_one].count), j->o.context,
	                  10 * least);
}

static int make_sources(struct job *j)
{
	struct data *d = j->data;
	bool have = true;
	uint64_t file = 0;

	d->train_of = calloc((size_t)d->sources, sizeof(*d->train_of));
	d->val_of = calloc((size_t)d->sources, sizeof(*d->val_of));
	d->documents = calloc((size_t)d->sources, sizeof(*d->documents));
	if (job_check_memory(j, d->train_of && d->val_of && d->documents))
		return -1;
	for (int i = 0; i < d->sources; i++) {
		d->train_of[i] = source_at(j, &file);
		if (j->o.documents == DOCUMENTS_APART && find_documents(j, i, &d->train_of[i]))
			have = false;
	}
	if (job_check_memory(j, have))
		return -1;
	cut_validation(d, d->train_sources);
	return open_sets(j);
}

int job_open_data(struct job *j)
{
	int32_t train_sources = j->o.data.count ? (int32_t)j->o.data.count : 1;

	j->data = calloc(1, sizeof(*j->data));
	if (job_check_memory(j, j->data != NULL) ||
	    job_check(j, coll_broadcast(&train_sources, &train_sources, 1, COLL_I32, 0, j->comm, NULL)))
		return -1;
	j->data->train_sources = train_sources;
	j->data->reading = (struct reader_options){j->o.field, j->o.skip_bad, false};
	if (j->rank == 0)
		list_all(j);
	if (share_files(j) || map_files(j) || compare_files(j) || encode_all(j))
		return -1;
	return make_sources(j);
}

void job_close_data(struct job *j)
{
	struct data *d = j->data;

	j->data = NULL;
	if (!d)
		return;
	for (uint64_t i = 0; i < d->count && d->tokens && d->ends && d->maps; i++) {
		free(d->tokens[i]);
		free(d->ends[i]);
		gpt_token_file_close(&d->maps[i]);
	}
	free(d->files);
	free(d->texts.bytes);
	free(d->texts.ends);
	free(d->segments);
	free(d->tokens);
	free(d->ends);
	free(d->maps);
	for (int i = 0; i < d->sources && d->documents; i++)
		free(d->documents[i]);
	free(d->documents);
	free(d->train_of);
	free(d->val_of);
	free(d);
}

/* ---- Sequences ------------------------------------------------------------------------------- */

uint64_t job_windows(const struct job *j)
{
	return j->data->train.windows;
}

static uint64_t tokens_of(const struct gpt_dataset *d)
{
	uint64_t n = 0;

	for (int i = 0; i < d->source_count; i++) {
		const struct gpt_source *s = &d->sources[i];

		for (uint64_t k = 0; k < s->count && s->documents; k++)
			n += s->documents[s->from + k].end - s->documents[s->from + k].first;
		n += s->documents ? 0 : s->count;
	}
	return n;
}

uint64_t job_train_tokens(const struct job *j)
{
	return tokens_of(&j->data->train);
}

uint64_t job_val_tokens(const struct job *j)
{
	return tokens_of(&j->data->val);
}

/* Its tokens to the inputs, and one place on to the targets. Behind it nothing is to be learned. */
static int copy(struct job *j, int place, int padded, const struct gpt_dataset *d, const struct gpt_window *w)
{
	const size_t len = (size_t)w->count - 1, row = (size_t)place * (size_t)padded;
	int32_t *inputs = j->inputs + row, *targets = j->targets + row;
	struct gpt_bad_token bad;

	if (gpt_dataset_copy(d, w, j->tokenizer.size, j->window, &bad))
		return job_abort(j, "%s: offset %llu: token %lld is none of the %d of the vocabulary", bad.name,
		                 (unsigned long long)bad.at_bytes, (long long)bad.token, j->tokenizer.size);
	memcpy(inputs, j->window, len * sizeof(*inputs));
	memcpy(targets, j->window + 1, len * sizeof(*targets));
	for (size_t i = len; i < (size_t)padded; i++) {
		inputs[i] = 0;
		targets[i] = -1;
	}
	return 0;
}

int job_window_targets(const struct job *j, uint64_t q)
{
	return gpt_dataset_window(&j->data->train, q).count - 1;
}

int job_copy_window(struct job *j, int place, int len, uint64_t q)
{
	const struct gpt_window w = gpt_dataset_window(&j->data->train, q);

	return copy(j, place, len, &j->data->train, &w);
}

size_t job_val_windows(const struct job *j)
{
	const uint64_t all = gpt_dataset_plain_count(&j->data->val);

	return (size_t)(j->o.val_windows && (uint64_t)j->o.val_windows < all ? (uint64_t)j->o.val_windows : all);
}

size_t job_all_val_windows(const struct job *j)
{
	return (size_t)gpt_dataset_plain_count(&j->data->val);
}

static struct gpt_window val_window(const struct job *j, uint64_t i)
{
	return gpt_dataset_plain_window(&j->data->val,
	                                gpt_sampler_val_window(i, job_val_windows(j), job_all_val_windows(j)));
}

int job_val_window_targets(const struct job *j, uint64_t i)
{
	return val_window(j, i).count - 1;
}

int job_copy_val_window(struct job *j, int place, int len, uint64_t i)
{
	const struct gpt_window w = val_window(j, i);

	return copy(j, place, len, &j->data->val, &w);
}

/* Pages that the disk may read meanwhile. */
void job_expect_windows(const struct job *j, uint64_t first, uint64_t count)
{
	const struct gpt_dataset *d = &j->data->train;

	for (uint64_t q = first; q < first + count; q++) {
		const struct gpt_window w = gpt_dataset_window(d, q);
		const struct gpt_segment *s = d->sources[w.source].segments;
		uint64_t at = w.first;
		uintptr_t from;

		for (; at >= s->count; s++)
			at -= s->count;
		/* Of a text the bytes are in memory. */
		if (j->data->tokens[s - j->data->segments])
			continue;
		from = (uintptr_t)s->tokens + at * (uintptr_t)s->token_bytes;
		madvise((void *)(from & ~(uintptr_t)4095), (from & 4095) + (size_t)w.count * (size_t)s->token_bytes,
		        MADV_WILLNEED);
	}
}

/* ---- What they are ----------------------------------------------------------------------------- */

/* Bytes and checksum of all files of a source. */
static uint32_t crc_of(const struct data *d, int source, uint64_t *len_bytes)
{
	uint32_t crc = 0;
	int files = 0;

	*len_bytes = 0;
	for (uint64_t i = 0; i < d->count; i++) {
		const struct file *f = &d->files[i];

		if (f->source != source)
			continue;
		/* One file has its own. */
		crc = files++ ? gpt_crc32c(crc, &f->crc32c, sizeof(f->crc32c)) : f->crc32c;
		*len_bytes += f->len_bytes;
	}
	return crc;
}

json_t *job_describe_data(const struct job *j)
{
	json_t *list = json_array();

	for (int s = 0; s < j->data->train.source_count && list; s++) {
		uint64_t len_bytes;
		const uint32_t crc = crc_of(j->data, s, &len_bytes);
		const char *name = j->o.data.count ? j->o.data.at[s] : "stories";

		json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o}", "name", name, "bytes",
		                                      gpt_json_u64(len_bytes), "crc32c", out_crc32c(crc), "weight",
		                                      json_real(j->data->train.sources[s].weight)));
	}
	return list;
}

const char *job_other_data(const struct job *j, const json_t *list)
{
	const int count = j->data->train.source_count;

	for (int s = 0; s < count || s < (int)json_array_size(list); s++) {
		const json_t *was = json_array_get(list, (size_t)s), *weight = json_object_get(was, "weight");
		const char *crc = json_string_value(json_object_get(was, "crc32c"));
		const char *name = s >= count        ? json_string_value(json_object_get(was, "name"))
		                   : j->o.data.count ? j->o.data.at[s]
		                                     : "stories";
		char now[16] = "";
		uint64_t len_bytes;

		if (s < count)
			snprintf(now, sizeof(now), "%08x", crc_of(j->data, s, &len_bytes));
		if (!crc || strcmp(crc, now) != 0 ||
		    (weight && json_number_value(weight) != j->data->train.sources[s].weight))
			return name;
	}
	return NULL;
}
