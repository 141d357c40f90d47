/*
 * What bootstrap finds out, in one line, and one all-gather to prove it: for the
 * tests of launchers, and for people whose launcher is not understood. Not
 * installed.
 *
 *   rank_probe [--rounds N]    exit status 0: every rank's bytes arrived
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/exchange.h"
#include "bootstrap/probe.h"

struct entry {
	int rank;
	int pid;
	char text[56];
};

static int complain(const struct coll_error_box *err)
{
	fprintf(stderr, "rank_probe: %s\n", err->message);
	return 1;
}

static int round_trip(const struct coll_settings *s, struct coll_identity *id, struct coll_error_box *err)
{
	struct entry mine = {id->rank, getpid(), "card"}, *all = calloc((size_t)id->size, sizeof(*all));
	int bad = 0;

	if (!all)
		return 1;
	if (coll_bootstrap_exchange(NULL, s, id, &mine, all, sizeof(mine), err) != COLL_OK)
		bad = complain(err);
	for (int r = 0; r < id->size && !bad; r++)
		bad = all[r].rank != r || all[r].pid <= 0 || strcmp(all[r].text, "card") != 0;
	free(all);
	return bad;
}

int main(int argc, char **argv)
{
	const int rounds = argc > 2 && strcmp(argv[1], "--rounds") == 0 ? atoi(argv[2]) : 1;
	struct coll_settings s;
	struct coll_identity id;
	struct coll_error_box err;
	int bad = 0;

	coll_error_clear(&err);
	if (coll_settings_load(&s, NULL, NULL, &err) != COLL_OK)
		return complain(&err);
	for (int i = 0; i < rounds && !bad; i++) {
		if (coll_bootstrap_probe(NULL, &s, &id, &err) != COLL_OK)
			return complain(&err);
		bad = round_trip(&s, &id, &err);
	}
	printf("rank %d of %d local %d of %d launcher %s meeting %s%s%s%s secret %s: %s\n", id.rank, id.size,
	       id.local_rank, id.local_size, id.launcher, id.unix_name[0] ? "unix " : "", id.root_host,
	       id.root_ports ? " ports" : "", id.publish, id.secret ? id.secret : "none", bad ? "wrong" : "ok");
	return bad;
}
