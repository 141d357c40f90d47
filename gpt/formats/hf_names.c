/*
 * The names of tensors on both sides.
 */
#include "gpt/formats/hf.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *ours, *theirs;
	bool transposed;
} names[] = {
        {"wte", "wte.weight", false},
        {"wpe", "wpe.weight", false},
        {"ln_f.gain", "ln_f.weight", false},
        {"ln_f.bias", "ln_f.bias", false},
        {"ln_1.gain", "ln_1.weight", false},
        {"ln_1.bias", "ln_1.bias", false},
        {"attn.qkv.weight", "attn.c_attn.weight", true},
        {"attn.qkv.bias", "attn.c_attn.bias", false},
        {"attn.proj.weight", "attn.c_proj.weight", true},
        {"attn.proj.bias", "attn.c_proj.bias", false},
        {"ln_2.gain", "ln_2.weight", false},
        {"ln_2.bias", "ln_2.bias", false},
        {"mlp.up.weight", "mlp.c_fc.weight", true},
        {"mlp.up.bias", "mlp.c_fc.bias", false},
        {"mlp.down.weight", "mlp.c_proj.weight", true},
        {"mlp.down.bias", "mlp.c_proj.bias", false},
};

bool gpt_hf_name(const char *ours, char *theirs, size_t len_bytes)
{
	const char *in_layer = ours;
	size_t i = 0;

	/* h.N. is the same on both sides. */
	if (strncmp(ours, "h.", 2) == 0)
		in_layer = ours + 2 + strspn(ours + 2, "0123456789") + 1;
	while (strcmp(names[i].ours, in_layer) != 0) {
		i++;
		assert(i < sizeof(names) / sizeof(*names));
	}
	snprintf(theirs, len_bytes, "transformer.%.*s%s", (int)(in_layer - ours), ours, names[i].theirs);
	return names[i].transposed;
}

#define SIDE 32

void gpt_transpose(float *to, const float *from, size_t rows, size_t columns)
{
	for (size_t r0 = 0; r0 < rows; r0 += SIDE)
		for (size_t c0 = 0; c0 < columns; c0 += SIDE)
			for (size_t r = r0; r < r0 + SIDE && r < rows; r++)
				for (size_t c = c0; c < c0 + SIDE && c < columns; c++)
					to[c * rows + r] = from[r * columns + c];
}
