/* Selection, signs, rounding to integers, remainder and order of doubles, without branches. Assumed
 * are the default rounding mode and FLT_EVAL_METHOD 0 or 1.
 */

/* magnitude, which has no sign, with the sign of value. */
static inline double onnxc_signed_double(double magnitude, double value)
{
    return onnxc_double_of_bits(onnxc_bits_of_double(magnitude) |
                               (onnxc_bits_of_double(value) & 0x8000000000000000u));
}

/* condition, 0 or 1, ? yes : no by a mask: from a conditional expression gcc may make a branch
 * around, or copies of, the computation of one or of what follows.
 */
static inline double onnxc_select_double(int condition, double yes, double no)
{
    const uint64_t mask = (uint64_t)0 - (uint64_t)condition;

    return onnxc_double_of_bits((onnxc_bits_of_double(yes) & mask) |
                               (onnxc_bits_of_double(no) & ~mask));
}

/* The nearest integer, half to even, exact: from 2^52 every double is one, and below it the sum
 * with 2^52 has no fraction left. Keeps -0.
 */
static inline double onnxc_round_double(double value)
{
    const double magnitude = onnxc_abs_double(value);
    const double shifted = magnitude + 4503599627370496.0;
    const double rounded = shifted - 4503599627370496.0;
    const int small = magnitude < 4503599627370496.0;

    return onnxc_select_double(small, onnxc_signed_double(rounded, value), value);
}

/* The largest integer that is not above, exact; keeps -0. */
static inline double onnxc_floor_double(double value)
{
    const double rounded = onnxc_round_double(value);

    return onnxc_select_double(rounded > value, rounded - 1.0, rounded);
}

/* The smallest integer that is not below, exact; -0 for what lies between -1 and 0. */
static inline double onnxc_ceil_double(double value)
{
    const double rounded = onnxc_round_double(value);
    const double above = onnxc_abs_double(rounded + 1.0);

    return onnxc_select_double(rounded < value, onnxc_signed_double(above, value), rounded);
}

/* The integer towards 0, exact; keeps the sign. */
static inline double onnxc_trunc_double(double value)
{
    const double magnitude = onnxc_abs_double(value);
    const double rounded = onnxc_round_double(magnitude);

    const double below = onnxc_select_double(rounded > magnitude, rounded - 1.0, rounded);

    return onnxc_signed_double(below, value);
}

/* The remainder of a / b with the sign of a, exact. */
static inline double onnxc_mod_double(double a, double b)
{
    return fmod(a, b);
}

/* Correctly rounded: at most 0.5 ulp. */
static inline double onnxc_sqrt_double(double value)
{
    return sqrt(value);
}

/* The bits of a value, but none of them where the condition is 1. */
static inline uint64_t onnxc_unless_double(int condition, uint64_t bits)
{
    return bits & ((uint64_t)condition - 1u);
}

/* The smaller; NaN where one is NaN, -0 of two zeros that differ: the bits of the larger count as
 * none, and of what is neither smaller nor larger all bits of both stay.
 */
static inline double onnxc_min_double(double a, double b)
{
    return onnxc_double_of_bits(onnxc_unless_double(a > b, onnxc_bits_of_double(a)) |
                               onnxc_unless_double(b > a, onnxc_bits_of_double(b)));
}

/* The larger; NaN where one is NaN, +0 of two zeros that differ: -min(-a, -b). */
static inline double onnxc_max_double(double a, double b)
{
    const uint64_t sign = 0x8000000000000000u;
    const uint64_t first = onnxc_unless_double(a < b, onnxc_bits_of_double(a) ^ sign);
    const uint64_t second = onnxc_unless_double(b < a, onnxc_bits_of_double(b) ^ sign);

    return onnxc_double_of_bits((first | second) ^ sign);
}

/* The larger of x and a bound that is neither NaN nor -0. */
static inline double onnxc_at_least_double(double x, double bound)
{
    return onnxc_select_double(x <= bound, bound, x);
}

/* The smaller of x and a bound that is neither NaN nor +0. */
static inline double onnxc_at_most_double(double x, double bound)
{
    return onnxc_select_double(x >= bound, bound, x);
}
