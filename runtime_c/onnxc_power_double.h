/* x^y in double: log(x) is kept in two doubles, since y multiplies its error. */

/* log(x) = result + *low to 2^-64 of it, x positive and finite. With x = 2^k * m, m in [sqrt(1/2),
 * sqrt(2)], s = (m - 1) / (m + 1) in two parts and z = s^2, log(m) is 2 s * (1 + z / 3 + z^2 * p);
 * only the last term is one double. The polynomial has an error of 2^-73.4 in log(m).
 */
static inline double onnxc_log_parts_double(double x, double *low)
{
    const int denormal = x < 2.2250738585072014e-308;
    const double scaled = denormal ? x * 4503599627370496.0 : x;
    const uint64_t shifted = onnxc_bits_of_double(scaled) + 0x00195f619980c433u;
    const double k = (double)((int32_t)(shifted >> 52) - (denormal ? 1076 : 1024));
    const double m = onnxc_double_of_bits((shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
    const double sum = 1.0 + m;
    const double sum_low = (1.0 - sum) + m;
    const double s = (m - 1.0) / sum;
    double product_low, z_low, third_low, cube_low;
    const double product = onnxc_product_double(s, sum, &product_low);
    const double s_low = ((((m - 1.0) - product) - product_low) - s * sum_low) / sum;
    const double z = onnxc_product_double(s, s, &z_low);
    const double third = onnxc_product_double(z, 0.3333333333333333, &third_low);
    double p = 0.05990897403627277;
    p = p * z + 0.05837888206794234;
    p = p * z + 0.06668132336821338;
    p = p * z + 0.07692279212538489;
    p = p * z + 0.09090909422013156;
    p = p * z + 0.11111111108894807;
    p = p * z + 0.1428571428572192;
    p = p * z + 0.1999999999999999;
    const double tail = p * z * z;
    const double factor = third + tail;
    const double z_rest = z_low + 2.0 * s * s_low;
    const double third_rest = third_low + (z_rest * 0.3333333333333333 + z * 1.850371707708594e-17);
    const double factor_low = ((third - factor) + tail) + third_rest;
    const double cube = onnxc_product_double(s, factor, &cube_low);
    const double half = s + cube;
    const double cube_rest = cube_low + (s * factor_low + s_low * factor);
    const double half_low = ((s - half) + cube) + (cube_rest + s_low);
    const double large = k * 0.6931471805598903;
    const double high = large + 2.0 * half;
    const double small = 2.0 * half_low + k * 5.497923018708371e-14;
    const double rest = ((large - high) + 2.0 * half) + small;
    const double result = high + rest;

    *low = (high - result) + rest;
    return result;
}

/* |x|^y; NaN where it depends on the sign of x is for the caller. y is clamped to 2^70, where the
 * result is 0, 1 or infinite already.
 */
static inline double onnxc_pow_magnitude_double(double a, double y)
{
    const double infinity = onnxc_double_of_bits(0x7ff0000000000000u);
    const int normal = a > 0.0 && a < infinity;
    const double limit = 1180591620717411303424.0;
    const double above = y < -limit ? -limit : y;
    const double b = above > limit ? limit : above;
    const double special = a > 0.0 ? infinity : -infinity;
    double log_low, product_low, low;
    uint64_t power;
    const double logarithm = onnxc_log_parts_double(normal ? a : 1.0, &log_low);
    const double product = onnxc_product_double(b, logarithm, &product_low);
    const double product_rest = product_low + b * log_low;
    const int small = onnxc_abs_double(product) < 1000.0;
    const double exponent = normal ? product : b * special;
    const double exponent_low = normal && small ? product_rest : 0.0;
    const double high = onnxc_exp_parts_double(exponent, exponent_low, &low, &power);

    return onnxc_scale_double(high, power);
}

/* At most 1.1 ulp; every case of C99's annex F, such as 1^NaN = NaN^0 = 1. */
static inline double onnxc_pow_double(double x, double y)
{
    const double nan = onnxc_double_of_bits(0x7ff8000000000000u);
    const double a = onnxc_abs_double(x);
    const double b = onnxc_abs_double(y);
    const int finite = a <= 1.7976931348623157e+308;
    const int one = a <= 1.0 && a >= 1.0;
    const int integer = onnxc_trunc_double(b) >= b;
    const int odd = integer && onnxc_trunc_double(b * 0.5) < b * 0.5;
    const double power = one || b <= 0.0 ? 1.0 : onnxc_pow_magnitude_double(a, y);
    const double defined = x < 0.0 && finite && !integer ? nan : power;
    const uint64_t sign = odd ? onnxc_bits_of_double(x) & 0x8000000000000000u : 0u;
    const double result = onnxc_double_of_bits(onnxc_bits_of_double(defined) | sign);
    const double ordered = a >= 0.0 && b >= 0.0 ? result : x + y;

    return b <= 0.0 || (one && x > 0.0) ? 1.0 : ordered;
}
