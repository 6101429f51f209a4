/* SPDX-License-Identifier: Apache-2.0 */
#include "descriptors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define KEPT_MOST 64

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static void close_between(unsigned first, unsigned last)
{
	struct rlimit limit;
	unsigned end = 65536;

	if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
		return;
	/* Kernels before 5.9. */
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < end)
		end = (unsigned)limit.rlim_cur;
	for (unsigned fd = first; fd <= last && fd < end; fd++)
		close((int)fd);
}

void close_all_but(const int *kept, size_t count)
{
	int sorted[KEPT_MOST];
	unsigned next = 0;

	if (count > KEPT_MOST)
		count = KEPT_MOST;
	for (size_t i = 0; i < count; i++)
		sorted[i] = kept[i];
	qsort(sorted, count, sizeof(sorted[0]), by_number);
	for (size_t i = 0; i < count; i++) {
		if (sorted[i] < 0 || (unsigned)sorted[i] < next)
			continue;
		if (sorted[i] > 0)
			close_between(next, (unsigned)sorted[i] - 1);
		next = (unsigned)sorted[i] + 1;
	}
	close_between(next, ~0U);
}

int move_up(int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, 10);

	close(fd);
	return moved;
}

int null_on(int first, int last)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int rv = fd < 0 ? -1 : 0;

	for (int target = first; target <= last && rv == 0; target++) {
		/* dup2 onto itself would leave close-on-exec set. */
		if (fd == target)
			rv = fcntl(fd, F_SETFD, 0);
		else
			rv = dup2(fd, target) < 0 ? -1 : 0;
	}
	if (fd >= 0 && (fd < first || fd > last))
		close(fd);
	return rv;
}
