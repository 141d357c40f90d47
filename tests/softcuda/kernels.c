/*
 * The library's device kernels, compiled for the host: see kernel_host.h.
 */
#include "tests/softcuda/kernel_host.h"

#if __has_include("device/kernels/kernels.cu")
#include "device/kernels/kernels.cu"
#endif
