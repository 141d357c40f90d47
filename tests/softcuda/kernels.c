/*
 * The library's device kernels, compiled for the host: see kernel_host.h.
 */
#include "tests/softcuda/kernel_host.h"

#include "device/kernels/kernels.cu"
