/* SPDX-License-Identifier: Apache-2.0 */
/* The restore thread, and what another process may ask of it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cuda_process.h"

static int lock_calls(const struct script *script)
{
	int code;

	(void)script;
	if (OWN->state != RUNNING)
		return CUDA_ERROR_ILLEGAL_STATE;
	code = gate_close(OWN->request.timeout_ms);
	if (code == CUDA_SUCCESS)
		OWN->state = LOCKED;
	return code;
}

static int unlock_calls(const struct script *script)
{
	(void)script;
	if (OWN->state != LOCKED)
		return CUDA_ERROR_ILLEGAL_STATE;
	OWN->state = RUNNING;
	gate_open();
	return CUDA_SUCCESS;
}

/* Why these cards can't be checkpointed; with FAILED where the driver only finds out too late. */
static int obstacle(const struct script *script)
{
	int code = script_breaks(script, "cuCheckpointProcessCheckpoint");

	for (int i = 0; i < OWN->cards; i++) {
		int number = process_number(script, i);

		if (number < 0 || script->card[number].lost) {
			OWN->state = FAILED;
			return CUDA_ERROR_UNKNOWN;
		}
		if (script->card[number].mig > 0)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	for (int i = 0; i < OWN->allocations; i++)
		if (OWN->allocation[i].managed)
			code = CUDA_ERROR_NOT_SUPPORTED;
	if (code != CUDA_SUCCESS)
		OWN->state = FAILED;
	return code;
}

static int blow_up(uint64_t bytes)
{
	void *balloon;

	if (bytes == 0)
		return CUDA_SUCCESS;
	balloon = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (balloon == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(balloon, 0x5a, bytes);
	OWN->balloon = balloon;
	OWN->balloon_bytes = bytes;
	return CUDA_SUCCESS;
}

static int checkpoint(const struct script *script)
{
	int code;

	if (OWN->state != LOCKED)
		return CUDA_ERROR_ILLEGAL_STATE;
	code = obstacle(script);
	if (code != CUDA_SUCCESS)
		return code;
	code = blow_up(script->balloon);
	for (int i = 0; code == CUDA_SUCCESS && i < OWN->allocations; i++)
		code = memory_fetch(&OWN->allocation[i]);
	if (code != CUDA_SUCCESS) {
		OWN->state = FAILED;
		return code;
	}
	for (int i = 0; i < OWN->allocations; i++)
		memory_remove(&OWN->allocation[i]);
	process_close_files();
	OWN->state = CHECKPOINTED;
	return CUDA_SUCCESS;
}

/* Where the held card goes by the request's pairs, as the script numbers it; -1: nowhere. */
static int target(const struct script *script, int held)
{
	const struct request *request = &OWN->request;
	unsigned char from[16], to[16];
	unsigned pair = 0;

	if (request->pairs == 0)
		return process_number(script, held);
	uuid_bytes(OWN->card[held].uuid, from);
	while (pair < request->pairs && memcmp(request->pair[pair].from, from, 16) != 0)
		pair++;
	for (int i = 0; pair < request->pairs && i < script->cards; i++) {
		uuid_bytes(script->card[i].uuid, to);
		if (memcmp(request->pair[pair].to, to, 16) == 0)
			return i;
	}
	return -1;
}

/* Every recorded card gets one of its own, of the same model, that this process may open. */
static int find_targets(const struct script *script, int *targets)
{
	int reached[MOST_CARDS], count = process_reaches(script, reached);

	for (int i = 0; i < OWN->cards; i++) {
		int open = 0;

		targets[i] = target(script, i);
		for (int j = 0; j < count; j++)
			open |= reached[j] == targets[i];
		for (int j = 0; j < i; j++)
			open &= targets[j] != targets[i];
		if (!open || strcmp(script->card[targets[i]].name, OWN->card[i].name) != 0)
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static int fits(const struct script *script, const int *targets)
{
	const struct request *request = &OWN->request;

	for (int i = 0; i < OWN->cards; i++) {
		uint64_t bytes = 0, room = 0;

		for (int j = 0; j < OWN->allocations; j++)
			if (OWN->allocation[j].card == i)
				bytes += OWN->allocation[j].bytes;
		for (unsigned j = 0; j < request->rooms && j < MOST_CARDS; j++)
			if (strcmp(request->room[j].uuid, script->card[targets[i]].uuid) == 0)
				room = request->room[j].free;
		if (bytes > room)
			return 0;
	}
	return 1;
}

static int fill_cards(const struct script *script, const int *targets)
{
	int code = script_breaks(script, "cuCheckpointProcessRestore");

	if (code == CUDA_SUCCESS && !fits(script, targets))
		code = CUDA_ERROR_OUT_OF_MEMORY;
	for (int i = 0; code == CUDA_SUCCESS && i < OWN->allocations; i++)
		if (OWN->allocation[i].host != NULL)
			code = memory_put_back(&OWN->allocation[i]);
	return code;
}

static int restore(const struct script *script)
{
	int targets[MOST_CARDS], code;

	if (OWN->state != CHECKPOINTED)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (OWN->stuck)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (strcmp(script->driver, OWN->driver) != 0)
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	code = find_targets(script, targets);
	if (code != CUDA_SUCCESS)
		return code;
	code = fill_cards(script, targets);
	if (code != CUDA_SUCCESS) {
		OWN->stuck = 1;
		return code;
	}
	for (int i = 0; i < OWN->cards; i++) {
		const struct card *card = &script->card[targets[i]];

		snprintf(OWN->card[i].uuid, sizeof(OWN->card[i].uuid), "%s", card->uuid);
		OWN->card[i].minor = card->minor;
		OWN->card[i].total = card->total;
	}
	if (OWN->balloon != NULL)
		munmap(OWN->balloon, OWN->balloon_bytes);
	OWN->balloon = NULL;
	process_open_files();
	OWN->state = LOCKED;
	return CUDA_SUCCESS;
}

static const struct {
	const char *call;
	int (*act)(const struct script *script);
} ACTIONS[] = {
	[LOCK] = {"cuCheckpointProcessLock", lock_calls},
	[CHECKPOINT] = {"cuCheckpointProcessCheckpoint", checkpoint},
	[RESTORE] = {"cuCheckpointProcessRestore", restore},
	[UNLOCK] = {"cuCheckpointProcessUnlock", unlock_calls},
};

static int obey(void)
{
	int command = OWN->request.command, code;
	struct script *script;

	if (command < LOCK || command > UNLOCK)
		return CUDA_ERROR_INVALID_VALUE;
	script = process_script();
	if (script == NULL)
		return CUDA_ERROR_UNKNOWN;
	script_pause(script, FAULT_SLOW, ACTIONS[command].call);
	code = ACTIONS[command].act(script);
	script_pause(script, FAULT_LATE, ACTIONS[command].call);
	free(script);
	return code;
}

static void *wait_for_requests(void *started)
{
	struct timespec a_second = {1, 0};
	sigset_t wake;

	sigemptyset(&wake);
	sigaddset(&wake, CONTROL_WAKE);
	OWN->thread = (int)syscall(SYS_gettid);
	pthread_barrier_wait(started);
	for (;;) {
		uint64_t asked;

		sigtimedwait(&wake, NULL, &a_second);
		asked = atomic_load(&OWN->asked);
		if (asked == atomic_load(&OWN->answered))
			continue;
		OWN->result = obey();
		atomic_store(&OWN->answered, asked);
	}
	return NULL;
}

int actions_begin(void)
{
	pthread_barrier_t started;
	pthread_t thread;
	sigset_t all, before;
	int problem;

	sigfillset(&all);
	pthread_barrier_init(&started, NULL, 2);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	problem = pthread_create(&thread, NULL, wait_for_requests, &started);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (problem == 0) {
		pthread_barrier_wait(&started);
		pthread_detach(thread);
	}
	pthread_barrier_destroy(&started);
	return problem == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
