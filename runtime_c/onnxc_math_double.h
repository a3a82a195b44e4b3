/* Exponential and logarithmic functions in double, for every input bit pattern. One ulp is the
 * distance of the doubles around the true value. The bounds hold with and without contraction to
 * fused multiply-adds: what must be exact is exact both ways. Assumed are the default rounding mode
 * and FLT_EVAL_METHOD 0 or 1. But for square roots there is no branch, so that loops over these
 * functions are vectorised.
 *
 * Polynomials are minimax fits; a comment gives interval and error, relative to the function.
 */

/* value * 2^(power - 2046) by two factors that are powers of two, for power 969 to 3072: a denormal
 * result is rounded once.
 */
static inline double onnxc_scale_double(double value, uint64_t power)
{
    const uint64_t half = power >> 1;

    return value * onnxc_double_of_bits(half << 52) * onnxc_double_of_bits((power - half) << 52);
}

/* exp(x + x_low) = (1 + (result + *low)) * 2^(*power - 2046), x clamped to [-746, 711]. The integer
 * is read from the bits of a sum with 1.5 * 2^52, so that a NaN is never converted. The first part
 * of ln 2 has 42 bits, so that its products are exact. Without *low, result is as good as a double
 * can be.
 */
static inline double onnxc_exp_reduce_double(double x, double x_low, double *low,
                                             uint64_t *power)
{
    const double below = onnxc_select_double(x > 711.0, 711.0, x);
    const double clamped = onnxc_select_double(below < -746.0, -746.0, below);
    const double shifted = clamped * 1.4426950408889634 + 6755399441057790.0;
    const double n = shifted - 6755399441057790.0;
    const double high = clamped - n * 0.6931471805598903;
    const double rest = n * 5.497923018708371e-14 - x_low;
    const double reduced = high - rest;

    *power = onnxc_bits_of_double(shifted) - 0x4338000000000000u;
    *low = (high - reduced) - rest;
    return reduced;
}

/* exp(x + x_low) = (result + *low) * 2^(*power - 2046), result rounded. The polynomial is (exp(r) -
 * 1 - r) / r^2, |r| <= 0.347, error 2^-57.7.
 */
static inline double onnxc_exp_parts_double(double x, double x_low, double *low,
                                            uint64_t *power)
{
    double reduced_low;
    const double r = onnxc_exp_reduce_double(x, x_low, &reduced_low, power);
    const double high = 1.0 + r;
    double p = 2.4945045026423934e-08;
    p = p * r + 2.763121053538869e-07;
    p = p * r + 2.7557753580273123e-06;
    p = p * r + 2.4801490673741745e-05;
    p = p * r + 0.00019841269327858978;
    p = p * r + 0.0013888888945651422;
    p = p * r + 0.008333333333572421;
    p = p * r + 0.041666666666524015;
    p = p * r + 0.166666666666663;
    p = p * r + 0.5000000000000011;

    const double rest = ((1.0 - high) + r) + (p * r * r + reduced_low);
    const double result = high + rest;

    *low = (high - result) + rest;
    return result;
}

/* At most 0.8 ulp. */
static inline double onnxc_exp_double(double x)
{
    double low;
    uint64_t power;
    const double high = onnxc_exp_parts_double(x, 0.0, &low, &power);

    return onnxc_scale_double(high, power);
}

/* At most 1.2 ulp. The polynomial is (exp(r) - 1 - r) / r^2, |r| <= 0.347, error 2^-60.4; with 2^n
 * = a * b the result is b * ((a - 1 / b) + a * r + a * r^2 * p), the first sum in two parts.
 */
static inline double onnxc_expm1_double(double x)
{
    double low;
    uint64_t power;
    const double r = onnxc_exp_reduce_double(x, 0.0, &low, &power);
    const uint64_t half = power >> 1;
    const double a = onnxc_double_of_bits(half << 52);
    const double b = onnxc_double_of_bits((power - half) << 52);
    const double inverse = onnxc_double_of_bits((2046u - (power - half)) << 52);
    const double base = a - inverse;
    const double high = base + a * r;
    const double rest = ((a - base) - inverse) + ((base - high) + a * r);
    double p = 2.0912947086648364e-09;
    p = p * r + 2.5109312086622582e-08;
    p = p * r + 2.7557271639977184e-07;
    p = p * r + 2.7557243901451983e-06;
    p = p * r + 2.480158733669718e-05;
    p = p * r + 0.0001984126988591961;
    p = p * r + 0.001388888888887496;
    p = p * r + 0.008333333333321834;
    p = p * r + 0.041666666666666685;
    p = p * r + 0.16666666666666677;
    p = p * r + 0.5;
    const double result = (high + (rest + a * (p * r * r + low))) * b;

    return onnxc_signed_double(onnxc_abs_double(result), x);
}

/* k * ln 2 + log(1 + f) + low, f in [sqrt(1/2) - 1, sqrt(2) - 1]. With s = f / (2 + f) the last is
 * 2 s + s * R(s^2) = f - (f^2 / 2 - s * (f^2 / 2 + R)). The polynomial is R(z) / z, error 2^-59.4.
 */
static inline double onnxc_log_sum_double(double k, double f, double low)
{
    const double large = k * 0.6931471805598903;
    const double high = large + f;
    const double half = 0.5 * f * f;
    const double s = f / (2.0 + f);
    const double z = s * s;
    double p = 0.14795492297261306;
    p = p * z + 0.15314099467131836;
    p = p * z + 0.18183562272445639;
    p = p * z + 0.2222219861587774;
    p = p * z + 0.2857142874193391;
    p = p * z + 0.3999999999941694;
    p = p * z + 0.6666666666666734;
    const double rest = half - s * (half + p * z);

    return high + (((large - high) + f) + ((k * 5.497923018708371e-14 + low) - rest));
}

/* log(x) + k * ln 2, x positive, finite and not denormal. 0x3fe6a09e667f3bcd is sqrt(1/2). */
static inline double onnxc_log_scaled_double(double x, double k)
{
    const uint64_t shifted = onnxc_bits_of_double(x) + 0x00195f619980c433u;
    const uint64_t fraction = shifted & 0x000fffffffffffffu;
    const double mantissa = onnxc_double_of_bits(fraction + 0x3fe6a09e667f3bcdu);

    return onnxc_log_sum_double(k + (double)((int32_t)(shifted >> 52) - 1024), mantissa - 1.0, 0.0);
}

/* result, the logarithm of x where x is positive and finite, for every x. */
static inline double onnxc_log_special_double(double x, double result)
{
    const double infinity = onnxc_double_of_bits(0x7ff0000000000000u);
    const double below = x < 0.0 ? onnxc_double_of_bits(0x7ff8000000000000u) : -infinity;
    const double special = x <= 0.0 ? below : x;

    return onnxc_select_double((x > 0.0) & (x < infinity), result, special);
}

/* At most 0.9 ulp. A denormal is scaled by 2^52. */
static inline double onnxc_log_double(double x)
{
    const int denormal = x < 2.2250738585072014e-308;
    const double scaled = onnxc_select_double(denormal, x * 4503599627370496.0, x);
    const double k = onnxc_select_double(denormal, -52.0, 0.0);

    return onnxc_log_special_double(x, onnxc_log_scaled_double(scaled, k));
}

/* log(1 + x + low), |low| at most half an ulp of x. With 1 + x = 2^k * m, f = m - 1 is computed
 * from x itself, in two parts, the lower one with low / (1 + f). 2^-k is a * b: k may be 1024.
 */
static inline double onnxc_log1p_sum_double(double x, double low)
{
    const double sum = 1.0 + x;
    const uint64_t exponent = (onnxc_bits_of_double(sum) + 0x00195f619980c433u) >> 52;
    const uint64_t half = exponent >> 1;
    const double a = onnxc_double_of_bits((1535u - half) << 52);
    const double b = onnxc_double_of_bits((1535u - (exponent - half)) << 52);
    const double scaled = x * a * b;
    const double base = a * b - 1.0;
    const double f = base + scaled;
    const double f_low = (((base - f) + scaled) + low * a * b) * (1.0 - f);
    const double k = (double)((int32_t)exponent - 1024);

    return onnxc_log_special_double(sum, onnxc_log_sum_double(k, f, f_low));
}

/* At most 0.95 ulp. */
static inline double onnxc_log1p_double(double x)
{
    const double result = onnxc_log1p_sum_double(x, 0.0);

    return onnxc_signed_double(onnxc_abs_double(result), x);
}

/* At most 1.25 ulp: log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), exp in two parts. */
static inline double onnxc_softplus_double(double x)
{
    double low;
    uint64_t power;
    const double high = onnxc_exp_parts_double(-onnxc_abs_double(x), 0.0, &low, &power);
    const double t = onnxc_scale_double(high, power);
    const double t_low = onnxc_scale_double(low, power);

    return onnxc_select_double(x > 0.0, x, 0.0) + onnxc_log1p_sum_double(t, t_low);
}

/* At most 1.2 ulp: t / (1 + t) or 1 / (1 + t) with t = exp(-|x|); t and the sum are kept in two
 * parts, and the lower ones correct the quotient.
 */
static inline double onnxc_sigmoid_double(double x)
{
    double low;
    uint64_t power;
    const double high = onnxc_exp_parts_double(-onnxc_abs_double(x), 0.0, &low, &power);
    const double t = onnxc_scale_double(high, power);
    const double t_low = onnxc_scale_double(low, power);
    const double sum = 1.0 + t;
    const double sum_low = ((1.0 - sum) + t) + t_low;
    const double quotient = onnxc_select_double(x < 0.0, t, 1.0) / sum;
    const double inverse = onnxc_select_double(x < 0.0, 1.0 - quotient, quotient);
    const double rest = onnxc_select_double(x < 0.0, t_low, 0.0) - quotient * sum_low;

    return quotient + rest * inverse;
}

/* At most 0.9 ulp. Below 1 a polynomial, (sinh(x) / x - 1) / x^2, error 2^-61.7; above it t - 1 /
 * (4 t) with t = exp(|x|) / 2 in two parts.
 */
static inline double onnxc_sinh_double(double x)
{
    const double magnitude = onnxc_abs_double(x);
    double low;
    uint64_t power;
    const double high = onnxc_exp_parts_double(magnitude, 0.0, &low, &power);
    const double t = onnxc_scale_double(high, power - 1u);
    const double large = t + (onnxc_scale_double(low, power - 1u) - 0.25 / t);
    const double z = x * x;
    double p = 7.77658818285817e-13;
    p = p * z + 1.6056659474882692e-10;
    p = p * z + 2.5052130995870036e-08;
    p = p * z + 2.7557319106768e-06;
    p = p * z + 0.00019841269841593394;
    p = p * z + 0.008333333333332912;
    p = p * z + 0.16666666666666669;

    return onnxc_select_double(magnitude < 1.0, x + x * (p * z), onnxc_signed_double(large, x));
}

/* At most 0.9 ulp: t + 1 / (4 t) with t = exp(|x|) / 2 in two parts. */
static inline double onnxc_cosh_double(double x)
{
    double low;
    uint64_t power;
    const double high = onnxc_exp_parts_double(onnxc_abs_double(x), 0.0, &low, &power);
    const double t = onnxc_scale_double(high, power - 1u);

    return t + (onnxc_scale_double(low, power - 1u) + 0.25 / t);
}

/* At most 1.5 ulp. Below 5/8 a polynomial, (tanh(x) / x - 1) / x^2, error 2^-61.1; above it 1 - 2 /
 * (exp(2 |x|) + 1), which is 1 from 20 on.
 */
static inline double onnxc_tanh_double(double x)
{
    const double magnitude = onnxc_abs_double(x);
    const double y = onnxc_select_double(magnitude > 20.0, 20.0, magnitude);
    const double t = onnxc_exp_double(2.0 * y);
    const double large = 1.0 - 2.0 / (t + 1.0);
    const double z = x * x;
    double p = 6.049316107057417e-06;
    p = p * z - 3.0204012614458005e-05;
    p = p * z + 9.15765056186011e-05;
    p = p * z - 0.00023702298914782532;
    p = p * z + 0.0005894562705241801;
    p = p * z - 0.0014557271304555472;
    p = p * z + 0.0035921142105481358;
    p = p * z - 0.008863234337607145;
    p = p * z + 0.021869488470631755;
    p = p * z - 0.053968253966147295;
    p = p * z + 0.13333333333329958;
    p = p * z - 0.33333333333333315;
    const double small = magnitude + magnitude * (p * z);

    return onnxc_signed_double(onnxc_select_double(magnitude < 0.625, small, large), x);
}

/* At most 1 ulp: log(1 + y), y = |x| + (sqrt(x^2 + 1) - 1) in two parts; from 2^28 on log(2 |x|).
 */
static inline double onnxc_asinh_double(double x)
{
    const double magnitude = onnxc_abs_double(x);
    const int huge = magnitude > 268435456.0;
    const double y = huge ? 1.0 : magnitude;
    const double rest = y * y / (1.0 + onnxc_sqrt_double(1.0 + y * y));
    const double sum = y + rest;
    const double small = onnxc_log1p_sum_double(sum, (y - sum) + rest);
    const double logarithm = onnxc_log_scaled_double(huge ? magnitude : 1.0, 1.0);
    const double large = onnxc_log_special_double(magnitude, logarithm);

    return onnxc_signed_double(onnxc_abs_double(huge ? large : small), x);
}

/* At most 1.7 ulp: log(1 + y), y = t + sqrt(2 t + t^2) in two parts, t = x - 1; from 2^28 on log(2
 * x).
 */
static inline double onnxc_acosh_double(double x)
{
    const int huge = x > 268435456.0;
    const double t = huge ? 1.0 : x - 1.0;
    const double root = onnxc_sqrt_double(t < 0.0 ? t : 2.0 * t + t * t);
    const double sum = root + t;
    const double small = onnxc_log1p_sum_double(sum, (root - sum) + t);
    const double logarithm = onnxc_log_scaled_double(huge ? x : 1.0, 1.0);

    return huge ? onnxc_log_special_double(x, logarithm) : small;
}

/* At most 1.7 ulp: log(1 + y) / 2, y = 2 |x| / (1 - |x|), corrected for the error of 1 - |x|. */
static inline double onnxc_atanh_double(double x)
{
    const double magnitude = onnxc_abs_double(x);
    const int inside = magnitude < 1.0;
    const double rest = 1.0 - magnitude;
    const double rest_low = (1.0 - rest) - magnitude;
    const double quotient = 2.0 * magnitude / onnxc_select_double(inside, rest, 1.0);
    const double correction = -(quotient * rest_low) * (1.0 + 0.5 * quotient);
    const double finite = 0.5 * onnxc_log1p_sum_double(quotient, correction);
    const double special = onnxc_double_of_bits(magnitude > 1.0 ? 0x7ff8000000000000u
                                                                : 0x7ff0000000000000u);
    const double outside = magnitude + special;

    return onnxc_signed_double(onnxc_select_double(inside, finite, outside), x);
}

/* At most 1.35 ulp. Below 0.9 a polynomial, erf(x) / x - 1, error 2^-56.3; above it 1 -
 * exp(q(|x|)), q of log(1 - erf(x)) in x - 1.5, which adds an error of 2^-59.0; 1 from 6 on.
 */
static inline double onnxc_erf_double(double x)
{
    const double magnitude = onnxc_abs_double(x);
    const double y = onnxc_select_double(magnitude > 6.0, 6.0, magnitude);
    const double z = x * x;
    const double v = y - 1.5;
    double p = -1.0824687676818458e-09;
    p = p * z + 1.509814376024529e-08;
    p = p * z - 1.6479671062721093e-07;
    p = p * z + 1.6477631939538372e-06;
    p = p * z - 1.4926829772929484e-05;
    p = p * z + 0.0001205538821585043;
    p = p * z - 0.0008548328652044897;
    p = p * z + 0.005223977655073376;
    p = p * z - 0.026866170648260187;
    p = p * z + 0.11283791670972038;
    p = p * z - 0.3761263890318411;
    p = p * z + 0.1283791670955126;
    double q = 2.0234610032274508e-14;
    q = q * v - 5.337117357371703e-13;
    q = q * v + 6.516101340408248e-12;
    q = q * v - 4.922416424686014e-11;
    q = q * v + 2.577579789272802e-10;
    q = q * v - 9.692753575657187e-10;
    q = q * v + 2.39945586066361e-09;
    q = q * v - 1.0852228687976118e-09;
    q = q * v - 2.787371716129471e-08;
    q = q * v + 1.9260756658640632e-07;
    q = q * v - 8.187578835191427e-07;
    q = q * v + 2.3708355830622546e-06;
    q = q * v - 2.646835647465541e-06;
    q = q * v - 2.2473687512128465e-05;
    q = q * v + 0.00021596330501989154;
    q = q * v - 0.0012572166868505118;
    q = q * v + 0.006006746386444251;
    q = q * v - 0.025824140633644275;
    q = q * v - 0.8926403306150368;
    q = q * v - 3.5088008017795276;
    q = q * v - 3.3844920895515527;
    const double large = 1.0 - onnxc_exp_double(q);

    return onnxc_select_double(magnitude < 0.9, x + x * p, onnxc_signed_double(large, x));
}
