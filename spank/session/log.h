/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RECLAIM_LOG_H
#define RECLAIM_LOG_H

#include <stdint.h>

/* To syslog, but never waiting for it: the job's end must not depend on a stuck logger. */
void log_note(uint32_t job, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
