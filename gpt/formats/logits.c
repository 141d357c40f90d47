/*
 * For tests: what a model directory predicts, and the same model written anew.
 *
 *     gpt_logits DIR < tokens > logits     u32 count and so many u32 tokens, again and again; f32 logits after the last
 * of each gpt_logits DIR DIR                   read the first, write the second
 */
#include "gpt/formats/hf.h"
#include <stdio.h>
#include <stdlib.h>

static int predict(const struct gpt_hf *hf)
{
	struct gpt_model *model = gpt_model_open(
	        &hf->shape,
	        &(struct gpt_model_options){.max_batch = 1, .kernels = gpt_kernels_best(), .weights = hf->weights});
	int32_t *tokens = malloc((size_t)hf->shape.context * sizeof(*tokens));
	float *logits = malloc((size_t)hf->shape.vocab * sizeof(*logits));
	int rc = model && tokens && logits ? 0 : -1;
	uint32_t n;

	while (!rc && fread(&n, sizeof(n), 1, stdin) == 1) {
		if (n < 1 || n > (uint32_t)hf->shape.context || fread(tokens, sizeof(*tokens), n, stdin) != n) {
			rc = -1;
			break;
		}
		gpt_model_predict(model, tokens, (int)n, logits);
		fwrite(logits, sizeof(*logits), (size_t)hf->shape.vocab, stdout);
	}
	free(tokens);
	free(logits);
	gpt_model_destroy(&model);
	return rc || fflush(stdout) ? -1 : 0;
}

int main(int argc, char **argv)
{
	char why[4096 + 256];
	struct gpt_hf hf;
	int rc;

	if (argc < 2 || argc > 3)
		return 2;
	if (gpt_hf_read(argv[1], true, &hf, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	rc = argc == 3 ? gpt_hf_write(argv[2], &hf, hf.weights, false) : predict(&hf);
	if (rc)
		perror(argv[argc - 1]);
	free(hf.weights);
	return rc ? 1 : 0;
}
