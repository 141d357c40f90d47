/*
 * --init: a run begins with the model of a directory. Shape, vocabulary and tokenizer come from there, and flags that
 * contradict it are refused. Rank 0 alone reads it; the weights reach the others as those of any run do.
 */
#include "ddp_gpt_job.h"
#include "gpt/formats/hf.h"
#include <stdlib.h>
#include <string.h>

/* What rank 0 gives to all. */
struct given {
	struct gpt_shape shape;
	int32_t any, has_tokenizer;
};

static int check_flag(struct job *j, const char *name, long is, long wanted)
{
	if (!options_given(&j->o, name) || is == wanted)
		return 0;
	return job_note(j, "--%s %ld: the model of --init has %ld", name, is, wanted);
}

static void read_shape(struct job *j, struct given *g)
{
	const struct options *o = &j->o;
	char why[4096 + 256];
	struct gpt_hf hf;

	if (gpt_hf_read(o->init, false, &hf, why, sizeof(why))) {
		job_note(j, "--init: %s", why);
		return;
	}
	*g = (struct given){hf.shape, true, hf.has_tokenizer};
	j->tokenizer = hf.tokenizer;
	if (check_flag(j, "layers", o->layers, hf.shape.layers) || check_flag(j, "width", o->width, hf.shape.width) ||
	    check_flag(j, "heads", o->heads, hf.shape.heads) || check_flag(j, "context", o->context, hf.shape.context))
		return;
	if (hf.has_tokenizer && (options_given(o, "vocab") || o->tokenizer))
		job_note(j, "--%s: the tokenizer of --init counts", o->tokenizer ? "tokenizer" : "vocab");
	else if (options_given(o, "vocab-size") && o->vocab_size < hf.shape.vocab)
		job_note(j, "--vocab-size %ld is less than the %d tokens of --init", o->vocab_size, hf.shape.vocab);
}

int job_init_shape(struct job *j)
{
	struct given g = {0};

	if (j->rank == 0 && j->o.init)
		read_shape(j, &g);
	if (job_agree(j) || job_check(j, coll_broadcast(&g, &g, sizeof(g), COLL_U8, 0, j->comm, NULL)))
		return -1;
	if (!g.any)
		return 0;
	j->o.layers = g.shape.layers;
	j->o.width = g.shape.width;
	j->o.heads = g.shape.heads;
	j->o.context = g.shape.context;
	if (j->o.vocab_size < g.shape.vocab)
		j->o.vocab_size = g.shape.vocab;
	j->init_tokenizer = g.has_tokenizer;
	return options_check(&j->o) ? job_refuse(j, "%s", j->o.problem) : 0;
}

/* Rank 0 sends the text of the file. */
int job_share_tokenizer(struct job *j)
{
	char why[4096 + 256], *text = NULL;
	uint64_t len = 0;

	if (j->rank == 0 && j->o.tokenizer && !j->init_tokenizer) {
		const int rc = gpt_hf_read_tokenizer(j->o.tokenizer, &j->tokenizer, why, sizeof(why));

		if (rc > 0)
			job_note(j, "--tokenizer: %s has none", j->o.tokenizer);
		else if (rc)
			job_note(j, "--tokenizer: %s", why);
		else
			j->init_tokenizer = true;
	}
	if (j->rank == 0 && j->init_tokenizer && !(text = gpt_hf_tokenizer_text(&j->tokenizer)))
		job_note(j, "not enough memory for the tokenizer");
	len = text ? strlen(text) : 0;
	if (job_agree(j) || job_check(j, coll_broadcast(&len, &len, 1, COLL_U64, 0, j->comm, NULL))) {
		free(text);
		return -1;
	}
	if (len == 0)
		return 0;
	if (j->rank)
		text = malloc(len);
	if (job_check_memory(j, text != NULL) ||
	    job_check(j, coll_broadcast(text, text, len, COLL_U8, 0, j->comm, NULL))) {
		free(text);
		return -1;
	}
	if (j->rank && gpt_hf_parse_tokenizer("tokenizer", text, len, &j->tokenizer, why, sizeof(why)))
		job_note(j, "%s", why);
	j->init_tokenizer = true;
	free(text);
	return job_agree(j);
}

int job_init_weights(struct job *j)
{
	char why[4096 + 256];
	struct gpt_hf hf = {0};

	if (j->rank == 0 && j->o.init) {
		if (gpt_hf_read(j->o.init, true, &hf, why, sizeof(why)))
			job_note(j, "--init: %s", why);
		else
			/* Rows of tokens that the file has not are the last of the arena. */
			memcpy(j->weights, hf.weights, gpt_param_count(&hf.shape) * sizeof(float));
		free(hf.weights);
		gpt_tokenizer_free(&hf.tokenizer);
	}
	return job_agree(j);
}
