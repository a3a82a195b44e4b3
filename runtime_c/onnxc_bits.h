/* The bits of a floating-point number and back through a union: C99's way, for any bits. */

static inline uint32_t onnxc_bits_of_float(float value)
{
    union {
        float value;
        uint32_t bits;
    } both;

    both.value = value;
    return both.bits;
}

static inline float onnxc_float_of_bits(uint32_t bits)
{
    union {
        float value;
        uint32_t bits;
    } both;

    both.bits = bits;
    return both.value;
}

static inline uint64_t onnxc_bits_of_double(double value)
{
    union {
        double value;
        uint64_t bits;
    } both;

    both.value = value;
    return both.bits;
}

static inline double onnxc_double_of_bits(uint64_t bits)
{
    union {
        double value;
        uint64_t bits;
    } both;

    both.bits = bits;
    return both.value;
}
