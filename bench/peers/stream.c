/*
 * What links between hosts carry: one process for each host streams to the next host and
 * reads from the one before, over bare sockets, a pair for each of its interfaces. Nobody
 * spins, since all hosts share one machine. See layouts.py.
 *
 *   COLL_BENCH_STREAM="MINE,NEXT,OUT,IN,MOST; ..."   one entry for each interface: addresses of
 *                 this end and of the next host's; relative rates of the stream that leaves, of
 *                 the one that comes in, and of the fastest one of all
 *
 * A call sends OUT / MOST of 64 times the bytes of the job and receives IN / MOST of them: streams are longer than
 * the memory that they need. Results are not checked.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "driver.h"

enum { RAILS_MAX = 8, PORT = 7771, PIECE = 1 << 20, TIMES = 64 };

struct way {
	int to, from;
	uint64_t out, in, most; /* relative rates */
};

static struct way ways[RAILS_MAX];
static int count_of_ways;

static struct sockaddr_in place_of(const char *address)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};

	inet_pton(AF_INET, address, &at.sin_addr);
	return at;
}

/* All processes listen before one of them connects. */
static int connect_way(struct way *w, const char *entry)
{
	char mine[INET_ADDRSTRLEN], next[INET_ADDRSTRLEN];
	struct sockaddr_in at;
	const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (sscanf(entry, " %15[^,],%15[^,],%ju,%ju,%ju", mine, next, &w->out, &w->in, &w->most) != 5 || w->most == 0)
		return 1;
	at = place_of(mine);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 1) != 0)
		return 1;
	bench_meet();
	at = place_of(next);
	w->to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(w->to, (struct sockaddr *)&at, sizeof(at)) != 0)
		return 1;
	w->from = accept(listener, NULL, NULL);
	close(listener);
	fcntl(w->to, F_SETFL, O_NONBLOCK);
	fcntl(w->from, F_SETFL, O_NONBLOCK);
	return w->from < 0;
}

static int begin(int *argc, char ***argv, int *rank, int *size, char *text, size_t text_bytes)
{
	const char *entry = getenv("COLL_BENCH_STREAM");

	(void)argc, (void)argv;
	*rank = atoi(getenv("COLL_BENCH_RANK"));
	*size = atoi(getenv("COLL_BENCH_SIZE"));
	snprintf(text, text_bytes, "bare streams");
	for (; entry && count_of_ways < RAILS_MAX; entry = strchr(entry, ';') ? strchr(entry, ';') + 1 : NULL)
		if (connect_way(&ways[count_of_ways++], entry) != 0) {
			snprintf(text, text_bytes, "stream %s: %s", entry, strerror(errno));
			return 1;
		}
	return count_of_ways == 0;
}

static size_t part(const struct bench_job *j, uint64_t rate, uint64_t most)
{
	return (size_t)(TIMES * j->bytes * rate / most);
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* 0, or why the stream broke. */
static int moved(ssize_t k, size_t *done)
{
	if (k > 0)
		*done += (size_t)k;
	return k > 0 || (k < 0 && (errno == EAGAIN || errno == EINTR)) ? 0 : 1;
}

static int stream(const struct bench_job *j)
{
	size_t sent[RAILS_MAX] = {0}, got[RAILS_MAX] = {0};
	int failed = 0;

	for (bool all = false; !all && !failed;) {
		struct pollfd p[2 * RAILS_MAX];

		all = true;
		for (int i = 0; i < count_of_ways; i++) {
			const bool out = sent[i] < part(j, ways[i].out, ways[i].most);
			const bool in = got[i] < part(j, ways[i].in, ways[i].most);

			p[2 * i] = (struct pollfd){out ? ways[i].to : -1, POLLOUT, 0};
			p[2 * i + 1] = (struct pollfd){in ? ways[i].from : -1, POLLIN, 0};
			all = all && !out && !in;
		}
		if (all || poll(p, (nfds_t)(2 * count_of_ways), 1000) <= 0)
			continue;
		for (int i = 0; i < count_of_ways; i++) {
			const size_t out = part(j, ways[i].out, ways[i].most), in = part(j, ways[i].in, ways[i].most);
			const size_t piece = smaller(j->bytes, PIECE);

			if (p[2 * i].revents)
				failed |= moved(send(ways[i].to, j->in, smaller(out - sent[i], piece), MSG_NOSIGNAL),
				                &sent[i]);
			if (p[2 * i + 1].revents)
				failed |= moved(recv(ways[i].from, j->out, smaller(in - got[i], piece), 0), &got[i]);
		}
	}
	return failed;
}

/* Pieces are sent from one place: what is in the buffers does not count. */
static bench_call *find(const struct bench_job *j)
{
	return j->kind == BENCH_ALL_REDUCE && !j->in_place ? stream : NULL;
}

static bool checked(const struct bench_job *j)
{
	(void)j;
	return false;
}

static void end(void)
{
}

const struct bench_library bench_library = {
        .name = "stream", .begin = begin, .find = find, .checked = checked, .end = end};
