/* Orders for sorting, in which any two values compare: a NaN is the greatest number. */

/* Whether a comes before b; all NaN are equal, and the last. */
static inline uint8_t onnxc_less_float(float a, float b)
{
    return a < b || (isnan(b) && !isnan(a));
}

/* Whether a comes before b; all NaN are equal, and the last. */
static inline uint8_t onnxc_less_double(double a, double b)
{
    return a < b || (isnan(b) && !isnan(a));
}

/* Whether a comes before b, byte by byte; a string comes after its own start. */
static inline uint8_t onnxc_less_string(onnxc_string a, onnxc_string b)
{
    const size_t shorter = a.size < b.size ? a.size : b.size;
    const int order = shorter ? memcmp(a.data, b.data, shorter) : 0;

    return order < 0 || (order == 0 && a.size < b.size);
}
