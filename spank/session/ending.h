/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RECLAIM_ENDING_H
#define RECLAIM_ENDING_H

/* Ends this process with the given wait status: the same exit code, or of the same signal. */
void end_like(int status) __attribute__((noreturn));

#endif
