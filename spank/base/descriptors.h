/* SPDX-License-Identifier: Apache-2.0 */
/* Which file descriptors stay open. */
#ifndef RECLAIM_DESCRIPTORS_H
#define RECLAIM_DESCRIPTORS_H

#include <stddef.h>

/* Closes every descriptor but the kept ones (any order, duplicates allowed). */
void close_all_but(const int *kept, size_t count);

/* The same open file under a number of at least 10, close-on-exec, out of the way of 0-2;
 * closes `fd`. -1 on failure. */
int move_up(int fd);

/* /dev/null on the given descriptors. 0 or -1. */
int null_on(int first, int last);

#endif
