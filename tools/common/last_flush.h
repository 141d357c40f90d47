/*
 * What a program prints arrives, or the program fails.
 */
#ifndef COLL_TOOLS_LAST_FLUSH_H
#define COLL_TOOLS_LAST_FLUSH_H

/* First of all in main(): a program that ends by exit(), or by leaving main(), and whose standard output could not be
 * written, says so under its name and has status 1. A full disk is an error. */
void last_flush_check(const char *program);

#endif
