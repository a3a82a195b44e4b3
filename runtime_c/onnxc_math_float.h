/* Exponential and logarithmic functions in float, for every input bit pattern. One ulp is the
 * distance of the floats around the true value. The bounds hold with and without contraction to
 * fused multiply-adds: what must be exact is exact both ways. Assumed are the default rounding mode
 * and FLT_EVAL_METHOD 0, or 1, which gives other bits. No double is used, and but for square roots
 * there is no branch, so that loops over these functions are vectorised.
 *
 * Polynomials are minimax fits; a comment gives interval and error, relative to the function.
 */

/* value * 2^(power - 254) by two factors that are powers of two, for power 104 to 382: a denormal
 * result is rounded once.
 */
static inline float onnxc_scale_float(float value, uint32_t power)
{
    const uint32_t half = power >> 1;

    return value * onnxc_float_of_bits(half << 23) * onnxc_float_of_bits((power - half) << 23);
}

/* exp(x) = (1 + (result + *low)) * 2^(*power - 254), x clamped to [-104, 90]. The integer is read
 * from the bits of a sum with 1.5 * 2^23, so that a NaN is never converted. The parts of ln 2 are
 * 355 / 512, whose products are exact, and the rest. Without *low, result is as good as a float can
 * be.
 */
static inline float onnxc_exp_reduce_float(float x, float *low, uint32_t *power)
{
    const float below = onnxc_select_float(x > 90.0f, 90.0f, x);
    const float clamped = onnxc_select_float(below < -104.0f, -104.0f, below);
    const float shifted = clamped * 1.4426950f + 12583166.0f;
    const float n = shifted - 12583166.0f;
    const float high = clamped - n * 0.693359375f;
    const float rest = n * -2.1219444e-4f;
    const float reduced = high - rest;

    *power = onnxc_bits_of_float(shifted) - 0x4b400000u;
    *low = (high - reduced) - rest;
    return reduced;
}

/* exp(x) = (result + *low) * 2^(*power - 254), result rounded. The polynomial is (exp(r) - 1 - r) /
 * r^2, |r| <= 0.347, error 2^-28.2.
 */
static inline float onnxc_exp_parts_float(float x, float *low, uint32_t *power)
{
    float reduced_low;
    const float r = onnxc_exp_reduce_float(x, &reduced_low, power);
    const float high = 1.0f + r;
    float p = 0.0013838008f;
    p = p * r + 0.0083691655f;
    p = p * r + 0.041668102f;
    p = p * r + 0.16666517f;
    p = p * r + 0.49999994f;

    const float rest = ((1.0f - high) + r) + (p * r * r + reduced_low);
    const float result = high + rest;

    *low = (high - result) + rest;
    return result;
}

/* exp(x) = (1 + result) * 2^n, x in [-104, 90]; the low nine bits of *power are those of n +
 * offset - 12582912. The polynomial is (exp(r) - 1 - r) / r^2, |r| <= 0.347, error 2^-28.2.
 */
static inline float onnxc_exp_rest_float(float x, float offset, uint32_t *power)
{
    const float shifted = x * 1.4426950f + offset;
    const float n = shifted - offset;
    const float r = (x - n * 0.693359375f) - n * -2.1219444e-4f;
    float p = 0.0013838008f;
    p = p * r + 0.0083691655f;
    p = p * r + 0.041668102f;
    p = p * r + 0.16666517f;
    p = p * r + 0.49999994f;

    *power = onnxc_bits_of_float(shifted);
    return p * r * r + r;
}

/* At most 1.05 ulp. */
static inline float onnxc_exp_float(float x)
{
    uint32_t power;
    const float below = onnxc_select_float(x > 90.0f, 90.0f, x);
    const float clamped = onnxc_select_float(below < -104.0f, -104.0f, below);
    const float mantissa = 1.0f + onnxc_exp_rest_float(clamped, 12583166.0f, &power);

    return onnxc_scale_float(mantissa, power - 0x4b400000u);
}

/* exp(x) for x in [-87, 88]; at most 1.05 ulp. */
static inline float onnxc_exp_normal_float(float x)
{
    uint32_t power;
    const float mantissa = 1.0f + onnxc_exp_rest_float(x, 12583039.0f, &power);

    return mantissa * onnxc_float_of_bits(power << 23);
}

/* exp(-|x|); at most 1.05 ulp. A denormal result is rounded once, from 2^32 times as much. */
static inline float onnxc_exp_below_float(float x)
{
    uint32_t power;
    const float magnitude = onnxc_abs_float(x);
    const float clamped = onnxc_select_float(magnitude > 104.0f, 104.0f, magnitude);
    const float mantissa = 1.0f + onnxc_exp_rest_float(-clamped, 12583071.0f, &power);

    return mantissa * onnxc_float_of_bits(power << 23) * 2.3283064e-10f;
}

/* At most 1.2 ulp. The polynomial is (exp(r) - 1 - r) / r^2, |r| <= 0.347, error 2^-28.1; with 2^n
 * = a * b the result is b * ((a - 1 / b) + a * r + a * r^2 * p), the first sum in two parts.
 */
static inline float onnxc_expm1_float(float x)
{
    float low;
    uint32_t power;
    const float r = onnxc_exp_reduce_float(x, &low, &power);
    const uint32_t half = power >> 1;
    const float a = onnxc_float_of_bits(half << 23);
    const float b = onnxc_float_of_bits((power - half) << 23);
    const float inverse = onnxc_float_of_bits((254u - (power - half)) << 23);
    const float base = a - inverse;
    const float high = base + a * r;
    const float rest = ((a - base) - inverse) + ((base - high) + a * r);
    float p = 0.00015045078f;
    p = p * r + 0.001393054f;
    p = p * r + 0.008341511f;
    p = p * r + 0.04166651f;
    p = p * r + 0.16666636f;
    p = p * r + 0.5f;
    const float result = (high + (rest + a * (p * r * r + low))) * b;

    return onnxc_signed_float(onnxc_abs_float(result), x);
}

/* k * ln 2 + log(1 + f) + low, f in [sqrt(1/2) - 1, sqrt(2) - 1]. The polynomial is (log(1 + f) - f
 * + f^2 / 2) / f^3, error 2^-29.0.
 */
static inline float onnxc_log_sum_float(float k, float f, float low)
{
    const float large = k * 0.693359375f;
    const float high = large + f;
    const float square = f * f;
    float p = 0.06734473f;
    p = p * f - 0.11651423f;
    p = p * f + 0.11883441f;
    p = p * f - 0.124100775f;
    p = p * f + 0.14220773f;
    p = p * f - 0.16667803f;
    p = p * f + 0.20002055f;
    p = p * f - 0.25000012f;
    p = p * f + 0.33333313f;
    const float rest = 0.5f * square - p * f * square;

    return high + (((large - high) + f) + ((k * -2.1219444e-4f + low) - rest));
}

/* log(x) + k * ln 2, x positive, finite and not denormal. 0x3f3504f3 is sqrt(1/2). */
static inline float onnxc_log_scaled_float(float x, float k)
{
    const uint32_t shifted = onnxc_bits_of_float(x) + 0x00cafb0du;
    const float mantissa = onnxc_float_of_bits((shifted & 0x007fffffu) + 0x3f3504f3u);

    return onnxc_log_sum_float(k + (float)((int32_t)(shifted >> 23) - 128), mantissa - 1.0f, 0.0f);
}

/* result, the logarithm of x where x is positive and finite, for every x. */
static inline float onnxc_log_special_float(float x, float result)
{
    const float infinity = onnxc_float_of_bits(0x7f800000u);
    const float below = x < 0.0f ? onnxc_float_of_bits(0x7fc00000u) : -infinity;
    const float special = x <= 0.0f ? below : x;

    return onnxc_select_float((x > 0.0f) & (x < infinity), result, special);
}

/* At most 0.9 ulp. A denormal is scaled by 2^23. */
static inline float onnxc_log_float(float x)
{
    const int denormal = x < 1.17549435e-38f;
    const float scaled = onnxc_select_float(denormal, x * 8388608.0f, x);
    const float k = onnxc_select_float(denormal, -23.0f, 0.0f);

    return onnxc_log_special_float(x, onnxc_log_scaled_float(scaled, k));
}

/* log(1 + x + low), |low| at most half an ulp of x. With 1 + x = 2^k * m, f = m - 1 is computed
 * from x itself, in two parts, the lower one with low / (1 + f). 2^-k is a * b, since k may be 128.
 */
static inline float onnxc_log1p_sum_float(float x, float low)
{
    const float sum = 1.0f + x;
    const uint32_t exponent = (onnxc_bits_of_float(sum) + 0x00cafb0du) >> 23;
    const uint32_t half = exponent >> 1;
    const float a = onnxc_float_of_bits((191u - half) << 23);
    const float b = onnxc_float_of_bits((191u - (exponent - half)) << 23);
    const float scaled = x * a * b;
    const float base = a * b - 1.0f;
    const float f = base + scaled;
    const float f_low = (((base - f) + scaled) + low * a * b) * (1.0f - f);
    const float k = (float)((int32_t)exponent - 128);

    return onnxc_log_special_float(sum, onnxc_log_sum_float(k, f, f_low));
}

/* At most 0.95 ulp. */
static inline float onnxc_log1p_float(float x)
{
    const float result = onnxc_log1p_sum_float(x, 0.0f);

    return onnxc_signed_float(onnxc_abs_float(result), x);
}

/* At most 1.25 ulp: log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), exp in two parts. */
static inline float onnxc_softplus_float(float x)
{
    float low;
    uint32_t power;
    const float high = onnxc_exp_parts_float(-onnxc_abs_float(x), &low, &power);
    const float t = onnxc_scale_float(high, power);
    const float t_low = onnxc_scale_float(low, power);

    return onnxc_select_float(x > 0.0f, x, 0.0f) + onnxc_log1p_sum_float(t, t_low);
}

/* At most 2.45 ulp: t / (1 + t) or 1 / (1 + t) with t = exp(-|x|). */
static inline float onnxc_sigmoid_float(float x)
{
    const float t = onnxc_exp_below_float(x);

    return onnxc_select_float(x < 0.0f, t, 1.0f) / (1.0f + t);
}

/* At most 0.9 ulp. Below 1 a polynomial, (sinh(x) / x - 1) / x^2, error 2^-31.6; above it t - 1 /
 * (4 t) with t = exp(|x|) / 2 in two parts.
 */
static inline float onnxc_sinh_float(float x)
{
    const float magnitude = onnxc_abs_float(x);
    float low;
    uint32_t power;
    const float high = onnxc_exp_parts_float(magnitude, &low, &power);
    const float t = onnxc_scale_float(high, power - 1u);
    const float large = t + (onnxc_scale_float(low, power - 1u) - 0.25f / t);
    const float z = x * x;
    float p = 2.7822132e-06f;
    p = p * z + 0.00019842896f;
    p = p * z + 0.0083333105f;
    p = p * z + 0.16666667f;

    return onnxc_select_float(magnitude < 1.0f, x + x * (p * z), onnxc_signed_float(large, x));
}

/* At most 0.9 ulp: t + 1 / (4 t) with t = exp(|x|) / 2 in two parts. */
static inline float onnxc_cosh_float(float x)
{
    float low;
    uint32_t power;
    const float high = onnxc_exp_parts_float(onnxc_abs_float(x), &low, &power);
    const float t = onnxc_scale_float(high, power - 1u);

    return t + (onnxc_scale_float(low, power - 1u) + 0.25f / t);
}

/* At most 2 ulp: with t = exp(-2 |x|), which is nothing from 10 on, (1 - t) / (1 + t). With 2^n = a
 * and the mantissa 1 + q of t, 1 - t is (1 - a) - a * q, exact where it is small.
 */
static inline float onnxc_tanh_float(float x)
{
    uint32_t power;
    const float magnitude = onnxc_abs_float(x);
    const float y = onnxc_select_float(magnitude > 10.0f, 10.0f, magnitude);
    const float q = onnxc_exp_rest_float(-2.0f * y, 12583039.0f, &power);
    const float a = onnxc_float_of_bits(power << 23);
    const float difference = (1.0f - a) - a * q;
    const float sum = (1.0f + a) + a * q;

    return onnxc_signed_float(difference / sum, x);
}

/* At most 1.45 ulp. Below 1.25 a polynomial, (asinh(x) / x - 1) / x^2, error 2^-31.8; above it
 * log(|x| + sqrt(x^2 + 1)), from 2^13 on log(2 |x|).
 */
static inline float onnxc_asinh_float(float x)
{
    const float magnitude = onnxc_abs_float(x);
    const int huge = magnitude > 8192.0f;
    const float root = onnxc_sqrt_float(huge ? 1.0f : x * x + 1.0f);
    const float sum = huge ? magnitude : magnitude + root;
    const float logarithm = onnxc_log_scaled_float(sum, huge ? 1.0f : 0.0f);
    const float large = onnxc_log_special_float(magnitude, logarithm);
    const float z = x * x;
    float p = 1.5412443e-05f;
    p = p * z - 0.0001721244f;
    p = p * z + 0.00088316627f;
    p = p * z - 0.0027959035f;
    p = p * z + 0.0062472178f;
    p = p * z - 0.010844901f;
    p = p * z + 0.01600658f;
    p = p * z - 0.021967696f;
    p = p * z + 0.030302705f;
    p = p * z - 0.044633687f;
    p = p * z + 0.074999474f;
    p = p * z - 0.16666666f;
    const float small = magnitude + magnitude * (p * z);

    return onnxc_signed_float(magnitude < 1.25f ? small : large, x);
}

/* At most 1.7 ulp. Below 2, with t = x - 1, sqrt(2 t) * (1 + t * p), p of error 2^-31.5; above it
 * log(x + sqrt(x^2 - 1)), from 2^13 on log(2 x).
 */
static inline float onnxc_acosh_float(float x)
{
    const int huge = x > 8192.0f;
    const float t = x - 1.0f;
    const int small = t < 1.0f;
    const float root = onnxc_sqrt_float(small ? 2.0f * t : huge ? 1.0f : x * x - 1.0f);
    const float sum = huge ? x : x + root;
    const float logarithm = onnxc_log_scaled_float(small ? 1.0f : sum, huge ? 1.0f : 0.0f);
    float p = -2.6716969e-05f;
    p = p * t + 0.00017493866f;
    p = p * t - 0.00063103804f;
    p = p * t + 0.0018705506f;
    p = p * t - 0.005573847f;
    p = p * t + 0.018749278f;
    p = p * t - 0.083333306f;

    return small ? root + root * (p * t) : onnxc_log_special_float(x, logarithm);
}

/* At most 1 ulp. Below 1/2 a polynomial, (atanh(x) / x - 1) / x^2, error 2^-32.8; above it log(1 +
 * 2 |x| / (1 - |x|)) / 2.
 */
static inline float onnxc_atanh_float(float x)
{
    const float magnitude = onnxc_abs_float(x);
    const int small = magnitude < 0.5f;
    const float rest = 1.0f - magnitude;
    const float infinity = onnxc_float_of_bits(0x7f800000u);
    const float quotient = rest > 0.0f ? 2.0f * magnitude / rest : rest < 0.0f ? -2.0f : infinity;
    const float large = 0.5f * onnxc_log1p_sum_float(rest <= 1.0f ? quotient : x, 0.0f);
    const float z = x * x;
    float p = 0.1851345f;
    p = p * z + 0.016962431f;
    p = p * z + 0.10524431f;
    p = p * z + 0.10929403f;
    p = p * z + 0.14297815f;
    p = p * z + 0.19999622f;
    p = p * z + 0.33333337f;

    return onnxc_signed_float(onnxc_abs_float(small ? x + x * (p * z) : large), x);
}

/* At most 2.6 ulp: 1 - exp(q), which is 1 from 3.95 on. The polynomial is log(1 - erf(|x|)) / |x|,
 * with an error of 2^-27.9 in erf; its first coefficient is in two parts. With 2^n = a and the
 * mantissa 1 + r of the exponential the result is (1 - a) - a * r, exact where it is small.
 */
static inline float onnxc_erf_float(float x)
{
    uint32_t power;
    const float magnitude = onnxc_abs_float(x);
    const float y = onnxc_select_float(magnitude > 3.95f, 3.95f, magnitude);
    float p = 9.256266e-06f;
    p = p * y - 0.00011764128f;
    p = p * y + 0.0006328369f;
    p = p * y - 0.0016670275f;
    p = p * y + 0.00016039611f;
    p = p * y + 0.019153064f;
    p = p * y - 0.10277783f;
    p = p * y - 0.6366194f;
    p = p * y + 5.8635383e-08f;
    const float r = onnxc_exp_rest_float(p * y - y * 1.1283792f, 12583039.0f, &power);
    const float a = onnxc_float_of_bits(power << 23);

    return onnxc_signed_float((1.0f - a) - a * r, x);
}
