/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec.h"

/* Permitted, effective and inheritable alike: only so can they be made ambient. */
static int set_capabilities(uint64_t wanted, struct fault *fault)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	for (int i = 0; i < 2; i++) {
		uint32_t half = (uint32_t)(wanted >> (32 * i));

		data[i].effective = data[i].permitted = data[i].inheritable = half;
	}
	if (syscall(SYS_capset, &header, data) != 0)
		return fault_set(fault, "couldn't keep the capabilities: %s", strerror(errno));
	return 0;
}

static int raise_ambient(uint64_t wanted, struct fault *fault)
{
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
		return fault_set(fault, "couldn't clear ambient capabilities: %s", strerror(errno));
	for (int i = 0; i < 64; i++)
		if ((wanted >> i & 1) &&
		    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0) != 0)
			return fault_set(fault, "couldn't pass on capability %d: %s", i,
					 strerror(errno));
	return 0;
}

/* Whoever holds a session keyring may use what is in it, and programs inherit that of the agent,
 * which is root's. A new one, empty and the user's own, takes its place. */
static int leave_keyring(struct fault *fault)
{
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
		return fault_set(fault, "couldn't leave the session keyring: %s", strerror(errno));
	return 0;
}

/* The bounding set stays: emptying it takes SETPCAP, and CRIU would have to give it back. */
int drop_rights(const struct request *request, struct fault *fault)
{
	if (!request->has_user)
		return 0;
	if (setgroups(request->group_count, request->groups) != 0)
		return fault_set(fault, "couldn't set the groups: %s", strerror(errno));
	if (setresgid(request->gid, request->gid, request->gid) != 0)
		return fault_set(fault, "couldn't become group %u: %s", (unsigned)request->gid,
				 strerror(errno));
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0)
		return fault_set(fault, "couldn't keep capabilities: %s", strerror(errno));
	if (setresuid(request->uid, request->uid, request->uid) != 0)
		return fault_set(fault, "couldn't become user %u: %s", (unsigned)request->uid,
				 strerror(errno));
	if (leave_keyring(fault) != 0 || set_capabilities(request->capabilities, fault) != 0)
		return -1;
	if (prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0)
		return fault_set(fault, "couldn't reset keepcaps: %s", strerror(errno));
	return raise_ambient(request->capabilities, fault);
}
