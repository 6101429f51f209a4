/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message of docs/protocol.md section 1: lines key=value ended by an empty line.
 * Everything lives in one fixed block, so nothing here can run out of memory.
 */
#ifndef RECLAIM_MESSAGE_H
#define RECLAIM_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#define MESSAGE_BYTES 32768 /* encoded and decoded alike */
#define MESSAGE_PAIRS 96
#define MESSAGE_KEY 64

struct message {
	size_t pairs;
	size_t used;
	uint16_t key[MESSAGE_PAIRS];
	uint16_t value[MESSAGE_PAIRS];
	char text[MESSAGE_BYTES];
};

void message_clear(struct message *message);

/* 0, or -1 if the key is not allowed or there is no room; the message is then unchanged. */
int message_add(struct message *message, const char *key, const char *value);
int message_addf(struct message *message, const char *key, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* NULL if absent. */
const char *message_get(const struct message *message, const char *key);

/* 0 and the value only for a plain decimal number within the bounds, else -1. */
int message_number(const struct message *message, const char *key, int64_t low, int64_t high,
		   int64_t *value);
int parse_number(const char *text, int64_t low, int64_t high, int64_t *value);

/* Length written, or -1 if it does not fit. */
long message_encode(const struct message *message, char *out, size_t size);

/* Bytes taken from `in`, 0 if the message is not complete yet, -1 if it never will be one. */
long message_decode(struct message *message, const char *in, size_t length);

#endif
