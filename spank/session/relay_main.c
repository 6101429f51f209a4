/* SPDX-License-Identifier: Apache-2.0 */
/* reclaim-relay JOB CHILD, the channel to reclaim-init on descriptor 3. */
#include <stdint.h>

#include "../base/message.h"
#include "relay.h"

#define CHANNEL 3

int main(int argc, char **argv)
{
	int64_t child;

	/* JOB is there for whoever reads ps. */
	if (argc != 3 || parse_number(argv[2], 0, INT32_MAX, &child) != 0)
		return 1;
	return relay_run(CHANNEL, (pid_t)child);
}
