/*
 * collrun: start the ranks of a job on this host and wait for them. (First cut:
 * one host, output as it comes.)
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

static void put(const char *name, const char *format, int value)
{
	char text[32];

	snprintf(text, sizeof(text), format, value);
	setenv(name, text, 1);
}

static void child(int rank, int size, pid_t parent, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	put("COLL_RANK", "%d", rank);
	put("COLL_SIZE", "%d", size);
	put("COLL_LOCAL_RANK", "%d", rank);
	put("COLL_LOCAL_SIZE", "%d", size);
	execvp(argv[0], argv);
	fprintf(stderr, "collrun: rank %d: cannot run %s: %s\n", rank, argv[0], strerror(errno));
	_exit(127);
}

int main(int argc, char **argv)
{
	unsigned long long key[2];
	const pid_t self = getpid();
	char text[64];
	int n, status, code = 0;

	if (argc < 4 || strcmp(argv[1], "-n") != 0 || (n = atoi(argv[2])) < 1) {
		fprintf(stderr, "usage: collrun -n N program arguments\n");
		return 2;
	}
	if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
		return 1;
	snprintf(text, sizeof(text), "%016llx%016llx", key[0], key[1]);
	setenv("COLL_JOB_KEY", text, 1);
	setenv("COLLRUN_JOB", "1", 1);
	snprintf(text, sizeof(text), "unix:collrun-%016llx", key[0] ^ key[1] * 3);
	setenv("COLL_ROOT", text, 1);
	for (int r = 0; r < n; r++)
		if (fork() == 0)
			child(r, n, self, argv + 3);
	while (wait(&status) > 0)
		if (code == 0 && status != 0)
			code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return code;
}
