/* Strings: {data, size}, so that any byte may occur. */

/* All bytes, NUL too; an empty string's pointer is never read. Short strings without a branch on
 * their bytes, which nobody can predict.
 */
static inline uint8_t onnxc_equal_string(onnxc_string a, onnxc_string b)
{
    unsigned differ = 0;

    if (a.size != b.size)
        return 0;
    if (a.size > 32)
        return memcmp(a.data, b.data, a.size) == 0;
    for (size_t n = 0; n < a.size; n++)
        differ |= (unsigned)(a.data[n] ^ b.data[n]);
    return differ == 0;
}
