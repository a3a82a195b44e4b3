/* Strings: {data, size}, so that any byte may occur. */

/* All bytes, NUL too; an empty string's pointer is never read. */
static inline uint8_t onnxc_equal_string(onnxc_string a, onnxc_string b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}
