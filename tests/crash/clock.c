/* SPDX-License-Identifier: Apache-2.0
 * A wall clock that can be put forward and back under a running program. Its monotonic clocks, the
 * kernel's times of files, and everybody else's clock stay right. */
#define _GNU_SOURCE
#include "faults.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int clock_gettime(clockid_t clock, struct timespec *at)
{
	int result = (int)syscall(SYS_clock_gettime, clock, at);

	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		at->tv_sec += faults_skew();
	return result;
}

EXPORT int gettimeofday(struct timeval *at, void *zone)
{
	struct timespec now;

	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &now) != 0)
		return -1;
	at->tv_sec = now.tv_sec;
	at->tv_usec = now.tv_nsec / 1000;
	return 0;
}

EXPORT time_t time(time_t *at)
{
	struct timespec now;

	if (clock_gettime(CLOCK_REALTIME, &now) != 0)
		return -1;
	if (at != NULL)
		*at = now.tv_sec;
	return now.tv_sec;
}
