/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin.h"

static int write_whole(int fd, const char *text, size_t length)
{
	while (length > 0) {
		ssize_t n = write(fd, text, length);

		if (n < 0 && errno != EINTR)
			return -1;
		text += n > 0 ? n : 0;
		length -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* The directory the notes are in, made if need be. A descriptor or -1. */
static int notes_directory(const char *run)
{
	struct stat info;
	int top, dir;

	mkdir(run, 0755);
	top = open(run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return -1;
	mkdirat(top, "missed", 0700);
	dir = openat(top, "missed", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	close(top);
	if (dir >= 0 && (fstat(dir, &info) != 0 || info.st_uid != 0 || (info.st_mode & 022))) {
		close(dir);
		return -1;
	}
	return dir;
}

void leave_note(const struct arguments *arguments, const struct plan *plan, struct message *facts,
		const char *problem)
{
	static char text[MESSAGE_BYTES];
	char name[32], hidden[40];
	uint32_t job = plan->job;
	int dir = notes_directory(arguments->run);
	int fd = -1;
	long length;

	slurm_info("reclaim: job %u: %s", job, problem);
	message_add(facts, "problem", problem);
	message_add(facts, "waits", plan->mode == MODE_RESTORE ? "1" : "0");
	length = message_encode(facts, text, sizeof(text));
	snprintf(name, sizeof(name), "%u", job);
	snprintf(hidden, sizeof(hidden), ".%u", job);
	/* Written aside and renamed, so that the agent never reads half a note. */
	if (dir >= 0 && length > 0) {
		unlinkat(dir, hidden, 0);
		fd = openat(dir, hidden, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	}
	if (fd < 0 || write_whole(fd, text, (size_t)length) != 0 ||
	    renameat(dir, hidden, dir, name) != 0)
		slurm_error("reclaim: job %u: couldn't leave a note in %s/missed: %s", job,
			    arguments->run, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (dir >= 0)
		close(dir);
}
