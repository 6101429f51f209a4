/* SPDX-License-Identifier: Apache-2.0 */
/* Error codes by name, of NVML and of CUDA. */
#ifndef SIMULATED_CODES_H
#define SIMULATED_CODES_H

#include "cuda.h"
#include "nvml.h"

/* Of the library that `call` belongs to; -1: there is none of that name. */
int code_of(const char *call, const char *name);
/* `CUDA_ERROR_...` without its beginning; NULL: not one of ours. */
const char *cuda_code_name(int code);

#endif
