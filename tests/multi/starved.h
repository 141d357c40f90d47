/*
 * How long threads of this process have been ready to run and had no processor. A time that is
 * promised to users is promised to programs that run: tests allow what they were kept from running
 * on top of it, so that neither a slow machine nor a crowded one is taken for a defect.
 */
#ifndef COLL_TESTS_MULTI_STARVED_H
#define COLL_TESTS_MULTI_STARVED_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>

/* Of all threads that live, since they began. 0 where the kernel does not count it. */
static inline uint64_t starved_ns(void)
{
#ifdef COLL_SIM_JOBS
	DIR *tasks = NULL; /* virtual time passes for all alike */
#else
	DIR *tasks = opendir("/proc/self/task");
#endif
	uint64_t sum = 0;

	for (const struct dirent *e; tasks && (e = readdir(tasks));) {
		unsigned long long ran, waited;
		char name[300];
		FILE *f;

		snprintf(name, sizeof(name), "/proc/self/task/%s/schedstat", e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(name, "re");
		if (f && fscanf(f, "%llu %llu", &ran, &waited) == 2)
			sum += waited;
		if (f)
			fclose(f);
	}
	if (tasks)
		closedir(tasks);
	return sum;
}

#endif
