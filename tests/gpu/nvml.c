/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated libnvidia-ml.so.1: the calls that the GPU meter makes through nvidia-ml-py, answered
 * from a script that is read anew at each call. One thread at a time, as the meter uses it.
 */
#include <stdio.h>
#include <string.h>

#include "nvml_device.h"

static struct handle handles[MOST_CARDS * (MOST_INSTANCES + 1)];

struct script script;
static int initialised;
/* A card that fell off the bus stays away until NVML is initialised anew. */
static int lost[MOST_CARDS];

static int begin(const char *call, int card)
{
	if (!initialised)
		return NVML_ERROR_UNINITIALIZED;
	if (script_read(&script) != 0)
		return NVML_ERROR_UNKNOWN;
	return script_fault(&script, call, card);
}

int on(const char *call, const struct handle *handle, struct card **card)
{
	int code;

	if (handle < handles || handle >= handles + sizeof(handles) / sizeof(handles[0]))
		return NVML_ERROR_INVALID_ARGUMENT;
	code = begin(call, handle->card);
	if (code == NVML_ERROR_GPU_IS_LOST)
		lost[handle->card] = 1;
	if (code == 0 && lost[handle->card])
		code = NVML_ERROR_GPU_IS_LOST;
	if (code != 0)
		return code;
	if (handle->card >= script.cards)
		return NVML_ERROR_GPU_IS_LOST;
	*card = &script.card[handle->card];
	if (handle->instance >= (*card)->instances)
		return NVML_ERROR_NOT_FOUND;
	return 0;
}

static const struct instance *instance_of(const struct card *card, const struct handle *handle)
{
	return handle->instance < 0 ? NULL : &card->instance[handle->instance];
}

static int give(char *buffer, unsigned size, const char *text)
{
	if (strlen(text) >= size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(buffer, text);
	return NVML_SUCCESS;
}

SHOWN int nvmlInitWithFlags(unsigned flags)
{
	int code;

	(void)flags;
	if (script_read(&script) != 0)
		return NVML_ERROR_DRIVER_NOT_LOADED;
	code = script_fault(&script, __func__, -1);
	if (code == 0)
		initialised = 1;
	return code;
}

SHOWN int nvmlShutdown(void)
{
	int code = begin(__func__, -1);

	if (code == 0) {
		initialised = 0;
		memset(lost, 0, sizeof(lost));
	}
	return code;
}

SHOWN const char *nvmlErrorString(int code)
{
	static char text[64];

	snprintf(text, sizeof(text), "simulated error %d", code);
	return text;
}

SHOWN int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
	int code = begin(__func__, -1);

	return code != 0 ? code : give(version, size, script.driver);
}

SHOWN int nvmlDeviceGetCount_v2(unsigned *count)
{
	int code = begin(__func__, -1);

	if (code == 0)
		*count = (unsigned)script.cards;
	return code;
}

SHOWN int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct handle **handle)
{
	int code = begin(__func__, (int)index);

	if (code != 0)
		return code;
	if (index >= (unsigned)script.cards)
		return NVML_ERROR_INVALID_ARGUMENT;
	*handle = &handles[index];
	(*handle)->card = (int)index;
	(*handle)->instance = -1;
	return NVML_SUCCESS;
}

SHOWN int nvmlDeviceGetUUID(struct handle *handle, char *uuid, unsigned size)
{
	struct card *card;
	int code = on(__func__, handle, &card);
	const struct instance *part;

	if (code != 0)
		return code;
	part = instance_of(card, handle);
	return give(uuid, size, part != NULL ? part->uuid : card->uuid);
}

SHOWN int nvmlDeviceGetName(struct handle *handle, char *name, unsigned size)
{
	struct card *card;
	int code = on(__func__, handle, &card);
	const struct instance *part;

	if (code != 0)
		return code;
	part = instance_of(card, handle);
	return give(name, size, part != NULL ? part->name : card->name);
}

SHOWN int nvmlDeviceGetMinorNumber(struct handle *handle, unsigned *minor)
{
	struct card *card;
	int code = on(__func__, handle, &card);

	if (code == 0)
		*minor = card->minor;
	return code;
}

SHOWN int nvmlDeviceGetMemoryInfo(struct handle *handle, struct nvml_memory *memory)
{
	struct card *card;
	int code = on(__func__, handle, &card);
	const struct instance *part;

	if (code != 0)
		return code;
	part = instance_of(card, handle);
	memory->total = part != NULL ? part->total : card->total;
	memory->used = part != NULL ? part->used : card->used + held_by_clients(card);
	if (memory->used > memory->total)
		memory->used = memory->total;
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

SHOWN int nvmlDeviceGetUtilizationRates(struct handle *handle, struct nvml_rates *rates)
{
	struct card *card;
	int code = on(__func__, handle, &card);

	if (code != 0)
		return code;
	rates->gpu = card->rates[0];
	rates->memory = card->rates[1];
	return NVML_SUCCESS;
}

static int codec(const char *call, struct handle *handle, int kind, unsigned *value,
		 unsigned *period)
{
	struct card *card;
	int code = on(call, handle, &card);

	if (code != 0)
		return code;
	*value = card->rates[kind];
	*period = 167000;
	return NVML_SUCCESS;
}

SHOWN int nvmlDeviceGetEncoderUtilization(struct handle *handle, unsigned *value, unsigned *period)
{
	return codec(__func__, handle, 2, value, period);
}

SHOWN int nvmlDeviceGetDecoderUtilization(struct handle *handle, unsigned *value, unsigned *period)
{
	return codec(__func__, handle, 3, value, period);
}

SHOWN int nvmlDeviceGetPcieThroughput(struct handle *handle, unsigned counter, unsigned *value)
{
	struct card *card;
	int code = on(__func__, handle, &card);

	if (code != 0)
		return code;
	if (counter > 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	*value = card->pcie[counter];
	return NVML_SUCCESS;
}

SHOWN int nvmlDeviceGetMigMode(struct handle *handle, unsigned *current, unsigned *pending)
{
	struct card *card;
	int code = on(__func__, handle, &card);

	if (code != 0)
		return code;
	if (card->mig < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*current = *pending = (unsigned)card->mig;
	return NVML_SUCCESS;
}

SHOWN int nvmlDeviceGetMaxMigDeviceCount(struct handle *handle, unsigned *count)
{
	struct card *card;
	int code = on(__func__, handle, &card);

	if (code == 0)
		*count = card->mig > 0 ? MOST_INSTANCES - 1 : 0;
	return code;
}

SHOWN int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *handle, unsigned index,
					      struct handle **part)
{
	struct card *card;
	int code = on(__func__, handle, &card);

	if (code != 0)
		return code;
	if (index >= (unsigned)card->instances)
		return NVML_ERROR_NOT_FOUND;
	*part = &handles[MOST_CARDS + handle->card * MOST_INSTANCES + (int)index];
	(*part)->card = handle->card;
	(*part)->instance = (int)index;
	return NVML_SUCCESS;
}

SHOWN int nvmlDeviceGetGpuInstanceId(struct handle *handle, unsigned *id)
{
	struct card *card;
	int code = on(__func__, handle, &card);
	const struct instance *part;

	if (code != 0)
		return code;
	part = instance_of(card, handle);
	if (part == NULL)
		return NVML_ERROR_NOT_FOUND;
	*id = part->gpu_instance;
	return NVML_SUCCESS;
}
