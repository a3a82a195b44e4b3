/* float16 and bfloat16 as bit patterns, compared by value without a float. & and | rather than &&
 * and ||: a loop over these has no branch and is vectorised.
 */

/* A NaN equals nothing; of two equal patterns it is enough to look at one. */
static inline uint8_t onnxc_equal_float16(uint16_t a, uint16_t b)
{
    const unsigned both = a | b;

    return (uint8_t)(((a == b) & ((a & 0x7fffu) <= 0x7c00u)) | ((both & 0x7fffu) == 0));
}

/* A NaN equals nothing; of two equal patterns it is enough to look at one. */
static inline uint8_t onnxc_equal_bfloat16(uint16_t a, uint16_t b)
{
    const unsigned both = a | b;

    return (uint8_t)(((a == b) & ((a & 0x7fffu) <= 0x7f80u)) | ((both & 0x7fffu) == 0));
}
