/* SPDX-License-Identifier: Apache-2.0 */
/* Is there an image of this job in the store? Asked only when no agent can say. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../base/fallback.h"
#include "../base/stream.h"
#include "plugin.h"

#define SCAN_MS 5000

enum { FOUND = 10, NONE, UNKNOWN };

/* A number, or one that waits for the next of its number to take its place (see
 * adapters/store/directory.py). */
static int is_checkpoint(const char *name)
{
	static const char replaced[] = ".replaced-";

	if (strncmp(name, replaced, sizeof(replaced) - 1) == 0)
		name += sizeof(replaced) - 1;
	return *name != '\0' && name[strspn(name, "0123456789")] == '\0';
}

/* NULL at the end of the directory, and where it can't be read any further: then *failed. */
static struct dirent *next_entry(DIR *dir, int *failed)
{
	struct dirent *entry;

	errno = 0;
	entry = readdir(dir);
	*failed = entry == NULL && errno != 0;
	return entry;
}

/* A directory of the job: does one of its checkpoints have a manifest? */
static int scan_session(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int result = dir == NULL ? UNKNOWN : NONE;
	int failed = 0;

	while (result == NONE && (entry = next_entry(dir, &failed)) != NULL) {
		char path[sizeof(entry->d_name) + 32];

		if (!is_checkpoint(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "%s/manifest.json", entry->d_name);
		if (faccessat(fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			result = FOUND;
		else if (errno != ENOENT)
			result = UNKNOWN;
	}
	if (failed)
		result = UNKNOWN;
	if (dir != NULL)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	return result;
}

static int scan_store(const struct fallback *fallback, const struct plan *plan)
{
	char path[2 * PATH_LONGEST + 8];
	char prefix[32];
	struct stat info;
	struct dirent *entry;
	int result = NONE;
	int failed = 0;
	DIR *dir;

	/* Without its marker it may be the empty mount point of a file system that isn't there. */
	snprintf(path, sizeof(path), "%s/.slurm-reclaim-store", fallback->store);
	if (stat(path, &info) != 0)
		return UNKNOWN;
	snprintf(path, sizeof(path), "%s/%s", fallback->store, fallback->cluster);
	dir = opendir(path);
	if (dir == NULL)
		return errno == ENOENT ? NONE : UNKNOWN;
	snprintf(prefix, sizeof(prefix), "%u.%u.", plan->job, (unsigned)plan->uid);
	while (result != FOUND && (entry = next_entry(dir, &failed)) != NULL) {
		int one = NONE;

		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
			one = scan_session(dirfd(dir), entry->d_name);
		if (one != NONE)
			result = one;
	}
	closedir(dir);
	return failed ? UNKNOWN : result;
}

/* The store may be a file system whose server is gone: looking happens in a child that can
 * be left behind. */
static int scan_in_child(const struct fallback *fallback, const struct plan *plan)
{
	int64_t deadline = now_ms() + SCAN_MS;
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(scan_store(fallback, plan));
	while (child > 0) {
		pid_t ended = waitpid(child, &status, WNOHANG);

		if (ended == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) : UNKNOWN;
		if ((ended < 0 && errno != EINTR) || now_ms() > deadline) {
			kill(child, SIGKILL);
			break;
		}
		usleep(2000);
	}
	return UNKNOWN;
}

int image_exists(const struct fallback *fallback, const struct plan *plan, struct fault *fault)
{
	if (!fallback->known || fallback->store[0] == '\0' || fallback->cluster[0] == '\0')
		return 0;
	switch (scan_in_child(fallback, plan)) {
	case FOUND:
		return 1;
	case NONE:
		if (fallback->remote)
			return fault_set(fault, "only an agent can look for images at the remote place");
		return 0;
	default:
		return fault_set(fault, "couldn't look for images in %s", fallback->store);
	}
}
