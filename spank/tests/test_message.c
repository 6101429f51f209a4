/* SPDX-License-Identifier: Apache-2.0 */
/* The codec, also with what no honest peer would send. Run with the sanitizers. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/message.h"
#include "../base/trust.h"

static struct message message, other;
static char buffer[MESSAGE_BYTES];

static long decode(const char *text)
{
	return message_decode(&message, text, strlen(text));
}

static void round_trip(void)
{
	long length;

	message_clear(&message);
	assert(message_add(&message, "op", "start") == 0);
	assert(message_add(&message, "env.NAME", "a b=c%d\ne\x7f\x01\xc3\xa9") == 0);
	assert(message_add(&message, "empty", "") == 0);
	assert(message_addf(&message, "job", "%u", 4294967295U) == 0);
	length = message_encode(&message, buffer, sizeof(buffer));
	assert(length > 0);
	buffer[length] = '\0';
	assert(strcmp(buffer, "op=start\nenv.NAME=a b=c%25d%0Ae%7F%01\xc3\xa9\nempty=\n"
			      "job=4294967295\n\n") == 0);
	assert(message_decode(&other, buffer, (size_t)length) == length);
	assert(other.pairs == 4);
	assert(strcmp(message_get(&other, "env.NAME"), "a b=c%d\ne\x7f\x01\xc3\xa9") == 0);
	assert(strcmp(message_get(&other, "empty"), "") == 0);
	assert(message_get(&other, "absent") == NULL);
	for (long cut = 0; cut < length; cut++)
		assert(message_decode(&other, buffer, (size_t)cut) == 0);
}

static void two_in_a_row(void)
{
	const char *text = "a=1\n\nb=2\n\n";

	assert(decode(text) == 5);
	assert(strcmp(message_get(&message, "a"), "1") == 0);
	assert(decode(text + 5) == 5);
	assert(strcmp(message_get(&message, "b"), "2") == 0);
}

static void refused(void)
{
	static const char *const wrong[] = {
		"\n", "novalue\n\n", "=1\n\n", "a b=1\n\n", "a=%\n\n", "a=%4\n\n", "a=%zz\n\n",
		"a=%00\n\n", "a=\x01\n\n", "a=\r\n\n", "a=1\na=2\n\n", "a/b=1\n\n",
	};
	char key[MESSAGE_KEY + 8];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert(decode(wrong[i]) == -1);
	memset(key, 'k', sizeof(key));
	key[MESSAGE_KEY] = '\0';
	message_clear(&message);
	assert(message_add(&message, key, "v") == 0);
	assert(message_add(&message, key, "twice") == -1);
	key[MESSAGE_KEY] = 'k';
	key[MESSAGE_KEY + 1] = '\0';
	assert(message_add(&message, key, "v") == -1);
	assert(message.pairs == 1);
}

static void limits(void)
{
	char key[16];
	char *big = malloc(MESSAGE_BYTES + 1);

	memset(big, 'x', MESSAGE_BYTES);
	big[MESSAGE_BYTES] = '\0';
	message_clear(&message);
	assert(message_add(&message, "big", big) == -1);
	/* An endless line is refused once the buffer is full. */
	assert(message_decode(&message, big, MESSAGE_BYTES) == -1);
	assert(message_decode(&message, big, MESSAGE_BYTES - 1) == 0);
	big[MESSAGE_BYTES / 2] = '\0';
	message_clear(&message);
	assert(message_add(&message, "half", big) == 0);
	assert(message_encode(&message, buffer, 100) == -1);
	/* Every byte tripled no longer fits. */
	memset(big, '%', MESSAGE_BYTES / 2);
	message_clear(&message);
	assert(message_add(&message, "half", big) == 0);
	assert(message_encode(&message, buffer, sizeof(buffer)) == -1);
	message_clear(&message);
	for (int i = 0; i < MESSAGE_PAIRS; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		assert(message_add(&message, key, "v") == 0);
	}
	assert(message_add(&message, "more", "v") == -1);
	free(big);
}

static void numbers(void)
{
	int64_t value = -7;

	assert(parse_number("12", 0, 100, &value) == 0 && value == 12);
	assert(parse_number("-3", -5, 0, &value) == 0 && value == -3);
	assert(parse_number("", 0, 9, &value) == -1);
	assert(parse_number(" 1", 0, 9, &value) == -1);
	assert(parse_number("+1", 0, 9, &value) == -1);
	assert(parse_number("1x", 0, 9, &value) == -1);
	assert(parse_number("10", 0, 9, &value) == -1);
	assert(parse_number("99999999999999999999", 0, INT64_MAX, &value) == -1);
	assert(parse_number(NULL, 0, 9, &value) == -1);
	assert(value == -3);
}

static void paths(void)
{
	assert(plain_path("/a/b"));
	assert(plain_path("/a/.b/..c/d..."));
	assert(!plain_path("a"));
	assert(!plain_path(""));
	assert(!plain_path("/a/../b"));
	assert(!plain_path("/a/.."));
	assert(!plain_path("/./a"));
	assert(!plain_path("/a/."));
}

/* Random bytes, weighted to what the grammar cares about. Decoding must keep its promises:
 * never read past the end (the sanitizers watch), and what it takes, it can say again. */
static void noise(unsigned rounds)
{
	static const char often[] = "ab=%\n\n0Aopz.\x01";

	srand(1);
	for (unsigned i = 0; i < rounds; i++) {
		size_t length = (size_t)rand() % 64;
		char *text = malloc(length + 1);
		long taken;

		for (size_t at = 0; at < length; at++)
			text[at] = rand() % 8 == 0 ? (char)rand()
						  : often[(size_t)rand() % (sizeof(often) - 1)];
		taken = message_decode(&message, text, length);
		assert(taken <= (long)length);
		if (taken > 0) {
			long again = message_encode(&message, buffer, sizeof(buffer));

			assert(again > 0);
			assert(message_decode(&other, buffer, (size_t)again) == again);
			assert(other.pairs == message.pairs);
		}
		free(text);
	}
}

int main(void)
{
	round_trip();
	two_in_a_row();
	refused();
	limits();
	numbers();
	paths();
	noise(300000);
	puts("test_message: ok");
	return 0;
}
