/* Floating point to integers: truncated, saturated, 0 for a NaN. C leaves the cast of a value that
 * the integer type does not hold undefined, so that such a value is replaced first. No branches: a
 * loop is vectorised where the processor has the conversion.
 */

static inline uint8_t onnxc_bool_of_float(float x)
{
    return (onnxc_bits_of_float(x) & 0x7fffffffu) != 0;
}

static inline uint8_t onnxc_bool_of_double(double x)
{
    return (onnxc_bits_of_double(x) & 0x7fffffffffffffffu) != 0;
}

/* The bounds are -2^31 and 2^31; the largest int32_t is no float. */
static inline int32_t onnxc_int32_of_float(float x)
{
    const float limit = 2147483648.0f;
    const float inside = ((x >= -limit) & (x < limit)) ? x : 0.0f;
    const int32_t number = (int32_t)inside;
    const int32_t raised = x < -limit ? INT32_MIN : number;

    return x >= limit ? INT32_MAX : raised;
}

/* Truncated, what is above -2^31 - 1 and below 2^31 fits. */
static inline int32_t onnxc_int32_of_double(double x)
{
    const double below = -2147483649.0;
    const double limit = 2147483648.0;
    const double inside = ((x > below) & (x < limit)) ? x : 0.0;
    const int32_t number = (int32_t)inside;
    const int32_t raised = x <= below ? INT32_MIN : number;

    return x >= limit ? INT32_MAX : raised;
}

/* The bounds are -2^63 and 2^63; the largest int64_t is no float. */
static inline int64_t onnxc_int64_of_float(float x)
{
    const float limit = 9223372036854775808.0f;
    const float inside = ((x >= -limit) & (x < limit)) ? x : 0.0f;
    const int64_t number = (int64_t)inside;
    const int64_t raised = x < -limit ? INT64_MIN : number;

    return x >= limit ? INT64_MAX : raised;
}

/* The bounds are -2^63 and 2^63; the largest int64_t is no double. */
static inline int64_t onnxc_int64_of_double(double x)
{
    const double limit = 9223372036854775808.0;
    const double inside = ((x >= -limit) & (x < limit)) ? x : 0.0;
    const int64_t number = (int64_t)inside;
    const int64_t raised = x < -limit ? INT64_MIN : number;

    return x >= limit ? INT64_MAX : raised;
}

/* The upper bound is 2^32; the largest uint32_t is no float. */
static inline uint32_t onnxc_uint32_of_float(float x)
{
    const float limit = 4294967296.0f;
    const float inside = ((x >= 0.0f) & (x < limit)) ? x : 0.0f;
    const uint32_t number = (uint32_t)inside;

    return x >= limit ? UINT32_MAX : number;
}

static inline uint32_t onnxc_uint32_of_double(double x)
{
    const double limit = 4294967296.0;
    const double inside = ((x >= 0.0) & (x < limit)) ? x : 0.0;
    const uint32_t number = (uint32_t)inside;

    return x >= limit ? UINT32_MAX : number;
}

/* The upper bound is 2^64; the largest uint64_t is no float. */
static inline uint64_t onnxc_uint64_of_float(float x)
{
    const float limit = 18446744073709551616.0f;
    const float inside = ((x >= 0.0f) & (x < limit)) ? x : 0.0f;
    const uint64_t number = (uint64_t)inside;

    return x >= limit ? UINT64_MAX : number;
}

/* The upper bound is 2^64; the largest uint64_t is no double. */
static inline uint64_t onnxc_uint64_of_double(double x)
{
    const double limit = 18446744073709551616.0;
    const double inside = ((x >= 0.0) & (x < limit)) ? x : 0.0;
    const uint64_t number = (uint64_t)inside;

    return x >= limit ? UINT64_MAX : number;
}

static inline int32_t onnxc_clamped_int32(int32_t x, int32_t low, int32_t high)
{
    const int32_t raised = x < low ? low : x;

    return raised > high ? high : raised;
}

static inline int16_t onnxc_int16_of_float(float x)
{
    return (int16_t)onnxc_clamped_int32(onnxc_int32_of_float(x), -32768, 32767);
}

static inline int16_t onnxc_int16_of_double(double x)
{
    return (int16_t)onnxc_clamped_int32(onnxc_int32_of_double(x), -32768, 32767);
}

static inline uint16_t onnxc_uint16_of_float(float x)
{
    return (uint16_t)onnxc_clamped_int32(onnxc_int32_of_float(x), 0, 65535);
}

static inline uint16_t onnxc_uint16_of_double(double x)
{
    return (uint16_t)onnxc_clamped_int32(onnxc_int32_of_double(x), 0, 65535);
}

static inline int8_t onnxc_int8_of_float(float x)
{
    return (int8_t)onnxc_clamped_int32(onnxc_int32_of_float(x), -128, 127);
}

static inline int8_t onnxc_int8_of_double(double x)
{
    return (int8_t)onnxc_clamped_int32(onnxc_int32_of_double(x), -128, 127);
}

static inline uint8_t onnxc_uint8_of_float(float x)
{
    return (uint8_t)onnxc_clamped_int32(onnxc_int32_of_float(x), 0, 255);
}

static inline uint8_t onnxc_uint8_of_double(double x)
{
    return (uint8_t)onnxc_clamped_int32(onnxc_int32_of_double(x), 0, 255);
}

static inline int8_t onnxc_int4_of_float(float x)
{
    return (int8_t)onnxc_clamped_int32(onnxc_int32_of_float(x), -8, 7);
}

static inline int8_t onnxc_int4_of_double(double x)
{
    return (int8_t)onnxc_clamped_int32(onnxc_int32_of_double(x), -8, 7);
}

static inline uint8_t onnxc_uint4_of_float(float x)
{
    return (uint8_t)onnxc_clamped_int32(onnxc_int32_of_float(x), 0, 15);
}

static inline uint8_t onnxc_uint4_of_double(double x)
{
    return (uint8_t)onnxc_clamped_int32(onnxc_int32_of_double(x), 0, 15);
}

static inline int8_t onnxc_int2_of_float(float x)
{
    return (int8_t)onnxc_clamped_int32(onnxc_int32_of_float(x), -2, 1);
}

static inline int8_t onnxc_int2_of_double(double x)
{
    return (int8_t)onnxc_clamped_int32(onnxc_int32_of_double(x), -2, 1);
}

static inline uint8_t onnxc_uint2_of_float(float x)
{
    return (uint8_t)onnxc_clamped_int32(onnxc_int32_of_float(x), 0, 3);
}

static inline uint8_t onnxc_uint2_of_double(double x)
{
    return (uint8_t)onnxc_clamped_int32(onnxc_int32_of_double(x), 0, 3);
}

/* Drops the high bits: two's complement. */
static inline int8_t onnxc_int4_of_uint32(uint32_t x)
{
    return (int8_t)((int32_t)((x & 15) ^ 8) - 8);
}

/* Drops the high bits: two's complement. */
static inline int8_t onnxc_int2_of_uint32(uint32_t x)
{
    return (int8_t)((int32_t)((x & 3) ^ 2) - 2);
}
