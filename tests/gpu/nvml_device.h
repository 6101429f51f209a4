/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the stand-in NVML share. */
#ifndef SIMULATED_NVML_DEVICE_H
#define SIMULATED_NVML_DEVICE_H

#include "script.h"

#define SHOWN __attribute__((visibility("default")))

/* A device handle: the address of one of these. */
struct handle {
	int card, instance; /* instance -1: the card itself */
};

/* As the latest call read it. */
extern struct script script;

/* What a call on a device begins with: its card, or an error. */
int on(const char *call, const struct handle *handle, struct card **card);
/* Bytes of the card that processes with the stand-in libcuda hold. */
unsigned long long held_by_clients(const struct card *card);

#endif
