/* SPDX-License-Identifier: Apache-2.0 */
/* The session's own /tmp: DIRECTORY/tmp, where DIRECTORY is open to root alone. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../base/trust.h"
#include "init.h"

/* Somebody else's in a directory where all may write is in the way for as long as they can tell
 * what it will be renamed to. */
#define ATTEMPTS 16

static void aside_name(char *out, size_t size, const char *name)
{
	unsigned long long any;

	if (getrandom(&any, sizeof(any), GRND_NONBLOCK) != (ssize_t)sizeof(any))
		any = (unsigned long long)time(NULL);
	snprintf(out, size, "%s.old.%016llx", name, any);
}

/* Opens `path` as a directory that root made and nobody else can enter. */
static int open_own(const char *path, struct fault *fault)
{
	char aside[PATH_LONGEST + 40];
	struct stat info;
	int fd;

	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
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

/* The same, held for as long as this process lives: an agent that comes up now, and knows nothing
 * of us yet, must not take it for what an earlier life of the job has left (node_sessions.py). It
 * locks it for no longer than it takes to rename it; then ours has to be made anew. */
static int hold_own(const char *path, struct fault *fault)
{
	struct stat held, named;
	int fd;

	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		fd = open_own(path, fault);
		if (fd < 0 || flock(fd, LOCK_SH) != 0)
			return fd; /* a file system without locks */
		if (fstat(fd, &held) == 0 && lstat(path, &named) == 0 &&
		    held.st_dev == named.st_dev && held.st_ino == named.st_ino)
			return fd;
		close(fd);
	}
	return fault_set(fault, "%s is being removed", path);
}

int private_tmp(const struct settings *settings, struct fault *fault)
{
	char source[64], aside[64];
	int parent = hold_own(settings->private_tmp, fault);
	int tmp = -1;
	int rv = -1;

	if (parent < 0)
		return -1;
	/* Left from an earlier life of this job id, or from a restore that failed: not for a session
	 * that starts anew, and a restored one has all of its own in the checkpoint. */
	aside_name(aside, sizeof(aside), "tmp");
	if (renameat(parent, "tmp", parent, aside) != 0 && errno != ENOENT)
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
	if (rv != 0)
		close(parent);
	return rv;
}
