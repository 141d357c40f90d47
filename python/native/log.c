/*
 * Log lines of the library, which come from any of its threads, while it holds locks: so nothing here takes the GIL.
 *
 * With a logger (coll.log_to()) lines wait in a queue for a thread of Python. Without one they go to stderr, as the
 * library would write them, but for errors: the call that found one raises it, and a line with the same sentence beside
 * it helps nobody. Such a line waits a second for its exception (coll_py_log_raised()) and is written if none comes, so
 * that what nobody asks for is seen.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "binding.h"

enum { LINES_MAX = 10000, UNHEARD_S = 1 };

struct line {
	struct line *next;
	int level;
	time_t until; /* of CLOCK_MONOTONIC, for one that waits for its exception */
	char text[];
};

struct lines {
	struct line *first, **end;
	int count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t come = PTHREAD_COND_INITIALIZER;
static struct lines queue = {.end = &queue.first}, errors = {.end = &errors.first};
static bool has_logger, watched, ending;

static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* One call, so that lines of several processes do not mix. */
static void write_line(const char *text)
{
	char line[1200];
	const int n = snprintf(line, sizeof(line), "%.1190s\n", text);

	while (write(STDERR_FILENO, line, (size_t)n) < 0 && errno == EINTR)
		;
}

static void append(struct lines *l, struct line *line)
{
	*l->end = line;
	l->end = &line->next;
	l->count++;
}

static struct line *take(struct lines *l)
{
	struct line *first = l->first;

	if (!first)
		return NULL;
	l->first = first->next;
	if (!l->first)
		l->end = &l->first;
	l->count--;
	return first;
}

static void write_errors(time_t due)
{
	while (errors.first && errors.first->until <= due) {
		struct line *line = take(&errors);

		write_line(line->text);
		free(line);
	}
}

/* Until no error waits. */
static void *watch(void *unused)
{
	pthread_mutex_lock(&lock);
	while (errors.first) {
		pthread_mutex_unlock(&lock);
		nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
		pthread_mutex_lock(&lock);
		write_errors(now_s());
	}
	watched = false;
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* The error waits; false: it cannot. */
static bool keep_error(struct line *line)
{
	pthread_attr_t attr;
	pthread_t thread;

	line->until = now_s() + UNHEARD_S + 1;
	if (!watched && pthread_attr_init(&attr) == 0) {
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		watched = pthread_create(&thread, &attr, watch, NULL) == 0;
		pthread_attr_destroy(&attr);
	}
	if (watched)
		append(&errors, line);
	return watched;
}

void coll_py_log(void *arg, int level, const char *text)
{
	struct line *line = malloc(sizeof(*line) + strlen(text) + 1);
	bool kept = false;

	if (line) {
		*line = (struct line){.level = level};
		strcpy(line->text, text);
		pthread_mutex_lock(&lock);
		if (has_logger) {
			if (queue.count >= LINES_MAX)
				free(take(&queue));
			append(&queue, line);
			pthread_cond_signal(&come);
			kept = true;
		} else if (level == 0) {
			kept = keep_error(line);
		}
		pthread_mutex_unlock(&lock);
	}
	if (!kept) {
		write_line(text);
		free(line);
	}
}

void coll_py_log_raised(const char *message)
{
	const char *id = message ? strstr(message, "[COLL-") : NULL;
	struct line **at = &errors.first;

	pthread_mutex_lock(&lock);
	while (*at && !ending) {
		struct line *line = *at;

		if (id && !strstr(line->text, id)) {
			at = &line->next;
			continue;
		}
		*at = line->next;
		errors.count--;
		free(line);
	}
	if (!ending)
		errors.end = at;
	pthread_mutex_unlock(&lock);
}

/* log_flush(write): write the errors that wait, or drop them. */
PyObject *coll_py_log_flush(PyObject *module, PyObject *written)
{
	const int write = PyObject_IsTrue(written);

	if (write < 0)
		return NULL;
	pthread_mutex_lock(&lock);
	while (errors.first && !write)
		free(take(&errors));
	if (errors.first)
		write_errors(now_s() + UNHEARD_S + 1);
	pthread_mutex_unlock(&lock);
	Py_RETURN_NONE;
}

/* log_ending(): the process ends, and nobody catches what is raised from now on. */
PyObject *coll_py_log_ending(PyObject *module, PyObject *unused)
{
	pthread_mutex_lock(&lock);
	ending = true;
	pthread_mutex_unlock(&lock);
	Py_RETURN_NONE;
}

/* log_attach(on): lines wait for log_wait() from now on, or no more. */
PyObject *coll_py_log_attach(PyObject *module, PyObject *on)
{
	const int wanted = PyObject_IsTrue(on);

	if (wanted < 0)
		return NULL;
	pthread_mutex_lock(&lock);
	has_logger = wanted;
	pthread_cond_broadcast(&come);
	pthread_mutex_unlock(&lock);
	Py_RETURN_NONE;
}

static PyObject *taken(void)
{
	PyObject *list = PyList_New(0);
	struct line *line;

	for (;;) {
		PyObject *pair;

		pthread_mutex_lock(&lock);
		line = take(&queue);
		pthread_mutex_unlock(&lock);
		if (!line || !list)
			break;
		pair = Py_BuildValue("is", line->level, line->text);
		free(line);
		if (!pair || PyList_Append(list, pair) != 0)
			Py_CLEAR(list);
		Py_XDECREF(pair);
	}
	return list;
}

/* log_wait(wait): [(level, line)]; with wait at least one, or None when there is no logger any more. */
PyObject *coll_py_log_wait(PyObject *module, PyObject *wait)
{
	const int waits = PyObject_IsTrue(wait);
	bool on;

	if (waits < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	pthread_mutex_lock(&lock);
	while (waits && has_logger && !queue.first)
		pthread_cond_wait(&come, &lock);
	on = has_logger || queue.first;
	pthread_mutex_unlock(&lock);
	Py_END_ALLOW_THREADS;
	if (!on)
		Py_RETURN_NONE;
	return taken();
}

/* In a forked child: another thread may have held the lock. */
void coll_py_log_forked(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	come = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	queue = (struct lines){.end = &queue.first};
	errors = (struct lines){.end = &errors.first};
	watched = has_logger = ending = false;
}
