/*
 * Flags that a program does not know, and what was meant.
 */
#ifndef COLL_TOOLS_FLAG_GUESS_H
#define COLL_TOOLS_FLAG_GUESS_H

/* The end of a message about a flag ("--name" or "--name=value"): ": did you mean --names?", by the flags that the
 * usage names, or "". */
struct flag_hint {
	char text[96];
};
struct flag_hint flag_guess(const char *usage, const char *flag);

/* Says what getopt_long() has refused: got is ':' (no value) or '?', its options begin with ':' and opterr is 0. */
void flag_refused(const char *program, const char *usage, int got, char *const *argv);

#endif
