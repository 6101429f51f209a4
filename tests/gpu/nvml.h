/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this stand-in needs of NVML's interface, written from the structures that nvidia-ml-py
 * passes. The names are NVIDIA's; nothing here talks to a driver.
 */
#ifndef SIMULATED_NVML_H
#define SIMULATED_NVML_H

#include <stdint.h>

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_RESET_REQUIRED = 16,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
	NVML_ERROR_UNKNOWN = 999,
};

#define NVML_VALUE_TYPE_UNSIGNED_INT 1

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_rates {
	unsigned gpu, memory;
};

struct nvml_process {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};

struct nvml_sample {
	unsigned long long stamp; /* microseconds */
	union {
		double d;
		unsigned ui;
		unsigned long long ull;
	} value;
};

struct nvml_process_sample {
	unsigned pid;
	unsigned long long stamp;
	unsigned sm, memory, encoder, decoder;
};

#endif
