/* x^y in float, through double: log2(x) needs the digits that y multiplies. */

/* log2(x), x positive and finite, to 2^-43. With x = 2^k * m, m in [sqrt(1/2), sqrt(2)], and s = (m
 * - 1) / (m + 1), the polynomial is log2(m) / s in s^2, error 2^-45.0. k is read from the bits of
 * 2^52 + 1023 + k, which vectors of every processor can convert.
 */
static inline double onnxc_log2_of_float(float x)
{
    const uint64_t bits = onnxc_bits_of_double((double)x) + 0x00095f619980c433u;
    const double m = onnxc_double_of_bits((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
    const double k = onnxc_double_of_bits((bits >> 52) | 0x4330000000000000u) - 4503599627371519.0;
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s;
    double p = 0.2829223657923059;
    p = p * z + 0.31990422511974065;
    p = p * z + 0.41220928610850166;
    p = p * z + 0.5770779420540465;
    p = p * z + 0.9617966941143264;
    p = p * z + 2.8853900817778495;

    return k + s * p;
}

/* 2^x rounded to float, x in [-152, 120], from a double with an error of 2^-39. The polynomial is
 * 2^f, |f| <= 1/2, error 2^-39.3.
 */
static inline float onnxc_exp2_of_double(double x)
{
    const double shifted = x + 6755399441055744.0;
    const double f = x - (shifted - 6755399441055744.0);
    const uint64_t power = onnxc_bits_of_double(shifted) - 0x4338000000000000u + 1023u;
    double p = 1.3171441220364267e-06;
    p = p * f + 1.5309855738060242e-05;
    p = p * f + 0.0001540386487444398;
    p = p * f + 0.0013333452058279503;
    p = p * f + 0.009618128542481815;
    p = p * f + 0.055504109393457374;
    p = p * f + 0.24022650698881828;
    p = p * f + 0.6931471805465137;
    p = p * f + 0.9999999999997625;

    return (float)(p * onnxc_double_of_bits(power << 52));
}

/* |x|^y for a = |x| that is no NaN, but for 1^y. Whether the result is 0, infinite or so large that
 * it is computed as a multiple of 2^64, the exponent tells in float.
 */
static inline float onnxc_pow_magnitude_float(float a, float y)
{
    const float infinity = onnxc_float_of_bits(0x7f800000u);
    const int normal = (a > 0.0f) & (a < infinity);
    const double logarithm = onnxc_log2_of_float(onnxc_select_float(normal, a, 1.0f));
    const float special = onnxc_select_float(a > 0.0f, infinity, -infinity);
    const float exponent = y * onnxc_select_float(normal, (float)logarithm, special);
    const int inside = (exponent > -151.0f) & (exponent < 129.0f);
    const int large = exponent > 64.0f;
    const float factor = onnxc_select_float(large, 18446744073709551616.0f, 1.0f);
    const double offset = (double)onnxc_select_float(large, 64.0f, 0.0f);
    const double product = (double)onnxc_select_float(inside, y, 0.0f) * logarithm;
    const float power = onnxc_exp2_of_double(product - offset) * factor;

    return onnxc_select_float(inside, power,
                              onnxc_select_float(exponent > 0.0f, infinity, 0.0f));
}

/* At most 0.51 ulp; every case of C99's annex F, such as 1^NaN = NaN^0 = 1. Whether |y| is an
 * integer, and an odd one, is read from the bits of its sum with 2^23, from where on it is one.
 */
static inline float onnxc_pow_float(float x, float y)
{
    const float a = onnxc_abs_float(x);
    const float b = onnxc_abs_float(y);
    const int finite = a <= 3.4028234663852886e+38f;
    const int one = (a <= 1.0f) & (a >= 1.0f);
    const float power = onnxc_select_float(one, 1.0f, onnxc_pow_magnitude_float(a, y));
    const int large = b >= 8388608.0f;
    const float sum = onnxc_select_float(large, b, b + 8388608.0f);
    const float nearest = sum - 8388608.0f;
    const int integer = large | ((nearest <= b) & (nearest >= b));
    const int odd = integer & (sum < 16777216.0f) & (int)(onnxc_bits_of_float(sum) & 1u);
    const int undefined = (x < 0.0f) & finite & !integer;
    const float defined = onnxc_select_float(undefined, onnxc_float_of_bits(0x7fc00000u), power);
    const uint32_t sign = onnxc_bits_of_float(x) & 0x80000000u & (0u - (uint32_t)odd);
    const float result = onnxc_float_of_bits(onnxc_bits_of_float(defined) | sign);
    const float ordered = onnxc_select_float((a >= 0.0f) & (b >= 0.0f), result, x + y);

    return onnxc_select_float((b <= 0.0f) | (one & (x > 0.0f)), 1.0f, ordered);
}
