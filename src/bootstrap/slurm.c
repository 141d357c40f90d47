/*
 * Steps of Slurm (slurm.h). What srun starts inside a step inherits the variables of that step, and those that
 * --mpi=pmi2 and --mpi=pmix have set there name it. So they count in the step that they name alone. Nothing is kept.
 */
#include "bootstrap/slurm.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/number.h"

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

/* "JOB.STEP" of the step of srun in which this process is. True where it is in none. */
static bool names_step(const char *text)
{
	const char *job = env("SLURM_JOB_ID"), *step = env("SLURM_STEP_ID");
	const size_t n = job ? strlen(job) : 0;

	return !job || !step || (strncmp(text, job, n) == 0 && text[n] == '.' && strcmp(text + n + 1, step) == 0);
}

bool coll_slurm_pmi_is_inherited(void)
{
	const char *step = env("PMI_JOBID"), *fd = env("PMI_FD");
	struct stat s;
	int number;

	return step && fd && coll_number_parse(fd, 0, INT_MAX, &number) && !names_step(step) &&
	       (fstat(number, &s) < 0 || !S_ISSOCK(s.st_mode));
}

bool coll_slurm_has_pmix(void)
{
	static const char slurm[] = "slurm.pmix.";
	const char *space = env("PMIX_NAMESPACE");

	return space && (strncmp(space, slurm, strlen(slurm)) != 0 || names_step(space + strlen(slurm)));
}

bool coll_slurm_first_host(const char *list, char *host, size_t len_bytes)
{
	const size_t stem = strcspn(list, "[,"), digits = list[stem] == '[' ? strcspn(list + stem + 1, "-,]") : 0;
	const char *behind = strchr(list + stem, ']');
	const size_t tail = digits && behind ? strcspn(behind + 1, "[,") : 0;

	if (stem + digits == 0 || (list[stem] == '[' && (!behind || behind[1 + tail] == '[')))
		return false;
	return (size_t)snprintf(host, len_bytes, "%.*s%.*s%.*s", (int)stem, list, (int)digits,
	                        digits ? list + stem + 1 : "", (int)tail, tail ? behind + 1 : "") < len_bytes;
}
