/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this stand-in needs of CUDA's driver interface, written from the structures that
 * cuda-bindings passes. The names are NVIDIA's; nothing here talks to a driver.
 */
#ifndef SIMULATED_CUDA_H
#define SIMULATED_CUDA_H

#include <stddef.h>
#include <stdint.h>

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_OPERATING_SYSTEM = 304,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_NOT_PERMITTED = 800,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_SYSTEM_NOT_READY = 802,
	CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
	CUDA_ERROR_TIMEOUT = 909,
	CUDA_ERROR_UNKNOWN = 999,
};

struct cuda_uuid {
	unsigned char bytes[16];
};

struct lock_args {
	unsigned timeout_ms, reserved0;
	uint64_t reserved1[7];
};

/* The first word asks for custom storage, which this stand-in has not. */
struct plain_args {
	uint64_t reserved[8];
};

struct gpu_pair {
	struct cuda_uuid from, to;
};

struct restore_args {
	const struct gpu_pair *pairs;
	unsigned count, padding;
	uint64_t reserved[6];
};

_Static_assert(sizeof(struct lock_args) == 64 && sizeof(struct plain_args) == 64 &&
		       sizeof(struct restore_args) == 64 && sizeof(struct gpu_pair) == 32,
	       "CUDA's sizes");

#endif
