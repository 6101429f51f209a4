/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping. SIGSTOP to the relay alone can't be noticed by the relay, so its state is read
 * once a second. And the job leads a session of its own, which makes its process group an
 * orphaned one, for which the kernel drops terminal stops: Slurm's SIGTSTP would be lost.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "init.h"

/* A file of at most a few hundred bytes; "" if it can't be read. */
static void read_text(int dir, const char *path, char *text, size_t size)
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);

	text[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

void follow_stops(struct session *session)
{
	char path[32], text[1024];
	const char *after;
	int stopped;

	snprintf(path, sizeof(path), "%d/stat", (int)session->settings.relay);
	read_text(session->settings.outer_proc, path, text, sizeof(text));
	after = strrchr(text, ')');
	stopped = after != NULL && strncmp(after, ") T", 3) == 0;
	/* SIGCONT needs no such care: the relay catches it and passes it on. */
	if (stopped && !session->stopped)
		tree_signal(session, SIGSTOP, 0);
	session->stopped = stopped;
}

static int in_mask(const char *status, const char *field, int number)
{
	const char *at = strstr(status, field);
	unsigned long long mask;

	return at != NULL && sscanf(at + strlen(field), " %llx", &mask) == 1 &&
	       (mask >> (number - 1) & 1);
}

int stops_by_default(pid_t pid, int number)
{
	char path[32], status[4096];

	if (number != SIGTSTP && number != SIGTTIN && number != SIGTTOU)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	read_text(AT_FDCWD, path, status, sizeof(status));
	return strstr(status, "SigCgt:") != NULL && !in_mask(status, "SigBlk:", number) &&
	       !in_mask(status, "SigIgn:", number) && !in_mask(status, "SigCgt:", number);
}
