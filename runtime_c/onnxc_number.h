/* Integer division, powers and shifts that neither trap nor are undefined; absolute values. */

/* Toward zero; by zero gives 0, the least by -1 wraps to itself. */
static inline int32_t onnxc_divide_int32(int32_t a, int32_t b)
{
    return b == -1 ? (int32_t)(0u - (uint32_t)a) : b == 0 ? 0 : a / b;
}

/* Toward zero; by zero gives 0, the least by -1 wraps to itself. */
static inline int64_t onnxc_divide_int64(int64_t a, int64_t b)
{
    return b == -1 ? (int64_t)(0u - (uint64_t)a) : b == 0 ? 0 : a / b;
}

/* By zero gives 0. */
static inline uint32_t onnxc_divide_uint32(uint32_t a, uint32_t b)
{
    return b == 0 ? 0 : a / b;
}

/* By zero gives 0. */
static inline uint64_t onnxc_divide_uint64(uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : a / b;
}

/* With the sign of a; by zero gives 0. */
static inline int32_t onnxc_remainder_int32(int32_t a, int32_t b)
{
    return b == -1 || b == 0 ? 0 : a % b;
}

/* With the sign of a; by zero gives 0. */
static inline int64_t onnxc_remainder_int64(int64_t a, int64_t b)
{
    return b == -1 || b == 0 ? 0 : a % b;
}

/* By zero gives 0. */
static inline uint32_t onnxc_remainder_uint32(uint32_t a, uint32_t b)
{
    return b == 0 ? 0 : a % b;
}

/* By zero gives 0. */
static inline uint64_t onnxc_remainder_uint64(uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : a % b;
}

/* a / b toward zero, in lanes of vectors: what the quotient lacks to an integer is more than double
 * rounds away. By 0 and -1, all bits of *zero and *minus, it is by 1.
 */
static inline int32_t onnxc_quotient_lanes_int32(int32_t a, int32_t b, uint32_t *zero,
                                                 uint32_t *minus)
{
    *zero = 0u - (uint32_t)(b == 0);
    *minus = 0u - (uint32_t)(b == -1);

    const int32_t divisor = (int32_t)((uint32_t)b - *zero - *minus - *minus);

    return (int32_t)((double)a / (double)divisor);
}

/* Toward zero, in lanes of vectors; by zero gives 0, the least by -1 wraps to itself. */
static inline int32_t onnxc_divide_lanes_int32(int32_t a, int32_t b)
{
    uint32_t zero, minus;
    const uint32_t quotient = (uint32_t)onnxc_quotient_lanes_int32(a, b, &zero, &minus);

    return (int32_t)(((quotient ^ minus) - minus) & ~zero);
}

/* With the sign of a, in lanes of vectors; by zero gives 0. */
static inline int32_t onnxc_remainder_lanes_int32(int32_t a, int32_t b)
{
    uint32_t zero, minus;
    const uint32_t quotient = (uint32_t)onnxc_quotient_lanes_int32(a, b, &zero, &minus);

    return (int32_t)(((uint32_t)a - quotient * (uint32_t)b) & ~(zero | minus));
}

/* The same quotient of numbers of 16 bits, by way of float. */
static inline int32_t onnxc_divide_lanes_int16(int32_t a, int32_t b)
{
    const int32_t zero = b == 0;

    return (int32_t)((float)a / (float)(b + zero)) & (zero - 1);
}

/* The same remainder of numbers of 16 bits, by way of float. */
static inline int32_t onnxc_remainder_lanes_int16(int32_t a, int32_t b)
{
    const int32_t zero = b == 0;

    return (a - (int32_t)((float)a / (float)(b + zero)) * b) & (zero - 1);
}

/* base to the exponent, which wraps; of a negative exponent the quotient, 0 to it the greatest. */
static inline int64_t onnxc_power_int64(int64_t base, int64_t exponent)
{
    uint64_t result = 1;
    uint64_t square = (uint64_t)base;

    if (exponent < 0) {
        if (base == 0)
            return INT64_MAX;
        return base == 1 || (base == -1 && exponent % 2 == 0) ? 1 : base == -1 ? -1 : 0;
    }
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            result *= square;
        square *= square;
    }
    return (int64_t)result;
}

/* base to the exponent, which wraps; of a negative exponent the quotient, 0 to it the greatest. */
static inline int32_t onnxc_power_int32(int32_t base, int64_t exponent)
{
    if (base == 0 && exponent < 0)
        return INT32_MAX;
    return (int32_t)onnxc_power_int64(base, exponent);
}

/* By the width or more nothing is left. */
static inline uint32_t onnxc_shift_left_uint32(uint32_t x, uint32_t by)
{
    return by < 32 ? x << by : 0;
}

/* By the width or more nothing is left. */
static inline uint64_t onnxc_shift_left_uint64(uint64_t x, uint64_t by)
{
    return by < 64 ? x << by : 0;
}

/* By the width or more nothing is left. */
static inline uint32_t onnxc_shift_right_uint32(uint32_t x, uint32_t by)
{
    return by < 32 ? x >> by : 0;
}

/* By the width or more nothing is left. */
static inline uint64_t onnxc_shift_right_uint64(uint64_t x, uint64_t by)
{
    return by < 64 ? x >> by : 0;
}

/* Filled with the sign, of which alone something is left when by is the width or more. */
static inline int32_t onnxc_shift_right_int32(int32_t x, uint32_t by)
{
    const uint32_t count = by < 32 ? by : 31;

    return x < 0 ? ~(int32_t)(~(uint32_t)x >> count) : (int32_t)((uint32_t)x >> count);
}

/* Filled with the sign, of which alone something is left when by is the width or more. */
static inline int64_t onnxc_shift_right_int64(int64_t x, uint64_t by)
{
    const uint64_t count = by < 64 ? by : 63;

    return x < 0 ? ~(int64_t)(~(uint64_t)x >> count) : (int64_t)((uint64_t)x >> count);
}

/* Without the sign, of a NaN too. */
static inline float onnxc_abs_float(float x)
{
    return onnxc_float_of_bits(onnxc_bits_of_float(x) & 0x7fffffffu);
}

/* Without the sign, of a NaN too. */
static inline double onnxc_abs_double(double x)
{
    return onnxc_double_of_bits(onnxc_bits_of_double(x) & 0x7fffffffffffffffu);
}

/* 1 or 0. A function, since gcc warns where the result of isnan or isinf becomes a byte. */
static inline uint8_t onnxc_is_nan_float(float x)
{
    return (uint8_t)(isnan(x) != 0);
}

/* 1 or 0. */
static inline uint8_t onnxc_is_nan_double(double x)
{
    return (uint8_t)(isnan(x) != 0);
}

/* 1 or 0. */
static inline uint8_t onnxc_is_inf_float(float x)
{
    return (uint8_t)(isinf(x) != 0);
}

/* 1 or 0. */
static inline uint8_t onnxc_is_inf_double(double x)
{
    return (uint8_t)(isinf(x) != 0);
}
