/*
 * coll-links: latency and rate of the links between all pairs of ranks, before a job.
 *
 * Ranks meet in rounds, as in a tournament: in each round each rank has one partner, and in n - 1 rounds it has had all
 * others (n if their number is odd). So a measurement takes as long as n - 1 pairs take, not n (n - 1) / 2. Pairs of a
 * round that share a network card share its rate; --alone measures one pair after the other. Times are the best of
 * several, and a pair that seems far behind is measured again, alone: who was late once is not slow. Exit status: 0; 1
 * a link is far behind others; 2 no measurement.
 */
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "coll/coll.h"
#include "links_show.h"
#include "tools/common/last_flush.h"

static const char usage[] = "usage: coll-links [--json | --svg] [--ms T] [--alone]\n"
                            "  --json   the same for programs\n"
                            "  --svg    a picture\n"
                            "  --ms T   measure each direction of a pair for about T ms (20)\n"
                            "  --alone  one pair at a time\n"
                            "  --version\n"
                            "Run it under the launcher of your job: collrun -H a:4,b:4 coll-links. Rank 0 prints.\n";

enum { PINGS = 50, TRIES = 2, AGAIN = 5, MESSAGE_BYTES = 256 * 1024 };

struct options {
	enum links_form form;
	int ms;
	bool alone;
};

struct meter {
	coll_comm *comm;
	int rank, size;
	struct options options;
	char *bytes; /* MESSAGE_BYTES */
	double *us;  /* rows of this rank */
	double *mb_s;
	double *all_us; /* those of all, in rank 0 */
	double *all_mb_s;
};

static bool good(const struct meter *m, coll_status st)
{
	if (st != COLL_OK)
		fprintf(stderr, "coll-links: %s\n", coll_last_error(m->comm)->message);
	return st == COLL_OK;
}

static bool move(const struct meter *m, int peer, bool sends, size_t bytes)
{
	return good(m, sends ? coll_send(m->bytes, bytes, COLL_U8, peer, m->comm, NULL)
	                     : coll_recv(m->bytes, bytes, COLL_U8, peer, m->comm, NULL));
}

/* Half of the shortest round trip, as the one that begins sees it. */
static bool ping(struct meter *m, int peer, bool begins)
{
	double best = 0;

	for (int i = 0; i < PINGS; i++) {
		const uint64_t from_ns = coll_clock_ns();
		double us;

		if (!move(m, peer, begins, 8) || !move(m, peer, !begins, 8))
			return false;
		us = (double)(coll_clock_ns() - from_ns) / 2000;
		best = i == 0 || us < best ? us : best;
	}
	if (begins && (m->us[peer] == 0 || best < m->us[peer]))
		m->us[peer] = best;
	return true;
}

/* Messages one way, and a short one back when all have come; the time, s. */
static bool stream(struct meter *m, int peer, bool sends, int messages, double *s)
{
	const uint64_t from_ns = coll_clock_ns();

	for (int i = 0; i < messages; i++)
		if (!move(m, peer, sends, MESSAGE_BYTES))
			return false;
	if (!move(m, peer, !sends, 1))
		return false;
	*s = (double)(coll_clock_ns() - from_ns) * 1e-9;
	return true;
}

/* The sender finds how many messages take the time that was asked for, and says it. */
static bool one_way(struct meter *m, int peer, bool sends)
{
	double s, best = 0;
	int32_t messages = 1;

	if (!stream(m, peer, sends, 1, &s))
		return false;
	if (sends && s > 0 && m->options.ms * 1e-3 / s > 1)
		messages = m->options.ms * 1e-3 / s < 100000 ? (int32_t)(m->options.ms * 1e-3 / s) : 100000;
	if (!good(m, sends ? coll_send(&messages, 1, COLL_I32, peer, m->comm, NULL)
	                   : coll_recv(&messages, 1, COLL_I32, peer, m->comm, NULL)))
		return false;
	for (int i = 0; i < TRIES; i++) {
		if (!stream(m, peer, sends, messages, &s))
			return false;
		best = i == 0 || s < best ? s : best;
	}
	if (sends && best > 0)
		m->mb_s[peer] = fmax(m->mb_s[peer], (double)messages * MESSAGE_BYTES / best * 1e-6);
	return true;
}

static bool meet(struct meter *m, int peer)
{
	const bool first = m->rank < peer;

	return ping(m, peer, first) && ping(m, peer, !first) && one_way(m, peer, first) && one_way(m, peer, !first);
}

/* The partner of a rank in a round: the circle method, where one stays and the others go round; -1: none. */
static int partner(int rank, int round, int n)
{
	const int even = n + n % 2, last = even - 1;
	int peer;

	if (rank == last)
		peer = round;
	else if (rank == round)
		peer = last;
	else
		peer = (2 * round - rank + 2 * last) % last;
	return peer < n ? peer : -1;
}

static bool measure(struct meter *m)
{
	const int rounds = m->size + m->size % 2 - 1;

	for (int r = 0; r < rounds; r++) {
		const int peer = partner(m->rank, r, m->size);

		for (int turn = 0; turn < (m->options.alone ? m->size : 1); turn++) {
			const bool mine = !m->options.alone || turn == (m->rank < peer ? m->rank : peer);

			if (!good(m, coll_barrier(m->comm, NULL)) || (peer >= 0 && mine && !meet(m, peer)))
				return false;
		}
	}
	return true;
}

static int show(const struct links *l, enum links_form form)
{
	struct coll_text text = {0};
	int status = links_show(l, form, &text);

	if (text.failed || !text.p || fputs(text.p, stdout) == EOF)
		status = 2;
	coll_text_free(&text);
	return status;
}

/* All rows to rank 0. */
static bool gather(const struct meter *m)
{
	const size_t n = (size_t)m->size;

	return good(m, coll_gather(m->us, m->all_us, n, COLL_F64, 0, m->comm, NULL)) &&
	       good(m, coll_gather(m->mb_s, m->all_mb_s, n, COLL_F64, 0, m->comm, NULL));
}

/* What seems far behind, once more, one pair at a time. */
static bool measure_again(struct meter *m, const struct links *l, unsigned char *pairs)
{
	const int n = m->size;

	if (m->rank == 0 && !links_far(l, pairs)) {
		fprintf(stderr, "coll-links: out of memory\n");
		return false;
	}
	if (!good(m, coll_broadcast(pairs, pairs, (size_t)n * (size_t)n, COLL_U8, 0, m->comm, NULL)))
		return false;
	for (int i = 0; i < n * n; i++) {
		const int a = i / n, b = i % n;

		if (pairs[i] && (!good(m, coll_barrier(m->comm, NULL)) ||
		                 ((m->rank == a || m->rank == b) && !meet(m, m->rank == a ? b : a))))
			return false;
	}
	return true;
}

/* Measures, and rank 0 shows. The status is that of all ranks. */
static int judge(struct meter *m, const struct links *l, unsigned char *pairs)
{
	int32_t status = 2;

	if (!measure(m) || !gather(m))
		return 2;
	for (int i = 0; i < AGAIN; i++)
		if (!measure_again(m, l, pairs) || !gather(m))
			return 2;
	if (m->rank == 0)
		status = show(l, m->options.form);
	return good(m, coll_broadcast(&status, &status, 1, COLL_I32, 0, m->comm, NULL)) ? status : 2;
}

/* Every rank has room for the rows of all: a matrix of so many ranks is small. */
static int with_room(struct meter *m)
{
	const size_t n = (size_t)m->size;
	const char **host = calloc(n, sizeof(*host));
	struct links l = {.n = m->size, .host = host};
	unsigned char *pairs = calloc(n, n);
	int status = 2;

	l.us = m->all_us = calloc(n * n, sizeof(*m->all_us));
	l.mb_s = m->all_mb_s = calloc(n * n, sizeof(*m->all_mb_s));
	for (int r = 0; host && r < m->size; r++)
		host[r] = coll_comm_host(m->comm, r);
	if (host && l.us && l.mb_s && pairs)
		status = judge(m, &l, pairs);
	else
		fprintf(stderr, "coll-links: out of memory\n");
	free(pairs);
	free(m->all_mb_s);
	free(m->all_us);
	free(host);
	return status;
}

static int run(const struct options *o)
{
	struct meter m = {.options = *o};
	int status = 2;

	if (coll_comm_create(&m.comm, NULL) != COLL_OK) {
		fprintf(stderr, "coll-links: %s\n", coll_last_error(NULL)->message);
		return 2;
	}
	m.rank = coll_comm_rank(m.comm);
	m.size = coll_comm_size(m.comm);
	m.bytes = calloc(1, MESSAGE_BYTES);
	m.us = calloc((size_t)m.size, sizeof(*m.us));
	m.mb_s = calloc((size_t)m.size, sizeof(*m.mb_s));
	if (m.size == 1)
		fprintf(stderr, "coll-links: one rank has no links: collrun -n 4 coll-links\n");
	else if (!m.bytes || !m.us || !m.mb_s)
		fprintf(stderr, "coll-links: out of memory\n");
	else
		status = with_room(&m);
	if (status == 2 && m.size > 1)
		coll_comm_abort(m.comm, "a measurement has failed");
	free(m.bytes);
	free(m.us);
	free(m.mb_s);
	coll_comm_destroy(&m.comm);
	return status;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'},
	                                        {"svg", no_argument, NULL, 's'},
	                                        {"ms", required_argument, NULL, 'm'},
	                                        {"alone", no_argument, NULL, 'a'},
	                                        {"version", no_argument, NULL, 'V'},
	                                        {"help", no_argument, NULL, 'h'},
	                                        {0}};
	struct options o = {.ms = 20};
	int c;

	last_flush_check("coll-links");
	while ((c = getopt_long(argc, argv, "V", options, NULL)) != -1) {
		if (c == 'j' || c == 's')
			o.form = c == 'j' ? LINKS_JSON : LINKS_SVG;
		o.alone |= c == 'a';
		if (c == 'V') {
			printf("coll-links %s\n", coll_version_text());
			return 0;
		}
		if (c == 'm' && !coll_number_parse(optarg, 1, 10000, &o.ms)) {
			fprintf(stderr, "coll-links: --ms %s: expected 1 to 10000\n", optarg);
			return 2;
		}
		if (c == 'h' || c == '?') {
			fputs(usage, c == 'h' ? stdout : stderr);
			return c == 'h' ? 0 : 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "coll-links: unexpected argument %s\n%s", argv[optind], usage);
		return 2;
	}
	return run(&o);
}
