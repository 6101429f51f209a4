/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>

int fault_set(struct fault *fault, const char *format, ...)
{
	va_list args;

	if (fault == NULL)
		return -1;
	va_start(args, format);
	vsnprintf(fault->text, sizeof(fault->text), format, args);
	va_end(args);
	return -1;
}
