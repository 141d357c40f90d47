/*
 * Whole numbers as users write them.
 */
#ifndef COLL_BASE_NUMBER_H
#define COLL_BASE_NUMBER_H

#include <stdbool.h>

/* A decimal number from least to most, and nothing behind it; else false, and *value is as it was. */
bool coll_number_parse(const char *text, int least, int most, int *value);

#endif
