/*
 * A text that grows. Running out of memory is remembered, not reported by each call:
 * check `failed` once, at the end. Zero is an empty text.
 */
#ifndef COLL_BASE_TEXT_H
#define COLL_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct coll_text {
	char *p; /* ends in 0 once anything was added */
	size_t len_bytes, cap_bytes;
	bool failed;
};

void coll_text_add(struct coll_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As a JSON string, with its quotes. What is not UTF-8 becomes '?'. */
void coll_text_add_json(struct coll_text *t, const char *s);
void coll_text_free(struct coll_text *t);

#endif
