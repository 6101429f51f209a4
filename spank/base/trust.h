/* SPDX-License-Identifier: Apache-2.0 */
/* Files that root reads or runs: nobody but root may have been able to write them. */
#ifndef RECLAIM_TRUST_H
#define RECLAIM_TRUST_H

#include <stddef.h>

#include "fault.h"

/* An absolute path without "." or ".." components, no longer than PATH_LONGEST. */
#define PATH_LONGEST 240
int plain_path(const char *path);

/* 0 if `path` is a program that only root could have put there. */
int trusted_program(const char *path, struct fault *fault);

/* Reads a whole small file that only root could have written; NUL-terminated. Length or -1;
 * errno is ENOENT where there is none. */
long trusted_read(const char *path, char *buffer, size_t size, struct fault *fault);

#endif
