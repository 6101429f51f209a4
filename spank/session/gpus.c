/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPUs the job can open. This process is in the job's device cgroup, and the kernel tells
 * for each device file whether it would let it pass, on cgroup v1 and v2 alike, without opening
 * it (which would wake the card). Slurm's own numbers need not be those of the files.
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "init.h"

#define LIST_LONGEST 512

static int card_file(const char *name)
{
	static const char prefix[] = "nvidia";
	size_t length = sizeof(prefix) - 1;

	if (strncmp(name, prefix, length) != 0 || name[length] == '\0')
		return 0;
	for (name += length; *name != '\0'; name++)
		if (!isdigit((unsigned char)*name))
			return 0;
	return 1;
}

static void append(char *list, unsigned number)
{
	size_t used = strlen(list);

	if (used + 12 < LIST_LONGEST)
		snprintf(list + used, LIST_LONGEST - used, "%s%u", used == 0 ? "" : ",", number);
}

void tell_gpus(struct message *message)
{
	char present[LIST_LONGEST] = "", reachable[LIST_LONGEST] = "";
	DIR *directory = opendir("/dev");
	const struct dirent *entry;

	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		struct stat status;
		int at = dirfd(directory);

		if (!card_file(entry->d_name) ||
		    fstatat(at, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
		    !S_ISCHR(status.st_mode))
			continue;
		append(present, minor(status.st_rdev));
		if (faccessat(at, entry->d_name, R_OK | W_OK, 0) == 0)
			append(reachable, minor(status.st_rdev));
	}
	if (directory != NULL)
		closedir(directory);
	message_add(message, "gpus", reachable);
	message_add(message, "gpu_files", present);
}
