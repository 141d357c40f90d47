/*
 * A field of a line of JSON. Plain lines, a flat object of strings and numbers, are read by a scanner; jansson judges
 * all others, and says what is wrong.
 */
#ifndef GPT_FORMATS_JSONL_H
#define GPT_FORMATS_JSONL_H

#include <stddef.h>
#include <stdint.h>

/* The string that the object of the line has as field, as UTF-8; text: room for len_bytes. Its length, or -1 with what
 * is wrong in why, and where in the line in *at. */
long gpt_jsonl_field(const char *line, size_t len_bytes, const char *field, uint8_t *text, size_t *at, char *why,
                     size_t why_bytes);

/* The scanner by itself: -1: the line is not plain, or has no such field. */
long gpt_jsonl_scan(const char *line, size_t len_bytes, const char *field, uint8_t *text);

#endif
