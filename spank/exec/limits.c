/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec.h"

/* Enough for any machine; sched_setaffinity takes the mask as long as we make it. */
#define MOST_CPUS 16384

int take_affinity(pid_t pid, struct fault *fault)
{
	size_t size = CPU_ALLOC_SIZE(MOST_CPUS);
	cpu_set_t *cpus = CPU_ALLOC(MOST_CPUS);
	int rv = 0;

	if (cpus == NULL)
		return fault_set(fault, "out of memory");
	CPU_ZERO_S(size, cpus);
	if (sched_getaffinity(pid, size, cpus) != 0)
		rv = fault_set(fault, "couldn't read the CPUs of %d: %s", (int)pid, strerror(errno));
	else if (sched_setaffinity(0, size, cpus) != 0)
		rv = fault_set(fault, "couldn't run on the CPUs of %d: %s", (int)pid,
			       strerror(errno));
	CPU_FREE(cpus);
	return rv;
}

static const struct {
	const char *name; /* in /proc/PID/limits */
	__rlimit_resource_t resource;
} LIMITS[] = {
	{"Max cpu time", RLIMIT_CPU},
	{"Max file size", RLIMIT_FSIZE},
	{"Max data size", RLIMIT_DATA},
	{"Max stack size", RLIMIT_STACK},
	{"Max core file size", RLIMIT_CORE},
	{"Max resident set", RLIMIT_RSS},
	{"Max processes", RLIMIT_NPROC},
	{"Max open files", RLIMIT_NOFILE},
	{"Max locked memory", RLIMIT_MEMLOCK},
	{"Max address space", RLIMIT_AS},
	{"Max file locks", RLIMIT_LOCKS},
	{"Max pending signals", RLIMIT_SIGPENDING},
	{"Max msgqueue size", RLIMIT_MSGQUEUE},
	{"Max nice priority", RLIMIT_NICE},
	{"Max realtime priority", RLIMIT_RTPRIO},
	{"Max realtime timeout", RLIMIT_RTTIME},
};

static rlim_t parse_limit(const char *text)
{
	return strcmp(text, "unlimited") == 0 ? RLIM_INFINITY : (rlim_t)strtoull(text, NULL, 10);
}

/* Raising a hard limit takes CAP_SYS_RESOURCE. Where root lacks it, as in containers, ours is
 * as far as it goes. */
static int take_limit(__rlimit_resource_t resource, struct rlimit wanted)
{
	struct rlimit now;

	if (setrlimit(resource, &wanted) == 0)
		return 0;
	if (errno != EPERM || getrlimit(resource, &now) != 0)
		return -1;
	if (wanted.rlim_max > now.rlim_max)
		wanted.rlim_max = now.rlim_max;
	if (wanted.rlim_cur > wanted.rlim_max)
		wanted.rlim_cur = wanted.rlim_max;
	return setrlimit(resource, &wanted);
}

static int take_line(const char *line)
{
	for (size_t i = 0; i < sizeof(LIMITS) / sizeof(LIMITS[0]); i++) {
		size_t length = strlen(LIMITS[i].name);
		char soft[32], hard[32];
		struct rlimit wanted;

		if (strncmp(line, LIMITS[i].name, length) != 0 || line[length] != ' ')
			continue;
		if (sscanf(line + length, "%31s %31s", soft, hard) != 2)
			return -1;
		wanted.rlim_cur = parse_limit(soft);
		wanted.rlim_max = parse_limit(hard);
		return take_limit(LIMITS[i].resource, wanted);
	}
	return 0;
}

/* Read as text: asking by prlimit() needs CAP_SYS_RESOURCE for another user's process. */
int take_limits(pid_t pid, struct fault *fault)
{
	char path[64], line[256];
	FILE *file;
	int rv = 0;

	snprintf(path, sizeof(path), "/proc/%d/limits", (int)pid);
	file = fopen(path, "re");
	if (file == NULL)
		return fault_set(fault, "couldn't open %s: %s", path, strerror(errno));
	while (rv == 0 && fgets(line, sizeof(line), file) != NULL)
		if (take_line(line) != 0)
			rv = fault_set(fault, "couldn't set a limit of %d: %s: %.40s", (int)pid,
				       strerror(errno), line);
	fclose(file);
	return rv;
}

/* Where we may not, it stays as it is. */
void never_for_want_of_memory(void)
{
	int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (file < 0)
		return;
	if (write(file, "-1000", 5) < 0)
		errno = 0;
	close(file);
}
