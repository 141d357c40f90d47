/*
 * What a file of data is, and how its text is read: a row per kind. Rank 0 reads texts; files of tokens are mapped by
 * every host.
 */
#ifndef DDP_GPT_READERS_H
#define DDP_GPT_READERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Texts of documents behind each other; begins as zeroes, free() both. */
struct texts {
	uint8_t *bytes;
	size_t len_bytes, room_bytes;
	uint64_t *ends; /* where each document ends */
	size_t count, room;
};

/* 0, or -1: no memory. */
int texts_add(struct texts *t, const void *bytes, size_t len_bytes);

struct reader_options {
	const char *field; /* of a line of JSON */
	long skip_bad;     /* damaged lines that may be left out; each that is takes one away */
	bool told;         /* of the first of them */
};

struct reader {
	const char *name;
	/* head: its first bytes, which may be fewer than a kind's. */
	bool (*takes)(const char *path, const uint8_t *head, size_t len_bytes);
	/* Adds all documents of the file. -1 with the reason in why. NULL: it is mapped. path NULL: the stories. */
	int (*read)(struct texts *t, const char *path, struct reader_options *o, char *why, size_t why_bytes);
};

/* The row that takes the file. */
const struct reader *reader_find(const char *path);

#endif
