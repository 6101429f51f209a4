/* SPDX-License-Identifier: Apache-2.0 */
/* How programs find the calls, and the names of the errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codes.h"
#include "cuda_process.h"

#define FOUND 0
#define NOT_FOUND 1
#define VERSION_NOT_SUFFICIENT 2

SHOWN int cuGetProcAddress_v2(const char *name, void **call, int version, uint64_t flags,
			      int *status);
SHOWN int cuGetProcAddress(const char *name, void **call, int version, uint64_t flags);
SHOWN int cuGetErrorName(int code, const char **name);
SHOWN int cuGetErrorString(int code, const char **text);

/* name, the function, the CUDA that has it */
#define CALLS(X)                                                                                   \
	X(cuInit, cuInit, 2000)                                                                    \
	X(cuDriverGetVersion, cuDriverGetVersion, 2020)                                            \
	X(cuDeviceGetCount, cuDeviceGetCount, 2000)                                                \
	X(cuDeviceGet, cuDeviceGet, 2000)                                                          \
	X(cuDeviceGetUuid, cuDeviceGetUuid, 9020)                                                  \
	X(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040)                                              \
	X(cuDeviceGetName, cuDeviceGetName, 2000)                                                  \
	X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010)                                          \
	X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020)                                             \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)                                \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000)                          \
	X(cuCtxCreate, cuCtxCreate_v2, 3020)                                                       \
	X(cuCtxCreate, cuCtxCreate_v4, 12050)                                                      \
	X(cuCtxDestroy, cuCtxDestroy_v2, 4000)                                                     \
	X(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                                                  \
	X(cuCtxGetCurrent, cuCtxGetCurrent, 4000)                                                  \
	X(cuCtxSynchronize, cuCtxSynchronize, 2000)                                                \
	X(cuMemGetInfo, cuMemGetInfo_v2, 3020)                                                     \
	X(cuMemAlloc, cuMemAlloc_v2, 3020)                                                         \
	X(cuMemAllocManaged, cuMemAllocManaged, 6000)                                              \
	X(cuMemFree, cuMemFree_v2, 3020)                                                           \
	X(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020)                                                     \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020)                                                     \
	X(cuGetErrorName, cuGetErrorName, 6000)                                                    \
	X(cuGetErrorString, cuGetErrorString, 6000)                                                \
	X(cuGetProcAddress, cuGetProcAddress, 11030)                                               \
	X(cuGetProcAddress, cuGetProcAddress_v2, 12000)                                            \
	X(cuCheckpointProcessGetState, cuCheckpointProcessGetState, 12080)                         \
	X(cuCheckpointProcessGetRestoreThreadId, cuCheckpointProcessGetRestoreThreadId, 12080)     \
	X(cuCheckpointProcessLock, cuCheckpointProcessLock, 12080)                                 \
	X(cuCheckpointProcessCheckpoint, cuCheckpointProcessCheckpoint, 12080)                     \
	X(cuCheckpointProcessRestore, cuCheckpointProcessRestore, 12080)                           \
	X(cuCheckpointProcessUnlock, cuCheckpointProcessUnlock, 12080)

struct call {
	const char *name;
	void *address;
	int since;
};

#define DECLARE(name, function, since)                                                             \
	extern char at_##function[] __asm__(#function) __attribute__((visibility("default")));
CALLS(DECLARE)

#define ENTRY(name, function, since) {#name, at_##function, since},
static const struct call TABLE[] = {CALLS(ENTRY)};

/* The newest form of a call that both the driver and the program know. */
static int find(const char *name, int driver, int version, void **call)
{
	int status = NOT_FOUND, newest = 0;

	*call = NULL;
	for (size_t i = 0; i < sizeof(TABLE) / sizeof(TABLE[0]); i++) {
		if (strcmp(TABLE[i].name, name) != 0 || TABLE[i].since > driver)
			continue;
		if (TABLE[i].since > version) {
			status = status == NOT_FOUND ? VERSION_NOT_SUFFICIENT : status;
		} else if (TABLE[i].since >= newest) {
			newest = TABLE[i].since;
			*call = TABLE[i].address;
			status = FOUND;
		}
	}
	return status;
}

SHOWN int cuGetProcAddress_v2(const char *name, void **call, int version, uint64_t flags,
			      int *status)
{
	struct script *script;
	int found;

	(void)flags;
	if (name == NULL || call == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	script = process_script();
	found = find(name, script == NULL ? version : cuda_version(script), version, call);
	free(script);
	if (status != NULL)
		*status = found;
	return found == FOUND || status != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SHOWN int cuGetProcAddress(const char *name, void **call, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(name, call, version, flags, NULL);
}

SHOWN int cuGetErrorName(int code, const char **name)
{
	static _Thread_local char text[64];
	const char *known = code == CUDA_SUCCESS ? "" : cuda_code_name(code);

	if (name == NULL || known == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(text, sizeof(text), "%s%s", code == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_",
		 known);
	*name = text;
	return CUDA_SUCCESS;
}

SHOWN int cuGetErrorString(int code, const char **text)
{
	static _Thread_local char words[64];

	if (text == NULL || (code != CUDA_SUCCESS && cuda_code_name(code) == NULL))
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(words, sizeof(words), "simulated error %d", code);
	*text = words;
	return CUDA_SUCCESS;
}
