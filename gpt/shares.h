/*
 * The kernels as a team runs them: every thread calls the same function with the
 * same arguments and its own device, does its share, and meets the others at the
 * end. Cuts never split a sum.
 */
#ifndef GPT_SHARES_H
#define GPT_SHARES_H

#include "gpt/kernels.h"
#include "gpt/team.h"

void gpt_do_gemm(struct gpt_device *dev, const struct gpt_gemm *g);
void gpt_do_embed(struct gpt_device *dev, gpt_real *out, const gpt_real *wte, const gpt_real *wpe,
                  const int32_t *tokens, int rows, int len, int width);
void gpt_do_token_grad(struct gpt_device *dev, gpt_real *dwte, const gpt_real *dout, const struct gpt_groups *g,
                       int width);
void gpt_do_place_grad(struct gpt_device *dev, gpt_real *dwpe, const gpt_real *dout, int batch, int len, int width);
void gpt_do_layernorm(struct gpt_device *dev, gpt_real *out, gpt_real *sum, gpt_real *mean, gpt_real *rstd,
                      const gpt_real *x, const gpt_real *delta, const gpt_real *delta_bias, const gpt_real *gain,
                      const gpt_real *bias, int rows, int width);
/* Both halves of the backward. */
void gpt_do_layernorm_grad(struct gpt_device *dev, gpt_real *dx, gpt_real *dgain, gpt_real *dbias, const gpt_real *dout,
                           const gpt_real *x, const gpt_real *mean, const gpt_real *rstd, const gpt_real *gain,
                           int rows, int width);
void gpt_do_bias_add(struct gpt_device *dev, gpt_real *x, const gpt_real *bias, int rows, int width);
void gpt_do_bias_grad(struct gpt_device *dev, gpt_real *dbias, const gpt_real *dout, int rows, int width);
void gpt_do_dropout(struct gpt_device *dev, gpt_real *out, const gpt_real *x, size_t n, const struct gpt_dropout *d);
void gpt_do_gelu(struct gpt_device *dev, gpt_real *out, gpt_real *x, const gpt_real *bias, int rows, int width);
void gpt_do_gelu_grad(struct gpt_device *dev, gpt_real *d, const gpt_real *x, int rows, int width);
/* All pairs. */
void gpt_do_attention(struct gpt_device *dev, const struct gpt_attention *a);
void gpt_do_attention_grad(struct gpt_device *dev, const struct gpt_attention *a);
void gpt_do_cross_entropy(struct gpt_device *dev, gpt_real *logits, gpt_real *loss, const int32_t *targets, int rows,
                          int vocab, gpt_real scale, gpt_real smooth);
void gpt_do_zero(struct gpt_device *dev, gpt_real *x, size_t n);

#endif
