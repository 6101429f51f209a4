/* SPDX-License-Identifier: Apache-2.0 */
/* This process as the stand-in driver sees it: what it holds, and the gate its calls go through. */
#ifndef SIMULATED_CUDA_PROCESS_H
#define SIMULATED_CUDA_PROCESS_H

#include "control.h"
#include "cuda.h"

#define SHOWN __attribute__((visibility("default")))
#define OWN ((struct control *)CONTROL_AT)

/* The block, the cards and the restore thread: what cuInit does. */
int process_begin(void);
int process_begun(void);
/* Cards that this process may open now, by /dev/nvidiaN; their numbers in the script. */
int process_reaches(const struct script *script, int *cards);
/* The script's number of a held card; -1: it is not on this node. */
int process_number(const struct script *script, int held);
void process_open_files(void);
void process_close_files(void);
/* A script on the heap, since threads call at once; NULL: none can be read. */
struct script *process_script(void);

/* The way into every call: waits while the process is locked, then does what the script says of
 * `call` on the held card `held` (-1: none). 0, and leave() must follow; else a code. */
int gate_enter(const char *call, int held);
void gate_leave(void);
/* 0 once no call is inside any more and new ones wait; after the time-out (0: none) NOT_READY. */
int gate_close(unsigned timeout_ms);
void gate_open(void);

/* One thread at a time changes what the block says of memory and contexts. */
void tables_lock(void);
void tables_unlock(void);

/* The restore thread; its thread id is in the block when this returns. */
int actions_begin(void);

/* Bytes of the card `uuid` that nobody has: as far as this process can see the others. */
uint64_t memory_free(const struct script *script, int card);
/* The contents into the process and back; 0 or a code. */
int memory_fetch(struct allocation *allocation);
int memory_put_back(struct allocation *allocation);
void memory_remove(const struct allocation *allocation);

/* What the calls for memory do once they are through the gate; `card` is a held one. Copies go into
 * `into` where that is given, else out of `from`. */
int memory_take(uint64_t *address, size_t bytes, int card, int managed);
int memory_give_up(uint64_t address);
int memory_copy(uint64_t address, void *into, const void *from, size_t bytes);

/* What cuDriverGetVersion says. */
int cuda_version(const struct script *script);

#endif
