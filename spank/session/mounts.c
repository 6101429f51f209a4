/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "init.h"

static int mount_at(const char *type, const char *point, unsigned long flags, const char *options,
		    struct fault *fault)
{
	if (mount(type, point, type, flags, options) != 0)
		return fault_set(fault, "couldn't mount %s: %s", point, strerror(errno));
	return 0;
}

/* Read from the file alone: reclaim-init must not hang in a directory service. */
static unsigned tty_group(void)
{
	FILE *file = fopen("/etc/group", "re");
	struct group *entry = NULL;
	unsigned gid = 5;

	while (file != NULL && (entry = fgetgrent(file)) != NULL)
		if (strcmp(entry->gr_name, "tty") == 0) {
			gid = (unsigned)entry->gr_gid;
			break;
		}
	if (file != NULL)
		fclose(file);
	return gid;
}

/* Does opening /dev/ptmx make a terminal in our devpts? Kernels since 4.7 look for the devpts
 * beside the device node, but a site may have put something else there. */
static int ptmx_is_ours(void)
{
	int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	unsigned number;
	char path[32];
	int ours = 0;

	if (fd < 0)
		return 0;
	if (ioctl(fd, TIOCGPTN, &number) == 0) {
		snprintf(path, sizeof(path), "/dev/pts/%u", number);
		ours = access(path, F_OK) == 0;
	}
	close(fd);
	return ours;
}

static int mount_terminals(struct fault *fault)
{
	char options[96];

	snprintf(options, sizeof(options), "newinstance,gid=%u,mode=620,ptmxmode=666", tty_group());
	if (mount_at("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, options, fault) != 0)
		return -1;
	if (ptmx_is_ours())
		return 0;
	if (mount("/dev/pts/ptmx", "/dev/ptmx", NULL, MS_BIND, NULL) != 0 || !ptmx_is_ours())
		return fault_set(fault, "couldn't lead /dev/ptmx to the session's terminals: %s",
				 strerror(errno));
	return 0;
}

/* As large as the node's own, which the site may have chosen. */
static int mount_shared_memory(struct fault *fault)
{
	struct statfs info;
	char options[64] = "mode=1777";

	if (statfs("/dev/shm", &info) != 0)
		return errno == ENOENT ? 0 : fault_set(fault, "couldn't look at /dev/shm: %s",
						       strerror(errno));
	if (info.f_type == TMPFS_MAGIC && info.f_blocks > 0)
		snprintf(options, sizeof(options), "mode=1777,size=%llu",
			 (unsigned long long)info.f_blocks * (unsigned long long)info.f_bsize);
	return mount_at("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, options, fault);
}

static int raise_last_pid(int64_t last_pid, struct fault *fault)
{
	char text[32];
	int length = snprintf(text, sizeof(text), "%lld", (long long)last_pid);
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
	int rv = 0;

	if (fd < 0 || write(fd, text, (size_t)length) != length)
		rv = fault_set(fault, "couldn't set ns_last_pid to %s: %s", text, strerror(errno));
	if (fd >= 0)
		close(fd);
	return rv;
}

int prepare_mounts(const struct settings *settings, struct fault *fault)
{
	/* Slave, not private: what the node mounts later (automounter) still shows up here. */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
		return fault_set(fault, "couldn't separate the mounts: %s", strerror(errno));
	if (mount_at("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, fault) != 0)
		return -1;
	if (mount_terminals(fault) != 0 || mount_shared_memory(fault) != 0)
		return -1;
	if (settings->private_tmp[0] != '\0' && private_tmp(settings, fault) != 0)
		return -1;
	return raise_last_pid(settings->last_pid, fault);
}
