/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory: one file for each allocation, mapped only while it is copied from or to. So it is
 * neither the process's own memory nor an open file of it, as a real card's is not.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_process.h"

#define MEMORY "/var/lib/simulated-gpu"

static void memory_path(const struct allocation *allocation, char *path, size_t size)
{
	const char *directory = getenv("SIMULATED_GPU_MEMORY");

	snprintf(path, size, "%s/%s-%lx", directory == NULL ? MEMORY : directory, OWN->id,
		 (unsigned long)allocation->address);
}

/* The contents, mapped; NULL with errno where there is no such file or no room for it. */
static void *view(const struct allocation *allocation, int create)
{
	char path[4096];
	int file, problem;
	void *mapped;

	memory_path(allocation, path, sizeof(path));
	/* One that was killed has left its own there: the same image may come back again. */
	if (create)
		unlink(path);
	file = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
	if (file < 0)
		return NULL;
	problem = create ? posix_fallocate(file, 0, (off_t)allocation->bytes) : 0;
	mapped = problem != 0 ? MAP_FAILED
			      : mmap(NULL, allocation->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
				     file, 0);
	if (mapped == MAP_FAILED && create)
		unlink(path);
	close(file);
	if (problem != 0)
		errno = problem;
	return mapped == MAP_FAILED ? NULL : mapped;
}

void memory_remove(const struct allocation *allocation)
{
	char path[4096];

	memory_path(allocation, path, sizeof(path));
	unlink(path);
}

static int make(const struct allocation *allocation)
{
	void *mapped = view(allocation, 1);

	if (mapped == NULL) {
		perror("simulated CUDA: no device memory");
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	munmap(mapped, allocation->bytes);
	return CUDA_SUCCESS;
}

int memory_fetch(struct allocation *allocation)
{
	void *mapped = view(allocation, 0), *host;

	if (mapped == NULL)
		return CUDA_ERROR_UNKNOWN;
	host = mmap(NULL, allocation->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	if (host != MAP_FAILED)
		memcpy(host, mapped, allocation->bytes);
	munmap(mapped, allocation->bytes);
	if (host == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	allocation->host = host;
	return CUDA_SUCCESS;
}

int memory_put_back(struct allocation *allocation)
{
	void *mapped = view(allocation, 1);

	if (mapped == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(mapped, allocation->host, allocation->bytes);
	munmap(mapped, allocation->bytes);
	munmap(allocation->host, allocation->bytes);
	allocation->host = NULL;
	return CUDA_SUCCESS;
}

struct sum {
	const char *uuid;
	uint64_t bytes;
};

static void add(pid_t pid, const struct control *control, void *with)
{
	struct sum *sum = with;
	int contexts;

	(void)pid;
	sum->bytes += control_holds(control, sum->uuid, &contexts);
}

uint64_t memory_free(const struct script *script, int card)
{
	struct sum sum = {script->card[card].uuid, script->card[card].used};

	control_scan(add, &sum);
	return sum.bytes < script->card[card].total ? script->card[card].total - sum.bytes : 0;
}

/* Takes `bytes` on the held card `card`; the tables are locked. */
static int take(const struct script *script, uint64_t *address, size_t bytes, int card, int managed)
{
	int number = process_number(script, card), code;
	struct allocation *allocation = &OWN->allocation[OWN->allocations];

	if (number < 0)
		return CUDA_ERROR_UNKNOWN;
	if (OWN->allocations == MOST_ALLOCATIONS || bytes > memory_free(script, number))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*allocation = (struct allocation){OWN->next_address, bytes, card, managed, NULL};
	code = make(allocation);
	if (code != CUDA_SUCCESS)
		return code;
	OWN->next_address += (bytes + (1u << 21)) & ~((1ul << 21) - 1);
	*address = allocation->address;
	OWN->allocations++;
	return CUDA_SUCCESS;
}

int memory_take(uint64_t *address, size_t bytes, int card, int managed)
{
	struct script *script;
	int code;

	if (address == NULL || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	script = process_script();
	if (script == NULL)
		return CUDA_ERROR_UNKNOWN;
	tables_lock();
	code = take(script, address, bytes, card, managed);
	tables_unlock();
	free(script);
	return code;
}

static struct allocation *holding(uint64_t address, size_t bytes)
{
	for (int i = 0; i < OWN->allocations; i++) {
		struct allocation *each = &OWN->allocation[i];

		if (address >= each->address && address - each->address < each->bytes &&
		    bytes <= each->bytes - (address - each->address))
			return each;
	}
	return NULL;
}

int memory_give_up(uint64_t address)
{
	struct allocation *allocation;
	int code = CUDA_ERROR_INVALID_VALUE;

	tables_lock();
	allocation = holding(address, 1);
	if (allocation != NULL && allocation->address == address) {
		memory_remove(allocation);
		*allocation = OWN->allocation[--OWN->allocations];
		code = CUDA_SUCCESS;
	}
	tables_unlock();
	return code;
}

int memory_copy(uint64_t address, void *into, const void *from, size_t bytes)
{
	const struct allocation *allocation;
	char *mapped;
	int code = CUDA_ERROR_INVALID_VALUE;

	if (bytes == 0)
		return CUDA_SUCCESS;
	tables_lock();
	allocation = holding(address, bytes);
	if (allocation != NULL) {
		mapped = view(allocation, 0);
		code = mapped == NULL ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
		if (mapped != NULL) {
			char *place = mapped + (address - allocation->address);

			memcpy(into != NULL ? into : place, into != NULL ? place : from, bytes);
			munmap(mapped, allocation->bytes);
		}
	}
	tables_unlock();
	return code;
}
