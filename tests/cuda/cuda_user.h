/*
 * A user's own use of the CUDA driver: copies between host and device memory, and streams. Thread-safe.
 */
#ifndef TESTS_CUDA_USER_H
#define TESTS_CUDA_USER_H

#include <stdbool.h>
#include <stddef.h>

bool cuda_user_write(void *device, const void *host, size_t len_bytes);
bool cuda_user_read(void *host, const void *device, size_t len_bytes);
/* The context of the memory becomes that of this thread. */
bool cuda_user_enter(const void *device);
/* A non-blocking stream of the device that some memory belongs to. */
bool cuda_user_stream(const void *device, void **stream);
/* Memory of the same device, or NULL. */
void *cuda_user_alloc(const void *device, size_t len_bytes);
/* What the driver says of the stream: 0, all is done; 600, not yet. */
int cuda_user_query(void *stream);
void cuda_user_stream_destroy(void *stream);
bool cuda_user_synchronize(void *stream);

/*
 * Other threads of this process use the device, too: a capture forbids nothing to them. In the mode that allows least
 * none of them may allocate, or make an executable of a graph, while one captures.
 */
void cuda_user_threads(void);
/* A capture in the mode that allows least, and what it makes: n executables of the graph, which is destroyed. */
bool cuda_user_capture(void *stream);
bool cuda_user_captured(void *stream, void **exec, int n);
bool cuda_user_launch(void *exec, void *stream);
void cuda_user_exec_destroy(void *exec);
/* Ends a capture whose graph nobody wants. True: there was one. */
bool cuda_user_abandon(void *stream);
/* `later` does what follows behind all that `earlier` has now; in a capture it becomes part of it. */
bool cuda_user_order(void *earlier, void *later);

#endif
