/*
 * TensorBoard's event files: records of length and masked CRC-32C around protobuf messages, written without either
 * library.
 */
#ifndef GPT_FORMATS_EVENTS_H
#define GPT_FORMATS_EVENTS_H

#include <stddef.h>
#include <stdio.h>

/*
 * A new file in directory; NULL with errno. first_step > 0: a resumed run, and readers drop what an earlier file has
 * beyond that step. run_id: at most 64 characters.
 */
FILE *gpt_events_open(const char *directory, long first_step, const char *run_id);

struct gpt_scalar {
	const char *tag; /* at most 64 characters */
	double value;
};

/* The values of a step, at most 16, flushed. Whether it failed is known by ferror(). */
void gpt_events_put(FILE *f, long step, const struct gpt_scalar *scalars, size_t count);

#endif
