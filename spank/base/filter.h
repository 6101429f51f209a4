/* SPDX-License-Identifier: Apache-2.0 */
/* Answers ENOSYS to io_uring, which CRIU can't dump: programs then fall back by themselves. */
#ifndef RECLAIM_FILTER_H
#define RECLAIM_FILTER_H

#include "fault.h"

/* On this process and all it will start. Needs CAP_SYS_ADMIN: no_new_privs is left alone,
 * so that set-user-id programs work as without us. */
int block_io_uring(struct fault *fault);

#endif
