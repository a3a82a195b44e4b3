/* float16 and bfloat16, held as bits, from and to float and double. Every function rounds once, to
 * nearest even, and keeps the sign and the high bits of a NaN. No branches: a loop over the float
 * ones is vectorised.
 */

/* which ? one : other, of a `which` that is 1 or 0. With a conditional gcc moves what computes a
 * float, and so may raise floating-point flags, into a branch, and then does not vectorise.
 */
static inline uint32_t onnxc_either(uint32_t which, uint32_t one, uint32_t other)
{
    return other ^ ((one ^ other) & (0 - which));
}

/* The bits of a float, without sign, that a smaller type's exponent and mantissa stand for.
 * `magnitude` has them where float has its own, `offset` is what the exponent lacks. A denormal is
 * read as if its hidden bit were 1, which is then subtracted.
 */
static inline uint32_t onnxc_widened_bits(uint32_t magnitude, uint32_t offset)
{
    const uint32_t hidden = offset + 0x00800000u;
    const float denormal = onnxc_float_of_bits(magnitude + hidden) - onnxc_float_of_bits(hidden);
    const uint32_t is_normal = magnitude >= 0x00800000u;

    return onnxc_either(is_normal, magnitude + offset, onnxc_bits_of_float(denormal));
}

/* The exponent and mantissa of a smaller type, in the low bits, from those of a float: `shift` bits
 * of mantissa and `offset` of the exponent are dropped. Above the type's largest when out of range,
 * anything for a NaN. A denormal is rounded by adding a number whose last bit weighs the same.
 */
static inline uint32_t onnxc_narrowed_bits(uint32_t magnitude, uint32_t offset,
                                           uint32_t shift)
{
    const uint32_t below_half = ((uint32_t)1 << (shift - 1)) - 1;
    const uint32_t odd = (magnitude >> shift) & 1;
    const uint32_t normal = (magnitude - offset + below_half + odd) >> shift;
    const uint32_t aligned = offset + ((shift + 1) << 23);
    const float denormal = onnxc_float_of_bits(magnitude) + onnxc_float_of_bits(aligned);
    const uint32_t is_normal = magnitude >= offset + 0x00800000u;

    return onnxc_either(is_normal, normal, onnxc_bits_of_float(denormal) - aligned);
}

static inline float onnxc_float_of_float16(uint16_t x)
{
    const uint32_t sign = (x & (uint32_t)0x8000) << 16;
    const uint32_t magnitude = (x & (uint32_t)0x7fff) << 13;
    const uint32_t finite = onnxc_widened_bits(magnitude, 0x38000000u);
    const uint32_t is_finite = magnitude < 0x0f800000u;
    const uint32_t bits = onnxc_either(is_finite, finite, magnitude | 0x7f800000u);

    return onnxc_float_of_bits(sign | bits);
}

static inline float onnxc_float_of_bfloat16(uint16_t x)
{
    return onnxc_float_of_bits((uint32_t)x << 16);
}

static inline uint16_t onnxc_float16_of_float(float x)
{
    const uint32_t bits = onnxc_bits_of_float(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t rounded = onnxc_narrowed_bits(magnitude, 0x38000000u, 13);
    const uint32_t number = rounded < 0x7c00u ? rounded : 0x7c00u;
    const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x03ffu);
    const uint32_t sign = (bits >> 16) & 0x8000u;

    return (uint16_t)(sign | onnxc_either(magnitude > 0x7f800000u, nan, number));
}

static inline uint16_t onnxc_bfloat16_of_float(float x)
{
    const uint32_t bits = onnxc_bits_of_float(x);
    const uint32_t number = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x0040u;

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : number);
}

/* The nearest float16 as a float, as if converted there and back. A power of two, 2^13 times that
 * of x, is added and subtracted: the last bit of the sum weighs what that of the float16 does, a
 * denormal's too.
 */
static inline float onnxc_as_float16_float(float x)
{
    const uint32_t bits = onnxc_bits_of_float(x);
    const uint32_t sign = bits & 0x80000000u;
    const float size = onnxc_float_of_bits(bits & 0x7fffffffu);
    const float power = onnxc_float_of_bits(bits & 0x7f800000u);
    const float least = onnxc_select_float(power > 6.1035156e-5f, power, 6.1035156e-5f);
    const float grid = onnxc_select_float(least < 65536.0f, least, 65536.0f) * 8192.0f;
    const float sum = size + grid;
    const float nearest = sum - grid;
    const float infinity = onnxc_float_of_bits(0x7f800000u);
    const float number = onnxc_select_float(nearest > 65504.0f, infinity, nearest);

    return onnxc_float_of_bits(sign | (onnxc_bits_of_float(number) & 0x7fffe000u));
}

/* The nearest bfloat16 as a float: its high half is that number. */
static inline float onnxc_as_bfloat16_float(float x)
{
    const uint32_t bits = onnxc_bits_of_float(x);
    const float quiet = onnxc_float_of_bits(bits | 0x00400000u);
    const float carried = onnxc_float_of_bits(bits + 0x7fffu + ((bits >> 16) & 1));
    const float number
            = onnxc_select_float((bits & 0x7fffffffu) > 0x7f800000u, quiet, carried);

    return onnxc_float_of_bits(onnxc_bits_of_float(number) & 0xffff0000u);
}

/* Of the two floats around x the one whose last bit is 1, x itself where it is a float. Rounded
 * further to 22 bits or fewer, this gives what x would give: the last bit says "not exact".
 */
static inline float onnxc_odd_float_of_double(double x)
{
    const float nearest = (float)x;
    const uint32_t bits = onnxc_bits_of_float(nearest);
    const uint32_t above = (double)nearest > x;
    const uint32_t below = (double)nearest < x;
    const uint32_t away = (bits >> 31) != 0 ? below : above;

    return onnxc_float_of_bits((bits - away) | above | below);
}

static inline uint16_t onnxc_float16_of_double(double x)
{
    return onnxc_float16_of_float(onnxc_odd_float_of_double(x));
}

static inline uint16_t onnxc_bfloat16_of_double(double x)
{
    return onnxc_bfloat16_of_float(onnxc_odd_float_of_double(x));
}

/* x where a double is sure to hold it. From 2^32 on, 16 bits become one that says "not exact", so
 * that the double, rounded further to 15 bits or fewer, gives what x would give.
 */
static inline double onnxc_odd_double_of_int64(int64_t x)
{
    const int64_t odd = (x & ~(int64_t)0xffff) | ((x & 0xffff) != 0 ? 0x10000 : 0);

    return (double)(x > -0x100000000 && x < 0x100000000 ? x : odd);
}

/* As onnxc_odd_double_of_int64. */
static inline double onnxc_odd_double_of_uint64(uint64_t x)
{
    const uint64_t odd = (x & ~(uint64_t)0xffff) | ((x & 0xffff) != 0 ? 0x10000u : 0);

    return (double)(x < 0x100000000 ? x : odd);
}
