/*
 * Signals of the front and of the agents. They are blocked and read from a descriptor, so none is lost and none
 * interrupts anything. Those that end the job and those that are handed on to the ranks are listed here.
 */
#include <signal.h>
#include <stddef.h>
#include <sys/signalfd.h>

#include "collrun.h"

static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
static const int handed_on[] = {SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGWINCH};

enum { ENDING = sizeof(ending) / sizeof(ending[0]), HANDED_ON = sizeof(handed_on) / sizeof(handed_on[0]) };

/* nohup ignores SIGHUP, and means it. What a shell ignores for a program in the background is taken nevertheless. */
static bool left_out(int number)
{
	struct sigaction now;

	return number == SIGHUP && sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

int signals_take(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL); /* where it is ignored, no child could be waited for */
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (int i = 0; i < ENDING; i++)
		if (!left_out(ending[i]))
			sigaddset(&set, ending[i]);
	for (int i = 0; i < HANDED_ON; i++)
		sigaddset(&set, handed_on[i]);
	sigprocmask(SIG_SETMASK, &set, NULL);
	return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

void signals_give_back(void)
{
	sigset_t none;

	signal(SIGPIPE, SIG_DFL);
	for (int i = 0; i < ENDING; i++)
		if (!left_out(ending[i]))
			signal(ending[i], SIG_DFL);
	for (int i = 0; i < HANDED_ON; i++)
		signal(handed_on[i], SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

bool signal_is_handed_on(int number)
{
	for (int i = 0; i < HANDED_ON; i++)
		if (handed_on[i] == number)
			return true;
	return false;
}
