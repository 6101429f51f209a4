/* SPDX-License-Identifier: Apache-2.0 */
/* The calls about devices, contexts and memory. A device is CUDA's number of a card that is shown,
 * a context the address of its place in `contexts`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_process.h"

static struct context {
	int held;
} contexts[MOST_CARDS];
static _Thread_local struct context *current;

/* CUDA versions of the drivers that are told apart by what they can do. */
static const struct {
	int branch, version;
} VERSIONS[] = {
	{610, 13030}, {595, 13020}, {590, 13010}, {580, 13000}, {575, 12090}, {570, 12080},
	{565, 12070}, {560, 12060}, {555, 12050}, {550, 12040}, {535, 12020}, {0, 11000},
};

int cuda_version(const struct script *script)
{
	int branch = atoi(script->driver), i = 0;

	if (script->cuda != 0)
		return script->cuda;
	while (branch < VERSIONS[i].branch)
		i++;
	return VERSIONS[i].version;
}

static int held_of(int device)
{
	for (int i = 0; i < OWN->cards; i++)
		if (device >= 0 && OWN->card[i].shown == device)
			return i;
	return -1;
}

/* Through the gate for a call on a device; `held` gets its card. */
static int on(const char *call, int device, int *held)
{
	if (!process_begun())
		return CUDA_ERROR_NOT_INITIALIZED;
	*held = held_of(device);
	return *held < 0 ? CUDA_ERROR_INVALID_DEVICE : gate_enter(call, *held);
}

/* The same for a call in the current context. */
static int in(const char *call, int *held)
{
	if (!process_begun())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (current == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	*held = current->held;
	return gate_enter(call, *held);
}

SHOWN int cuInit(unsigned flags)
{
	return flags != 0 ? CUDA_ERROR_INVALID_VALUE : process_begin();
}

SHOWN int cuDriverGetVersion(int *version)
{
	struct script *script = process_script();

	if (version == NULL || script == NULL) {
		free(script);
		return version == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_UNKNOWN;
	}
	*version = cuda_version(script);
	free(script);
	return CUDA_SUCCESS;
}

SHOWN int cuDeviceGetCount(int *count)
{
	int code = gate_enter(__func__, -1);

	if (code != CUDA_SUCCESS)
		return code;
	*count = 0;
	for (int i = 0; i < OWN->cards; i++)
		*count += OWN->card[i].shown >= 0;
	gate_leave();
	return CUDA_SUCCESS;
}

SHOWN int cuDeviceGet(int *device, int ordinal)
{
	int held, code = on(__func__, ordinal, &held);

	if (code != CUDA_SUCCESS)
		return code;
	*device = ordinal;
	gate_leave();
	return CUDA_SUCCESS;
}

SHOWN int cuDeviceGetUuid_v2(struct cuda_uuid *uuid, int device)
{
	int held, code = on("cuDeviceGetUuid", device, &held);

	if (code != CUDA_SUCCESS)
		return code;
	uuid_bytes(OWN->card[held].uuid, uuid->bytes);
	gate_leave();
	return CUDA_SUCCESS;
}

SHOWN int cuDeviceGetUuid(struct cuda_uuid *uuid, int device)
{
	return cuDeviceGetUuid_v2(uuid, device);
}

static int give(char *into, int size, const char *text)
{
	if (into == NULL || size <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(into, (size_t)size, "%s", text);
	return CUDA_SUCCESS;
}

SHOWN int cuDeviceGetName(char *name, int size, int device)
{
	int held, code = on(__func__, device, &held);

	if (code != CUDA_SUCCESS)
		return code;
	code = give(name, size, OWN->card[held].name);
	gate_leave();
	return code;
}

SHOWN int cuDeviceGetPCIBusId(char *bus, int size, int device)
{
	int held, code = on(__func__, device, &held);

	if (code != CUDA_SUCCESS)
		return code;
	code = give(bus, size, OWN->card[held].bus);
	gate_leave();
	return code;
}

SHOWN int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	int held, code = on("cuDeviceTotalMem", device, &held);

	if (code != CUDA_SUCCESS)
		return code;
	*bytes = OWN->card[held].total;
	gate_leave();
	return CUDA_SUCCESS;
}

static struct context *count_context(int held, int more)
{
	tables_lock();
	OWN->card[held].contexts += more;
	tables_unlock();
	contexts[held].held = held;
	return &contexts[held];
}

SHOWN int cuDevicePrimaryCtxRetain(struct context **context, int device)
{
	int held, code = on(__func__, device, &held);

	if (code != CUDA_SUCCESS)
		return code;
	*context = count_context(held, 1);
	gate_leave();
	return CUDA_SUCCESS;
}

SHOWN int cuDevicePrimaryCtxRelease_v2(int device)
{
	int held, code = on("cuDevicePrimaryCtxRelease", device, &held);

	if (code != CUDA_SUCCESS)
		return code;
	if (OWN->card[held].contexts > 0)
		count_context(held, -1);
	else
		code = CUDA_ERROR_INVALID_CONTEXT;
	gate_leave();
	return code;
}

SHOWN int cuCtxCreate_v2(struct context **context, unsigned flags, int device)
{
	int held, code = on("cuCtxCreate", device, &held);

	(void)flags;
	if (code != CUDA_SUCCESS)
		return code;
	*context = current = count_context(held, 1);
	gate_leave();
	return CUDA_SUCCESS;
}

SHOWN int cuCtxCreate_v4(struct context **context, const void *params, unsigned flags, int device)
{
	return params != NULL ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(context, flags, device);
}

SHOWN int cuCtxDestroy_v2(struct context *context)
{
	int code;

	if (context < contexts || context >= contexts + MOST_CARDS)
		return CUDA_ERROR_INVALID_CONTEXT;
	code = gate_enter("cuCtxDestroy", context->held);
	if (code != CUDA_SUCCESS)
		return code;
	count_context(context->held, -1);
	if (current == context)
		current = NULL;
	gate_leave();
	return CUDA_SUCCESS;
}

SHOWN int cuCtxSetCurrent(struct context *context)
{
	if (!process_begun())
		return CUDA_ERROR_NOT_INITIALIZED;
	current = context;
	return CUDA_SUCCESS;
}

SHOWN int cuCtxGetCurrent(struct context **context)
{
	if (!process_begun())
		return CUDA_ERROR_NOT_INITIALIZED;
	*context = current;
	return CUDA_SUCCESS;
}

SHOWN int cuCtxSynchronize(void)
{
	int held, code = in(__func__, &held);

	if (code == CUDA_SUCCESS)
		gate_leave();
	return code;
}

SHOWN int cuMemGetInfo_v2(size_t *unused, size_t *total)
{
	int held, code = in("cuMemGetInfo", &held);
	struct script *script;

	if (code != CUDA_SUCCESS)
		return code;
	script = process_script();
	if (script != NULL && process_number(script, held) >= 0)
		*unused = memory_free(script, process_number(script, held));
	else
		code = CUDA_ERROR_UNKNOWN;
	*total = OWN->card[held].total;
	free(script);
	gate_leave();
	return code;
}

static int allocate(const char *call, uint64_t *address, size_t bytes, int managed)
{
	int held, code = in(call, &held);

	if (code != CUDA_SUCCESS)
		return code;
	code = memory_take(address, bytes, held, managed);
	gate_leave();
	return code;
}

SHOWN int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
	return allocate("cuMemAlloc", address, bytes, 0);
}

SHOWN int cuMemAllocManaged(uint64_t *address, size_t bytes, unsigned flags)
{
	return flags != 1 && flags != 2 ? CUDA_ERROR_INVALID_VALUE
					: allocate(__func__, address, bytes, 1);
}

SHOWN int cuMemFree_v2(uint64_t address)
{
	int held, code = in("cuMemFree", &held);

	if (code != CUDA_SUCCESS)
		return code;
	code = memory_give_up(address);
	gate_leave();
	return code;
}

static int copy(const char *call, uint64_t address, void *into, const void *from, size_t bytes)
{
	int held, code;

	if (into == NULL && from == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	code = in(call, &held);
	if (code != CUDA_SUCCESS)
		return code;
	code = memory_copy(address, into, from, bytes);
	gate_leave();
	return code;
}

SHOWN int cuMemcpyHtoD_v2(uint64_t address, const void *from, size_t bytes)
{
	return copy("cuMemcpyHtoD", address, NULL, from, bytes);
}

SHOWN int cuMemcpyDtoH_v2(void *into, uint64_t address, size_t bytes)
{
	return copy("cuMemcpyDtoH", address, into, NULL, bytes);
}
