/* SPDX-License-Identifier: Apache-2.0 */
#include "trust.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int plain_path(const char *path)
{
	size_t length = strlen(path);

	if (path[0] != '/' || length > PATH_LONGEST)
		return 0;
	for (const char *at = path; (at = strstr(at, "/.")) != NULL; at++) {
		const char *rest = at + 2;

		if (*rest == '.')
			rest++;
		if (*rest == '/' || *rest == '\0')
			return 0;
	}
	return 1;
}

static int only_root_writes(const struct stat *info)
{
	/* In a sticky directory nobody can replace what root owns. */
	if (S_ISDIR(info->st_mode) && (info->st_mode & S_ISVTX))
		return info->st_uid == 0;
	return info->st_uid == 0 && (info->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Every component of the resolved path, from the file up to the root. */
static int trusted_chain(const char *path, struct fault *fault)
{
	char real[PATH_MAX];
	struct stat info;

	if (realpath(path, real) == NULL)
		return fault_set(fault, "couldn't find %s: %s", path, strerror(errno));
	for (;;) {
		char *slash;

		if (lstat(real, &info) != 0)
			return fault_set(fault, "couldn't look at %s: %s", real, strerror(errno));
		if (!only_root_writes(&info))
			return fault_set(fault, "%s: others than root can write %s", path, real);
		if (strcmp(real, "/") == 0)
			return 0;
		slash = strrchr(real, '/');
		slash[slash == real ? 1 : 0] = '\0';
	}
}

int trusted_program(const char *path, struct fault *fault)
{
	struct stat info;

	if (trusted_chain(path, fault) != 0)
		return -1;
	if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || (info.st_mode & S_IXUSR) == 0)
		return fault_set(fault, "%s is not a program", path);
	return 0;
}

long trusted_read(const char *path, char *buffer, size_t size, struct fault *fault)
{
	struct stat info;
	size_t used = 0;
	ssize_t n = 1;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

	if (fd < 0) {
		int error = errno;

		fault_set(fault, "couldn't open %s: %s", path, strerror(error));
		errno = error;
		return -1;
	}
	if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || !only_root_writes(&info)) {
		close(fd);
		errno = EPERM;
		return fault_set(fault, "%s: not a file that only root can write", path);
	}
	while (n != 0 && used < size) {
		n = read(fd, buffer + used, size - used);
		if (n < 0 && errno != EINTR)
			break;
		used += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	if (n != 0 || used >= size) {
		errno = EIO;
		return fault_set(fault, "couldn't read %s, or it is too long", path);
	}
	buffer[used] = '\0';
	return (long)used;
}
