/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../base/message.h"
#include "exec.h"

/* By number, as in linux/capability.h; spelled out since headers may be older than the kernel. */
static const char *const CAPABILITIES[] = {
	"chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid",
	"setpcap", "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw",
	"ipc_lock", "ipc_owner", "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace",
	"sys_pacct", "sys_admin", "sys_boot", "sys_nice", "sys_resource", "sys_time",
	"sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap",
	"mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read",
	"perfmon", "bpf", "checkpoint_restore",
};

#define COUNT (sizeof(CAPABILITIES) / sizeof(CAPABILITIES[0]))

/* Calls `one` for each part of a list with commas; "" is the empty list. */
static int each(struct request *request, const char *text,
		int (*one)(struct request *request, const char *part))
{
	char *copy = strdup(text);
	char *rest = copy;
	char *part;
	int rv = copy == NULL ? -1 : 0;

	while (rv == 0 && text[0] != '\0' && (part = strsep(&rest, ",")) != NULL)
		rv = one(request, part);
	free(copy);
	return rv;
}

static int add_group(struct request *request, const char *part)
{
	int64_t number;

	if (request->group_count == MOST_GROUPS ||
	    parse_number(part, 0, UINT32_MAX - 1, &number) != 0)
		return -1;
	request->groups[request->group_count++] = (gid_t)number;
	return 0;
}

int parse_groups(struct request *request, const char *text)
{
	if (request->groups == NULL)
		request->groups = calloc(MOST_GROUPS, sizeof(gid_t));
	if (request->groups == NULL)
		return -1;
	request->group_count = 0;
	return each(request, text, add_group);
}

static int add_fd(struct request *request, const char *part)
{
	int64_t number;

	if (request->kept_count == MOST_FDS || parse_number(part, 0, 1 << 20, &number) != 0)
		return -1;
	request->kept[request->kept_count++] = (int)number;
	return 0;
}

int parse_fds(struct request *request, const char *text)
{
	request->kept_count = 0;
	return each(request, text, add_fd);
}

static int add_capability(struct request *request, const char *part)
{
	if (strncasecmp(part, "cap_", strlen("cap_")) == 0)
		part += strlen("cap_");
	for (size_t i = 0; i < COUNT; i++)
		if (strcasecmp(part, CAPABILITIES[i]) == 0) {
			request->capabilities |= 1ULL << i;
			return 0;
		}
	return -1;
}

int parse_capabilities(struct request *request, const char *text)
{
	return each(request, text, add_capability);
}
