/* Checks for the test programs: a failed one prints its place and ends the program. */

#ifndef CHECK_H
#define CHECK_H

#include <siltstone.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);          \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

/* The call must succeed. */
#define OK(call)                                                               \
  do {                                                                         \
    siltstone_error *error_ = (call);                                          \
    if (error_) {                                                              \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,            \
              siltstone_error_message(error_));                                \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

/* The call must fail with this code, and its message contain this text. */
#define FAILS(call, code, text)                                                \
  do {                                                                         \
    siltstone_error *error_ = (call);                                          \
    if (siltstone_error_code(error_) != (int)(code) ||                         \
        !strstr(siltstone_error_message(error_), (text))) {                    \
      fprintf(stderr, "%s:%d: %s: code %d: %s\n", __FILE__, __LINE__, #call,   \
              siltstone_error_code(error_), siltstone_error_message(error_));  \
      exit(1);                                                                 \
    }                                                                          \
    siltstone_error_free(error_);                                              \
  } while (0)

/* A string literal or NUL-terminated string as pointer and length. */
#define S(text) (text), strlen(text)

/* Whether bytes are these; frees them. */
static inline bool take_equal(char *bytes, size_t len, const char *expected) {
  bool is_equal = bytes && len == strlen(expected) && !memcmp(bytes, expected, len) && !bytes[len];
  siltstone_free(bytes);
  return is_equal;
}

#endif
