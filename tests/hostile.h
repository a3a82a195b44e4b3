/* What the programs of hostile_program.py are made of. Include it after the models' headers. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define FORBID(start, size) ASAN_POISON_MEMORY_REGION(start, size)
#else
#define FORBID(start, size) ((void)(start), (void)(size))
#endif

#ifndef ONNXC_STRING_DEFINED /* no model has strings */
#define ONNXC_STRING_DEFINED
typedef struct onnxc_string {
    const char *data;
    size_t size;
} onnxc_string;
#endif

typedef struct {
    const uint64_t *values;
    unsigned count;
} table;

/* An input or output: `count` words of `size` bytes, of strings size 0. Where the words are floats,
 * `infinity` has the greatest bits without sign that are no NaN, else 0. `own` are the values of
 * the model's own test. */
typedef struct {
    void *data;
    const void *own;
    size_t count;
    size_t size;
    uint64_t infinity;
    table ordinary;
    table special;
    int64_t *shape;
    size_t rank;
} tensor;

typedef struct {
    size_t offset;
    size_t size;
} span;

/* spans has what the buffers take of the workspace, sorted. */
typedef struct {
    const char *name;
    const tensor *inputs;
    size_t input_count;
    const tensor *outputs;
    size_t output_count;
    unsigned char *workspace;
    size_t workspace_size;
    const span *spans;
    size_t span_count;
    int (*run)(void);
} subject;

static uint64_t state;

static uint64_t any_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1d;
}

static unsigned pick(unsigned n)
{
    return (unsigned)((any_bits() >> 33) % n);
}

static uint64_t chosen(table from)
{
    return from.count ? from.values[pick(from.count)] : any_bits();
}

static uint64_t get(const void *from, size_t n, size_t size)
{
    const char *place = (const char *)from + n * size;
    uint8_t one;
    uint16_t two;
    uint32_t four;
    uint64_t eight;

    switch (size) {
    case 1: memcpy(&one, place, 1); return one;
    case 2: memcpy(&two, place, 2); return two;
    case 4: memcpy(&four, place, 4); return four;
    default: memcpy(&eight, place, 8); return eight;
    }
}

static void put(void *to, size_t n, size_t size, uint64_t value)
{
    char *place = (char *)to + n * size;
    const uint8_t one = (uint8_t)value;
    const uint16_t two = (uint16_t)value;
    const uint32_t four = (uint32_t)value;

    switch (size) {
    case 1: memcpy(place, &one, 1); break;
    case 2: memcpy(place, &two, 2); break;
    case 4: memcpy(place, &four, 4); break;
    default: memcpy(place, &value, 8); break;
    }
}

enum { OWN, SPECIAL, BITS, ORDINARY, SOME_SPECIAL, NEAR, MODES };

static uint64_t word(const tensor *to, size_t n, int mode)
{
    switch (mode) {
    case SPECIAL: return chosen(to->special);
    case BITS: return any_bits();
    case ORDINARY: return chosen(to->ordinary);
    case SOME_SPECIAL: return pick(8) ? get(to->own, n, to->size) : chosen(to->special);
    case NEAR: return get(to->own, n, to->size) + (pick(2) ? pick(5) : 0u) - 2u;
    default: return get(to->own, n, to->size);
    }
}

static void fill(const tensor *to, int mode)
{
    static const onnxc_string texts[] = {
        {"", 0}, {NULL, 0}, {"a", 1}, {"ab\0c", 4}, {"ab\0d", 4}, {"\xff", 1}, {"1e400", 5},
        {"a string of more than thirty-two bytes", 38}, {"nan", 3},
    };

    for (size_t n = 0; n < to->count; n++) {
        if (to->size)
            put(to->data, n, to->size, word(to, n, mode));
        else if (mode == OWN)
            ((onnxc_string *)to->data)[n] = ((const onnxc_string *)to->own)[n];
        else
            ((onnxc_string *)to->data)[n] = texts[pick(sizeof texts / sizeof *texts)];
    }
}

/* The words that an output has, more than there is room for where its shape is no shape. */
static size_t filled_words(const tensor *from)
{
    size_t count = 1;
    size_t room = 1;

    if (!from->shape || !from->count)
        return from->count;
    for (size_t n = 0; n < from->rank; n++) {
        if (from->shape[n] < 0 || (uint64_t)from->shape[n] > from->count)
            return from->count + 1;
        count *= (size_t)from->shape[n];
        room = room > count ? room : count;
    }
    return room > from->count ? from->count + 1 : count;
}

static uint64_t mixed(uint64_t hash, uint64_t value)
{
    return ((hash ^ value) * 0x100000001b3) ^ (hash >> 29);
}

/* Of the values; all NaN are one: C does not say which of two an operation hands on. */
static uint64_t hash_of(const tensor *from)
{
    const uint64_t magnitude = ((uint64_t)1 << (8 * from->size - 1)) - 1;
    uint64_t hash = filled_words(from);

    if (hash > from->count)
        return 0;
    for (size_t n = 0, count = (size_t)hash; n < count; n++) {
        if (from->size) {
            const uint64_t value = get(from->data, n, from->size);
            const int nan = from->infinity && (value & magnitude) > from->infinity;

            hash = mixed(hash, nan ? from->infinity + 1 : value);
        } else {
            const onnxc_string *text = (const onnxc_string *)from->data + n;

            hash = mixed(hash, text->size);
            for (size_t k = 0; k < text->size; k++)
                hash = mixed(hash, (unsigned char)text->data[k]);
        }
    }
    return hash;
}

/* The status, and of each output the hash, after memory that was full of `rest`. */
static int run_once(const subject *one, int rest, uint64_t *hashes)
{
    int status;

    for (size_t n = 0; n < one->span_count; n++)
        memset(one->workspace + one->spans[n].offset, rest, one->spans[n].size);
    for (size_t n = 0; n < one->output_count; n++) {
        const tensor *output = one->outputs + n;

        if (output->count && output->size)
            memset(output->data, rest, output->count * output->size);
        if (output->shape)
            memset(output->shape, rest, output->rank * sizeof *output->shape);
    }
    status = one->run();
    for (size_t n = 0; n < one->output_count; n++)
        hashes[n] = hash_of(one->outputs + n);
    return status;
}

/* Each round twice, on memory that was full of something else. Of a round whose results tell the
 * difference, a line says so. */
static void try_out(const subject *one, int rounds)
{
    size_t end = 0;
    uint64_t first[64];
    uint64_t second[64];

    for (size_t n = 0; n < one->span_count; n++) {
        if (one->spans[n].offset > end)
            FORBID(one->workspace + end, one->spans[n].offset - end);
        if (one->spans[n].offset + one->spans[n].size > end)
            end = one->spans[n].offset + one->spans[n].size;
    }
    FORBID(one->workspace + end, one->workspace_size - end);
    state = 0x9e3779b97f4a7c15;
    for (int round = 0; round < rounds; round++) {
        int status, other;

        for (size_t n = 0; n < one->input_count; n++)
            fill(one->inputs + n, round <= ORDINARY ? round : (int)pick(MODES));
        status = run_once(one, 0x40, first);
        other = run_once(one, 0xff, second);
        printf("%s %d %d", one->name, round, status);
        for (size_t n = 0; n < one->output_count; n++)
            printf(" %" PRIx64, first[n]);
        printf("%s\n", status == other && !memcmp(first, second, one->output_count * sizeof *first)
                           ? "" : " depends on what was in memory");
    }
    fflush(stdout);
}
