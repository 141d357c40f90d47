/*
 * What the tests of the stand-in driver share: the driver's functions under their own names, found
 * as the library finds them; checks that end the case; words to hold streams back with.
 */
#ifndef SOFTCUDA_CASES_H
#define SOFTCUDA_CASES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda_abi.h"
#include "tests/softcuda/softcuda.h"
#include "tests/softcuda/test_kernels.h"

#define CASE_POINTER(name, symbol, version, parameters) extern symbol##_fn name;
CUDA_ABI_FUNCTIONS(CASE_POINTER)
extern __typeof__(&softcuda_count) count_of;
extern __typeof__(&softcuda_reset) reset_counts;
extern __typeof__(&softcuda_blocked) blocked_calls;
extern __typeof__(&softcuda_enqueued) enqueued_ops;
extern __typeof__(&softcuda_done) done_ops;
extern __typeof__(&softcuda_queue) queue_of;

void case_fail(const char *file, int line, const char *text, long is, long wanted) __attribute__((noreturn));
/* The value is the wanted one, or the case ends here as failed. */
#define IS(value, wanted)                                                    \
	do {                                                                 \
		const long is_ = (long)(value), wanted_ = (long)(wanted);    \
		if (is_ != wanted_)                                          \
			case_fail(__FILE__, __LINE__, #value, is_, wanted_); \
	} while (0)
#define OK(call)    IS(call, CUDA_SUCCESS)
#define TRUE(value) IS(!!(value), 1)

struct softcuda_case {
	const char *name;
	void (*run)(void);
	const char *env[3]; /* "NAME=value", before the driver is loaded */
};

extern const struct softcuda_case cases_streams[], cases_kernels[], cases_memory[], cases_graphs[], cases_processes[];

/* cuInit, and the primary context of device 0 current. */
CUcontext start(void);
CUmodule load(void);
CUfunction kernel(const char *name);
/* The PTX text with the test kernels. */
extern const char case_ptx[];
CUresult launch(CUfunction f, unsigned blocks, unsigned threads, CUstream s, uint64_t out, uint64_t in, unsigned count,
                unsigned add);
/* These start, if nothing has. */
CUstream stream(unsigned flags);
CUdeviceptr device_memory(size_t len);
/* A registered page of words, all 0. */
#define WORDS 1024
uint32_t *words(void);
CUdeviceptr on_device(const void *host);
/* s waits until the word is at least value. A store by the host, and a load. */
void hold(CUstream s, uint32_t *word, uint32_t value);
void put(uint32_t *word, uint32_t value);
uint32_t get(const uint32_t *word);
void write_word(CUstream s, uint32_t *word, uint32_t value);
/* Wait until the word has the value, as the GPU writes it. Fails after 20 s. */
void await(const uint32_t *word, uint32_t value);

/* Whether the stream is not done, asked many times: a stream that need not wait gets its chance. */
bool stays_pending(CUstream s);

/* A call in another thread. */
struct other_call {
	CUresult (*call)(void *arg);
	void *arg;
	CUcontext ctx;
	CUresult result;
	bool returned;
	pthread_t thread;
};
void call_begin(struct other_call *c, CUresult (*call)(void *), void *arg);
/* Whether the call waits in the driver, rather than having returned. */
bool call_waits(struct other_call *c);
CUresult call_end(struct other_call *c);

#endif
