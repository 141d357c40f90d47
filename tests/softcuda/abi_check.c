/*
 * Compares src/device/cuda_abi.h with NVIDIA's cuda.h at compile time: every value, size,
 * offset, and the type of every function under its symbol's name. Compiled only where a
 * cuda.h is found (abi_check.sh); a difference is a compile error that names it.
 */
#define __CUDA_API_VERSION_INTERNAL /* declares the older variants too, under their symbols */
#include <cuda.h>
#include <cudaTypedefs.h>

#include "device/cuda_abi.h"

#define VALUE(name, value) _Static_assert((long long)(name) == (long long)(value), #name);
CUDA_ABI_RESULTS(VALUE)
CUDA_ABI_DEVICE_ATTRIBUTES(VALUE)
CUDA_ABI_POINTER_ATTRIBUTES(VALUE)
CUDA_ABI_MEMORY_TYPES(VALUE)
CUDA_ABI_FUNCTION_ATTRIBUTES(VALUE)
CUDA_ABI_BATCH_TYPES(VALUE)
CUDA_ABI_LOCATION_TYPES(VALUE)
CUDA_ABI_ALLOCATION_TYPES(VALUE)
CUDA_ABI_HANDLE_TYPES(VALUE)
CUDA_ABI_ACCESS_FLAGS(VALUE)
CUDA_ABI_GRANULARITIES(VALUE)
CUDA_ABI_RANGE_HANDLE_TYPES(VALUE)
CUDA_ABI_CAPTURE_STATES(VALUE)
CUDA_ABI_CAPTURE_MODES(VALUE)
CUDA_ABI_QUERY_RESULTS(VALUE)
CUDA_ABI_FLAGS(VALUE)
CUDA_ABI_MACROS(VALUE)

/* The type under the symbol, and the one that cuGetProcAddress gives for this name and version. */
#define SAME(name, symbol, version, parameters)                                                             \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), symbol##_fn), "type of " #symbol); \
	_Static_assert(__builtin_types_compatible_p(PFN_##name##_v##version, symbol##_fn), "version of " #symbol);
CUDA_ABI_FUNCTIONS(SAME)
