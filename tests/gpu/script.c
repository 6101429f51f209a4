/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codes.h"
#include "script.h"

#define PLACE "/run/simulated-gpu/nvml"
#define LONGEST 8192

static int kind_of(const char *name)
{
	static const char *const names[KINDS] = {"gpu", "memory", "encoder", "decoder"};

	for (int i = 0; i < KINDS; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

/* `samples KIND [AGE:VALUE ...]`: the buffer as it lies there, oldest first. */
static int read_samples(struct card *card, const char *rest)
{
	char name[16];
	int used = 0, kind;
	struct series *series;

	if (sscanf(rest, "%15s%n", name, &used) != 1 || (kind = kind_of(name)) < 0)
		return -1;
	series = &card->series[kind];
	series->given = 1;
	for (rest += used; series->listed < MOST_SAMPLES; rest += used) {
		double age;
		unsigned value;

		if (sscanf(rest, " %lf:%u%n", &age, &value, &used) != 2)
			return rest[strspn(rest, " ")] == '\0' ? 0 : -1;
		series->list[series->listed].age = age;
		series->list[series->listed++].value = value;
	}
	return -1;
}

static int read_wave(struct card *card, const char *rest)
{
	char name[16];
	int kind;
	struct wave wave;

	if (sscanf(rest, "%15s %lf %lf %u", name, &wave.every, &wave.length, &wave.value) != 4 ||
	    (kind = kind_of(name)) < 0 || wave.every <= 0)
		return -1;
	card->series[kind].given = 1;
	card->series[kind].wave = wave;
	return 0;
}

static int read_process(struct card *card, const char *rest)
{
	struct nvml_process process = {0, 0, UINT32_MAX, UINT32_MAX};

	if (card->processes == MOST_PROCESSES ||
	    sscanf(rest, "%u %llu %u %u", &process.pid, &process.used, &process.gpu_instance,
		   &process.compute_instance) < 2)
		return -1;
	card->process[card->processes++] = process;
	return 0;
}

static int read_use(struct card *card, const char *rest)
{
	struct nvml_process_sample sample = {0};
	double age = 1;

	if (card->uses == MOST_PROCESSES ||
	    sscanf(rest, "%u %u %u %u %u %lf", &sample.pid, &sample.sm, &sample.memory,
		   &sample.encoder, &sample.decoder, &age) < 5)
		return -1;
	card->use[card->uses].age = age;
	card->use[card->uses++].sample = sample;
	return 0;
}

static int read_instance(struct card *card, const char *rest)
{
	struct instance *instance = &card->instance[card->instances];

	if (card->instances == MOST_INSTANCES ||
	    sscanf(rest, "%95s %llu %llu %u %95[^\n]", instance->uuid, &instance->total,
		   &instance->used, &instance->gpu_instance, instance->name) != 5)
		return -1;
	card->instances++;
	return 0;
}

static int read_card_line(struct card *card, const char *word, const char *rest)
{
	if (strcmp(word, "uuid") == 0)
		return sscanf(rest, "%95s", card->uuid) == 1 ? 0 : -1;
	if (strcmp(word, "name") == 0)
		return sscanf(rest, "%95[^\n]", card->name) == 1 ? 0 : -1;
	if (strcmp(word, "minor") == 0)
		return sscanf(rest, "%u", &card->minor) == 1 ? 0 : -1;
	if (strcmp(word, "vram") == 0)
		return sscanf(rest, "%llu %llu", &card->total, &card->used) == 2 ? 0 : -1;
	if (strcmp(word, "rates") == 0)
		return sscanf(rest, "%u %u %u %u", &card->rates[0], &card->rates[1],
			      &card->rates[2], &card->rates[3]) == 4 ? 0 : -1;
	if (strcmp(word, "pcie") == 0)
		return sscanf(rest, "%u %u", &card->pcie[0], &card->pcie[1]) == 2 ? 0 : -1;
	if (strcmp(word, "mig") == 0)
		return sscanf(rest, "%d", &card->mig) == 1 ? 0 : -1;
	if (strcmp(word, "lost") == 0)
		return (card->lost = 1) == 1 && rest[0] == '\0' ? 0 : -1;
	if (strcmp(word, "samples") == 0)
		return read_samples(card, rest);
	if (strcmp(word, "wave") == 0)
		return read_wave(card, rest);
	if (strcmp(word, "process") == 0)
		return read_process(card, rest);
	if (strcmp(word, "use") == 0)
		return read_use(card, rest);
	if (strcmp(word, "instance") == 0)
		return read_instance(card, rest);
	return -1;
}

static const char *const FAULTS[] = {"error", "delay", "slow", "late", "breaks"};

static int fault_of(const char *word)
{
	for (int i = 0; i < (int)(sizeof(FAULTS) / sizeof(FAULTS[0])); i++)
		if (strcmp(FAULTS[i], word) == 0)
			return i;
	return -1;
}

/* `error CALL CODE`, `delay CALL SECONDS`, ...: before the first card for all, else for that. */
static int read_fault(struct script *script, int kind, const char *rest)
{
	struct fault *fault = &script->fault[script->faults];
	char value[64];

	if (script->faults == MOST_FAULTS || sscanf(rest, "%63s %63s", fault->call, value) != 2)
		return -1;
	fault->kind = kind;
	fault->card = script->cards - 1;
	if (kind != FAULT_ERROR && kind != FAULT_BREAKS)
		return sscanf(value, "%lf", &fault->delay) == 1 && ++script->faults ? 0 : -1;
	fault->code = code_of(fault->call, value);
	if (fault->code < 0)
		return -1;
	script->faults++;
	return 0;
}

static int read_line(struct script *script, const char *line)
{
	char word[32];
	int used = 0;
	const char *rest;
	struct card *card;

	if (sscanf(line, " %31s%n", word, &used) != 1 || word[0] == '#')
		return 0;
	rest = line + used;
	rest += strspn(rest, " ");
	if (strcmp(word, "driver") == 0)
		return sscanf(rest, "%79s", script->driver) == 1 ? 0 : -1;
	if (strcmp(word, "now") == 0)
		return sscanf(rest, "%lf", &script->now) == 1 ? 0 : -1;
	if (strcmp(word, "kept") == 0)
		return sscanf(rest, "%lf", &script->kept) == 1 ? 0 : -1;
	if (strcmp(word, "cuda") == 0)
		return sscanf(rest, "%d", &script->cuda) == 1 ? 0 : -1;
	if (strcmp(word, "balloon") == 0)
		return sscanf(rest, "%llu", &script->balloon) == 1 ? 0 : -1;
	if (fault_of(word) >= 0)
		return read_fault(script, fault_of(word), rest);
	if (strcmp(word, "card") == 0) {
		if (script->cards == MOST_CARDS)
			return -1;
		card = &script->card[script->cards];
		card->minor = (unsigned)script->cards++;
		card->mig = -1;
		return 0;
	}
	if (script->cards == 0)
		return -1;
	return read_card_line(&script->card[script->cards - 1], word, rest);
}

const char *script_path(void)
{
	const char *path = getenv("NVML_SIMULATED");

	return path == NULL ? PLACE : path;
}

int script_read(struct script *script)
{
	FILE *file = fopen(script_path(), "re");
	char line[LONGEST];
	int number = 0, rv = 0;

	memset(script, 0, sizeof(*script));
	script->kept = 20;
	snprintf(script->driver, sizeof(script->driver), "580.65.06");
	if (file == NULL)
		return -1;
	while (rv == 0 && fgets(line, sizeof(line), file) != NULL) {
		number++;
		line[strcspn(line, "\n")] = '\0';
		rv = read_line(script, line);
		if (rv != 0)
			fprintf(stderr, "simulated GPU script: line %d is wrong: %s\n", number, line);
	}
	fclose(file);
	return rv;
}

double script_now(const struct script *script)
{
	struct timespec now;

	if (script->now != 0)
		return script->now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void pause_for(double seconds)
{
	struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
}

static int concerns(const struct fault *fault, const char *call, int card)
{
	size_t length = strlen(fault->call);

	if (fault->card >= 0 && fault->card != card)
		return 0;
	if (strcmp(fault->call, "*") == 0 && strncmp(call, "cu", 2) == 0)
		return 0; /* the codes of NVML mean other things to CUDA, which has `cu*` */
	if (length > 0 && fault->call[length - 1] == '*')
		return strncmp(fault->call, call, length - 1) == 0;
	return strcmp(fault->call, call) == 0;
}

int script_fault(const struct script *script, const char *call, int card)
{
	int code = 0;

	for (int i = 0; i < script->faults; i++) {
		const struct fault *fault = &script->fault[i];

		if (!concerns(fault, call, card))
			continue;
		if (fault->kind == FAULT_DELAY)
			pause_for(fault->delay);
		if (fault->kind == FAULT_ERROR)
			code = fault->code;
	}
	return code;
}

int script_breaks(const struct script *script, const char *call)
{
	for (int i = 0; i < script->faults; i++)
		if (script->fault[i].kind == FAULT_BREAKS &&
		    concerns(&script->fault[i], call, script->fault[i].card))
			return script->fault[i].code;
	return 0;
}

void script_pause(const struct script *script, int kind, const char *call)
{
	for (int i = 0; i < script->faults; i++)
		if (script->fault[i].kind == kind &&
		    concerns(&script->fault[i], call, script->fault[i].card))
			pause_for(script->fault[i].delay);
}
