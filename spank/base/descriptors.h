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

/* Opens the regular files and memory devices (/dev/null) on the given descriptors again by path, so
 * that they belong to the mounts of this process's mount namespace: CRIU can't dump one that was
 * opened before the namespace was entered. Descriptors that shared an open file still do; one whose
 * path no longer leads to its file stays as it is. `directory`: this process's /proc/PID/fd. */
void open_again(int directory, int first, int last);

#endif
