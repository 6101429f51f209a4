/* SPDX-License-Identifier: Apache-2.0
 * What the harness and a program under test share: one mapped file. control.py has the same layout. */
#ifndef CRASH_FAULTS_H
#define CRASH_FAULTS_H

#include <stdint.h>

#define RECORDS 4096
#define RECORD_LENGTH 120

enum kind {
	KIND_FILE = 1,   /* changes what is on a disk */
	KIND_REMOTE = 2, /* speaks to another host */
	KIND_LOCAL = 4,  /* speaks to another program of the node */
	KIND_EXEC = 8,   /* becomes another program */
	KIND_TRACE = 16, /* ptrace(2): CRIU's hand on a session */
	KIND_HEAR = 32,  /* takes what another host said */
	KIND_PIPE = 64,  /* writes into a pipe: images on their way between CRIU and the agent */
};

enum action {
	ACT_COUNT = 0,
	ACT_KILL = 1,    /* SIGKILL to itself, before the call; at exec to the program that started it */
	ACT_FAIL = 2,    /* the call isn't made and fails with `error` */
	ACT_LOSE = 3,    /* the call is made, and its answer lost: it fails with `error` */
	ACT_STOP = 4,    /* SIGSTOP to itself, before the call */
};

struct control {
	uint32_t armed;
	uint32_t kinds;  /* which calls count */
	uint32_t target; /* the first call that is hit, from 1 */
	uint32_t length; /* so many calls in a row are hit; 0: all from there on */
	uint32_t action;
	uint32_t error;
	uint32_t count; /* calls seen while armed */
	uint32_t hits;
	int32_t pid; /* of the last hit, in its own PID namespace */
	int32_t skew; /* seconds by which the wall clock of this program is ahead, armed or not */
	uint32_t spare[6];
	char records[RECORDS][RECORD_LENGTH]; /* kind (A: 1, B: 2, ...), name, blank, what; number n at n - 1 */
};

/* Take note of a call; 0, or -1 with errno where it must fail without being made. `*lost` is set
 * where it must fail after it was made: then pass its result through faults_after. */
int faults_before(enum kind kind, const char *name, const char *what, int *lost);
long faults_after(long result, int lost);

/* Seconds by which this program's wall clock is ahead. */
int faults_skew(void);

#endif
