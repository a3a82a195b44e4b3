/* Trigonometric functions and their inverses in float, for every input bit pattern. One ulp is the
 * distance of the floats around the true value. The bounds hold with and without contraction to
 * fused multiply-adds: what must be exact is exact both ways. Assumed are the default rounding mode
 * and FLT_EVAL_METHOD 0, or 1, which gives other bits. Double is used for |x| >= 1600 alone. What
 * must be exact in a sum has all its digits here, whatever type it is read as.
 *
 * Polynomials are minimax fits; a comment gives interval and error, relative to the function.
 */

/* x - n * pi / 2 = result + *low, |result| <= 0.786, for |x| < 1600; *quadrant is n, of which two
 * bits count. pi / 2 is in four parts, of which the first three have 14 bits, so that their
 * products with n are exact; each difference is exact, too, or its error is taken along.
 */
static inline float onnxc_quadrant_near_float(float x, float *low, uint32_t *quadrant)
{
    const float shifted = x * 0.63661977f + 12582912.0f;
    const float n = shifted - 12582912.0f;
    const float a = x - n * 1.5706787109375f;
    const float b = a - n * 0.00011761486530303955f;
    const float b_low = (a - b) - n * 0.00011761486530303955f;
    const float c = b - n * 9.918039722833782e-10f;
    const float c_low = (b - c) - n * 9.918039722833782e-10f;
    const float rest = (b_low + c_low) - n * 2.896074e-13f;
    const float high = c + rest;

    *quadrant = onnxc_bits_of_float(shifted);
    *low = (c - high) + rest;
    return high;
}

/* The same for any finite |x| >= 2: x = m * 2^e, and m times those 96 bits of 2 / pi that neither
 * give multiples of 4 nor vanish is x / (pi / 2) modulo 4, in units of 2^-62.
 */
static inline float onnxc_quadrant_far_float(float x, float *low, uint32_t *quadrant)
{
    static const uint32_t two_over_pi[8] = {
        0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
        0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu,
    };
    const uint32_t bits = onnxc_bits_of_float(x);
    const uint64_t m = (bits & 0x007fffffu) | 0x00800000u;
    const uint32_t first = ((bits >> 23) & 0xffu) - 120u;
    const uint32_t *words = two_over_pi + (first >> 5);
    const uint32_t down = 32u - (first & 31u);
    const uint64_t w0 = (((uint64_t)words[0] << 32 | words[1]) >> down) & 0xffffffffu;
    const uint64_t w1 = (((uint64_t)words[1] << 32 | words[2]) >> down) & 0xffffffffu;
    const uint64_t w2 = (((uint64_t)words[2] << 32 | words[3]) >> down) & 0xffffffffu;
    const uint64_t turns = (m * w0 << 32) + m * w1 + (m * w2 >> 32);
    const uint64_t nearest = (turns + ((uint64_t)1 << 61)) >> 62;
    const uint64_t rest = turns - (nearest << 62);
    const uint64_t size = rest >> 63 ? ~rest + 1u : rest;
    const double angle = (double)size * 3.4061215800304503e-19;
    const double reduced = (rest >> 63) ^ (bits >> 31) ? -angle : angle;
    const float high = (float)reduced;

    *quadrant = bits >> 31 ? 0u - (uint32_t)nearest : (uint32_t)nearest;
    *low = (float)(reduced - (double)high);
    return high;
}

/* x - n * pi / 2 = result + *low for any x; NaN for an infinity. */
static inline float onnxc_quadrant_float(float x, float *low, uint32_t *quadrant)
{
    const float magnitude = onnxc_abs_float(x);

    if (magnitude >= 1600.0f && magnitude <= 3.4028234663852886e+38f)
        return onnxc_quadrant_far_float(x, low, quadrant);
    return onnxc_quadrant_near_float(magnitude < 1600.0f ? x : x - x, low, quadrant);
}

/* sin(r + low), |r| <= 0.786. The polynomial is (sin(r) / r - 1) / r^2, error 2^-32.5. */
static inline float onnxc_sin_reduced_float(float r, float low)
{
    const float z = r * r;
    float p = 2.8325098e-06f;
    p = p * z - 0.00019853064f;
    p = p * z + 0.008333379f;
    p = p * z - 0.16666667f;

    return r + (low + r * (p * z));
}

/* cos(r + low), |r| <= 0.786. The polynomial is (cos(r) - 1 + r^2 / 2) / r^4, error 2^-32.9. */
static inline float onnxc_cos_reduced_float(float r, float low)
{
    const float z = r * r;
    const float half = 0.5f * z;
    const float high = 1.0f - half;
    float p = 2.4432327e-05f;
    p = p * z - 0.001388731f;
    p = p * z + 0.041666646f;

    return high + (((1.0f - high) - half) + (p * z * z - r * low));
}

/* sin(r + low + quadrant * pi / 2), |r| <= 0.786. */
static inline float onnxc_sin_turned_float(float r, float low, uint32_t quadrant)
{
    const int odd = (int)(quadrant & 1u);
    const float sine = onnxc_sin_reduced_float(r, low);
    const float cosine = onnxc_cos_reduced_float(r, low);
    const uint32_t bits = onnxc_bits_of_float(onnxc_select_float(odd, cosine, sine));

    return onnxc_float_of_bits(bits ^ (quadrant & 2u) << 30);
}

/* At most 0.95 ulp. */
static inline float onnxc_sin_float(float x)
{
    float low;
    uint32_t quadrant;
    const float r = onnxc_quadrant_float(x, &low, &quadrant);
    const float result = onnxc_sin_turned_float(r, low, quadrant);

    return onnxc_select_float(onnxc_abs_float(x) < 0.0001f, x, result);
}

/* At most 0.95 ulp. */
static inline float onnxc_cos_float(float x)
{
    float low;
    uint32_t quadrant;
    const float r = onnxc_quadrant_float(x, &low, &quadrant);

    return onnxc_sin_turned_float(r, low, quadrant + 1u);
}

/* tan(r + low + quadrant * pi / 2), |r| <= 0.786: t = tan(r) in two parts, or -1 / t. The
 * polynomial is (tan(r) / r - 1) / r^2, error 2^-29.5.
 */
static inline float onnxc_tan_turned_float(float r, float low, uint32_t quadrant)
{
    const int odd = (int)(quadrant & 1u);
    const float z = r * r;
    float p = 0.0043770173f;
    p = p * z + 9.022087e-05f;
    p = p * z + 0.010833092f;
    p = p * z + 0.021284351f;
    p = p * z + 0.054059193f;
    p = p * z + 0.13332674f;
    p = p * z + 0.3333335f;
    const float rest = low + (low + r * p) * z;
    const float high = r + rest;
    const float high_low = (r - high) + rest;
    const float inverse = -1.0f / onnxc_select_float(odd, high, 1.0f);

    return onnxc_select_float(odd, inverse + inverse * inverse * high_low, high);
}

/* At most 1.4 ulp. */
static inline float onnxc_tan_float(float x)
{
    float low;
    uint32_t quadrant;
    const float r = onnxc_quadrant_float(x, &low, &quadrant);
    const float result = onnxc_tan_turned_float(r, low, quadrant);

    return onnxc_select_float(onnxc_abs_float(x) < 0.0001f, x, result);
}

/* Whether x is beyond what the three functions below are for; no NaN is. */
static inline uint32_t onnxc_far_angle_float(float x)
{
    return onnxc_abs_float(x) >= 1600.0f;
}

/* The bits of the sine above without a branch, for |x| < 1600 and NaN. */
static inline float onnxc_sin_near_float(float x)
{
    float low;
    uint32_t quadrant;
    const float r = onnxc_quadrant_near_float(x, &low, &quadrant);
    const float result = onnxc_sin_turned_float(r, low, quadrant);

    return onnxc_select_float(onnxc_abs_float(x) < 0.0001f, x, result);
}

/* The bits of the cosine above without a branch, for |x| < 1600 and NaN. */
static inline float onnxc_cos_near_float(float x)
{
    float low;
    uint32_t quadrant;
    const float r = onnxc_quadrant_near_float(x, &low, &quadrant);

    return onnxc_sin_turned_float(r, low, quadrant + 1u);
}

/* The bits of the tangent above without a branch, for |x| < 1600 and NaN. */
static inline float onnxc_tan_near_float(float x)
{
    float low;
    uint32_t quadrant;
    const float r = onnxc_quadrant_near_float(x, &low, &quadrant);
    const float result = onnxc_tan_turned_float(r, low, quadrant);

    return onnxc_select_float(onnxc_abs_float(x) < 0.0001f, x, result);
}

/* (asin(s) - s) / s of z = s^2 <= 1/4, error 2^-31.6 relative to asin. */
static inline float onnxc_asin_rest_float(float z)
{
    float p = 0.03769686f;
    p = p * z + 0.014315089f;
    p = p * z + 0.031839002f;
    p = p * z + 0.044513382f;
    p = p * z + 0.07500522f;
    p = p * z + 0.1666666f;

    return p * z;
}

/* At most 1.2 ulp. Above 1/2, pi / 2 - 2 asin(sqrt((1 - |x|) / 2)), in two parts. */
static inline float onnxc_asin_float(float x)
{
    const float magnitude = onnxc_abs_float(x);
    const int small = magnitude < 0.5f;
    const float z = small ? x * x : 0.5f - 0.5f * magnitude;
    const float twice = 2.0f * onnxc_sqrt_float(small ? 0.0f : z);
    const float rest = onnxc_asin_rest_float(z);
    const float high = 1.5707963705062866f - twice;
    const float low = (1.5707963705062866f - high) - twice;
    const float large = high + (low - (twice * rest + 4.371139e-08f));

    return small ? x + x * rest : onnxc_signed_float(large, x);
}

/* At most 1.2 ulp. Above 1/2, 2 asin(sqrt((1 - |x|) / 2)), or pi minus that. */
static inline float onnxc_acos_float(float x)
{
    const float magnitude = onnxc_abs_float(x);
    const int small = magnitude < 0.5f;
    const float z = small ? x * x : 0.5f - 0.5f * magnitude;
    const float twice = 2.0f * onnxc_sqrt_float(small ? 0.0f : z);
    const float y = small ? x : twice;
    const float rest = y * onnxc_asin_rest_float(z);
    const float base = small ? 1.5707963705062866f : 3.1415927410125732f;
    const float base_low = small ? -4.371139e-08f : -8.742278e-08f;
    const float high = base - y;
    const float large = high + (((base - high) - y) - (rest - base_low));

    return small || x < 0.0f ? large : y + rest;
}

/* At most 1.3 ulp. Above 1, pi / 2 - atan(1 / |x|), in two parts. The polynomial is (atan(x) / x -
 * 1) / x^2, |x| <= 1, error 2^-31.0.
 */
static inline float onnxc_atan_float(float x)
{
    const float magnitude = onnxc_abs_float(x);
    const int large = magnitude > 1.0f;
    const float y = onnxc_select_float(large, 1.0f / magnitude, magnitude);
    const float z = y * y;
    float p = 0.0011345221f;
    p = p * z - 0.007425363f;
    p = p * z + 0.022777617f;
    p = p * z - 0.044983257f;
    p = p * z + 0.06763649f;
    p = p * z - 0.08821462f;
    p = p * z + 0.11061233f;
    p = p * z - 0.14280343f;
    p = p * z + 0.19999716f;
    p = p * z - 0.33333328f;
    const float rest = y * (p * z);
    const float high = 1.5707963705062866f - y;
    const float beyond = high + (((1.5707963705062866f - high) - y) - (rest + 4.371139e-08f));

    return onnxc_signed_float(onnxc_select_float(large, beyond, y + rest), x);
}
