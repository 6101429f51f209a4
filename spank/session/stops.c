/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping. SIGSTOP to the relay alone can't be noticed by the relay, so its state is read
 * once a second. And the job leads a session of its own, which makes its process group an
 * orphaned one, for which the kernel drops terminal stops: Slurm's SIGTSTP would be lost.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

static int stops_by_default(const char *pid, int number)
{
	char path[300], status[4096];

	snprintf(path, sizeof(path), "/proc/%s/status", pid);
	read_text(AT_FDCWD, path, status, sizeof(status));
	return strstr(status, "SigCgt:") != NULL && !in_mask(status, "SigBlk:", number) &&
	       !in_mask(status, "SigIgn:", number) && !in_mask(status, "SigCgt:", number);
}

static int belongs(const char *pid, pid_t only, pid_t group)
{
	char path[300], text[1024];
	const char *after;
	int found = 0;

	if (pid[strspn(pid, "0123456789")] != '\0' || strcmp(pid, "1") == 0)
		return 0;
	if (only != 0)
		return atoi(pid) == only;
	if (group == 0)
		return 1;
	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	read_text(AT_FDCWD, path, text, sizeof(text));
	after = strrchr(text, ')');
	return after != NULL && sscanf(after, ") %*c %*d %d", &found) == 1 && found == group;
}

void stop_in_its_stead(int number, pid_t only, pid_t group)
{
	struct dirent *entry;
	DIR *dir;

	if (number != SIGTSTP && number != SIGTTIN && number != SIGTTOU)
		return;
	dir = opendir("/proc");
	while (dir != NULL && (entry = readdir(dir)) != NULL)
		if (belongs(entry->d_name, only, group) && stops_by_default(entry->d_name, number))
			kill(atoi(entry->d_name), SIGSTOP);
	if (dir != NULL)
		closedir(dir);
}
