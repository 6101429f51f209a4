/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "codes.h"

struct code {
	const char *name;
	int code;
};

static const struct code OF_NVML[] = {
	{"UNINITIALIZED", NVML_ERROR_UNINITIALIZED},
	{"INVALID_ARGUMENT", NVML_ERROR_INVALID_ARGUMENT},
	{"NOT_SUPPORTED", NVML_ERROR_NOT_SUPPORTED},
	{"NO_PERMISSION", NVML_ERROR_NO_PERMISSION},
	{"NOT_FOUND", NVML_ERROR_NOT_FOUND},
	{"DRIVER_NOT_LOADED", NVML_ERROR_DRIVER_NOT_LOADED},
	{"TIMEOUT", NVML_ERROR_TIMEOUT},
	{"FUNCTION_NOT_FOUND", NVML_ERROR_FUNCTION_NOT_FOUND},
	{"GPU_IS_LOST", NVML_ERROR_GPU_IS_LOST},
	{"RESET_REQUIRED", NVML_ERROR_RESET_REQUIRED},
	{"LIB_RM_VERSION_MISMATCH", NVML_ERROR_LIB_RM_VERSION_MISMATCH},
	{"UNKNOWN", NVML_ERROR_UNKNOWN},
};

static const struct code OF_CUDA[] = {
	{"INVALID_VALUE", CUDA_ERROR_INVALID_VALUE},
	{"OUT_OF_MEMORY", CUDA_ERROR_OUT_OF_MEMORY},
	{"NOT_INITIALIZED", CUDA_ERROR_NOT_INITIALIZED},
	{"DEVICE_UNAVAILABLE", CUDA_ERROR_DEVICE_UNAVAILABLE},
	{"NO_DEVICE", CUDA_ERROR_NO_DEVICE},
	{"INVALID_DEVICE", CUDA_ERROR_INVALID_DEVICE},
	{"INVALID_CONTEXT", CUDA_ERROR_INVALID_CONTEXT},
	{"OPERATING_SYSTEM", CUDA_ERROR_OPERATING_SYSTEM},
	{"ILLEGAL_STATE", CUDA_ERROR_ILLEGAL_STATE},
	{"NOT_FOUND", CUDA_ERROR_NOT_FOUND},
	{"NOT_READY", CUDA_ERROR_NOT_READY},
	{"NOT_PERMITTED", CUDA_ERROR_NOT_PERMITTED},
	{"NOT_SUPPORTED", CUDA_ERROR_NOT_SUPPORTED},
	{"SYSTEM_NOT_READY", CUDA_ERROR_SYSTEM_NOT_READY},
	{"SYSTEM_DRIVER_MISMATCH", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH},
	{"TIMEOUT", CUDA_ERROR_TIMEOUT},
	{"UNKNOWN", CUDA_ERROR_UNKNOWN},
};

static int find(const struct code *codes, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(codes[i].name, name) == 0)
			return codes[i].code;
	return -1;
}

int code_of(const char *call, const char *name)
{
	if (strncmp(call, "cu", 2) == 0)
		return find(OF_CUDA, sizeof(OF_CUDA) / sizeof(OF_CUDA[0]), name);
	return find(OF_NVML, sizeof(OF_NVML) / sizeof(OF_NVML[0]), name);
}

const char *cuda_code_name(int code)
{
	for (size_t i = 0; i < sizeof(OF_CUDA) / sizeof(OF_CUDA[0]); i++)
		if (OF_CUDA[i].code == code)
			return OF_CUDA[i].name;
	return NULL;
}
