/* x^y in float, through double: log2(x) needs the digits that y multiplies. */

/* log2(x), x positive and finite, to 2^-43. With x = 2^k * m, m in [sqrt(1/2), sqrt(2)], and s = (m
 * - 1) / (m + 1), the polynomial is log2(m) / s in s^2, error 2^-45.0.
 */
static inline double onnxc_log2_of_float(float x)
{
    const uint64_t bits = onnxc_bits_of_double((double)x) + 0x00095f619980c433u;
    const double m = onnxc_double_of_bits((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s;
    double p = 0.2829223657923059;
    p = p * z + 0.31990422511974065;
    p = p * z + 0.41220928610850166;
    p = p * z + 0.5770779420540465;
    p = p * z + 0.9617966941143264;
    p = p * z + 2.8853900817778495;

    return (double)((int32_t)(bits >> 52) - 1023) + s * p;
}

/* 2^x rounded to float, from a double with an error of 2^-39. The polynomial is 2^f, |f| <= 1/2,
 * error 2^-39.3. A NaN gives some number.
 */
static inline float onnxc_exp2_of_double(double x)
{
    const double above = x > -160.0 ? x : -160.0;
    const double e = above < 160.0 ? above : 160.0;
    const double shifted = e + 6755399441055744.0;
    const double f = e - (shifted - 6755399441055744.0);
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
    const double result = p * onnxc_double_of_bits(power << 52);
    const float finite = (float)(result < 3.4028234663852886e+38 ? result : 3.4028234663852886e+38);

    return result < 3.4028235677973366e+38 ? finite : onnxc_float_of_bits(0x7f800000u);
}

/* At most 0.51 ulp; every case of C99's annex F, such as 1^NaN = NaN^0 = 1. */
static inline float onnxc_pow_float(float x, float y)
{
    const double infinity = onnxc_double_of_bits(0x7ff0000000000000u);
    const float nan = onnxc_float_of_bits(0x7fc00000u);
    const float a = onnxc_abs_float(x);
    const float b = onnxc_abs_float(y);
    const int finite = a <= 3.4028234663852886e+38f;
    const int normal = a > 0.0f && finite;
    const double special = a > 0.0f ? infinity : -infinity;
    const double logarithm = normal ? onnxc_log2_of_float(normal ? a : 1.0f) : special;
    const int one = a <= 1.0f && a >= 1.0f;
    const int integer = onnxc_trunc_float(b) >= b;
    const int odd = integer && onnxc_trunc_float(b * 0.5f) < b * 0.5f;
    const float power = onnxc_exp2_of_double(one || b <= 0.0f ? 0.0 : (double)y * logarithm);
    const float defined = x < 0.0f && finite && !integer ? nan : power;
    const uint32_t sign = odd ? onnxc_bits_of_float(x) & 0x80000000u : 0u;
    const float result = onnxc_float_of_bits(onnxc_bits_of_float(defined) | sign);
    const float ordered = a >= 0.0f && b >= 0.0f ? result : x + y;

    return b <= 0.0f || (one && x > 0.0f) ? 1.0f : ordered;
}
