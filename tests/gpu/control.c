/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control.h"

int control_of(pid_t pid, struct control *control, int *memory)
{
	char path[64];
	int file;
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	file = open(path, (memory == NULL ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (file < 0)
		return -1;
	got = pread(file, control, sizeof(*control), CONTROL_AT);
	if (got == (ssize_t)sizeof(*control) && control->magic == CONTROL_MAGIC) {
		if (memory != NULL)
			*memory = file;
		else
			close(file);
		return 0;
	}
	close(file);
	errno = ENODATA;
	return -1;
}

uint64_t control_holds(const struct control *control, const char *uuid, int *contexts)
{
	uint64_t bytes = 0;

	*contexts = 0;
	if (control->state == CHECKPOINTED)
		return 0;
	for (int i = 0; i < control->cards && i < MOST_CARDS; i++) {
		if (strncmp(control->card[i].uuid, uuid, sizeof(control->card[i].uuid)) != 0)
			continue;
		*contexts += control->card[i].contexts;
		for (int j = 0; j < control->allocations && j < MOST_ALLOCATIONS; j++)
			if (control->allocation[j].card == i)
				bytes += control->allocation[j].bytes;
	}
	return bytes;
}

void control_scan(void (*seen)(pid_t pid, const struct control *control, void *with), void *with)
{
	DIR *processes = opendir("/proc");
	struct control *control = malloc(sizeof(*control));
	const struct dirent *entry;

	while (processes != NULL && control != NULL && (entry = readdir(processes)) != NULL) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid > 0 && control_of(pid, control, NULL) == 0 &&
		    strncmp(control->node, script_path(), sizeof(control->node)) == 0)
			seen(pid, control, with);
	}
	free(control);
	if (processes != NULL)
		closedir(processes);
}

static int digit(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

void uuid_bytes(const char *uuid, unsigned char bytes[16])
{
	int count = 0;

	memset(bytes, 0, 16);
	if (strncmp(uuid, "GPU-", 4) == 0)
		uuid += 4;
	for (; *uuid != '\0' && count < 32; uuid++)
		if (isxdigit((unsigned char)*uuid)) {
			int shift = count % 2 == 0 ? 4 : 0;

			bytes[count / 2] = (unsigned char)(bytes[count / 2] | digit(*uuid) << shift);
			count++;
		}
}
