/* Sub-byte elements: two or four in a byte, the first in the low bits. */

static inline uint8_t onnxc_load_uint4(const uint8_t *bytes, int64_t n)
{
    return (uint8_t)((bytes[n >> 1] >> ((n & 1) * 4)) & 15);
}

static inline int8_t onnxc_load_int4(const uint8_t *bytes, int64_t n)
{
    return (int8_t)((onnxc_load_uint4(bytes, n) ^ 8) - 8);
}

static inline uint8_t onnxc_load_uint2(const uint8_t *bytes, int64_t n)
{
    return (uint8_t)((bytes[n >> 2] >> ((n & 3) * 2)) & 3);
}

static inline int8_t onnxc_load_int2(const uint8_t *bytes, int64_t n)
{
    return (int8_t)((onnxc_load_uint2(bytes, n) ^ 2) - 2);
}

static inline uint8_t onnxc_pack4(int a, int b)
{
    return (uint8_t)((a & 15) | (b & 15) << 4);
}

static inline uint8_t onnxc_pack2(int a, int b, int c, int d)
{
    return (uint8_t)((a & 3) | (b & 3) << 2 | (c & 3) << 4 | (d & 3) << 6);
}
