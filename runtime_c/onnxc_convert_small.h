/* float8, float4 and e8m0, held as bits, from and to float. To float is exact. From float is
 * rounded to nearest even, and what is out of range after that is the largest number with
 * `saturate`, or else infinity or, where the type has none, NaN.
 */

static inline float onnxc_float_of_float8e4m3fn(uint8_t x)
{
    const uint32_t sign = (x & (uint32_t)0x80) << 24;
    const uint32_t magnitude = x & (uint32_t)0x7f;
    const uint32_t number = onnxc_widened_bits(magnitude << 20, 0x3c000000u);

    return onnxc_float_of_bits(sign | onnxc_either(magnitude == 0x7f, 0x7fc00000u, number));
}

/* The pattern of -0 is NaN. */
static inline float onnxc_float_of_float8e4m3fnuz(uint8_t x)
{
    const uint32_t sign = (x & (uint32_t)0x80) << 24;
    const uint32_t number = onnxc_widened_bits((x & (uint32_t)0x7f) << 20, 0x3b800000u);

    return onnxc_float_of_bits(sign | onnxc_either(x == 0x80, 0x7fc00000u, number));
}

/* The high half of a float16; a NaN becomes a quiet one. */
static inline float onnxc_float_of_float8e5m2(uint8_t x)
{
    const uint32_t sign = (x & (uint32_t)0x80) << 24;
    const uint32_t magnitude = (x & (uint32_t)0x7f) << 21;
    const uint32_t number = onnxc_widened_bits(magnitude, 0x38000000u);
    const uint32_t special = magnitude > 0x0f800000u ? 0x7fc00000u : 0x7f800000u;

    return onnxc_float_of_bits(sign | onnxc_either(magnitude < 0x0f800000u, number, special));
}

/* The pattern of -0 is NaN. */
static inline float onnxc_float_of_float8e5m2fnuz(uint8_t x)
{
    const uint32_t sign = (x & (uint32_t)0x80) << 24;
    const uint32_t number = onnxc_widened_bits((x & (uint32_t)0x7f) << 21, 0x37800000u);

    return onnxc_float_of_bits(sign | onnxc_either(x == 0x80, 0x7fc00000u, number));
}

static inline float onnxc_float_of_float4e2m1(uint8_t x)
{
    const uint32_t sign = (x & (uint32_t)8) << 28;

    return onnxc_float_of_bits(sign | onnxc_widened_bits((x & (uint32_t)7) << 22, 0x3f000000u));
}

/* 2^(x - 127), the least of which is a denormal float. */
static inline float onnxc_float_of_float8e8m0(uint8_t x)
{
    const uint32_t number = x == 0 ? 0x00400000u : (uint32_t)x << 23;

    return onnxc_float_of_bits(x == 255 ? 0x7fc00000u : number);
}

static inline uint8_t onnxc_float8e4m3fn_of_float(float x, int saturate)
{
    const uint32_t bits = onnxc_bits_of_float(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t rounded = onnxc_narrowed_bits(magnitude, 0x3c000000u, 20);
    const uint32_t out_of_range = saturate ? 0x7e : 0x7f;
    const uint32_t number = rounded < 0x7f ? rounded : out_of_range;
    const uint32_t sign = (bits >> 24) & 0x80;

    return (uint8_t)(sign | onnxc_either(magnitude > 0x7f800000u, 0x7f, number));
}

/* NaN is the pattern of -0, which the type does not have. */
static inline uint8_t onnxc_float8e4m3fnuz_of_float(float x, int saturate)
{
    const uint32_t bits = onnxc_bits_of_float(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t rounded = onnxc_narrowed_bits(magnitude, 0x3b800000u, 20);
    const uint32_t number = rounded < 0x7f ? rounded : 0x7f;
    const uint32_t sign = number == 0 ? 0 : (bits >> 24) & 0x80;
    const uint32_t nan = (magnitude > 0x7f800000u) | (!saturate & (rounded > 0x7f));

    return (uint8_t)onnxc_either(nan, 0x80, sign | number);
}

static inline uint8_t onnxc_float8e5m2_of_float(float x, int saturate)
{
    const uint32_t bits = onnxc_bits_of_float(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t rounded = onnxc_narrowed_bits(magnitude, 0x38000000u, 21);
    const uint32_t out_of_range = saturate ? 0x7b : 0x7c;
    const uint32_t number = rounded < 0x7c ? rounded : out_of_range;
    const uint32_t sign = (bits >> 24) & 0x80;

    return (uint8_t)(sign | onnxc_either(magnitude > 0x7f800000u, 0x7e, number));
}

/* NaN is the pattern of -0, which the type does not have. */
static inline uint8_t onnxc_float8e5m2fnuz_of_float(float x, int saturate)
{
    const uint32_t bits = onnxc_bits_of_float(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t rounded = onnxc_narrowed_bits(magnitude, 0x37800000u, 21);
    const uint32_t number = rounded < 0x7f ? rounded : 0x7f;
    const uint32_t sign = number == 0 ? 0 : (bits >> 24) & 0x80;
    const uint32_t nan = (magnitude > 0x7f800000u) | (!saturate & (rounded > 0x7f));

    return (uint8_t)onnxc_either(nan, 0x80, sign | number);
}

/* Without infinity and NaN: what is out of range becomes 6 or -6, NaN 6. */
static inline uint8_t onnxc_float4e2m1_of_float(float x)
{
    const uint32_t bits = onnxc_bits_of_float(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t rounded = onnxc_narrowed_bits(magnitude, 0x3f000000u, 22);
    const uint32_t number = ((bits >> 28) & 8) | (rounded < 7 ? rounded : 7);

    return (uint8_t)onnxc_either(magnitude > 0x7f800000u, 7, number);
}

/* The exponent of |x|, one more where the mantissa and `addend` carry: 0 rounds down, 0x7fffff up,
 * 0x400000 to nearest with ties up. Beyond the range [2^-127, 2^127] before rounding, which 0 is,
 * the nearest end with `saturate`, or else NaN. The sign, of which the type has none, is ignored.
 */
static inline uint8_t onnxc_float8e8m0_of_float(float x, int saturate, uint32_t addend)
{
    const uint32_t magnitude = onnxc_bits_of_float(x) & 0x7fffffffu;
    const int denormal = magnitude < 0x00800000u;
    const uint32_t aligned = denormal ? (magnitude - 0x00400000u) << 1 : magnitude;
    const uint32_t number = (aligned + addend) >> 23;
    const uint32_t raised = magnitude < 0x00400000u ? (saturate ? 0 : 255) : number;
    const uint32_t inside = magnitude > 0x7f000000u ? (saturate ? 254 : 255) : raised;

    return (uint8_t)(magnitude > 0x7f800000u ? 255 : inside);
}

static inline uint8_t onnxc_float8e8m0_up_of_float(float x, int saturate)
{
    return onnxc_float8e8m0_of_float(x, saturate, 0x7fffffu);
}

static inline uint8_t onnxc_float8e8m0_down_of_float(float x, int saturate)
{
    return onnxc_float8e8m0_of_float(x, saturate, 0);
}

static inline uint8_t onnxc_float8e8m0_nearest_of_float(float x, int saturate)
{
    return onnxc_float8e8m0_of_float(x, saturate, 0x400000u);
}
