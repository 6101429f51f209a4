/* SPDX-License-Identifier: Apache-2.0 */
#include "descriptors.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define KEPT_MOST 64
#define MEMORY_DEVICES 1 /* the major number of /dev/null and its like */
#define SAME_OPEN_FILE 0 /* KCMP_FILE */

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

/* The same file by its path, or -1. Nothing that blocks: the path is its owner's to change. */
static int by_path(int directory, int fd, const struct stat *facts)
{
	char name[16], path[PATH_MAX];
	int flags = fcntl(fd, F_GETFL), again;
	struct stat found;
	ssize_t length;

	snprintf(name, sizeof(name), "%d", fd);
	length = readlinkat(directory, name, path, sizeof(path) - 1);
	if (flags < 0 || length <= 0)
		return -1;
	path[length] = '\0';
	again = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (again < 0)
		return -1;
	if (fstat(again, &found) != 0 || found.st_dev != facts->st_dev ||
	    found.st_ino != facts->st_ino || fcntl(again, F_SETFL, flags) != 0) {
		close(again);
		return -1;
	}
	return again;
}

static int same_open_file(int one, int other)
{
	pid_t self = getpid();

	return syscall(SYS_kcmp, self, self, SAME_OPEN_FILE, one, other) == 0;
}

static void open_one_again(int directory, int fd, int last)
{
	struct stat facts;
	off_t at;
	int again;

	if (fstat(fd, &facts) != 0 ||
	    !(S_ISREG(facts.st_mode) ||
	      (S_ISCHR(facts.st_mode) && major(facts.st_rdev) == MEMORY_DEVICES)))
		return;
	again = by_path(directory, fd, &facts);
	if (again < 0)
		return;
	at = lseek(fd, 0, SEEK_CUR);
	if (at > 0)
		lseek(again, at, SEEK_SET);
	for (int other = last; other >= fd; other--)
		if (same_open_file(fd, other))
			dup2(again, other);
	close(again);
}

void open_again(int directory, int first, int last)
{
	for (int fd = first; fd <= last; fd++) {
		int seen = 0;

		for (int before = first; before < fd; before++)
			seen = seen || same_open_file(before, fd);
		if (!seen)
			open_one_again(directory, fd, last);
	}
}
