/*
 * How JSON is read and written here, and how a sentence is made of what is wrong with a file.
 */
#ifndef GPT_FORMATS_JSON_H
#define GPT_FORMATS_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPT_JSON_FLAGS (JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES)

/* "PATH: ..." in why; returns -1. */
__attribute__((format(printf, 4, 5))) int gpt_explain(char *why, size_t why_bytes, const char *path, const char *format,
                                                      ...);

/* The object that a file of at most so many bytes holds. NULL with the reason in why; errno is ENOENT if there is no
 * file. */
json_t *gpt_json_read(const char *path, size_t most_bytes, char *why, size_t why_bytes);
/* The same of a file whose last member is the checksum of all bytes before it. */
json_t *gpt_json_read_sealed(const char *path, size_t most_bytes, char *why, size_t why_bytes);
/* The text of such a file. */
char *gpt_json_sealed_text(json_t *root);
/* Replaces path by the object, which is released. -1 with errno. */
int gpt_json_write(const char *path, json_t *root);
/* The text of it, to be freed; the object is released. NULL: no memory. */
char *gpt_json_text(json_t *root);

/* Numbers of 64 bits are decimal strings. */
json_t *gpt_json_u64(uint64_t x);
bool gpt_json_get_u64(const json_t *object, const char *key, uint64_t *x);

#endif
