/*
 * All device kernels: one translation unit, so one PTX module.
 */
#include "device/kernels/copy.cu"
#include "device/kernels/records.cu"
#include "device/kernels/reduce.cu"
