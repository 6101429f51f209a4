/* SPDX-License-Identifier: Apache-2.0 */
/* cuCheckpointProcess...: asks the restore thread of another process, and waits for its answer. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cuda_process.h"

#define SINCE 12080 /* the first CUDA with these calls */
#define MAPS_SINCE 13000

/* The last number in a line of /proc/PID/status: of Tgid or NSpid. */
static int status_number(const char *path, const char *name)
{
	char line[512];
	int number = -1;
	FILE *status = fopen(path, "re");

	while (status != NULL && fgets(line, sizeof(line), status) != NULL)
		if (strncmp(line, name, strlen(name)) == 0)
			number = atoi(strrchr(line, '\t') + 1);
	if (status != NULL)
		fclose(status);
	return number;
}

/* The thread as this process numbers it; -1: it is gone. */
static int thread_here(int pid, int inner)
{
	char path[320];
	int found = -1;
	const struct dirent *entry;
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	threads = opendir(path);
	while (threads != NULL && found < 0 && (entry = readdir(threads)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", pid, entry->d_name);
		if (status_number(path, "NSpid:") == inner)
			found = atoi(entry->d_name);
	}
	if (threads != NULL)
		closedir(threads);
	return found;
}

static int why_not(void)
{
	if (errno == ENODATA || errno == ENOENT || errno == ESRCH)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_ERROR_OPERATING_SYSTEM;
}

/* What every one of these calls begins with. `script` must be freed where this is 0. */
static int begin(const char *call, struct script **script)
{
	int code;

	if (!process_begun())
		return CUDA_ERROR_NOT_INITIALIZED;
	*script = process_script();
	if (*script == NULL)
		return CUDA_ERROR_UNKNOWN;
	code = script_fault(*script, call, -1);
	if (code == CUDA_SUCCESS && cuda_version(*script) < SINCE)
		code = CUDA_ERROR_NOT_SUPPORTED;
	if (code != CUDA_SUCCESS)
		free(*script);
	return code;
}

/* The same for a call that needs no more of the script. */
static int allowed(const char *call)
{
	struct script *script;
	int code = begin(call, &script);

	if (code == CUDA_SUCCESS)
		free(script);
	return code;
}

static int put(int memory, size_t offset, const void *from, size_t size)
{
	return pwrite(memory, from, size, (off_t)(CONTROL_AT + offset)) == (ssize_t)size;
}

/* Until no request is under way; what the block then says. */
static int settle(int memory, struct control *control)
{
	struct timespec pause = {0, 1000000L};

	while (pread(memory, control, sizeof(*control), CONTROL_AT) == (ssize_t)sizeof(*control)) {
		if (control->magic != CONTROL_MAGIC)
			break;
		if (control->asked == control->answered)
			return CUDA_SUCCESS;
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 20000000L)
			pause.tv_nsec += pause.tv_nsec / 4;
	}
	return CUDA_ERROR_OPERATING_SYSTEM; /* it died over it */
}

static int ask(int pid, int memory, struct control *control, const struct request *request)
{
	uint64_t number;
	int code = settle(memory, control), thread;

	if (code != CUDA_SUCCESS)
		return code;
	number = control->asked + 1;
	thread = thread_here(pid, control->thread);
	if (thread < 0 ||
	    !put(memory, offsetof(struct control, request), request, sizeof(*request)) ||
	    !put(memory, offsetof(struct control, asked), &number, sizeof(number)) ||
	    syscall(SYS_tgkill, pid, thread, CONTROL_WAKE) != 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	code = settle(memory, control);
	return code == CUDA_SUCCESS ? control->result : code;
}

/* One at a time asks a process; the lock goes with who held it. */
static int order(int pid, const struct request *request)
{
	struct control *control;
	char path[64];
	int memory, one, code, whole;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	whole = status_number(path, "Tgid:");
	if (whole < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (whole != pid) { /* a thread's number: the real driver ruins the process over it */
		kill(whole, SIGKILL);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	control = malloc(sizeof(*control));
	if (control == NULL)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (control_of(pid, control, &memory) != 0) {
		code = why_not();
		free(control);
		return code;
	}
	snprintf(path, sizeof(path), "/proc/%d", pid);
	one = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	code = one < 0 || flock(one, LOCK_EX) != 0 ? CUDA_ERROR_OPERATING_SYSTEM
						  : ask(pid, memory, control, request);
	if (one >= 0)
		close(one);
	close(memory);
	free(control);
	return code;
}

static int plain(const char *call, int command, int pid, const struct plain_args *args)
{
	static const struct plain_args zero;
	struct request request = {.command = command};
	int code = allowed(call);

	if (code != CUDA_SUCCESS)
		return code;
	if (args != NULL && memcmp(args, &zero, sizeof(zero)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return order(pid, &request);
}

/* The block of a process, for a call that only looks; must be freed where this is 0. */
static int look(const char *call, int pid, const int *answer, struct control **control)
{
	int code = allowed(call);

	if (code != CUDA_SUCCESS)
		return code;
	*control = malloc(sizeof(**control));
	if (*control == NULL || answer == NULL)
		code = CUDA_ERROR_INVALID_VALUE;
	else if (control_of(pid, *control, NULL) != 0)
		code = why_not();
	if (code != CUDA_SUCCESS)
		free(*control);
	return code;
}

SHOWN int cuCheckpointProcessGetState(int pid, int *state)
{
	struct control *control;
	int code = look(__func__, pid, state, &control);

	if (code == CUDA_SUCCESS) {
		*state = control->state;
		free(control);
	}
	return code;
}

SHOWN int cuCheckpointProcessGetRestoreThreadId(int pid, int *thread)
{
	struct control *control;
	int code = look(__func__, pid, thread, &control);

	if (code == CUDA_SUCCESS) {
		*thread = thread_here(pid, control->thread);
		free(control);
		if (*thread < 0)
			code = CUDA_ERROR_INVALID_VALUE;
	}
	return code;
}

SHOWN int cuCheckpointProcessLock(int pid, const struct lock_args *args)
{
	static const struct lock_args zero;
	struct request request = {.command = LOCK};
	int code = allowed(__func__);

	if (code != CUDA_SUCCESS)
		return code;
	if (args != NULL) {
		request.timeout_ms = args->timeout_ms;
		if (args->reserved0 != 0 ||
		    memcmp(args->reserved1, zero.reserved1, sizeof(zero.reserved1)) != 0)
			return CUDA_ERROR_INVALID_VALUE;
	}
	return order(pid, &request);
}

SHOWN int cuCheckpointProcessCheckpoint(int pid, const struct plain_args *args)
{
	return plain(__func__, CHECKPOINT, pid, args);
}

SHOWN int cuCheckpointProcessUnlock(int pid, const struct plain_args *args)
{
	return plain(__func__, UNLOCK, pid, args);
}

static int fill_pairs(struct request *request, const struct script *script,
		      const struct restore_args *args)
{
	static const struct restore_args zero;

	if (memcmp(args->reserved, zero.reserved, sizeof(zero.reserved)) != 0 ||
	    (args->count > 0 && args->pairs == NULL) || args->count > MOST_CARDS)
		return CUDA_ERROR_INVALID_VALUE;
	if (args->count > 0 && cuda_version(script) < MAPS_SINCE)
		return CUDA_ERROR_INVALID_VALUE; /* reserved words that are not zero, to a 570 */
	request->pairs = args->count;
	for (unsigned i = 0; i < args->count; i++) {
		memcpy(request->pair[i].from, args->pairs[i].from.bytes, 16);
		memcpy(request->pair[i].to, args->pairs[i].to.bytes, 16);
	}
	return CUDA_SUCCESS;
}

/* Only here, since a session can't see who else is on the cards. */
SHOWN int cuCheckpointProcessRestore(int pid, const struct restore_args *args)
{
	struct request request = {.command = RESTORE};
	struct script *script;
	int code = begin(__func__, &script);

	if (code != CUDA_SUCCESS)
		return code;
	if (args != NULL)
		code = fill_pairs(&request, script, args);
	for (int i = 0; code == CUDA_SUCCESS && i < script->cards; i++) {
		snprintf(request.room[i].uuid, sizeof(request.room[i].uuid), "%s",
			 script->card[i].uuid);
		request.room[i].free = memory_free(script, i);
		request.rooms++;
	}
	free(script);
	return code == CUDA_SUCCESS ? order(pid, &request) : code;
}
