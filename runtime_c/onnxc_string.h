/* Strings: {data, size}, so that any byte may occur. */

/* All bytes, NUL too; an empty string's pointer is never read. */
static inline uint8_t onnxc_equal_string(onnxc_string a, onnxc_string b)
{
    if (a.size != b.size)
        return 0;
    for (size_t n = 0; n < a.size; n++)
        if (a.data[n] != b.data[n])
            return 0;
    return 1;
}
