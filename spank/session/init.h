/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim-init: PID 1 of a session's namespaces. Root, never dumped. It reaps, holds the
 * connection to the agent, and decides when the job ends.
 */
#ifndef RECLAIM_INIT_H
#define RECLAIM_INIT_H

#include <stdint.h>
#include <sys/types.h>

#include "../base/fallback.h"
#include "../base/fault.h"
#include "../base/message.h"
#include "../base/stream.h"
#include "witness.h"

struct settings {
	uint32_t job;
	char name[JOB_NAME + 1]; /* the job's, see fallback.h */
	uid_t uid;
	pid_t relay; /* as slurmstepd sees it */
	int64_t last_pid;
	int fresh;
	const char *socket;
	const char *state;
	const char *private_tmp; /* "" for none */
	int outer_proc;		 /* the node's /proc */
};

/* What may still be asked about after it was reaped: CRIU ends before the agent names root. */
#define REAPED 64

struct tree {
	int64_t restarts;
	pid_t child; /* the first process as slurmstepd sees it, 0 if none was started */
	pid_t inner; /* the same as seen here */
	pid_t root;  /* restored root, 0 before the agent names one */
	int held;
	int ended; /* the tree's root is dead, and `status` is how */
	int status;
	struct {
		pid_t pid;
		int status;
	} reaped[REAPED];
	size_t next;
};

enum link_state { LINK_AWAY, LINK_GREETING, LINK_ATTACHED };

struct link {
	struct stream stream;
	enum link_state state;
	int64_t retry_at; /* when AWAY; give up the greeting when GREETING */
	int64_t away_since;
};

struct session {
	struct settings settings;
	struct hearing hearing;
	struct stream relay;
	struct tree tree;
	struct link link;
	int introduced; /* the relay has said who it is */
	int stopped;	/* the relay is stopped, and so is the tree by us */
	pid_t scontrol;
	int64_t requeue_at;
};

/* mounts.c */
int prepare_mounts(const struct settings *settings, struct fault *fault);

/* tmp.c */
int private_tmp(const struct settings *settings, struct fault *fault);

/* gpus.c: `gpus` and `gpu_files`, minor numbers with commas. */
void tell_gpus(struct message *message);

/* tree.c */
void tree_reap(struct session *session);
void tree_exited(struct session *session, int status);
void tree_signal(struct session *session, int number, int group);
void tree_hold(struct session *session, int held);
int tree_root(struct session *session, pid_t pid, struct fault *fault);
int tree_waits(const struct session *session); /* there is no tree now, but may be one */
void end_relay(struct session *session, int status);

/* stops.c: SIGSTOP can't be caught, so it is looked for. */
void follow_stops(struct session *session);
/* Of one process, one process group, or (both 0) all. Does nothing for other signals. */
void stop_in_its_stead(int number, pid_t only, pid_t group);

/* link.c */
void link_poll(struct session *session);
void link_read(struct session *session);
void link_event(struct session *session, struct message *event);

/* orders.c: what the agent may ask. The reply is written into the same message. */
void obey(struct session *session, struct message *order);

/* waiting.c: holds the job again if nobody comes to restore it. */
void wait_for_restore(struct session *session);

/* serve.c: never returns. */
void serve(struct session *session) __attribute__((noreturn));

#endif
