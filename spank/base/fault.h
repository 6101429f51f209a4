/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong, in words: filled where it happens, written out by whoever decides. */
#ifndef RECLAIM_FAULT_H
#define RECLAIM_FAULT_H

struct fault {
	char text[512];
};

/* Always -1, so that a caller can fail in one line. A fault of NULL is allowed. */
int fault_set(struct fault *fault, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
