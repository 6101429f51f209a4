/* SPDX-License-Identifier: Apache-2.0 */
/* Who is on a card, and how busy it was. */
#include <string.h>

#include "control.h"
#include "nvml_device.h"

#define RATE 6.0 /* samples a second */

static int in_wave(const struct wave *wave, double at)
{
	double phase = at - wave->every * (double)(long long)(at / wave->every);

	return phase < wave->length;
}

/* Those newer than `seen`, oldest first; how many. `into` may be NULL. */
static unsigned collect(const struct series *series, unsigned long long seen,
			struct nvml_sample *into, unsigned most)
{
	double now = script_now(&script);
	unsigned count = 0;
	double first = now - script.kept;

	for (int i = 0; i < series->listed; i++) {
		unsigned long long stamp =
			(unsigned long long)((now - series->list[i].age) * 1e6);

		if (stamp <= seen)
			continue;
		if (into != NULL && count < most)
			into[count] = (struct nvml_sample){stamp, {.ui = series->list[i].value}};
		count++;
	}
	if (series->wave.every <= 0)
		return count;
	for (long long tick = (long long)(first * RATE) + 1; (double)tick / RATE <= now; tick++) {
		double at = (double)tick / RATE;
		unsigned long long stamp = (unsigned long long)(at * 1e6);
		unsigned value = in_wave(&series->wave, at) ? series->wave.value : 0;

		if (stamp <= seen)
			continue;
		if (into != NULL && count < most)
			into[count] = (struct nvml_sample){stamp, {.ui = value}};
		count++;
	}
	return count;
}

SHOWN int nvmlDeviceGetSamples(struct handle *handle, unsigned kind, unsigned long long seen,
			       unsigned *type, unsigned *count, struct nvml_sample *samples)
{
	struct card *card;
	int code = on(__func__, handle, &card);
	unsigned there;

	if (code != 0)
		return code;
	if (kind < 1 || kind > KINDS || !card->series[kind - 1].given)
		return NVML_ERROR_NOT_SUPPORTED;
	*type = NVML_VALUE_TYPE_UNSIGNED_INT;
	there = collect(&card->series[kind - 1], seen, samples, *count);
	if (there == 0)
		return NVML_ERROR_NOT_FOUND;
	*count = samples != NULL && there > *count ? *count : there;
	return NVML_SUCCESS;
}

SHOWN int nvmlDeviceGetProcessUtilization(struct handle *handle,
					  struct nvml_process_sample *samples, unsigned *count,
					  unsigned long long seen)
{
	struct card *card;
	int code = on(__func__, handle, &card);
	unsigned room = *count, there = 0;

	if (code != 0)
		return code;
	for (int i = 0; i < card->uses; i++) {
		struct nvml_process_sample sample = card->use[i].sample;

		sample.stamp = (unsigned long long)((script_now(&script) - card->use[i].age) * 1e6);
		if (sample.stamp <= seen)
			continue;
		if (samples != NULL && there < room)
			samples[there] = sample;
		there++;
	}
	*count = there;
	if (there == 0)
		return NVML_ERROR_NOT_FOUND;
	return samples == NULL || room < there ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* The processes of a card: those of the script, then the clients of the stand-in libcuda. */
struct listing {
	const char *uuid;
	unsigned count;
	unsigned long long bytes;
	struct nvml_process process[MOST_PROCESSES * 2];
};

static void list(pid_t pid, const struct control *control, void *with)
{
	struct listing *listing = with;
	int contexts;
	uint64_t bytes = control_holds(control, listing->uuid, &contexts);

	listing->bytes += bytes;
	if (contexts > 0 && listing->count < MOST_PROCESSES * 2)
		listing->process[listing->count++] =
			(struct nvml_process){(unsigned)pid, bytes, UINT32_MAX, UINT32_MAX};
}

unsigned long long held_by_clients(const struct card *card)
{
	struct listing listing = {.uuid = card->uuid};

	control_scan(list, &listing);
	return listing.bytes;
}

SHOWN int nvmlDeviceGetComputeRunningProcesses_v3(struct handle *handle, unsigned *count,
						  struct nvml_process *processes)
{
	struct card *card;
	int code = on(__func__, handle, &card);
	unsigned room = *count;
	struct listing listing = {0};

	if (code != 0)
		return code;
	listing.uuid = card->uuid;
	listing.count = (unsigned)card->processes;
	memcpy(listing.process, card->process, listing.count * sizeof(*processes));
	control_scan(list, &listing);
	*count = listing.count;
	if (listing.count == 0)
		return NVML_SUCCESS;
	if (processes == NULL || room < listing.count)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(processes, listing.process, listing.count * sizeof(*processes));
	return NVML_SUCCESS;
}
