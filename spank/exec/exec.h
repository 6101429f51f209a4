/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim-exec: runs a command of the agent's (CRIU) inside a session, with the rights of the
 * session's owner and no more than the capabilities named.
 */
#ifndef RECLAIM_EXEC_H
#define RECLAIM_EXEC_H

#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "../base/fault.h"

#define MOST_CGROUPS 8
#define MOST_FDS 32
#define MOST_GROUPS 65536

struct request {
	pid_t cgroups_of[MOST_CGROUPS];
	size_t cgroups;
	pid_t affinity_of;
	pid_t rlimits_of;
	pid_t join_pid;
	int join_pid_ns, join_mount, join_time;
	int has_offsets;
	int64_t monotonic, boottime; /* nanoseconds */
	int block_io_uring;
	int has_user, has_group;
	uid_t uid;
	gid_t gid;
	gid_t *groups;
	size_t group_count;
	uint64_t capabilities;
	int kept[MOST_FDS];
	size_t kept_count;
	int tracer;
	char **command;
};

/* options.c. 0, or -1: the fault says what is wrong. */
int read_request(struct request *request, int argc, char **argv, struct fault *fault);
extern const char USAGE[];

/* lists.c */
int parse_groups(struct request *request, const char *text);
int parse_fds(struct request *request, const char *text);
int parse_capabilities(struct request *request, const char *text);

/* namespaces.c: opened before anything is entered, since /proc changes on the way. */
struct entrance {
	int pid_ns, mount, time, root;
};
int open_entrance(const struct request *request, struct entrance *entrance, struct fault *fault);
int set_time_offsets(const struct request *request, struct fault *fault);
int go_in(const struct entrance *entrance, struct fault *fault);

/* limits.c */
int take_affinity(pid_t pid, struct fault *fault);
int take_limits(pid_t pid, struct fault *fault);
void never_for_want_of_memory(void);

/* rights.c */
int drop_rights(const struct request *request, struct fault *fault);

/* wait.c: never returns; ends as the child ends, and passes signals on to it. */
void stand_in(pid_t child) __attribute__((noreturn));
void default_signals(void);

#endif
