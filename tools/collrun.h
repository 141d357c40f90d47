/*
 * collrun: the launcher. Three parts, one program:
 *
 *   options   the command line and the hosts (collrun_options.c)
 *   front     the process the user started: the loop (collrun_front.c), how a job
 *             begins (collrun_start.c), what becomes of it (collrun_fate.c),
 *             processes that lead to agents (collrun_link.c), output
 *             (collrun_output.c)
 *   agent     one per host, started by fork here or by ssh elsewhere: starts and
 *             guards the ranks of its host (collrun_agent.c, collrun_ranks.c)
 *
 * Both use collrun_limit.c, collrun_signals.c and collrun_streams.c.
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

enum prefix { PREFIX_BY_NEED, PREFIX_ALWAYS, PREFIX_NEVER };

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
	enum prefix prefix;
	bool verbose;
	bool input; /* rank 0 gets our standard input */
	bool oversubscribe;
	bool dry_run;
	int restarts;
	const char *allocation; /* the variable that the hosts are from, NULL: they were given */
	double timeout_s;       /* 0: none */
	double grace_s;         /* for ranks to end by themselves; 0: for ever */
};

/* Fills *o; returns -1 to go on, else the exit status (help, version, errors). */
int options_parse(struct options *o, int argc, char **argv);
void options_free(struct options *o);

/* Fills o->ssh, unless it was given. */
void link_choose(struct options *o);
/* The words of the remote shell for a host, ended by NULL, until the next call. */
enum { LINK_WORDS_MAX = 64 };
void link_words(const struct options *o, const char *host, char *words[LINK_WORDS_MAX]);

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

/* An agent begins with it: what comes before is text that a remote shell has said. */
#define AGENT_MARK "\001collrun agent\002\n"

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
/* Whether channel_read() would find something. */
bool channel_readable(const struct channel *c);
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

/* ---- Signals (collrun_signals.c) --------------------------------------- */

/* Blocks all that is handled and returns the descriptor to read them from. */
int signals_take(void);
/* In a child before exec. */
void signals_give_back(void);
/* To all ranks; what is not, and is no SIGCHLD, ends the job. */
bool signal_is_handed_on(int number);

/* ---- The limit of open descriptors (collrun_limit.c) -------------------- */

/* To the hard one. Idempotent. */
void limit_raise(void);
/* In a child before exec. */
void limit_give_back(void);

/* ---- Our descriptors 0 to 2 (collrun_streams.c) ------------------------ */

/* Those that are closed are held by /dev/null. First of all. */
void streams_hold(void);
/* A descriptor of our own for 0, 1 or 2, which does not block; the same one where there is none. */
int stream_open(int fd);
void stream_close(int fd);
/* As read() and write(); EAGAIN instead of waiting. */
ssize_t stream_read(int fd, void *data, size_t len_bytes);
ssize_t stream_write(int fd, const void *data, size_t len_bytes);

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
bool output_waiting(const struct output *out, int stream);
/* For poll(): the descriptor of stream 1 or 2, -1 when nothing waits for it. */
int output_fd(const struct output *out, int stream);
void output_write(struct output *out, int stream);
/* Bytes not written yet: over a bound the front stops reading. */
size_t output_size(const struct output *out);
/* Lines given out so far, ours and the ranks'. */
uint64_t output_lines(const struct output *out);
/* What the ranks' standard error says of causes. */
struct cause *output_cause(struct output *out);
/* The reader of our standard output is gone. */
bool output_broken(const struct output *out);
/* False when something could not be written. It has been told. */
bool output_written(const struct output *out);
void output_close(struct output *out);

#endif
