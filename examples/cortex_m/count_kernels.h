/* What keypad.c has around the call of each kernel, where it was made with --profile: a store that
 * QEMU's plugin sees. The bytes are in RAM that the program does not use otherwise (Makefile). */

#include <stdint.h>

extern volatile uint8_t kernels_begun[], kernels_ended[];

#define KEYPAD_KERNEL_BEGIN(number) (kernels_begun[number] = 0)
#define KEYPAD_KERNEL_END(number) (kernels_ended[number] = 0)
