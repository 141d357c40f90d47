/*
 * A user's own use of the CUDA driver: copies between host and device memory, and streams. Thread-safe.
 */
#ifndef TESTS_CUDA_USER_H
#define TESTS_CUDA_USER_H

#include <stdbool.h>
#include <stddef.h>

bool cuda_user_write(void *device, const void *host, size_t len_bytes);
bool cuda_user_read(void *host, const void *device, size_t len_bytes);
/* A non-blocking stream of the device that some memory belongs to. */
bool cuda_user_stream(const void *device, void **stream);
/* What the driver says of the stream: 0, all is done; 600, not yet. */
int cuda_user_query(void *stream);
void cuda_user_stream_destroy(void *stream);

#endif
