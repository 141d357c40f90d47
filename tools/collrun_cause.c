/*
 * What the library says is the cause of a failure, taken from the lines that ranks write to standard error: those of
 * its log, and those of programs that print its errors. They have an id, [COLL-3101]. Of all lines the first one with
 * the greatest weight is kept: who found an error counts more than who was told of it, and an error more than the
 * death of another rank, which mostly follows from one.
 */
#include "collrun_cause.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "collrun.h"

#define SAME_NS ((uint64_t)1000000000) /* what several ranks find at the same time */

enum weight { NOTHING, TOLD, FOLLOWS, PRINTED, LOGGED };
enum { ID_BYTES = 11, LINE_BYTES = 1200 };

void cause_init(struct cause *c, int rank_count)
{
	memset(c, 0, sizeof(*c));
	c->rank_count = rank_count;
	c->erred = must(calloc((size_t)rank_count, sizeof(*c->erred)));
}

void cause_free(struct cause *c)
{
	free(c->erred);
	c->erred = NULL;
}

void cause_clear(struct cause *c)
{
	memset(c->erred, 0, (size_t)c->rank_count * sizeof(*c->erred));
	c->weight = NOTHING;
	c->exit_status = 0;
	c->shown_count = c->repeated = 0;
}

/* The last id of a line: NULL if it has none. */
static char *find_id(char *line)
{
	char *found = NULL;

	for (char *p = line; (p = strstr(p, "[COLL-")); p++)
		if (isdigit((unsigned char)p[6]) && isdigit((unsigned char)p[7]) && isdigit((unsigned char)p[8]) &&
		    isdigit((unsigned char)p[9]) && p[10] == ']')
			found = p;
	return found;
}

/* Skip who speaks: "coll[4/8] error: ", "rank 4 of 8: ", or "rank 4 of 8 (tp): ". NULL: a line of the log that is no
 * error. */
static char *skip_speaker(char *line, bool *logged)
{
	char *p = line;
	int end = 0;

	*logged = strncmp(line, "coll[", 5) == 0 && strchr(line, ']');
	if (*logged) {
		p = strchr(line, ']');
		return strncmp(p, "] error: ", 9) == 0 ? p + 9 : NULL;
	}
	sscanf(line, "rank %*d of %*d: %n", &end);
	if (end == 0)
		sscanf(line, "rank %*d of %*d (%*[^)]): %n", &end);
	return line + end;
}

/* Of a text without the number of the rank that speaks. */
static uint64_t hash_without(int rank, const char *text)
{
	char own[24], left[LINE_BYTES];
	const size_t own_bytes = (size_t)snprintf(own, sizeof(own), "rank %d", rank);
	size_t n = 0;

	while (*text) {
		const bool found = strncmp(text, own, own_bytes) == 0 && !isdigit((unsigned char)text[own_bytes]);

		left[n++] = found ? '#' : *text;
		text += found ? own_bytes : 1;
	}
	return coll_hash_bytes(0, left, n);
}

/* The death of a rank is something that each of the others sees for itself. */
static bool repeats(struct cause *c, int rank, const char *text, enum weight weight)
{
	struct cause_shown now = {.rank = rank, .at_ns = coll_clock_ns()};

	if (weight != LOGGED)
		return false;
	now.text = coll_hash_bytes(0, text, strlen(text));
	now.without_rank = hash_without(rank, text);
	for (unsigned i = 0; i < CAUSE_SHOWN_MAX && i < c->shown_count; i++) {
		const struct cause_shown *s = &c->shown[i];

		if ((s->text == now.text || s->without_rank == now.without_rank) && now.at_ns - s->at_ns < SAME_NS)
			return s->rank != rank;
	}
	c->shown[c->shown_count++ % CAUSE_SHOWN_MAX] = now;
	return false;
}

/* What a program that aborted wants the job to end with. */
static int exit_status_of(const char *line)
{
	static const char words[] = "aborted the communicator with exit status ";
	const char *at = strstr(line, words);
	const int status = at ? atoi(at + strlen(words)) : 0;

	return status == 0 || (status & 255) ? status & 255 : 1;
}

bool cause_look(struct cause *c, int rank, const char *data, size_t len_bytes)
{
	char line[LINE_BYTES], *id, *text, *end;
	bool logged, again;
	enum weight weight;

	snprintf(line, sizeof(line), "%.*s", (int)(len_bytes < LINE_BYTES ? len_bytes : LINE_BYTES - 1), data);
	id = find_id(line);
	text = id ? skip_speaker(line, &logged) : NULL;
	if (!text)
		return false;
	c->erred[rank] = true;
	if (c->exit_status == 0)
		c->exit_status = exit_status_of(line);
	weight = strstr(line, "(reported by rank") ? TOLD
	         : strncmp(id, "[COLL-21", 8) == 0 ? FOLLOWS
	         : logged                          ? LOGGED
	                                           : PRINTED;
	again = repeats(c, rank, text, weight);
	if ((int)weight <= c->weight)
		return again;
	c->weight = (int)weight;
	c->rank = rank;
	if (id <= text) /* the id stands first */
		text = id + ID_BYTES;
	end = id > text ? id : text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		end--;
	while (isspace((unsigned char)*text) && text < end)
		text++;
	snprintf(c->text, sizeof(c->text), "%.*s %.*s", ID_BYTES, id, (int)(end - text), text);
	return again;
}
