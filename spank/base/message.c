/* SPDX-License-Identifier: Apache-2.0 */
#include "message.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HEX[] = "0123456789ABCDEF";

void message_clear(struct message *message)
{
	message->pairs = 0;
	message->used = 0;
}

static int key_allowed(const char *key, size_t length)
{
	if (length == 0 || length > MESSAGE_KEY)
		return 0;
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)key[i];

		if (!isalnum(c) && c != '_' && c != '.')
			return 0;
	}
	return 1;
}

/* Both lengths are without the final NUL. The value is filled by the caller. */
static char *new_pair(struct message *message, const char *key, size_t key_length,
		      size_t value_length)
{
	char *at = message->text + message->used;

	if (!key_allowed(key, key_length) || message->pairs == MESSAGE_PAIRS)
		return NULL;
	if (key_length + value_length + 2 > MESSAGE_BYTES - message->used)
		return NULL;
	memcpy(at, key, key_length);
	at[key_length] = '\0';
	if (message_get(message, at) != NULL)
		return NULL;
	message->key[message->pairs] = (uint16_t)message->used;
	message->value[message->pairs] = (uint16_t)(message->used + key_length + 1);
	message->used += key_length + value_length + 2;
	message->pairs++;
	return at + key_length + 1;
}

int message_add(struct message *message, const char *key, const char *value)
{
	size_t length = strlen(value);
	char *at = new_pair(message, key, strlen(key), length);

	if (at == NULL)
		return -1;
	memcpy(at, value, length + 1);
	return 0;
}

int message_addf(struct message *message, const char *key, const char *format, ...)
{
	char value[1024];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(value, sizeof(value), format, args);
	va_end(args);
	if (length < 0 || (size_t)length >= sizeof(value))
		return -1;
	return message_add(message, key, value);
}

const char *message_get(const struct message *message, const char *key)
{
	for (size_t i = 0; i < message->pairs; i++)
		if (strcmp(message->text + message->key[i], key) == 0)
			return message->text + message->value[i];
	return NULL;
}

int parse_number(const char *text, int64_t low, int64_t high, int64_t *value)
{
	long long number;
	char *end;

	if (text == NULL || !(isdigit((unsigned char)text[0]) || text[0] == '-'))
		return -1;
	errno = 0;
	number = strtoll(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || number < low || number > high)
		return -1;
	*value = number;
	return 0;
}

int message_number(const struct message *message, const char *key, int64_t low, int64_t high,
		   int64_t *value)
{
	return parse_number(message_get(message, key), low, high, value);
}

static long encode_text(const char *text, char *out, size_t room)
{
	size_t length = 0;

	for (; *text != '\0'; text++) {
		unsigned char c = (unsigned char)*text;
		int plain = c >= 0x20 && c != 0x7f && c != '%';

		if (length + (plain ? 1 : 3) > room)
			return -1;
		if (plain) {
			out[length++] = (char)c;
			continue;
		}
		out[length++] = '%';
		out[length++] = HEX[c >> 4];
		out[length++] = HEX[c & 15];
	}
	return (long)length;
}

long message_encode(const struct message *message, char *out, size_t size)
{
	size_t length = 0;

	for (size_t i = 0; i < message->pairs; i++) {
		const char *key = message->text + message->key[i];
		size_t key_length = strlen(key);
		long value;

		if (length + key_length + 1 > size)
			return -1;
		memcpy(out + length, key, key_length);
		out[length + key_length] = '=';
		length += key_length + 1;
		value = encode_text(message->text + message->value[i], out + length, size - length);
		if (value < 0 || length + (size_t)value + 1 > size)
			return -1;
		length += (size_t)value;
		out[length++] = '\n';
	}
	if (length + 1 > size)
		return -1;
	out[length++] = '\n';
	return (long)length;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* Length of the decoded value, or -1. `out` has room for `length` bytes and a NUL. */
static long decode_text(const char *in, size_t length, char *out)
{
	size_t used = 0;

	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)in[i];

		if (c < 0x20 || c == 0x7f)
			return -1;
		if (c == '%') {
			int high = i + 2 < length ? hex_digit(in[i + 1]) : -1;
			int low = i + 2 < length ? hex_digit(in[i + 2]) : -1;

			/* %00 would cut the value short for every reader of C strings. */
			if (high < 0 || low < 0 || (high | low) == 0)
				return -1;
			c = (unsigned char)(high << 4 | low);
			i += 2;
		}
		out[used++] = (char)c;
	}
	out[used] = '\0';
	return (long)used;
}

static int decode_line(struct message *message, const char *line, size_t length)
{
	const char *equals = memchr(line, '=', length);
	size_t key_length, value_length;
	size_t before = message->used;
	char *value;
	long decoded;

	if (equals == NULL)
		return -1;
	key_length = (size_t)(equals - line);
	value_length = length - key_length - 1;
	value = new_pair(message, line, key_length, value_length);
	if (value == NULL)
		return -1;
	decoded = decode_text(equals + 1, value_length, value);
	if (decoded < 0)
		return -1;
	message->used = before + key_length + (size_t)decoded + 2;
	return 0;
}

long message_decode(struct message *message, const char *in, size_t length)
{
	size_t at = 0;

	message_clear(message);
	for (;;) {
		const char *newline = memchr(in + at, '\n', length - at);
		size_t line;

		if (newline == NULL)
			return length >= MESSAGE_BYTES ? -1 : 0;
		line = (size_t)(newline - in) - at;
		if (line == 0)
			return message->pairs > 0 ? (long)(at + 1) : -1;
		if (decode_line(message, in + at, line) != 0)
			return -1;
		at += line + 1;
	}
}
