/*
 * Starting and ending the ranks of one host. Each rank leads a process group; it
 * dies with the agent (PR_SET_PDEATHSIG); the agent is the reaper of all orphans
 * below it, so that not even a daemon started by a rank outlives the job.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collrun_ranks.h"
#include "tools/common/host.h"

/* ---- The job ----------------------------------------------------------- */

static bool read_number(const struct frame *f, size_t *at, int *value)
{
	const char *s = strings_next(f, at);

	*value = s ? atoi(s) : -1;
	return *value >= 0;
}

static bool read_list(const struct frame *f, size_t *at, char ***list)
{
	int n;

	if (!read_number(f, at, &n) || (size_t)n > f->len_bytes)
		return false;
	*list = must(calloc((size_t)n + 1, sizeof(**list)));
	for (int i = 0; i < n; i++) {
		(*list)[i] = (char *)strings_next(f, at);
		if (!(*list)[i])
			return false;
	}
	return true;
}

bool job_read(struct job *j, const struct frame *f)
{
	struct frame own = *f;
	size_t at = 0;
	int bind;

	memset(j, 0, sizeof(*j));
	j->text = must(malloc(f->len_bytes + 1));
	memcpy(j->text, f->body, f->len_bytes);
	own.body = j->text;
	if (!read_number(&own, &at, &j->size) || !read_number(&own, &at, &bind))
		return false;
	j->bind = (enum coll_topology_bind)bind;
	j->cwd = strings_next(&own, &at);
	j->root = strings_next(&own, &at);
	j->key = strings_next(&own, &at);
	if (!j->key || !read_number(&own, &at, &j->count) || (size_t)j->count > f->len_bytes)
		return false;
	j->ranks = must(calloc((size_t)j->count + 1, sizeof(*j->ranks)));
	for (int i = 0; i < j->count; i++)
		if (!read_number(&own, &at, &j->ranks[i]))
			return false;
	return read_list(&own, &at, &j->program) && j->program[0] && read_list(&own, &at, &j->env);
}

void job_free(struct job *j)
{
	free(j->ranks);
	free(j->program);
	free(j->env);
	free(j->text);
	memset(j, 0, sizeof(*j));
}

/* ---- In the child ------------------------------------------------------ */

static void put_number(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(name, text, 1);
}

/* A rank under collrun is collrun's: variables of an outer launcher would make
 * two. */
static void set_environment(const struct rank *r, const struct job *j)
{
	static const char *const outer[] = {
	        "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMI_FD"};

	for (size_t i = 0; i < sizeof(outer) / sizeof(outer[0]); i++)
		unsetenv(outer[i]);
	for (char **e = j->env; *e; e++)
		putenv(*e);
	put_number("COLL_RANK", r->rank);
	put_number("COLL_SIZE", j->size);
	put_number("COLL_LOCAL_RANK", r->local_rank);
	put_number("COLL_LOCAL_SIZE", j->count);
	setenv("COLL_ROOT", j->root, 1);
	setenv("COLL_JOB_KEY", j->key, 1);
	setenv("COLLRUN_JOB", "1", 1);
}

struct pipes {
	int in[2], out[2], err[2];
	int trouble[2]; /* closed by exec; else an errno comes through */
};

static _Noreturn void child(const struct rank *r, const struct job *j, const struct pipes *p, const cpu_set_t *cpus,
                            pid_t agent)
{
	int e;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != agent)
		_exit(127);
	limit_give_back();
	if (cpus)
		sched_setaffinity(0, sizeof(*cpus), cpus);
	if (dup2(p->in[0], 0) >= 0 && dup2(p->out[1], 1) >= 0 && dup2(p->err[1], 2) >= 0) {
		set_environment(r, j);
		signals_give_back();
		execvp(j->program[0], j->program);
	}
	e = errno;
	if (write(p->trouble[1], &e, sizeof(e)) < 0)
		_exit(126);
	_exit(127);
}

/* ---- In the agent ------------------------------------------------------ */

static void close_pair(int fd[2])
{
	for (int i = 0; i < 2; i++)
		if (fd[i] >= 0)
			close(fd[i]);
}

static bool make_pipes(struct pipes *p, bool input)
{
	memset(p, -1, sizeof(*p));
	if (input && pipe2(p->in, O_CLOEXEC) < 0)
		return false;
	if (!input)
		p->in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return p->in[0] >= 0 && pipe2(p->out, O_CLOEXEC) == 0 && pipe2(p->err, O_CLOEXEC) == 0 &&
	       pipe2(p->trouble, O_CLOEXEC) == 0;
}

static int keep(int *fd)
{
	const int mine = *fd;

	*fd = -1;
	fcntl(mine, F_SETFL, fcntl(mine, F_GETFL) | O_NONBLOCK);
	return mine;
}

enum rank_become rank_became(struct rank *r, const struct job *j, char *why, size_t why_bytes)
{
	int e = 0;
	ssize_t n;

	if (r->trouble < 0)
		return RANK_RUNS;
	n = read(r->trouble, &e, sizeof(e));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return RANK_UNDECIDED;
	close(r->trouble);
	r->trouble = -1;
	if (n != (ssize_t)sizeof(e))
		return RANK_RUNS;
	snprintf(why, why_bytes, "cannot run %.300s: %s", j->program[0], strerror(e));
	r->pid = 0; /* reaped as an orphan */
	return RANK_NOT;
}

bool rank_start(struct rank *r, const struct job *j, char *why, size_t why_bytes)
{
	const pid_t agent = getpid();
	struct pipes p;
	cpu_set_t cpus;
	bool ok;

	limit_raise();
	if (j->bind != COLL_BIND_NONE && !coll_topology_place(j->bind, r->local_rank, j->count, &cpus, why, why_bytes))
		return false;
	ok = make_pipes(&p, r->rank == 0);
	r->pid = ok ? fork() : -1;
	if (r->pid == 0)
		child(r, j, &p, j->bind != COLL_BIND_NONE ? &cpus : NULL, agent);
	if (r->pid < 0) {
		snprintf(why, why_bytes, "%s", strerror(errno));
		r->pid = 0;
		ok = false;
	}
	if (ok) {
		setpgid(r->pid, r->pid);
		r->out[0] = keep(&p.out[0]);
		r->out[1] = keep(&p.err[0]);
		r->trouble = keep(&p.trouble[0]);
		r->stdin_fd = r->rank == 0 ? keep(&p.in[1]) : -1;
	}
	close_pair(p.in);
	close_pair(p.out);
	close_pair(p.err);
	close_pair(p.trouble);
	return ok;
}

void rank_look(struct rank *r)
{
	siginfo_t info = {0};

	if (r->pid <= 0 || r->ended || waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	    info.si_pid != r->pid)
		return;
	r->ended = true;
	/* As wait() would say it. */
	r->status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status & 0x7f;
}

void rank_signal(const struct rank *r, int signal)
{
	if (r->pid <= 0)
		return;
	kill(-r->pid, signal);
	if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP)
		kill(-r->pid, SIGCONT); /* a stopped process dies of nothing but SIGKILL */
}

static bool is_rank(const struct rank *ranks, int count, pid_t pid)
{
	for (int i = 0; i < count; i++)
		if (ranks[i].pid == pid)
			return true;
	return false;
}

/* Ended ranks stay zombies, so wait() for anyone would find them again and again:
 * the kernel's list of children says who else there is. Without the list (a kernel
 * option) orphans wait for the end of the job. */
void reap_orphans(const struct rank *ranks, int count)
{
	char path[64];
	FILE *f;
	int pid;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	f = fopen(path, "re");
	while (f && fscanf(f, "%d", &pid) == 1)
		if (!is_rank(ranks, count, (pid_t)pid))
			waitpid((pid_t)pid, NULL, WNOHANG);
	if (f)
		fclose(f);
}

static pid_t parent_of(pid_t pid)
{
	char path[40], text[512], *p;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return -1;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	p = strrchr(text, ')');
	return p && strlen(p) > 4 ? (pid_t)atoi(p + 4) : -1;
}

static void kill_children(void)
{
	const pid_t self = getpid();
	DIR *d = opendir("/proc");
	struct dirent *e;

	while (d && (e = readdir(d))) {
		const pid_t pid = isdigit((unsigned char)e->d_name[0]) ? (pid_t)atoi(e->d_name) : -1;

		if (pid > 0 && parent_of(pid) == self)
			kill(pid, SIGKILL);
	}
	if (d)
		closedir(d);
}

/* Children of what dies here become ours, so a few rounds reach all depths. A process in an uninterruptible call may
 * outlast them: it dies on its own. */
bool kill_descendants(void)
{
	pid_t got;

	kill_children();
	while ((got = waitpid(-1, NULL, WNOHANG)) > 0)
		;
	return got < 0;
}
