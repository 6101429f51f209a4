/* SPDX-License-Identifier: Apache-2.0 */
/* Moving into the cgroups of another process, version 1, 2 or both. */
#ifndef RECLAIM_CGROUP_H
#define RECLAIM_CGROUP_H

#include <sys/types.h>

#include "fault.h"

/* `proc` is a directory descriptor of the /proc in which `pid` counts. */
int cgroups_join(int proc, pid_t pid, struct fault *fault);

#endif
