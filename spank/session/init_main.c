/* SPDX-License-Identifier: Apache-2.0 */
/* The channel to the plugin, later the relay, is descriptor 3. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/trust.h"
#include "init.h"

#define CHANNEL 3

static struct session session;
static struct message said;

static int take_setting(struct settings *settings, int name, const char *value)
{
	int64_t number = 0;

	if (strchr("jurl", name) != NULL && parse_number(value, 0, UINT32_MAX, &number) != 0)
		return -1;
	if (strchr("sdt", name) != NULL && value[0] != '\0' && !plain_path(value))
		return -1;
	switch (name) {
	case 'j':
		settings->job = (uint32_t)number;
		return 0;
	case 'n':
		if (value[0] == '\0' || strlen(value) > JOB_NAME ||
		    value[strspn(value, "0123456789_")] != '\0')
			return -1;
		strcpy(settings->name, value);
		return 0;
	case 'u':
		settings->uid = (uid_t)number;
		return 0;
	case 'r':
		settings->relay = (pid_t)number;
		return 0;
	case 'l':
		settings->last_pid = number;
		return 0;
	case 'm':
		settings->fresh = strcmp(value, "fresh") == 0;
		return settings->fresh || strcmp(value, "restore") == 0 ? 0 : -1;
	case 's':
		settings->socket = value;
		return 0;
	case 'd':
		settings->state = value;
		return 0;
	case 't':
		settings->private_tmp = value;
		return 0;
	default:
		return -1;
	}
}

static int read_settings(struct settings *settings, int argc, char **argv)
{
	static const struct option table[] = {
		{"job", required_argument, NULL, 'j'},	    {"name", required_argument, NULL, 'n'},
		{"uid", required_argument, NULL, 'u'},	    {"relay", required_argument, NULL, 'r'},
		{"last-pid", required_argument, NULL, 'l'}, {"mode", required_argument, NULL, 'm'},
		{"socket", required_argument, NULL, 's'},   {"state", required_argument, NULL, 'd'},
		{"private-tmp", required_argument, NULL, 't'}, {NULL, 0, NULL, 0},
	};
	int name;

	settings->socket = "/run/slurm-reclaim/agent.sock";
	settings->state = "/var/lib/slurm-reclaim";
	settings->private_tmp = "";
	settings->last_pid = 299;
	while ((name = getopt_long(argc, argv, "", table, NULL)) != -1)
		if (take_setting(settings, name, optarg == NULL ? "" : optarg) != 0)
			return -1;
	if (settings->name[0] == '\0') /* by a plugin of an older version */
		snprintf(settings->name, sizeof(settings->name), "%u", settings->job);
	return settings->job != 0 && settings->relay != 0 ? 0 : -1;
}

/* The OOM killer would take the whole session with it. Needs CAP_SYS_RESOURCE: where that is
 * missing, nothing is lost but this. */
static void be_spared(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	ssize_t written = fd < 0 ? 0 : write(fd, "-900", 4);

	(void)written;
	if (fd >= 0)
		close(fd);
}

static int prepare(int argc, char **argv, struct fault *fault)
{
	struct settings *settings = &session.settings;

	if (read_settings(settings, argc, argv) != 0)
		return fault_set(fault, "wrong arguments");
	if (getpid() != 1)
		return fault_set(fault, "not the first process of a PID namespace");
	umask(022);
	if (chdir("/") != 0)
		return fault_set(fault, "couldn't change to /: %s", strerror(errno));
	settings->outer_proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (settings->outer_proc < 0)
		return fault_set(fault, "couldn't open /proc: %s", strerror(errno));
	/* A session of its own, so that no signal to Slurm's process group reaches it. */
	setsid();
	if (hearing_open(&session.hearing) != 0)
		return fault_set(fault, "couldn't watch signals: %s", strerror(errno));
	if (prepare_mounts(settings, fault) != 0)
		return -1;
	be_spared();
	return 0;
}

int main(int argc, char **argv)
{
	struct fault fault = {""};
	int failed;

	if (fcntl(CHANNEL, F_SETFD, FD_CLOEXEC) != 0) {
		fprintf(stderr, "reclaim-init: started by the SPANK plugin reclaim.so, not by hand\n");
		return 2;
	}
	stream_open(&session.relay, CHANNEL);
	failed = prepare(argc, argv, &fault) != 0;
	if (failed)
		message_add(&said, "error", fault.text);
	else
		message_add(&said, "ready", "1");
	if (stream_send(&session.relay, &said, now_ms() + 5000) != 0 || failed)
		return 1;
	serve(&session);
}
