/* SPDX-License-Identifier: Apache-2.0 */
/* The session's own /tmp: DIRECTORY/tmp, where DIRECTORY is open to root alone. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../base/trust.h"
#include "init.h"

static void aside_name(char *out, size_t size, const char *name)
{
	snprintf(out, size, "%s.old.%lld", name, (long long)time(NULL));
}

/* Opens `path` as a directory that root made and nobody else can enter. */
static int open_own(const char *path, struct fault *fault)
{
	char aside[PATH_LONGEST + 40];
	struct stat info;
	int fd;

	for (int attempt = 0; attempt < 2; attempt++) {
		if (mkdir(path, 0700) != 0 && errno != EEXIST)
			return fault_set(fault, "couldn't make %s: %s", path, strerror(errno));
		fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == 0 &&
		    (info.st_mode & 022) == 0)
			return fd;
		if (fd >= 0)
			close(fd);
		/* Below /var/tmp anybody can take a name first; that must not stop a session. */
		aside_name(aside, sizeof(aside), path);
		if (rename(path, aside) != 0)
			break;
	}
	return fault_set(fault, "%s is not root's own directory", path);
}

int private_tmp(const struct settings *settings, struct fault *fault)
{
	char source[64], aside[64];
	int parent = open_own(settings->private_tmp, fault);
	int tmp = -1;
	int rv = -1;

	if (parent < 0)
		return -1;
	/* Left from an earlier life of this job id: not for a session that starts anew. */
	aside_name(aside, sizeof(aside), "tmp");
	if (settings->fresh && renameat(parent, "tmp", parent, aside) != 0 && errno != ENOENT)
		fault_set(fault, "couldn't move the old %s/tmp: %s", settings->private_tmp,
			  strerror(errno));
	else if (mkdirat(parent, "tmp", 0700) != 0 && errno != EEXIST)
		fault_set(fault, "couldn't make %s/tmp: %s", settings->private_tmp,
			  strerror(errno));
	else if ((tmp = openat(parent, "tmp", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0 ||
		 fchmod(tmp, 01777) != 0)
		fault_set(fault, "couldn't open %s/tmp: %s", settings->private_tmp,
			  strerror(errno));
	else {
		snprintf(source, sizeof(source), "/proc/self/fd/%d", tmp);
		if (mount(source, "/tmp", NULL, MS_BIND, NULL) != 0)
			fault_set(fault, "couldn't mount /tmp: %s", strerror(errno));
		else
			rv = 0;
	}
	if (tmp >= 0)
		close(tmp);
	close(parent);
	return rv;
}
