/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "exec.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

#define SECOND 1000000000LL

static int open_one(pid_t pid, const char *name, int *fd, struct fault *fault)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*fd < 0)
		return fault_set(fault, "couldn't open %s: %s", path, strerror(errno));
	return 0;
}

int open_entrance(const struct request *request, struct entrance *entrance, struct fault *fault)
{
	pid_t pid = request->join_pid;

	entrance->pid_ns = entrance->mount = entrance->time = entrance->root = -1;
	if (request->join_pid_ns && open_one(pid, "ns/pid", &entrance->pid_ns, fault) != 0)
		return -1;
	if (request->join_time && open_one(pid, "ns/time", &entrance->time, fault) != 0)
		return -1;
	if (!request->join_mount)
		return 0;
	if (open_one(pid, "ns/mnt", &entrance->mount, fault) != 0)
		return -1;
	return open_one(pid, "root", &entrance->root, fault);
}

/* The kernel wants 0 <= nanoseconds < 1e9, also for negative offsets. */
static int describe(char *out, size_t size, const char *clock, int64_t offset)
{
	int64_t seconds = offset / SECOND;
	int64_t rest = offset % SECOND;

	if (rest < 0) {
		rest += SECOND;
		seconds--;
	}
	return snprintf(out, size, "%s %lld %lld\n", clock, (long long)seconds, (long long)rest);
}

/* Takes effect for the children of this process. The offsets are written before the mounts
 * change: /proc/self must still be ours. */
int set_time_offsets(const struct request *request, struct fault *fault)
{
	char text[160];
	int fd, length, rv = 0;

	if (unshare(CLONE_NEWTIME) != 0)
		return fault_set(fault, "couldn't make a time namespace: %s", strerror(errno));
	length = describe(text, sizeof(text), "monotonic", request->monotonic);
	length += describe(text + length, sizeof(text) - (size_t)length, "boottime",
			   request->boottime);
	fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, (size_t)length) != length)
		rv = fault_set(fault, "couldn't set the time offsets: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
	return rv;
}

int go_in(const struct entrance *entrance, struct fault *fault)
{
	if (entrance->time >= 0 && setns(entrance->time, CLONE_NEWTIME) != 0)
		return fault_set(fault, "couldn't join the time namespace: %s", strerror(errno));
	if (entrance->pid_ns >= 0 && setns(entrance->pid_ns, CLONE_NEWPID) != 0)
		return fault_set(fault, "couldn't join the PID namespace: %s", strerror(errno));
	if (entrance->mount < 0)
		return 0;
	if (setns(entrance->mount, CLONE_NEWNS) != 0)
		return fault_set(fault, "couldn't join the mount namespace: %s", strerror(errno));
	if (fchdir(entrance->root) != 0 || chroot(".") != 0)
		return fault_set(fault, "couldn't enter the root directory: %s", strerror(errno));
	return 0;
}
