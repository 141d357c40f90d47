/*
 * What a test may ask of the stand-in driver beside the CUDA driver's own functions. Found by
 * dlsym; a real driver has none of them.
 */
#ifndef SOFTCUDA_SOFTCUDA_H
#define SOFTCUDA_SOFTCUDA_H

#define SOFT_API __attribute__((visibility("default")))

/* Calls of an entry point since the start of the process or the last reset, by the name that
 * cuGetProcAddress takes ("cuMemAlloc"); NULL: of all entry points. -1: there is no such one. */
SOFT_API long softcuda_count(const char *name);
SOFT_API void softcuda_reset(void);
/* Bytes of host memory that kernels and copies have read and written; words of memory operations and of acquire and
 * release do not count. */
SOFT_API long softcuda_host_bytes(void);
/* Calls which wait inside the driver at this moment. */
SOFT_API int softcuda_blocked(void);
/* Operations that have been enqueued, by all streams, and of those the ones that are done. */
SOFT_API long softcuda_enqueued(void);
SOFT_API long softcuda_done(void);
/* The hardware queue of a stream of the current context: its number, or -1. */
SOFT_API int softcuda_queue(void *stream);
/* The call of an entry point after so many more gets an error, and does nothing. Once. */
SOFT_API void softcuda_refuse(const char *name, int after, int error);
/* NULL-terminated lists: names of the rules, and of the kernels linked in. */
SOFT_API const char *const *softcuda_rules(void);

#endif
