/* The first kernel that reports something decides what the model returns. */
static inline onnxc_status onnxc_first(onnxc_status before, onnxc_status now)
{
    return before != ONNXC_OK ? before : now;
}
