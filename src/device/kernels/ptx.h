/*
 * The PTX of the kernels, embedded by an assembler file that the build writes (embed.sh).
 */
#ifndef COLL_DEVICE_KERNELS_PTX_H
#define COLL_DEVICE_KERNELS_PTX_H

/* Ends with a 0. Empty: no compiler was found. */
extern const char coll_ptx[];

#endif
