/* What the program of test_portability.py is made of: inputs with the same values on every machine,
 * and outputs printed by value, not as bytes in memory. Include it after the models' headers. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#ifndef ONNXC_STRING_DEFINED /* no model has strings */
#define ONNXC_STRING_DEFINED
typedef struct onnxc_string {
    const char *data;
    size_t size;
} onnxc_string;
#endif

/* A number below n, from a generator that needs no more than 32 bits. */
static unsigned pick(unsigned n)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % n;
}

#define FILL_AND_PRINT(bits)                                                                       \
    static void fill##bits(void *to, size_t n, const uint##bits##_t *values, unsigned count)       \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            memcpy((char *)to + i * sizeof *values, values + pick(count), sizeof *values);         \
        }                                                                                          \
    }                                                                                              \
    static void print##bits(const void *from, size_t n)                                            \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            uint##bits##_t value;                                                                  \
            memcpy(&value, (const char *)from + i * sizeof value, sizeof value);                   \
            printf(" %" PRIx##bits, value);                                                        \
        }                                                                                          \
    }

FILL_AND_PRINT(8)
FILL_AND_PRINT(16)
FILL_AND_PRINT(32)
FILL_AND_PRINT(64)

static void fill_strings(onnxc_string *to, size_t n)
{
    static const onnxc_string values[] = {
        {"", 0}, {NULL, 0}, {"a", 1}, {"ab", 2}, {"ab\0c", 4}, {"ab\0d", 4}, {"\xc3\xa9", 2},
    };
    for (size_t i = 0; i < n; i++) {
        to[i] = values[pick(sizeof values / sizeof *values)];
    }
}

static void print_strings(const onnxc_string *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        printf(" %u:", (unsigned)from[i].size);
        for (size_t k = 0; k < from[i].size; k++) {
            printf("%02x", (unsigned char)from[i].data[k]);
        }
    }
}
