/* Compares each of 3 x 5 numbers with each of 4, and prints where they are equal. */

#include <stdio.h>

#include "hello.h"

int main(void)
{
    static const float x[HELLO_INPUT_X_ELEMENTS] = {
        0.0f, 1.0f, 2.0f, 3.0f, 4.0f,
        1.0f, 1.0f, 2.0f, 3.0f, 5.0f,
        7.0f, 7.0f, 7.0f, -0.0f, 0.0f,
    };
    static const float y[HELLO_INPUT_Y_ELEMENTS] = {0.0f, 1.0f, 2.0f, 3.0f};
    static hello_workspace workspace;
    uint8_t equal[HELLO_OUTPUT_EQUAL_ELEMENTS];
    const uint8_t *row = equal;

    const onnxc_status status = hello_run(x, y, equal, &workspace);
    if (status != ONNXC_OK) {
        fprintf(stderr, "hello_run: status %d\n", (int)status);
        return 1;
    }

    for (int block = 0; block < 3; block++) {
        for (int line = 0; line < 4; line++, row += 5) {
            printf("x[%d] == %g:", block, (double)y[line]);
            for (int column = 0; column < 5; column++) {
                printf(" %d", row[column]);
            }
            printf("\n");
        }
    }
    return 0;
}
