/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a simulated CUDA process tells of itself: one block at a fixed address of its memory, which
 * whoever may trace it reads and writes through /proc/PID/mem. So there is no daemon and nothing
 * stale, and CRIU carries the block along with the rest of the process.
 */
#ifndef SIMULATED_CONTROL_H
#define SIMULATED_CONTROL_H

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "script.h"

/* Where no program, library or sanitizer lies on x86_64 and aarch64. */
#define CONTROL_AT 0x200000000000ul
#define CONTROL_MAGIC 0x31434d49535543ull
#define CONTROL_WAKE (SIGRTMAX - 1)
#define MOST_ALLOCATIONS 512

/* CUprocessState */
enum { RUNNING = 0, LOCKED = 1, CHECKPOINTED = 2, FAILED = 3 };
enum { LOCK = 1, CHECKPOINT, RESTORE, UNLOCK };

/* A card that the process could open when it called cuInit; `shown` is CUDA's number for it, -1
 * where CUDA_VISIBLE_DEVICES leaves it out. `bus` stays that of the first card for good. */
struct held_card {
	char uuid[96], name[96], bus[16];
	unsigned minor;
	int shown, file, contexts;
	uint64_t total;
};

/* `host` is where the contents lie while the process is checkpointed. */
struct allocation {
	uint64_t address, bytes;
	int card, managed;
	void *host;
};

/* What another process asks for. `rooms` are the node's cards with the bytes free on them. */
struct request {
	int command;
	unsigned timeout_ms, pairs, rooms;
	struct {
		unsigned char from[16], to[16];
	} pair[MOST_CARDS];
	struct {
		char uuid[96];
		uint64_t free;
	} room[MOST_CARDS];
};

struct control {
	uint64_t magic;
	_Atomic uint64_t asked, answered; /* numbers of requests: equal when there is none */
	int state, stuck, result;
	int thread; /* the restore thread as its innermost PID namespace numbers it */
	char node[256]; /* script_path() */
	char driver[80];
	char id[40]; /* names the files that its device memory is in */
	struct request request;
	int common[2]; /* open files: /dev/nvidiactl, /dev/nvidia-uvm */
	int cards, allocations;
	uint64_t next_address;
	struct held_card card[MOST_CARDS];
	struct allocation allocation[MOST_ALLOCATIONS];
	void *balloon;
	uint64_t balloon_bytes;
};

/* The block of another process, or -1 with errno: ENODATA where it has none. `memory` gets an open
 * file for reading and writing it, NULL: not wanted. */
int control_of(pid_t pid, struct control *control, int *memory);
/* Bytes of `uuid` that the block's process holds; `contexts` gets how many it has there. */
uint64_t control_holds(const struct control *control, const char *uuid, int *contexts);
/* Calls `seen` for every process of this node that has a block and can be read. */
void control_scan(void (*seen)(pid_t pid, const struct control *control, void *with), void *with);
/* 16 bytes of `GPU-...`. */
void uuid_bytes(const char *uuid, unsigned char bytes[16]);

#endif
