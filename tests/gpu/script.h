/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated node as a file describes it (README.md has the lines). */
#ifndef SIMULATED_SCRIPT_H
#define SIMULATED_SCRIPT_H

#include "nvml.h"

#define MOST_CARDS 16
#define MOST_SAMPLES 256
#define MOST_PROCESSES 64
#define MOST_FAULTS 64
#define MOST_INSTANCES 8
#define KINDS 4 /* gpu memory encoder decoder, as NVML numbers its samples from 1 */

/* Samples at 6 Hz over the last `kept` seconds; `value` for `length` of every `every` seconds. */
struct wave {
	double every, length;
	unsigned value;
};

struct series {
	int given; /* else the driver keeps no such samples */
	struct wave wave;
	int listed;
	struct {
		double age; /* seconds before now */
		unsigned value;
	} list[MOST_SAMPLES];
};

struct instance {
	char uuid[96], name[96];
	unsigned long long total, used;
	unsigned gpu_instance;
};

struct card {
	int given;
	char uuid[96], name[96];
	unsigned minor;
	unsigned long long total, used;
	unsigned rates[KINDS]; /* the gauges */
	unsigned pcie[2];      /* KB/s: sent, received */
	struct series series[KINDS];
	int processes;
	struct nvml_process process[MOST_PROCESSES];
	int uses;
	struct {
		struct nvml_process_sample sample;
		double age;
	} use[MOST_PROCESSES];
	int lost; /* CUDA can't reach it any more; for NVML there are `error` lines */
	int mig; /* -1: the card does not know MIG */
	int instances;
	struct instance instance[MOST_INSTANCES];
};

enum { FAULT_ERROR, FAULT_DELAY, FAULT_SLOW, FAULT_LATE, FAULT_BREAKS };

struct fault {
	char call[64]; /* a `*` at its end stands for any end */
	int kind;
	int card; /* -1: any */
	int code;
	double delay;
};

struct script {
	char driver[80];
	int cuda;                   /* version as CUDA writes it, 13000; 0: that of the driver */
	unsigned long long balloon; /* bytes of host memory that a CUDA checkpoint takes besides */
	double now;  /* Unix seconds; 0: the real clock */
	double kept; /* seconds of samples in a buffer */
	int cards;
	struct card card[MOST_CARDS];
	int faults;
	struct fault fault[MOST_FAULTS];
};

/* Where it lies. It stands for the node: two of them on one machine have nothing in common. */
const char *script_path(void);
/* 0, or -1 where there is no file or a line of it is wrong, which is said on stderr. */
int script_read(struct script *script);
double script_now(const struct script *script);
/* What the script says becomes of this call (after the delay it asks for). */
int script_fault(const struct script *script, const char *call, int card);

/* CUDA: what an action ends with that then leaves its process beyond repair; 0: it goes well. */
int script_breaks(const struct script *script, const char *call);
/* CUDA: the time that passes in the process before its action is done (FAULT_SLOW), or after that
 * before it says so (FAULT_LATE). */
void script_pause(const struct script *script, int kind, const char *call);

#endif
