/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "plugin.h"

struct path_argument {
	const char *name;
	char *value;
};

static int take_path(const struct path_argument *table, size_t count, const char *text)
{
	for (size_t i = 0; i < count; i++) {
		size_t length = strlen(table[i].name);

		if (strncmp(text, table[i].name, length) != 0 || text[length] != '=')
			continue;
		text += length + 1;
		if (!plain_path(text))
			return -1;
		snprintf(table[i].value, PATH_LONGEST + 1, "%s", text);
		return 0;
	}
	return -1;
}

void read_arguments(struct arguments *arguments, int argc, char **argv)
{
	static const char timeout[] = "timeout=";
	const struct path_argument table[] = {
		{"socket", arguments->socket},
		{"libexec", arguments->libexec},
		{"state", arguments->state},
		{"run", arguments->run},
	};
	int64_t seconds;

	strcpy(arguments->socket, "/run/slurm-reclaim/agent.sock");
	strcpy(arguments->libexec, "/usr/libexec/slurm-reclaim");
	strcpy(arguments->state, "/var/lib/slurm-reclaim");
	strcpy(arguments->run, "/run/slurm-reclaim");
	arguments->timeout_ms = 3000;
	for (int i = 0; i < argc; i++) {
		if (strncmp(argv[i], timeout, sizeof(timeout) - 1) == 0 &&
		    parse_number(argv[i] + sizeof(timeout) - 1, 1, 60, &seconds) == 0)
			arguments->timeout_ms = seconds * 1000;
		else if (take_path(table, sizeof(table) / sizeof(table[0]), argv[i]) != 0)
			slurm_error("reclaim: couldn't use the plugin argument %s", argv[i]);
	}
}
