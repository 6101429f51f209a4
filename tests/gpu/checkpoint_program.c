/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for NVIDIA's cuda-checkpoint program, on the stand-in library. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "cuda.h"

int cuInit(unsigned flags);
int cuGetErrorName(int code, const char **name);
int cuCheckpointProcessGetState(int pid, int *state);
int cuCheckpointProcessGetRestoreThreadId(int pid, int *thread);
int cuCheckpointProcessLock(int pid, const struct lock_args *args);
int cuCheckpointProcessCheckpoint(int pid, const struct plain_args *args);
int cuCheckpointProcessRestore(int pid, const struct restore_args *args);
int cuCheckpointProcessUnlock(int pid, const struct plain_args *args);

static const char HELP[] =
	"Simulated CUDA checkpoint and restore.\n\n"
	"  --get-state --pid <value>          print the state of a process\n"
	"  --get-restore-tid --pid <value>    print the id of its restore thread\n"
	"  --action <value> --pid <value>     lock | checkpoint | restore | unlock\n"
	"      --timeout <value>              of lock, milliseconds\n"
	"      --device-map <value>           of restore, oldUuid=newUuid,...\n"
	"  --toggle --pid <value>             running to checkpointed, or back\n"
	"  --help\n";

static struct gpu_pair pairs[MOST_CARDS];
static struct restore_args map = {.pairs = pairs};

static int report(const char *doing, int code)
{
	const char *name = "?";

	if (code == CUDA_SUCCESS)
		return 0;
	cuGetErrorName(code, &name);
	fprintf(stderr, "Could not %s: %s (%d)\n", doing, name, code);
	return 1;
}

static int read_map(char *text)
{
	char *rest, *word;

	for (word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
		char *to = strchr(word, '=');

		if (to == NULL || map.count == MOST_CARDS)
			return -1;
		*to++ = '\0';
		uuid_bytes(word, pairs[map.count].from.bytes);
		uuid_bytes(to, pairs[map.count].to.bytes);
		map.count++;
	}
	return 0;
}

static int act(const char *action, int pid, unsigned timeout_ms)
{
	struct lock_args lock = {.timeout_ms = timeout_ms};

	if (strcmp(action, "lock") == 0)
		return report(action, cuCheckpointProcessLock(pid, &lock));
	if (strcmp(action, "checkpoint") == 0)
		return report(action, cuCheckpointProcessCheckpoint(pid, NULL));
	if (strcmp(action, "restore") == 0)
		return report(action, cuCheckpointProcessRestore(pid, map.count ? &map : NULL));
	if (strcmp(action, "unlock") == 0)
		return report(action, cuCheckpointProcessUnlock(pid, NULL));
	fprintf(stderr, "Unknown action: %s\n", action);
	return 1;
}

/* As NVIDIA's does, it takes no notice of a device map. */
static int toggle(int pid, unsigned timeout_ms)
{
	int state, code = cuCheckpointProcessGetState(pid, &state);

	map.count = 0;
	if (code != CUDA_SUCCESS)
		return report("get state", code);
	if (state == RUNNING)
		return act("lock", pid, timeout_ms) || act("checkpoint", pid, 0);
	return act("restore", pid, 0) || act("unlock", pid, 0);
}

static int show_state(int pid)
{
	static const char *const STATES[] = {"running", "locked", "checkpointed", "failed"};
	int state, code = cuCheckpointProcessGetState(pid, &state);

	if (code == CUDA_SUCCESS)
		puts(STATES[state & 3]);
	return report("get state", code);
}

static int show_thread(int pid)
{
	int thread, code = cuCheckpointProcessGetRestoreThreadId(pid, &thread);

	if (code == CUDA_SUCCESS)
		printf("%d\n", thread);
	return report("find restore thread", code);
}

int main(int argc, char **argv)
{
	static const struct option OPTIONS[] = {
		{"help", no_argument, NULL, 'h'},
		{"pid", required_argument, NULL, 'p'},
		{"get-state", no_argument, NULL, 's'},
		{"get-restore-tid", no_argument, NULL, 'r'},
		{"toggle", no_argument, NULL, 'g'},
		{"action", required_argument, NULL, 'a'},
		{"timeout", required_argument, NULL, 't'},
		{"device-map", required_argument, NULL, 'm'},
		{NULL, 0, NULL, 0},
	};
	const char *action = NULL;
	int option, what = 0, pid = 0, code;
	unsigned timeout_ms = 0;

	while ((option = getopt_long(argc, argv, "hp:a:t:", OPTIONS, NULL)) != -1) {
		if (option == 'p')
			pid = atoi(optarg);
		else if (option == 't')
			timeout_ms = (unsigned)atoi(optarg);
		else if (option == 'm' && read_map(optarg) != 0)
			return fprintf(stderr, "Malformed device map\n"), 1;
		else if (option == 'h')
			return fputs(HELP, stdout), 0;
		else if (option == '?')
			return 1;
		if (option == 'a')
			action = optarg;
		if (strchr("srga", option) != NULL)
			what = option;
	}
	if (what == 0 || pid <= 0) {
		fputs(HELP, stderr);
		return 1;
	}
	code = cuInit(0);
	if (code != CUDA_SUCCESS)
		return report("initialise CUDA", code);
	if (what == 's')
		return show_state(pid);
	if (what == 'r')
		return show_thread(pid);
	return what == 'g' ? toggle(pid, timeout_ms) : act(action, pid, timeout_ms);
}
