/*
 * The looks of nt_policy.h.
 */
#include "engine/nt_policy.h"

enum {
	FRESH = 1, /* calls before the first look: pages are touched for the first time */
	TRIED = 4, /* calls each way; the first finds lines where the other way left them */
	HOLD_FIRST = 32,
	HOLD_MOST = 1024,
};

/* So much slower in its second call: the others are spared. */
static const double behind = 1.1;

void coll_nt_init(struct coll_nt *s, struct coll_nt_rule rule)
{
	*s = (struct coll_nt){.rule = rule};
}

static struct coll_nt_class *class_of(struct coll_nt *s, enum coll_nt_pass pass, size_t bytes)
{
	const unsigned size = (unsigned)__builtin_clzll(s->rule.least_bytes | 1) - (unsigned)__builtin_clzll(bytes | 1);

	return &s->classes[pass][size < COLL_NT_SIZES ? size : COLL_NT_SIZES - 1];
}

static bool is_open(const struct coll_nt *s, size_t bytes)
{
	return bytes >= s->rule.least_bytes && bytes / 2 < s->rule.reported_bytes;
}

/* The way it has, then the other. */
static struct coll_nt_choice look(const struct coll_nt_class *c)
{
	return (struct coll_nt_choice){.stream = c->tried[c->streams] < TRIED ? c->streams : !c->streams,
	                               .timed = true};
}

struct coll_nt_choice coll_nt_choose(struct coll_nt *s, enum coll_nt_pass pass, size_t bytes)
{
	struct coll_nt_class *c;

	if (!is_open(s, bytes))
		return (struct coll_nt_choice){.stream = bytes >= s->rule.least_bytes};
	c = class_of(s, pass, bytes);
	if (!c->known)
		*c = (struct coll_nt_class){
		        .known = true, .streams = bytes >= s->rule.assume_bytes, .left = FRESH, .hold = HOLD_FIRST};
	if (c->looks)
		return look(c);
	if (c->left > 0) {
		c->left--;
		return (struct coll_nt_choice){.stream = c->streams};
	}
	c->looks = true;
	c->tried[0] = c->tried[1] = 0;
	c->best[0] = c->best[1] = 0;
	return look(c);
}

static void assess(struct coll_nt_class *c, double gain)
{
	const bool turns = c->best[!c->streams] >= gain * c->best[c->streams];

	c->streams ^= turns;
	c->hold = turns ? HOLD_FIRST : c->hold;
	c->left = c->hold;
	c->hold = c->hold < HOLD_MOST ? 2 * c->hold : HOLD_MOST;
	c->looks = false;
}

void coll_nt_took(struct coll_nt *s, enum coll_nt_pass pass, size_t bytes, bool stream, uint64_t ns)
{
	const double rate = (double)bytes / (double)(ns ? ns : 1);
	struct coll_nt_class *c = class_of(s, pass, bytes);

	/* Of two calls under way at the end of a look the second one comes too late. */
	if (!c->looks || c->tried[stream] == TRIED)
		return;
	if (c->tried[stream]++ > 0 && rate > c->best[stream])
		c->best[stream] = rate;
	if (c->tried[!c->streams] >= 2 && c->best[c->streams] > behind * c->best[!c->streams])
		c->tried[!c->streams] = TRIED;
	if (c->tried[0] == TRIED && c->tried[1] == TRIED)
		assess(c, s->rule.gain);
}
