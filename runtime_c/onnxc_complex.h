/* Complex numbers: equality, said without == to please -Wfloat-equal, and their bits. */

/* Both parts; a NaN makes every comparison false. */
static inline uint8_t onnxc_equal_complex64(onnxc_complex64 a, onnxc_complex64 b)
{
    return a.re <= b.re && a.re >= b.re && a.im <= b.im && a.im >= b.im;
}

/* Both parts; a NaN makes every comparison false. */
static inline uint8_t onnxc_equal_complex128(onnxc_complex128 a, onnxc_complex128 b)
{
    return a.re <= b.re && a.re >= b.re && a.im <= b.im && a.im >= b.im;
}

/* As 64 bits: the real part is the low half. */
static inline uint64_t onnxc_bits_of_complex64(onnxc_complex64 value)
{
    return (uint64_t)onnxc_bits_of_float(value.im) << 32 | onnxc_bits_of_float(value.re);
}

/* From 64 bits: the real part is the low half. */
static inline onnxc_complex64 onnxc_complex64_of_bits(uint64_t bits)
{
    onnxc_complex64 value;

    value.re = onnxc_float_of_bits((uint32_t)(bits & 0xffffffffu));
    value.im = onnxc_float_of_bits((uint32_t)(bits >> 32));
    return value;
}
