/* What the fuzz targets of all models have in common: buffers of exactly the stated bytes at
 * exactly the stated alignment, filled from the fuzzer's bytes.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef ONNXC_STRING_DEFINED /* by the header of a model without strings */
typedef struct onnxc_string {
    const char *data;
    size_t size;
} onnxc_string;
#endif

/* BYTES: any bits. INTEGERS: any bits or small numbers. FLOATS: any bits, small or special ones. */
typedef enum kind { BYTES, INTEGERS, FLOATS, STRINGS } kind;

typedef struct part {
    kind what;
    size_t bytes;
    size_t size; /* of a number */
    size_t count;
    size_t alignment;
    unsigned char *data;
} part;

/* The fuzzer's bytes, again and again; the first says what kinds of numbers are made of them. */
typedef struct source {
    const uint8_t *data;
    size_t size, next;
    unsigned mode;
} source;

static volatile unsigned used; /* what is read is needed */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static source begin(const uint8_t *data, size_t size)
{
    const source none = {(const uint8_t *)"", 1, 0, 0};
    const source given = {data + 1, size - 1, 0, size > 0 ? data[0] : 0u};
    return size < 2 ? none : given;
}

static uint8_t byte(source *from)
{
    const uint8_t found = from->data[from->next];
    from->next = (from->next + 1) % from->size;
    return found;
}

/* The buffer ends where its allocation ends, and no address of it has a larger alignment. */
static inline void allocate(part *to)
{
    void *memory = NULL;
    const size_t multiple = to->alignment < 64 ? 64 : to->alignment;

    if (to->data != NULL) {
        return;
    }
    if (posix_memalign(&memory, multiple, to->bytes + to->alignment) != 0) {
        abort();
    }
    to->data = (unsigned char *)memory + to->alignment;
}

static inline void fill_float(unsigned char *to, size_t size, uint8_t bits)
{
    static const double special[8] = {0.0, -0.0, 1e-40, 1e38, 2147483648.0, -9.3e18, 0.5, 1e300};
    const double value = bits < 8 ? special[bits] : ((double)bits - 128.0) / 8.0;

    if (size == 4) {
        const float narrow = (float)(value > 3e38 ? 3e38 : value);
        memcpy(to, &narrow, 4);
    } else {
        memcpy(to, &value, 8);
    }
}

static inline void fill_string(part *to, size_t number, source *from)
{
    onnxc_string *const string = (onnxc_string *)(void *)to->data + number;
    const size_t size = byte(from) % 12u;
    char *const text = malloc(size > 0 ? size : 1);

    if (text == NULL) {
        abort();
    }
    for (size_t k = 0; k < size; k++) {
        text[k] = (char)byte(from);
    }
    string->data = text;
    string->size = size;
}

static inline void fill(part *to, source *from)
{
    const int plain = to->what == BYTES || (to->what == INTEGERS && (from->mode & 1u) != 0)
        || (to->what == FLOATS && (from->mode & 2u) != 0);

    allocate(to);
    from->mode = from->mode >> 2 | from->mode << 6; /* the next input may be of another kind */
    for (size_t k = 0; k < to->count; k++) {
        unsigned char *const number = to->data + k * to->size;
        if (to->what == STRINGS) {
            fill_string(to, k, from);
        } else if (plain) {
            for (size_t b = 0; b < to->size; b++) {
                number[b] = byte(from);
            }
        } else if (to->what == FLOATS) {
            fill_float(number, to->size, byte(from));
        } else {
            const int64_t small = (int8_t)byte(from) / 8;
            memcpy(number, &small, to->size); /* little-endian */
        }
    }
}

static inline void spoil(part *to, source *from)
{
    allocate(to);
    memset(to->data, byte(from), to->bytes);
}

static inline void release(part *to)
{
    if (to->what == STRINGS) {
        for (size_t k = 0; k < to->count; k++) {
            free((void *)(uintptr_t)((onnxc_string *)(void *)to->data)[k].data);
        }
    }
}

/* Of an output whose size the data decides, the first of its elements; `shape` is its own. */
static inline void read_strings(const part *of, const part *shape)
{
    size_t count = of->count;

    if (shape != NULL) {
        count = 1;
        for (size_t k = 0; k < shape->count; k++) {
            count *= (size_t)((const int64_t *)(const void *)shape->data)[k];
        }
    }
    for (size_t k = 0; k < count; k++) {
        const onnxc_string string = ((const onnxc_string *)(const void *)of->data)[k];
        for (size_t b = 0; b < string.size; b++) {
            used += (unsigned char)string.data[b];
        }
    }
}

static inline void check_shape(const part *shape, const int64_t *most)
{
    for (size_t k = 0; k < shape->count; k++) {
        const int64_t extent = ((const int64_t *)(const void *)shape->data)[k];
        if (extent < 0 || extent > most[k]) {
            abort();
        }
    }
}

#endif
