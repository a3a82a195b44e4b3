/* Long sums in two parts: the total, and what it is off by. What rounding takes from a sum of two
 * is exact in the same type (Knuth, The Art of Computer Programming 2, 4.2.2, theorem B); as much
 * of it as counts goes back into the total at once, so that it stays small and loses nothing
 * itself. Once the total is no finite number it says nothing, and is left out.
 */

/* total + value, both in two parts. */
static inline void onnxc_add_exactly_float(float *total, float *error, float value)
{
    const float before = *total;
    const float after = before + value;
    const float part = after - before;
    const float lost = *error + ((before - (after - part)) + (value - part));
    const float corrected = lost - lost >= 0 ? after + lost : after;

    *error = lost - (corrected - after);
    *total = corrected;
}

/* total + value, both in two parts. */
static inline void onnxc_add_exactly_double(double *total, double *error, double value)
{
    const double before = *total;
    const double after = before + value;
    const double part = after - before;
    const double lost = *error + ((before - (after - part)) + (value - part));
    const double corrected = lost - lost >= 0 ? after + lost : after;

    *error = lost - (corrected - after);
    *total = corrected;
}
