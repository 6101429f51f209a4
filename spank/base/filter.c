/* SPDX-License-Identifier: Apache-2.0 */
#include "filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* io_uring_setup, _enter, _register: the same numbers on every architecture named here. */
#define FIRST 425
#define LAST 427

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#define COMPAT AUDIT_ARCH_I386
#define NUMBER_MASK (~0x40000000U) /* x32 calls are x86_64 ones with this bit set */
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#define COMPAT AUDIT_ARCH_ARM
#define NUMBER_MASK (~0U)
#endif

#ifdef NATIVE
int block_io_uring(struct fault *fault)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, COMPAT, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, NUMBER_MASK),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FIRST, 0, 1),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
		return fault_set(fault, "couldn't block io_uring: %s", strerror(errno));
	return 0;
}
#else
int block_io_uring(struct fault *fault)
{
	return fault_set(fault, "can't block io_uring on this architecture");
}
#endif
