/*
 * Who is far behind: see slow_rule.h.
 */
#include "watch/slow_rule.h"

#include <stdlib.h>

/* A rate is seen only by what fills the link for a while: by so many bytes, and if on average so many were on their
 * way. Short messages take a round trip each, however fast the link. */
enum { LEAST_BYTES = 256 * 1024, LEAST_ON_THE_WAY = 8 * 1024 };

static int compare(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

uint32_t coll_slow_upper_median(uint32_t *at, int n)
{
	qsort(at, (size_t)n, sizeof(at[0]), compare);
	return n > 0 ? at[n / 2] : 0;
}

/* What most others have more than this process; 0: less. */
static uint32_t more(uint32_t own, uint32_t *others, int n)
{
	const uint32_t median = coll_slow_upper_median(others, n);

	return median > own ? median - own : 0;
}

static uint32_t behind_in(const struct coll_slow_facts *own, const struct coll_slow_facts *others, int n, int half)
{
	uint32_t waited[COLL_SLOW_PEERS], in_call[COLL_SLOW_PEERS], by_waits, by_calls, lag;

	for (int i = 0; i < n; i++) {
		waited[i] = others[i].comm ? others[i].waited_ms[half] : 0;
		in_call[i] = others[i].comm ? others[i].in_call_ms[half] : 0;
	}
	by_waits = more(own->waited_ms[half], waited, n);
	by_calls = more(own->in_call_ms[half], in_call, n);
	lag = by_waits < by_calls ? by_waits : by_calls;
	return lag > 0 && lag >= own->half_ms[half] / COLL_SLOW_PART &&
	                       by_waits * COLL_SLOW_MORE >= own->waited_ms[half]
	               ? lag
	               : 0;
}

uint32_t coll_slow_behind(const struct coll_slow_facts *own, const struct coll_slow_facts *others, int n)
{
	const uint32_t first = behind_in(own, others, n, 0), second = behind_in(own, others, n, 1);

	return own->half_ms[0] > 0 && first > 0 && second > 0 ? first + second : 0;
}

bool coll_slow_stays(struct coll_slow_streak *k, bool of_two, uint32_t behind_ms, uint32_t other_ms, uint64_t now_ns,
                     uint64_t again_ns)
{
	k->own = behind_ms > 0 ? k->own + 1 : 0;
	k->other = of_two && other_ms > 0 ? k->other + 1 : 0;
	if (k->other >= COLL_SLOW_STAYS)
		k->other_at_ns = now_ns;
	if (!of_two)
		return k->own > 0;
	return k->own >= COLL_SLOW_STAYS && k->other == 0 &&
	       (k->other_at_ns == 0 || now_ns - k->other_at_ns >= again_ns);
}

uint32_t coll_slow_median(const struct coll_slow_facts *own, const struct coll_slow_facts *others, int n)
{
	uint32_t kb[COLL_SLOW_PEERS + 1];
	int known = 0;

	if (own->usual_kb)
		kb[known++] = own->usual_kb;
	for (int i = 0; i < n; i++)
		if (others[i].usual_kb)
			kb[known++] = others[i].usual_kb;
	return coll_slow_upper_median(kb, known);
}

uint32_t coll_slow_rate(uint64_t bytes, uint64_t busy_us, uint32_t rtt_us)
{
	const uint64_t kb = busy_us ? bytes * 1000 / busy_us : 0;

	return bytes >= LEAST_BYTES && kb * rtt_us / 1000 >= LEAST_ON_THE_WAY && kb <= UINT32_MAX ? (uint32_t)kb : 0;
}
