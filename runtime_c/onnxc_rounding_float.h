/* Selection, signs, rounding to integers, remainder and order of floats, without branches. Assumed
 * are the default rounding mode and FLT_EVAL_METHOD 0 or 1.
 */

/* magnitude, which has no sign, with the sign of value. */
static inline float onnxc_signed_float(float magnitude, float value)
{
    return onnxc_float_of_bits(onnxc_bits_of_float(magnitude) |
                               (onnxc_bits_of_float(value) & 0x80000000u));
}

/* condition, 0 or 1, ? yes : no by a mask: from a conditional expression gcc may make a branch
 * around, or copies of, the computation of one or of what follows.
 */
static inline float onnxc_select_float(int condition, float yes, float no)
{
    const uint32_t mask = 0u - (uint32_t)condition;

    return onnxc_float_of_bits((onnxc_bits_of_float(yes) & mask) |
                               (onnxc_bits_of_float(no) & ~mask));
}

/* The nearest integer, half to even, exact: from 2^23 every float is one, and below it the sum
 * with 2^23 has no fraction left. Keeps -0.
 */
static inline float onnxc_round_float(float value)
{
    const float magnitude = onnxc_abs_float(value);
    const float shifted = magnitude + 8388608.0f;
    const float rounded = shifted - 8388608.0f;

    return onnxc_select_float(magnitude < 8388608.0f, onnxc_signed_float(rounded, value), value);
}

/* The largest integer that is not above, exact; keeps -0. */
static inline float onnxc_floor_float(float value)
{
    const float rounded = onnxc_round_float(value);

    return onnxc_select_float(rounded > value, rounded - 1.0f, rounded);
}

/* The smallest integer that is not below, exact; -0 for what lies between -1 and 0. */
static inline float onnxc_ceil_float(float value)
{
    const float rounded = onnxc_round_float(value);
    const float above = onnxc_abs_float(rounded + 1.0f);

    return onnxc_select_float(rounded < value, onnxc_signed_float(above, value), rounded);
}

/* The integer towards 0, exact; keeps the sign. */
static inline float onnxc_trunc_float(float value)
{
    const float magnitude = onnxc_abs_float(value);
    const float rounded = onnxc_round_float(magnitude);

    const float below = onnxc_select_float(rounded > magnitude, rounded - 1.0f, rounded);

    return onnxc_signed_float(below, value);
}

/* The remainder of a / b with the sign of a, exact. */
static inline float onnxc_mod_float(float a, float b)
{
    return fmodf(a, b);
}

/* Whether a / b is beyond what the function below is for; no NaN is. */
static inline uint32_t onnxc_far_quotient_float(float a, float b)
{
    return onnxc_abs_float(a) >= onnxc_abs_float(b) * 268435456.0f;
}

/* The same remainder without a branch, for |a / b| < 2^28 and NaN: products of integers
 * below 2^29 and floats are exact in double, and so is what is left.
 */
static inline float onnxc_mod_near_float(float a, float b)
{
    const float magnitude = onnxc_abs_float(a);
    const float limit = onnxc_abs_float(b);
    const double shifted = (double)magnitude / (double)limit + 6755399441055744.0;
    const double nearest = shifted - 6755399441055744.0;
    const float rest = (float)((double)magnitude - nearest * (double)limit);
    const float inside = rest + onnxc_select_float(rest < 0.0f, limit, 0.0f);

    return onnxc_signed_float(onnxc_select_float(magnitude < limit, magnitude, inside), a);
}

/* Correctly rounded: at most 0.5 ulp. */
static inline float onnxc_sqrt_float(float value)
{
    return sqrtf(value);
}

/* The bits of a value, but none of them where the condition is 1. */
static inline uint32_t onnxc_unless_float(int condition, uint32_t bits)
{
    return bits & ((uint32_t)condition - 1u);
}

/* The smaller; NaN where one is NaN, -0 of two zeros that differ: the bits of the larger count as
 * none, and of what is neither smaller nor larger all bits of both stay.
 */
static inline float onnxc_min_float(float a, float b)
{
    return onnxc_float_of_bits(onnxc_unless_float(a > b, onnxc_bits_of_float(a)) |
                               onnxc_unless_float(b > a, onnxc_bits_of_float(b)));
}

/* The larger; NaN where one is NaN, +0 of two zeros that differ: -min(-a, -b). */
static inline float onnxc_max_float(float a, float b)
{
    const uint32_t sign = 0x80000000u;
    const uint32_t first = onnxc_unless_float(a < b, onnxc_bits_of_float(a) ^ sign);
    const uint32_t second = onnxc_unless_float(b < a, onnxc_bits_of_float(b) ^ sign);

    return onnxc_float_of_bits((first | second) ^ sign);
}

/* The larger of x and a bound that is neither NaN nor -0. */
static inline float onnxc_at_least_float(float x, float bound)
{
    return onnxc_select_float(x <= bound, bound, x);
}

/* The smaller of x and a bound that is neither NaN nor +0. */
static inline float onnxc_at_most_float(float x, float bound)
{
    return onnxc_select_float(x >= bound, bound, x);
}
