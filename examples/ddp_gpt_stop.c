/*
 * How a run is asked to save or to leave, and how all ranks do it at the same step.
 *
 * Owns the signal handlers and one number a step, which the ranks reduce on a communicator of its own: it is started at
 * the beginning of a step and read at the beginning of the next, so nothing waits. What any rank was asked for, all do.
 * A second SIGTERM, SIGHUP or SIGINT ends the process at once. It saves nothing itself.
 */
#include "ddp_gpt_job.h"
#include <signal.h>
#include <sys/stat.h>

/* What a signal asks for, and whether its second one ends the process. */
static const struct {
	int number;
	enum stop stop;
	bool once;
} signals[] = {{SIGTERM, STOP_LEAVE, true},
               {SIGHUP, STOP_LEAVE, true},
               {SIGINT, STOP_INTERRUPTED, true},
               {SIGUSR2, STOP_LEAVE, false},
               {SIGUSR1, STOP_SAVE, false}};

#define COUNT (sizeof(signals) / sizeof(*signals))

static volatile sig_atomic_t asked[COUNT];
static struct sigaction before[COUNT];

/* What the library, or whoever was there first, does at this signal is done too. */
static void on_signal(int number)
{
	for (size_t i = 0; i < COUNT; i++) {
		if (signals[i].number != number)
			continue;
		if (asked[i] && signals[i].once) {
			signal(number, SIG_DFL);
			raise(number);
		}
		asked[i] = 1;
		if (!(before[i].sa_flags & SA_SIGINFO) && before[i].sa_handler != SIG_DFL &&
		    before[i].sa_handler != SIG_IGN)
			before[i].sa_handler(number);
	}
}

/* A run that measures is not worth saving: signals end it as they end any program. */
static bool wanted(const struct job *j)
{
	return !j->o.stub && !j->o.overlap;
}

int job_stop_open(struct job *j)
{
	struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	j->stop.begun_s = job_now_s();
	if (!wanted(j))
		return 0;
	if (job_check(j, coll_comm_duplicate(j->comm, &j->stop.comm)) ||
	    job_check(j, coll_stream_create(&j->stop.stream, j->stop.comm)))
		return -1;
	sigemptyset(&ours.sa_mask);
	for (size_t i = 0; i < COUNT; i++)
		/* One that is ignored, by nohup say, stays so. */
		if (!sigaction(signals[i].number, NULL, &before[i]) && before[i].sa_handler != SIG_IGN)
			sigaction(signals[i].number, &ours, NULL);
	j->stop.installed = true;
	return 0;
}

int job_stop_close(struct job *j)
{
	coll_status status;

	for (size_t i = 0; i < COUNT && j->stop.installed; i++)
		sigaction(signals[i].number, &before[i], NULL);
	j->stop.installed = false;
	status = coll_stream_destroy(&j->stop.stream);
	return coll_comm_destroy(&j->stop.comm) || status ? -1 : 0;
}

/* The file is looked for once a second. */
static bool file_says(struct job *j, double now)
{
	struct stat st;

	if (!j->o.stop_file || now < j->stop.look_s)
		return false;
	j->stop.look_s = now + 1;
	return stat(j->o.stop_file, &st) == 0;
}

/* What this rank was asked for since the last time. */
static int32_t mine(struct job *j)
{
	const double now = job_now_s();
	enum stop stop = STOP_NONE;

	if ((j->o.minutes > 0 && now - j->stop.begun_s >= 60 * j->o.minutes) || file_says(j, now))
		stop = STOP_LEAVE;
	for (size_t i = 0; i < COUNT; i++) {
		if (asked[i] && signals[i].stop > stop)
			stop = signals[i].stop;
		if (signals[i].stop == STOP_SAVE)
			asked[i] = 0;
	}
	return stop;
}

/* Ranks that step by themselves meet in some steps only. */
static bool meet_here(const struct job *j, long step)
{
	return j->o.local_steps == 1 || step % j->o.local_steps == 0;
}

int job_stop_ask(struct job *j, long step, enum stop *stop)
{
	*stop = STOP_NONE;
	if (!j->stop.comm || !meet_here(j, step))
		return 0;
	if (j->stop.under_way && job_check(j, coll_stream_wait(j->stop.stream, -1)))
		return -1;
	*stop = j->stop.under_way ? (enum stop)j->stop.all : STOP_NONE;
	j->stop.under_way = false;
	if (*stop >= STOP_LEAVE)
		return 0;
	j->stop.mine = mine(j);
	j->stop.under_way = true;
	return job_check(
	        j, coll_all_reduce(&j->stop.mine, &j->stop.all, 1, COLL_I32, COLL_MAX, j->stop.comm, j->stop.stream));
}

int job_stop_finish(struct job *j)
{
	const bool waiting = j->stop.under_way;

	j->stop.under_way = false;
	return waiting ? job_check(j, coll_stream_wait(j->stop.stream, -1)) : 0;
}
