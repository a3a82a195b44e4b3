/* Complex numbers: equal where both parts are, said without == to please -Wfloat-equal. */

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
