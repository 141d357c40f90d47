/*
 * Targets: what the tools read. Dumps of the recorder; frames between collrun and its agents; host files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tools/collrun_ranks.h"
#include "tools/dump.h"

void fuzz_dump(const uint8_t *data, size_t len_bytes);
void fuzz_launch(const uint8_t *data, size_t len_bytes);
void fuzz_hosts(const uint8_t *data, size_t len_bytes);

void fuzz_dump(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	struct dump_list list = {0};
	char *text = fuzz_text(&in), why[300], line[500];

	if (dump_parse(text, len_bytes, &list, why, sizeof(why)))
		for (size_t i = 0; i < list.n; i++) {
			for (size_t k = 0; k < list.dumps[i].nops; k++) {
				dump_describe(&list.dumps[i].ops[k], line, sizeof(line));
				dump_process(&list.dumps[i], list.dumps[i].ops[k].comm, list.dumps[i].ops[k].root);
			}
			for (size_t k = 0; k < list.dumps[i].ncomms; k++)
				dump_process(&list.dumps[i], list.dumps[i].comms[k].comm, (int)k);
		}
	dump_list_free(&list);
	free(text);
}

/* What an agent reads, and what it makes of a job. */
void fuzz_launch(const uint8_t *data, size_t len_bytes)
{
	struct channel c;
	struct frame f;
	int pipes[2];

	if (len_bytes > 60000) /* a pipe holds that much */
		return;
	FUZZ_HOLDS(pipe(pipes) == 0 && write(pipes[1], data, len_bytes) == (ssize_t)len_bytes);
	channel_open(&c, pipes[0], pipes[1]);
	close(pipes[1]);
	c.out_fd = -1;
	while (!c.ended) {
		channel_read(&c);
		while (channel_next(&c, &f)) {
			struct job j;

			job_read(&j, &f);
			job_free(&j);
		}
	}
	channel_close(&c);
}

/* A host file. What is refused is told the user, who is not there. */
void fuzz_hosts(const uint8_t *data, size_t len_bytes)
{
	static FILE *nowhere;
	FILE *const was = stderr;
	struct options o = {0};
	char path[64], name[] = "collrun", n[] = "-n", ranks[] = "3", flag[] = "--hostfile", program[] = "true";
	const int fd = fuzz_file(data, len_bytes, path);
	char *argv[] = {name, n, ranks, flag, path, program, NULL};

	if (!nowhere)
		nowhere = fopen("/dev/null", "we");
	stderr = nowhere;
	if (options_parse(&o, 6, argv) < 0)
		for (int i = 0; i < o.host_count; i++)
			FUZZ_HOLDS(o.hosts[i].slots > 0 && o.hosts[i].name);
	options_free(&o);
	stderr = was;
	close(fd);
}
