/*
 * The text ddp_gpt learns from.
 */
#ifndef DDP_GPT_TEXT_H
#define DDP_GPT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Read path (or, for NULL, the stories that stories.py made when this was built:
 * beside the program, where it was built, or where it was installed). 0 and memory to free(), or -1 with the reason in
 * why; an empty file is an error.
 */
int text_read(const char *path, uint8_t **text, size_t *len_bytes, char *why, size_t why_bytes);

/* A regular file, which can be read twice. */
bool text_is_file(const char *path);

#endif
