/* SPDX-License-Identifier: Apache-2.0 */
#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mount {
	char root[PATH_MAX];  /* which cgroup directory is mounted */
	char point[PATH_MAX]; /* where */
	char options[512];
	int version2;
};

static FILE *open_below(int dir, const char *path)
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");

	if (fd >= 0 && file == NULL)
		close(fd);
	return file;
}

/* One line of mountinfo: 1 if it mounts a cgroup hierarchy. */
static int parse_mount(const char *line, struct mount *mount)
{
	const char *dash = strstr(line, " - ");
	char type[32];

	if (dash == NULL || strncmp(dash, " - cgroup", strlen(" - cgroup")) != 0)
		return 0;
	if (sscanf(line, "%*d %*d %*s %4095s %4095s", mount->root, mount->point) != 2)
		return 0;
	if (sscanf(dash, " - %31s %*s %511s", type, mount->options) != 2)
		return 0;
	mount->version2 = strcmp(type, "cgroup2") == 0;
	return mount->version2 || strcmp(type, "cgroup") == 0;
}

static int has_option(const char *options, const char *wanted, size_t length)
{
	for (const char *at = options; at != NULL; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, wanted, length) == 0 && (at[length] == ',' || at[length] == '\0'))
			return 1;
	}
	return 0;
}

/* `controllers` as in /proc/PID/cgroup: empty for version 2, "name=x" for named ones. */
static int find_mount(int proc, const char *controllers, const char *path, struct mount *found)
{
	FILE *file = open_below(proc, "self/mountinfo");
	size_t first = strcspn(controllers, ",");
	char *line = NULL;
	size_t size = 0;
	int hit = 0;

	while (file != NULL && !hit && getline(&line, &size, file) > 0) {
		size_t root;

		if (!parse_mount(line, found) || found->version2 != (controllers[0] == '\0'))
			continue;
		if (!found->version2 && !has_option(found->options, controllers, first))
			continue;
		/* A bind mount of part of the hierarchy serves only what lies below it. */
		root = strcmp(found->root, "/") == 0 ? 0 : strlen(found->root);
		hit = strncmp(path, found->root, root) == 0 &&
		      (path[root] == '/' || path[root] == '\0');
		if (hit)
			found->root[root] = '\0';
	}
	free(line);
	if (file != NULL)
		fclose(file);
	return hit;
}

static int enter(const struct mount *mount, const char *path, struct fault *fault)
{
	char procs[2 * PATH_MAX + 16];
	int fd, rv = 0;

	snprintf(procs, sizeof(procs), "%s%s/cgroup.procs", mount->point,
		 path + strlen(mount->root));
	fd = open(procs, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1)
		rv = fault_set(fault, "couldn't enter %s: %s", procs, strerror(errno));
	if (fd >= 0)
		close(fd);
	return rv;
}

/* A line "4:memory:/slurm/uid_1/job_2" of /proc/PID/cgroup. */
static int join_line(int proc, char *line, struct fault *fault)
{
	char *controllers = strchr(line, ':');
	char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
	struct mount *mount;
	int rv = 0;

	if (path == NULL)
		return fault_set(fault, "couldn't read a cgroup line");
	*path++ = '\0';
	controllers++;
	path[strcspn(path, "\n")] = '\0';
	mount = malloc(sizeof(*mount));
	if (mount == NULL)
		return fault_set(fault, "out of memory");
	/* A hierarchy that is mounted nowhere holds nobody back, so it may be skipped. */
	if (find_mount(proc, controllers, path, mount))
		rv = enter(mount, path, fault);
	free(mount);
	return rv;
}

int cgroups_join(int proc, pid_t pid, struct fault *fault)
{
	char name[32];
	char *line = NULL;
	size_t size = 0;
	FILE *file;
	int rv = 0;

	snprintf(name, sizeof(name), "%d/cgroup", (int)pid);
	file = open_below(proc, name);
	if (file == NULL)
		return fault_set(fault, "couldn't read the cgroups of %d: %s", (int)pid,
				 strerror(errno));
	while (rv == 0 && getline(&line, &size, file) > 0)
		rv = join_line(proc, line, fault);
	free(line);
	fclose(file);
	return rv;
}
