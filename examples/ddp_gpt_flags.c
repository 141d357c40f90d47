/*
 * One table holds every flag: name, kind, where it goes, limits, default and help, in groups. Anything that is not in
 * the table, or not within its limits, is refused by name.
 */
#include "ddp_gpt_flags.h"

#define AT(member) offsetof(struct options, member)
#define MODEL      OPTION_OF_MODEL
#define RUN        OPTION_OF_RUN
#define LOCAL      OPTION_LOCAL

/* clang-format off */
const struct flag ddp_gpt_flags[] = {
	{NULL, TEXT, 0, 0, 0, NULL, "Model", LOCAL, NULL},
	{"preset", WORD, AT(preset), 0, 0, "none", "sizes and schedule at once; flags after it may change parts", LOCAL, "none|tiny|gpt2-124M"},
	{"init", TEXT, AT(init), 0, 0, NULL, "begin with this model: shape, vocabulary and tokenizer are its own", LOCAL, "DIR"},
	{"layers", INTEGER, AT(layers), 1, 1024, "4", "blocks of attention and MLP; numbers per token; attention heads", MODEL, NULL},
	{"width", INTEGER, AT(width), 1, 65536, "128", NULL, MODEL, NULL},
	{"heads", INTEGER, AT(heads), 1, 1024, "4", NULL, MODEL, NULL},
	{"context", INTEGER, AT(context), 1, 65536, "64", "tokens per sequence", MODEL, NULL},
	{"vocab", WORD, AT(vocab), 0, 0, "char", "tokens: the distinct bytes of the text, or all 256", MODEL, "char|byte"},
	{"tokenizer", TEXT, AT(tokenizer), 0, 0, NULL, "byte-level BPE of a file or directory, instead of --vocab", LOCAL, "PATH"},
	{"vocab-size", INTEGER, AT(vocab_size), 0, 1 << 20, "0", "pad the vocabulary to this; 0: do not", MODEL, NULL},
	{"dropout", NUMBER, AT(dropout), 0, 0.95, "0", "share of numbers dropped from embeddings and branches", RUN, NULL},

	{NULL, TEXT, 0, 0, 0, NULL, "Data", LOCAL, NULL},
	{"data", LIST, AT(data), 0, 0, NULL, "file, directory, pattern: text, .jsonl, .bin; again: mixed; none: stories", LOCAL, "PATH[@WEIGHT]"},
	{"val-data", LIST, AT(val_data), 0, 0, NULL, "what validation reads; without: the last tenth of each source", LOCAL, "PATH"},
	{"field", TEXT, AT(field), 0, 0, "text", "of a .jsonl: the string to learn; damaged lines that are left out", LOCAL, "NAME"},
	{"skip-bad", INTEGER, AT(skip_bad), 0, 1e12, "0", NULL, LOCAL, NULL},
	{"documents", WORD, AT(documents), 0, 0, "joined", "apart: a sequence is one document, cut or padded", MODEL, "joined|apart"},
	{"balance", SWITCH, AT(balance), 0, 0, NULL, "of a step the longest documents first, to the rank with the fewest tokens", RUN, NULL},
	{"stride", WORD, AT(stride), 0, 0, "auto", "between windows; context: each token once; auto: context for .bin", MODEL, "auto|1|context"},
	{"special", SWITCH, AT(special), 0, 0, NULL, "special tokens that stand in the text are tokens", MODEL, NULL},
	{"token-bytes", INTEGER, AT(token_bytes), 2, 4, "2", "of a .bin without a head", MODEL, NULL},
	{"seed", INTEGER, AT(seed), 0, 1e15, "1", "of initial weights, order of the data, and sample", MODEL, NULL},
	{"batch", INTEGER, AT(batch), 1, 1 << 20, "24", "per step over all ranks: sequences, or tokens if that is not 0", RUN, NULL},
	{"batch-tokens", INTEGER, AT(batch_tokens), 0, 1 << 24, "0", NULL, RUN, NULL},
	{"accumulate", INTEGER, AT(accumulate), 1, 1 << 20, "1", "micro-steps per step: less memory, the same batch", RUN, NULL},

	{NULL, TEXT, 0, 0, 0, NULL, "Training", LOCAL, NULL},
	{"steps", INTEGER, AT(steps), 1, 1e9, "1000", "training steps", RUN, NULL},
	{"epochs", INTEGER, AT(epochs), 0, 1e6, "0", "times that the text is read, instead of --steps", RUN, NULL},
	{"lr", NUMBER, AT(lr), 0, 10, "0.003", "highest learning rate; falls to a tenth along a cosine", RUN, NULL},
	{"warmup", INTEGER, AT(warmup), 0, 1e9, "50", "steps in which the learning rate climbs to --lr", RUN, NULL},
	{"weight-decay", NUMBER, AT(weight_decay), 0, 10, "0.1", "AdamW's, of matrices and embeddings", RUN, NULL},
	{"beta1", NUMBER, AT(beta1), 0, 0.999999999, "0.9", "AdamW's, of the mean and of the mean of squares", RUN, NULL},
	{"beta2", NUMBER, AT(beta2), 0, 0.999999999, "0.99", NULL, RUN, NULL},
	{"adam-eps", NUMBER, AT(adam_eps), 1e-30, 1, "1e-08", "AdamW's, added to the root", RUN, NULL},
	{"label-smoothing", NUMBER, AT(label_smoothing), 0, 0.99, "0", "share of each target that is spread over the vocabulary", RUN, NULL},
	{"clip", NUMBER, AT(clip), 0, 1e9, "1", "largest norm of the gradient; 0: no limit", RUN, NULL},
	{"val-every", STEPS, AT(val_every), 0, 1e9, "250", "steps between validations, or epoch; 0: only at the end", RUN, NULL},
	{"val-windows", INTEGER, AT(val_windows), 0, 1e9, "1024", "sequences that a validation reads, spread evenly; 0: all", RUN, NULL},

	{NULL, TEXT, 0, 0, 0, NULL, "Ranks", LOCAL, NULL},
	{"threads", INTEGER, AT(threads), 1, 256, "1", "threads per rank that compute", LOCAL, NULL},
	{"wire", WORD, AT(wire), 0, 0, "plain", "format in which gradients are sent", RUN, "plain|bf16|int8|powersgd"},
	{"powersgd-rank", INTEGER, AT(powersgd_rank), 1, 1024, "8", "of --wire powersgd", RUN, NULL},
	{"zero", INTEGER, AT(zero), 0, 2, "0", "1: each rank updates a slice of the weights; 2: of the gradients, too", RUN, NULL},
	{"local-steps", INTEGER, AT(local_steps), 1, 1e9, "1", "ranks average their weights after this many steps of their own", RUN, NULL},
	{"deterministic", WORD, AT(deterministic), 0, 0, "run", "world: the same bits on any number of ranks", RUN, "run|world"},
	{"leaves", INTEGER, AT(leaves), 1, 1 << 12, "64", "parts of the batch that --deterministic=world computes alone", RUN, NULL},
	{"bucket-mb", NUMBER, AT(bucket_mb), 0, 1e6, "25", "largest bucket of gradients; 0: measured", RUN, NULL},

	{NULL, TEXT, 0, 0, 0, NULL, "Files", LOCAL, NULL},
	{"out", TEXT, AT(out), 0, 0, NULL, "directory for metrics, curve, model and states, written by rank 0", LOCAL, "DIR"},
	{"overwrite", SWITCH, AT(overwrite), 0, 0, NULL, "remove what an earlier run left in --out", LOCAL, NULL},
	{"resume", STATE, AT(resume), 0, 0, NULL, "go on from the newest state in --out, or that of STEP", LOCAL, "[STEP|latest]"},
	{"run-id", TEXT, AT(run_id), 0, 0, NULL, "name of the run, kept over resumes; without it drawn", LOCAL, "ID"},
	{"save-every", STEPS, AT(save_every), 0, 1e9, "0", "steps between states, or epoch; 0: none", RUN, NULL},
	{"keep", INTEGER, AT(keep), 1, 1e6, "2", "states that are kept", RUN, NULL},
	{"model-every", STEPS, AT(model_every), 0, 1e9, "0", "steps between models, or epoch; 0: only at the end", RUN, NULL},
	{"keep-best", SWITCH, AT(keep_best), 0, 0, NULL, "keep the model of the lowest validation loss, too, in best/", RUN, NULL},
	{"save-type", WORD, AT(save_type), 0, 0, "f32", "numbers of the model that is written", RUN, "f32|bf16"},

	{NULL, TEXT, 0, 0, 0, NULL, "Stopping and watching", LOCAL, NULL},
	{"minutes", NUMBER, AT(minutes), 0, 1e7, "0", "save and leave after this time, with status 75; 0: no limit", LOCAL, NULL},
	{"stop-file", TEXT, AT(stop_file), 0, 0, NULL, "save and leave once this file exists", LOCAL, "FILE"},
	{"log-every", INTEGER, AT(log_every), 1, 1e9, "50", "steps between progress lines", RUN, NULL},
	{"metrics", WORD, AT(metrics), 0, 0, "jsonl", "what a progress line writes to --out", LOCAL, "jsonl|csv"},
	{"per-rank", SWITCH, AT(per_rank), 0, 0, NULL, "metrics.jsonl has the times of each rank, too", LOCAL, NULL},
	{"tensorboard", SWITCH, AT(tensorboard), 0, 0, NULL, "write events.out.tfevents.* to --out as well", LOCAL, NULL},
	{"peak-gflops", NUMBER, AT(peak_gflops), 0, 1e9, "0", "of all ranks, for mfu; 0: measured with a matrix product", LOCAL, NULL},
	{"trace", TEXT, AT(trace), 0, 0, NULL, "write the times of the buckets to FILE.RANK (Perfetto JSON)", LOCAL, "FILE"},
	{"stub", SWITCH, AT(stub), 0, 0, NULL, "to measure, not for training: send no gradients; send in every other step", RUN, NULL},
	{"overlap", SWITCH, AT(overlap), 0, 0, NULL, NULL, RUN, NULL},

	{NULL, TEXT, 0, 0, 0, NULL, "Sample, printed at the end or by 'ddp_gpt sample'", LOCAL, NULL},
	{"model", TEXT, AT(model), 0, 0, NULL, "with 'ddp_gpt sample': the directory of the model", LOCAL, "DIR"},
	{"prompt", TEXT, AT(prompt), 0, 0, "", "text that the sample continues", LOCAL, "TEXT"},
	{"sample-len", INTEGER, AT(sample_len), 1, 1e6, "400", "tokens in the sample", LOCAL, NULL},
	{"temperature", NUMBER, AT(temperature), 0, 100, "0.7", "0: always the likeliest; draw among the k likeliest, 0: among all", LOCAL, NULL},
	{"top-k", INTEGER, AT(top_k), 0, 1e6, "40", NULL, LOCAL, NULL},
	{"no-sample", SWITCH, AT(no_sample), 0, 0, NULL, "print none; make it without the key cache: slower, the same text", LOCAL, NULL},
	{"no-cache", SWITCH, AT(no_cache), 0, 0, NULL, NULL, LOCAL, NULL},

	{NULL, TEXT, 0, 0, 0, NULL, "", LOCAL, NULL},
	{"fault", WORD, AT(fault), 0, 0, "none", "", LOCAL, "none|gradient|memory|slow"},
	{"fault-rank", INTEGER, AT(fault_rank), 0, 1 << 20, "0", "", LOCAL, NULL},
	{"fault-step", INTEGER, AT(fault_step), 1, 1e9, "1", "", LOCAL, NULL},
	{"help", SWITCH, AT(help), 0, 0, NULL, "print this", LOCAL, NULL},
};
/* clang-format on */

const int ddp_gpt_flag_count = sizeof(ddp_gpt_flags) / sizeof(*ddp_gpt_flags);
