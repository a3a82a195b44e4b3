/* Trigonometric functions and their inverses in double, for every input bit pattern. One ulp is the
 * distance of the doubles around the true value. The bounds hold with and without contraction to
 * fused multiply-adds: what must be exact is exact both ways. Assumed are the default rounding mode
 * and FLT_EVAL_METHOD 0 or 1.
 *
 * Polynomials are minimax fits; a comment gives interval and error, relative to the function.
 */

/* x - n * pi / 2 = result + *low, |result| <= 0.786, for |x| < 800000; *quadrant is n, of which two
 * bits count. pi / 2 is in four parts, of which the first three have 33 bits, so that their
 * products with n are exact; each difference is exact, too, or its error is taken along.
 */
static inline double onnxc_quadrant_near_double(double x, double *low, uint32_t *quadrant)
{
    const double shifted = x * 0.6366197723675814 + 6755399441055744.0;
    const double n = shifted - 6755399441055744.0;
    const double a = x - n * 1.5707963267341256;
    const double b = a - n * 6.077100506303966e-11;
    const double b_low = (a - b) - n * 6.077100506303966e-11;
    const double c = b - n * 2.0222662487111665e-21;
    const double c_low = (b - c) - n * 2.0222662487111665e-21;
    const double rest = (b_low + c_low) - n * 8.4784276603689e-32;
    const double high = c + rest;

    *quadrant = (uint32_t)(onnxc_bits_of_double(shifted) & 3u);
    *low = (c - high) + rest;
    return high;
}

/* x / (pi / 2) modulo 4 in units of 2^-126, to 2^-125, for any finite |x| >= 2: the upper 128 bits
 * of the result, those of weight 2^-62 and more in *high. x = m * 2^e, and of the bits of 2 / pi
 * those count that neither give multiples of 4 nor vanish: 192, in words of 32, times the two words
 * of m.
 */
static inline uint64_t onnxc_turns_double(uint64_t bits, uint64_t *high)
{
    static const uint32_t two_over_pi[39] = {
        0x00000000u, 0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
        0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u, 0xb7246e3au, 0x424dd2e0u,
        0x06492eeau, 0x09d1921cu, 0xfe1deb1cu, 0xb129a73eu, 0xe88235f5u, 0x2ebb4484u,
        0xe99c7026u, 0xb45f7e41u, 0x3991d639u, 0x835339f4u, 0x9c845f8bu, 0xbdf9283bu,
        0x1ff897ffu, 0xde05980fu, 0xef2f118bu, 0x5a0a6d1fu, 0x6d367ecfu, 0x27cb09b7u,
        0x4f463f66u, 0x9e5fea2du, 0x7527bac7u, 0xebe5f17bu, 0x3d0739f7u, 0x8a5292eau,
        0x6bfb5fb1u, 0x1f8d5d08u, 0x56033046u,
    };
    const uint64_t m = (bits & 0x000fffffffffffffu) | 0x0010000000000000u;
    const uint32_t first = (uint32_t)(bits >> 52 & 0x7ffu) - 1013u;
    const uint32_t *words = two_over_pi + (first >> 5);
    const uint32_t down = 32u - (first & 31u);
    const uint64_t m_low = m & 0xffffffffu;
    const uint64_t m_high = m >> 32;
    uint64_t product[6];
    uint64_t below = 0;
    uint64_t carry = 0;

    for (int n = 5; n >= 0; n--) {
        const uint64_t pair = (uint64_t)words[n] << 32 | words[n + 1];
        const uint64_t word = (pair >> down) & 0xffffffffu;
        const uint64_t sum = carry + word * m_low;
        const uint64_t cross = below * m_high + (sum & 0xffffffffu);

        product[n] = cross & 0xffffffffu;
        carry = (sum >> 32) + (cross >> 32);
        below = word;
    }
    *high = product[0] << 32 | product[1];
    return product[2] << 32 | product[3];
}

/* a * b = result + *low: halves of 26 and 27 bits have exact products. */
static inline double onnxc_product_double(double a, double b, double *low)
{
    const double a_high = onnxc_double_of_bits(onnxc_bits_of_double(a) & 0xfffffffff8000000u);
    const double b_high = onnxc_double_of_bits(onnxc_bits_of_double(b) & 0xfffffffff8000000u);
    const double a_low = a - a_high;
    const double b_low = b - b_high;
    const double product = a * b;

    *low = (((a_high * b_high - product) + a_high * b_low) + a_low * b_high) + a_low * b_low;
    return product;
}

/* The same for any finite |x| >= 2. */
static inline double onnxc_quadrant_far_double(double x, double *low, uint32_t *quadrant)
{
    const uint64_t bits = onnxc_bits_of_double(x);
    uint64_t high;
    const uint64_t fraction = onnxc_turns_double(bits, &high);
    const uint64_t nearest = (high + ((uint64_t)1 << 61)) >> 62;
    const uint64_t rest = high - (nearest << 62);
    const uint64_t below = rest >> 63;
    const uint64_t size = below ? ~rest : rest;
    const uint64_t size_low = below ? ~fraction : fraction;
    const double first = (double)(uint32_t)(size >> 32) * 9.3132257461547852e-10;
    const double second = (double)(uint32_t)(size & 0xffffffffu) * 2.168404344971009e-19;
    const double third = (double)(uint32_t)(size_low >> 32) * 5.0487097934144756e-29;
    const double fourth = (double)(uint32_t)(size_low & 0xffffffffu) * 1.1754943508222875e-38;
    const double sum = first + second;
    const double sum_low = ((first - sum) + second) + (third + fourth);
    const double turns = sum + sum_low;
    const double turns_low = (sum - turns) + sum_low;
    double product_low;
    const double product = onnxc_product_double(turns, 1.5707963267948966, &product_low);
    const double turned = turns * 6.123233995736766e-17 + turns_low * 1.5707963267948966;
    const double product_rest = product_low + turned;
    const double sign = below ^ (bits >> 63) ? -1.0 : 1.0;
    const double result = product + product_rest;

    *quadrant = (uint32_t)(bits >> 63 ? 4u - (nearest & 3u) : nearest & 3u);
    *low = sign * ((product - result) + product_rest);
    return sign * result;
}

/* x - n * pi / 2 = result + *low for any x; NaN for an infinity. */
static inline double onnxc_quadrant_double(double x, double *low, uint32_t *quadrant)
{
    const double magnitude = onnxc_abs_double(x);

    if (magnitude >= 800000.0 && magnitude <= 1.7976931348623157e+308)
        return onnxc_quadrant_far_double(x, low, quadrant);
    return onnxc_quadrant_near_double(magnitude < 800000.0 ? x : x - x, low, quadrant);
}

/* sin(r + low), |r| <= 0.786. The polynomial is (sin(r) / r - 1) / r^2, error 2^-57.8. */
static inline double onnxc_sin_reduced_double(double r, double low)
{
    const double z = r * r;
    double p = 1.5895433654269074e-10;
    p = p * z - 2.505073439343958e-08;
    p = p * z + 2.7557313538527685e-06;
    p = p * z - 0.00019841269829358536;
    p = p * z + 0.00833333333332184;
    p = p * z - 0.1666666666666663;

    return r + (low + r * (p * z));
}

/* cos(r + low), |r| <= 0.786. The polynomial is (cos(r) - 1 + r^2 / 2) / r^4, error 2^-63.9. */
static inline double onnxc_cos_reduced_double(double r, double low)
{
    const double z = r * r;
    const double half = 0.5 * z;
    const double high = 1.0 - half;
    double p = -1.1358649382239578e-11;
    p = p * z + 2.08757036940387e-09;
    p = p * z - 2.755731420652464e-07;
    p = p * z + 2.4801587288974375e-05;
    p = p * z - 0.0013888888888873316;
    p = p * z + 0.041666666666666595;

    return high + (((1.0 - high) - half) + (p * z * z - r * low));
}

/* At most 0.9 ulp. */
static inline double onnxc_sin_double(double x)
{
    double low;
    uint32_t quadrant;
    const double r = onnxc_quadrant_double(x, &low, &quadrant);
    const double sine = onnxc_sin_reduced_double(r, low);
    const double cosine = onnxc_cos_reduced_double(r, low);
    const uint64_t bits = onnxc_bits_of_double(quadrant & 1u ? cosine : sine);
    const double result = onnxc_double_of_bits(bits ^ (uint64_t)(quadrant & 2u) << 62);

    return onnxc_abs_double(x) < 1e-8 ? x : result;
}

/* At most 0.9 ulp. */
static inline double onnxc_cos_double(double x)
{
    double low;
    uint32_t quadrant;
    const double r = onnxc_quadrant_double(x, &low, &quadrant);
    const double sine = onnxc_sin_reduced_double(r, low);
    const double cosine = onnxc_cos_reduced_double(r, low);
    const uint64_t bits = onnxc_bits_of_double(quadrant & 1u ? sine : cosine);

    return onnxc_double_of_bits(bits ^ (uint64_t)((quadrant + 1u) & 2u) << 62);
}

/* At most 1.4 ulp: t = tan(r) in two parts, or -1 / t. The polynomial is (tan(r) / r - 1) / r^2,
 * |r| <= 0.786, error 2^-59.9.
 */
static inline double onnxc_tan_double(double x)
{
    double low;
    uint32_t quadrant;
    const double r = onnxc_quadrant_double(x, &low, &quadrant);
    const double z = r * r;
    double p = 9.800409965832994e-06;
    p = p * z - 2.427854571944251e-05;
    p = p * z + 4.8642198596314096e-05;
    p = p * z - 2.5637658699830732e-05;
    p = p * z + 6.722213978825599e-05;
    p = p * z + 8.35602836986892e-05;
    p = p * z + 0.0002437500202743633;
    p = p * z + 0.00058886497839741;
    p = p * z + 0.00145604546594516;
    p = p * z + 0.0035921008908253197;
    p = p * z + 0.008863237921699327;
    p = p * z + 0.0218694883993433;
    p = p * z + 0.053968253972902724;
    p = p * z + 0.13333333333325342;
    p = p * z + 0.3333333333333338;
    const double rest = low + (low + r * p) * z;
    const double high = r + rest;
    const double high_low = (r - high) + rest;
    const double inverse = -1.0 / (quadrant & 1u ? high : 1.0);
    const double odd = inverse + inverse * inverse * high_low;
    const double result = quadrant & 1u ? odd : high;

    return onnxc_abs_double(x) < 1e-8 ? x : result;
}

/* (asin(s) - s) / s of z = s^2 <= 1/4, error 2^-59.8 relative to asin. */
static inline double onnxc_asin_rest_double(double z)
{
    double p = 0.03262643651961244;
    p = p * z - 0.020995388098485248;
    p = p * z + 0.021704707285932982;
    p = p * z + 0.0037076030366495266;
    p = p * z + 0.010779915435169646;
    p = p * z + 0.011398976901260393;
    p = p * z + 0.013980811977250686;
    p = p * z + 0.017351612798113036;
    p = p * z + 0.02237221493890542;
    p = p * z + 0.030381942709762733;
    p = p * z + 0.044642857174562865;
    p = p * z + 0.07499999999970865;
    p = p * z + 0.1666666666666676;

    return p * z;
}

/* At most 1.2 ulp. Above 1/2, pi / 2 - 2 asin(sqrt((1 - |x|) / 2)), in two parts. */
static inline double onnxc_asin_double(double x)
{
    const double magnitude = onnxc_abs_double(x);
    const int small = magnitude < 0.5;
    const double z = small ? x * x : 0.5 - 0.5 * magnitude;
    const double twice = 2.0 * onnxc_sqrt_double(small ? 0.0 : z);
    const double rest = onnxc_asin_rest_double(z);
    const double high = 1.5707963267948966 - twice;
    const double low = (1.5707963267948966 - high) - twice;
    const double large = high + (low - (twice * rest - 6.123233995736766e-17));

    return small ? x + x * rest : onnxc_signed_double(large, x);
}

/* At most 1.15 ulp. Above 1/2, 2 asin(sqrt((1 - |x|) / 2)), or pi minus that. */
static inline double onnxc_acos_double(double x)
{
    const double magnitude = onnxc_abs_double(x);
    const int small = magnitude < 0.5;
    const double z = small ? x * x : 0.5 - 0.5 * magnitude;
    const double twice = 2.0 * onnxc_sqrt_double(small ? 0.0 : z);
    const double y = small ? x : twice;
    const double rest = y * onnxc_asin_rest_double(z);
    const double base = small ? 1.5707963267948966 : 3.141592653589793;
    const double base_low = small ? 6.123233995736766e-17 : 1.2246467991473532e-16;
    const double high = base - y;
    const double large = high + (((base - high) - y) - (rest - base_low));

    return small || x < 0.0 ? large : y + rest;
}

/* At most 0.9 ulp: base + atan(y), y = |x|, (|x| - 1) / (|x| + 1) or -1 / |x|, base 0, pi / 4 or pi
 * / 2 in two parts. The polynomial is (atan(y) / y - 1) / y^2, |y| <= 0.6, error 2^-59.3.
 */
static inline double onnxc_atan_double(double x)
{
    const double magnitude = onnxc_abs_double(x);
    const int middle = magnitude > 0.6;
    const int large = magnitude > 1.75;
    const double inner_up = onnxc_select_double(middle, magnitude - 1.0, magnitude);
    const double inner_down = onnxc_select_double(middle, magnitude + 1.0, 1.0);
    const double up = onnxc_select_double(large, -1.0, inner_up);
    const double down = onnxc_select_double(large, magnitude, inner_down);
    const double inner = onnxc_select_double(middle, 0.7853981633974483, 0.0);
    const double inner_low = onnxc_select_double(middle, 3.061616997868383e-17, 0.0);
    const double base = onnxc_select_double(large, 1.5707963267948966, inner);
    const double base_low = onnxc_select_double(large, 6.123233995736766e-17, inner_low);
    const double y = up / down;
    const double z = y * y;
    double p = 0.0036983961970400076;
    p = p * z - 0.013944028766741529;
    p = p * z + 0.027158875824550777;
    p = p * z - 0.038248159699663636;
    p = p * z + 0.046055628436428755;
    p = p * z - 0.05228795276695393;
    p = p * z + 0.05876818798175604;
    p = p * z - 0.06666020722689035;
    p = p * z + 0.07692254172801444;
    p = p * z - 0.09090906048510575;
    p = p * z + 0.1111111099870584;
    p = p * z - 0.14285714283244508;
    p = p * z + 0.19999999999972512;
    p = p * z - 0.33333333333333226;
    const double high = base + y;
    const double rest = ((base - high) + y) + (y * (p * z) + base_low);

    return onnxc_signed_double(high + rest, x);
}
