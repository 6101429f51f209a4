/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "cuda_process.h"

#define DEVICES "/dev"

static pthread_mutex_t begin_lock = PTHREAD_MUTEX_INITIALIZER;
static int begun;

static const char *devices(void)
{
	const char *path = getenv("SIMULATED_GPU_DEVICES");

	return path == NULL ? DEVICES : path;
}

static void device_path(char *path, size_t size, unsigned minor)
{
	snprintf(path, size, "%s/nvidia%u", devices(), minor);
}

struct script *process_script(void)
{
	struct script *script = malloc(sizeof(*script));

	if (script != NULL && script_read(script) != 0) {
		free(script);
		return NULL;
	}
	return script;
}

int process_reaches(const struct script *script, int *cards)
{
	char path[256];
	int count = 0;

	for (int i = 0; i < script->cards; i++) {
		device_path(path, sizeof(path), script->card[i].minor);
		if (!script->card[i].lost && access(path, R_OK | W_OK) == 0)
			cards[count++] = i;
	}
	return count;
}

int process_number(const struct script *script, int held)
{
	for (int i = 0; i < script->cards; i++)
		if (strcmp(script->card[i].uuid, OWN->card[held].uuid) == 0)
			return i;
	return -1;
}

/* A file without a driver behind can't be opened: then the process just holds none. */
static int open_device(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", devices(), name);
	return open(path, O_RDWR | O_CLOEXEC);
}

void process_open_files(void)
{
	OWN->common[0] = open_device("nvidiactl");
	OWN->common[1] = open_device("nvidia-uvm");
	for (int i = 0; i < OWN->cards; i++) {
		char name[32];

		snprintf(name, sizeof(name), "nvidia%u", OWN->card[i].minor);
		OWN->card[i].file = open_device(name);
	}
}

static void close_file(int *file)
{
	if (*file >= 0)
		close(*file);
	*file = -1;
}

void process_close_files(void)
{
	close_file(&OWN->common[0]);
	close_file(&OWN->common[1]);
	for (int i = 0; i < OWN->cards; i++)
		close_file(&OWN->card[i].file);
}

/* CUDA_VISIBLE_DEVICES: numbers or beginnings of UUIDs, up to the first that is neither. */
static void show_cards(void)
{
	const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
	char *list = wanted == NULL ? NULL : strdup(wanted), *rest = list, *word;
	int shown = 0;

	for (int i = 0; i < OWN->cards; i++)
		OWN->card[i].shown = wanted == NULL ? i : -1;
	while ((word = strsep(&rest, ",")) != NULL) {
		char *end;
		long number = strtol(word, &end, 10);
		int found = end != word && *end == '\0' && number >= 0 && number < OWN->cards ? (int)number : -1;

		for (int i = 0; strncmp(word, "GPU-", 4) == 0 && i < OWN->cards; i++)
			if (strncmp(OWN->card[i].uuid, word, strlen(word)) == 0)
				found = i;
		if (found < 0 || OWN->card[found].shown >= 0)
			break;
		OWN->card[found].shown = shown++;
	}
	free(list);
}

static int take_cards(const struct script *script)
{
	int reached[MOST_CARDS], shown = 0;

	OWN->cards = process_reaches(script, reached);
	for (int i = 0; i < OWN->cards; i++) {
		const struct card *from = &script->card[reached[i]];
		struct held_card *card = &OWN->card[i];

		snprintf(card->uuid, sizeof(card->uuid), "%s", from->uuid);
		snprintf(card->name, sizeof(card->name), "%s", from->name);
		snprintf(card->bus, sizeof(card->bus), "0000:%02x:00.0", (from->minor + 1) & 0xff);
		card->minor = from->minor;
		card->total = from->total;
	}
	show_cards();
	for (int i = 0; i < OWN->cards; i++)
		shown += OWN->card[i].shown >= 0;
	return shown > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

/* A forked child has the block, but empty: it is no CUDA process, as with the real driver. */
static int make_block(void)
{
	unsigned char random[16];
	void *made = mmap((void *)CONTROL_AT, sizeof(struct control), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (made != (void *)CONTROL_AT || madvise(made, sizeof(struct control), MADV_WIPEONFORK))
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return CUDA_ERROR_OPERATING_SYSTEM;
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(OWN->id + 2 * i, 3, "%02x", random[i]);
	OWN->next_address = 0x7e0000000000ul;
	return CUDA_SUCCESS;
}

static int begin_with(const struct script *script)
{
	int code = script_fault(script, "cuInit", -1);

	if (strlen(script_path()) >= sizeof(OWN->node))
		code = CUDA_ERROR_OPERATING_SYSTEM;
	if (code == CUDA_SUCCESS)
		code = make_block();
	if (code != CUDA_SUCCESS)
		return code;
	strcpy(OWN->node, script_path());
	snprintf(OWN->driver, sizeof(OWN->driver), "%s", script->driver);
	code = take_cards(script);
	if (code == CUDA_SUCCESS)
		code = actions_begin();
	if (code != CUDA_SUCCESS) {
		munmap(OWN, sizeof(*OWN));
		return code;
	}
	process_open_files();
	begun = 1;
	OWN->magic = CONTROL_MAGIC;
	return CUDA_SUCCESS;
}

int process_begin(void)
{
	struct script *script;
	int code = CUDA_SUCCESS;

	pthread_mutex_lock(&begin_lock);
	if (begun) {
		code = OWN->magic == CONTROL_MAGIC ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
	} else {
		script = process_script();
		code = script == NULL ? CUDA_ERROR_NO_DEVICE : begin_with(script);
		free(script);
	}
	pthread_mutex_unlock(&begin_lock);
	return code;
}

int process_begun(void)
{
	return begun && OWN->magic == CONTROL_MAGIC;
}

/* Who ends in order leaves no device memory behind; what a kill leaves goes with the node. */
__attribute__((destructor)) static void end(void)
{
	if (!process_begun())
		return;
	for (int i = 0; i < OWN->allocations; i++)
		memory_remove(&OWN->allocation[i]);
}
