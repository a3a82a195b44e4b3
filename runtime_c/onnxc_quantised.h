/* From a float to an integer of few bits, without branches. Assumed are the default rounding mode
 * and FLT_EVAL_METHOD 0 or 1.
 */

/* The nearest integer to ratio, half to even, plus a zero point, from least to most; of a NaN the
 * zero point. The three are less than 2^21: there the sum with 1.5 * 2^23 has no fraction left and
 * its bits count by one, and what is beyond keeps its order, as a sum and as bits.
 */
static inline int32_t onnxc_quantised_float(float ratio, float zero_point, int32_t least,
                                            int32_t most)
{
    const int32_t zero = 0x4b400000;
    const int32_t offset = (int32_t)zero_point;
    union {
        float value;
        int32_t bits;
    } sum;

    sum.value = ratio + 12582912.0f;

    const int32_t low = zero + (least - offset);
    const int32_t high = zero + (most - offset);
    const int32_t above = sum.bits > low ? sum.bits : low;
    const int32_t inside = above < high ? above : high;

    return ((inside - zero) & (isnan(ratio) ? 0 : -1)) + offset;
}
