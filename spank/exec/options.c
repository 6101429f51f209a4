/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/message.h"
#include "exec.h"

const char USAGE[] =
	"usage: reclaim-exec [OPTION]... -- PROGRAM [ARGUMENT]...\n"
	"  --cgroups-of PID            enter every cgroup of PID (may be repeated)\n"
	"  --affinity-of PID           run on the CPUs of PID\n"
	"  --rlimits-of PID|none       take over the resource limits of PID\n"
	"  --join PID:mnt,pid[,time]   enter these namespaces of PID\n"
	"  --time-offsets MONO:BOOT    enter a new time namespace, offsets in nanoseconds\n"
	"  --block-io-uring            answer ENOSYS to io_uring\n"
	"  --uid U --gid G             run as this user and group\n"
	"  --groups G,G,...            supplementary groups (default: none)\n"
	"  --caps NAME,NAME,...        capabilities to keep (default: none)\n"
	"  --keep-fds N,N,...          descriptors left open (default: 0,1,2)\n"
	"  --tracer                    it holds other processes: want of memory and broken pipes\n"
	"                              are not to kill it\n";

static int parse_pid(const char *text, pid_t *pid)
{
	int64_t number;

	if (parse_number(text, 1, INT32_MAX, &number) != 0)
		return -1;
	*pid = (pid_t)number;
	return 0;
}

static int parse_join(struct request *request, char *text)
{
	char *names = strchr(text, ':');
	char *name;

	if (names == NULL)
		return -1;
	*names++ = '\0';
	if (parse_pid(text, &request->join_pid) != 0)
		return -1;
	while ((name = strsep(&names, ",")) != NULL) {
		if (strcmp(name, "pid") == 0)
			request->join_pid_ns = 1;
		else if (strcmp(name, "mnt") == 0)
			request->join_mount = 1;
		else if (strcmp(name, "time") == 0)
			request->join_time = 1;
		else
			return -1;
	}
	return 0;
}

static int parse_offsets(struct request *request, char *text)
{
	char *colon = strchr(text, ':');

	if (colon == NULL)
		return -1;
	*colon++ = '\0';
	request->has_offsets = 1;
	if (parse_number(text, INT64_MIN, INT64_MAX, &request->monotonic) != 0)
		return -1;
	return parse_number(colon, INT64_MIN, INT64_MAX, &request->boottime);
}

static int parse_id(const char *text, unsigned *id, int *given)
{
	int64_t number;

	/* -1 means "leave unchanged" to the kernel. */
	if (parse_number(text, 0, UINT32_MAX - 1, &number) != 0)
		return -1;
	*id = (unsigned)number;
	*given = 1;
	return 0;
}

static int take(struct request *request, int name, char *value)
{
	switch (name) {
	case 'c':
		if (request->cgroups == MOST_CGROUPS)
			return -1;
		return parse_pid(value, &request->cgroups_of[request->cgroups++]);
	case 'a':
		return parse_pid(value, &request->affinity_of);
	case 'r':
		return strcmp(value, "none") == 0 ? 0 : parse_pid(value, &request->rlimits_of);
	case 'j':
		return parse_join(request, value);
	case 't':
		return parse_offsets(request, value);
	case 'b':
		request->block_io_uring = 1;
		return 0;
	case 'u':
		return parse_id(value, &request->uid, &request->has_user);
	case 'g':
		return parse_id(value, &request->gid, &request->has_group);
	case 'G':
		return parse_groups(request, value);
	case 'C':
		return parse_capabilities(request, value);
	case 'k':
		return parse_fds(request, value);
	case 'T':
		request->tracer = 1;
		return 0;
	default:
		return -1;
	}
}

static int check(const struct request *request, struct fault *fault)
{
	if (request->command[0] == NULL || request->command[0][0] != '/')
		return fault_set(fault, "give the program by its absolute path, after --");
	if (request->has_user != request->has_group)
		return fault_set(fault, "--uid and --gid go together");
	if (!request->has_user && (request->groups != NULL || request->capabilities != 0))
		return fault_set(fault, "--groups and --caps need --uid and --gid");
	if (request->has_offsets && request->join_time)
		return fault_set(fault, "--time-offsets makes a time namespace, so none is joined");
	return 0;
}

int read_request(struct request *request, int argc, char **argv, struct fault *fault)
{
	static const struct option table[] = {
		{"cgroups-of", required_argument, NULL, 'c'},
		{"affinity-of", required_argument, NULL, 'a'},
		{"rlimits-of", required_argument, NULL, 'r'},
		{"join", required_argument, NULL, 'j'},
		{"time-offsets", required_argument, NULL, 't'},
		{"block-io-uring", no_argument, NULL, 'b'},
		{"uid", required_argument, NULL, 'u'},
		{"gid", required_argument, NULL, 'g'},
		{"groups", required_argument, NULL, 'G'},
		{"caps", required_argument, NULL, 'C'},
		{"keep-fds", required_argument, NULL, 'k'},
		{"tracer", no_argument, NULL, 'T'},
		{NULL, 0, NULL, 0},
	};
	int name, index = 0;

	memset(request, 0, sizeof(*request));
	parse_fds(request, "0,1,2");
	while ((name = getopt_long(argc, argv, "+", table, &index)) != -1) {
		char *value = optarg == NULL ? NULL : strdup(optarg);
		int failed = name == '?' || take(request, name, value) != 0;

		free(value);
		if (name == '?')
			return fault_set(fault, "wrong option");
		if (failed)
			return fault_set(fault, "couldn't use --%s %s", table[index].name,
					 optarg == NULL ? "" : optarg);
	}
	request->command = argv + optind;
	return check(request, fault);
}
