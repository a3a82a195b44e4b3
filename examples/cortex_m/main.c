/* A keypad: looks one code up among those that the model stores, on a bare Cortex-M4.
 * Prints through semihosting; the value that main returns is QEMU's exit status. */

#include <stdio.h>

#include "keypad.h"

enum { CODES = 4, DIGITS = 6 };

static keypad_workspace workspace;

#if defined(KEYPAD_KERNELS) /* made with --profile: says which kernel has which number */
#define SHOW(number, function, nodes) printf("kernel %d is %s: %s\n", number, function, nodes);
static void show_kernels(void)
{
    KEYPAD_KERNEL_LIST(SHOW)
}
#else
static void show_kernels(void)
{
}
#endif

int main(void)
{
    static const int8_t code[KEYPAD_INPUT_CODE_ELEMENTS] = {1, 4, 1, 4, 2, 1};
    uint8_t match[KEYPAD_OUTPUT_MATCH_ELEMENTS];
    int32_t hits[KEYPAD_OUTPUT_HITS_ELEMENTS];
    int found = -1;

    show_kernels();
    const onnxc_status status = keypad_run(code, match, hits, &workspace);
    if (status != ONNXC_OK) {
        printf("keypad_run: status %d\n", (int)status);
        return 1;
    }
    for (int i = 0; i < CODES; i++) {
        if (hits[i] == DIGITS) {
            found = i;
        }
    }
    printf("workspace: %d bytes\n", (int)KEYPAD_WORKSPACE_BYTES);
    printf("code 141421 is number %d\n", found);
    return found == 2 ? 0 : 2;
}
