/*
 * collrun: the launcher. Three parts, one program:
 *
 *   options   the command line and the hosts (collrun_options.c)
 *   front     the process the user started: output, signals, the job's fate
 *             (collrun_front.c, collrun_start.c, collrun_output.c)
 *   agent     one per host, started by fork here or by ssh elsewhere: starts and
 *             guards the ranks of its host (collrun_agent.c, collrun_ranks.c)
 *
 * Front and agents talk in frames over pipes (collrun_wire.c). An agent whose
 * input ends kills its ranks: that is what makes killing collrun safe.
 */
#ifndef COLLRUN_H
#define COLLRUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/common/host.h"

/* ---- Options ----------------------------------------------------------- */

struct host {
	const char *name;
	int slots;
	bool local;
	int *ranks; /* rank_count of them */
	int rank_count;
};

struct options {
	int size; /* ranks */
	struct host *hosts;
	int host_count;
	char **program; /* argv of the ranks, ended by NULL */
	char **env;     /* "NAME=value" to set, ended by NULL */
	int env_count;
	const char *ssh;
	const char *remote; /* collrun on other hosts */
	const char *root;
	const char *output; /* directory, NULL: to our own output */
	enum coll_topology_bind bind;
	bool prefix;
	bool verbose;
	double timeout_s; /* 0: none */
};

/* Fills *o; returns -1 to go on, else the exit status (help, version, errors). */
int options_parse(struct options *o, int argc, char **argv);
void options_free(struct options *o);

/* ---- Frames between front and agent ------------------------------------ */

enum frame_type {
	FRAME_HELLO = 1, /* agent: strings: version, host name, address ... */
	FRAME_JOB,       /* front: strings, see struct job */
	FRAME_STDIN,     /* front: bytes for rank 0; empty: end of input */
	FRAME_STDIN_OK,  /* agent: uint32_t, bytes that rank 0 has taken */
	FRAME_SIGNAL,    /* front: uint32_t, for every rank */
	FRAME_STARTED,   /* agent: int32_t process id */
	FRAME_OUT,       /* agent: bytes of a rank's standard output */
	FRAME_ERR,       /* agent: of its standard error */
	FRAME_EXIT,      /* agent: int32_t wait status */
	FRAME_NOT_RUN,   /* agent: a text, why the rank could not be started */
	FRAME_NOTE       /* agent: a text for the user */
};

enum { FRAME_MAX = 64 << 20 };

struct buffer {
	char *data;
	size_t len, cap, at; /* bytes at .. len are valid */
};

void buffer_add(struct buffer *b, const void *data, size_t len_bytes);
void buffer_drop(struct buffer *b, size_t len_bytes);
size_t buffer_size(const struct buffer *b);
void buffer_free(struct buffer *b);

struct channel {
	int in_fd, out_fd; /* non-blocking; -1 when closed */
	struct buffer in, out;
	bool ended; /* nothing more will come */
};

struct frame {
	uint32_t type;
	uint32_t rank;
	uint32_t len_bytes;
	const char *body;
};

void channel_open(struct channel *c, int in_fd, int out_fd);
void channel_close(struct channel *c);
/* One read; sets ended at the end of input or a broken pipe. */
void channel_read(struct channel *c);
/* Write what can be written. */
void channel_write(struct channel *c);
void channel_send(struct channel *c, uint32_t type, uint32_t rank, const void *body, size_t len_bytes);
/* The next complete frame; its body is valid until the next call. */
bool channel_next(struct channel *c, struct frame *f);

/* Lists of strings in a frame: each ended by a zero byte. */
void strings_add(struct buffer *b, const char *s);
/* The next string of a frame, NULL at its end. *at starts at 0. */
const char *strings_next(const struct frame *f, size_t *at);

/* ---- The parts --------------------------------------------------------- */

/* Returns the exit status. */
int front_run(struct options *o);
/* Never returns. */
_Noreturn void agent_run(int in_fd, int out_fd);

/* Signals that collrun and its agents read from a descriptor. */
int signals_take(void);
/* In a child before exec. */
void signals_give_back(void);

void *must(void *p); /* ends the program when there is no memory */

/* ---- Output of the ranks (front) --------------------------------------- */

struct output;
struct output *output_open(const struct options *o);
/* stream 1 or 2. */
void output_add(struct output *out, int rank, int stream, const char *data, size_t len_bytes);
/* The rank has ended: what it left without a newline gets one. */
void output_finish(struct output *out, int rank);
/* A line of our own, on standard error, in order with the ranks' lines. */
void output_say(struct output *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For poll(): the descriptor and whether there is something to write; stream 1 or
 * 2. */
bool output_waiting(const struct output *out, int stream);
void output_write(struct output *out, int stream);
/* Bytes not written yet: over a bound the front stops reading. */
size_t output_size(const struct output *out);
/* The reader of our standard output is gone. */
bool output_broken(const struct output *out);
void output_close(struct output *out);

#endif
