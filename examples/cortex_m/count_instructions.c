/* A plugin of QEMU that counts the guest's instructions, exactly, in all and by kernel.
 *
 *     -plugin file=count_instructions.so[,begun=ADDRESS,ended=ADDRESS]
 *
 * At the end it prints on standard error "instructions=N". With the addresses it takes a store to
 * the byte at begun + k as the beginning of kernel k, one to ended + k as its end, and prints
 * "kernel K: N instructions, C calls" of each. No header of QEMU is needed: these are the
 * declarations of its API, version 1 (QEMU 4.2 to 8), that are used. */

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t plugin_id;
typedef void on_memory(unsigned cpu, uint32_t how, uint64_t address, void *data);
enum { ADD_U64 = 0, NO_REGISTERS = 0, WRITES = 2 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, on_memory *, int, int, void *);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv);

enum { KERNELS = 4096 };

static uint64_t count;
static uint64_t begun, ended; /* addresses; 0 without */
static struct {
    uint64_t start, instructions, calls;
} kernels[KERNELS];

/* Of a store that was counted already. */
static void stored(unsigned cpu, uint32_t how, uint64_t address, void *data)
{
    (void)cpu;
    (void)how;
    (void)data;
    if (address - begun < KERNELS) {
        kernels[address - begun].start = count;
    } else if (address - ended < KERNELS) {
        kernels[address - ended].instructions += count - 1 - kernels[address - ended].start;
        kernels[address - ended].calls++;
    }
}

/* Of a block that is about to be translated: each run adds its instructions, one by one where the
 * number has to be right in between. */
static void translated(plugin_id id, struct qemu_plugin_tb *block)
{
    const size_t size = qemu_plugin_tb_n_insns(block);

    (void)id;
    if (!begun) {
        qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &count, size);
        return;
    }
    for (size_t n = 0; n < size; n++) {
        struct qemu_plugin_insn *const one = qemu_plugin_tb_get_insn(block, n);

        qemu_plugin_register_vcpu_insn_exec_inline(one, ADD_U64, &count, 1);
        qemu_plugin_register_vcpu_mem_cb(one, stored, NO_REGISTERS, WRITES, NULL);
    }
}

static void at_exit(plugin_id id, void *data)
{
    (void)id;
    (void)data;
    for (size_t k = 0; k < KERNELS; k++)
        if (kernels[k].calls)
            fprintf(stderr, "kernel %zu: %" PRIu64 " instructions, %" PRIu64 " call%s\n", k,
                kernels[k].instructions, kernels[k].calls, kernels[k].calls > 1 ? "s" : "");
    fprintf(stderr, "instructions=%" PRIu64 "\n", count);
}

int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    for (int n = 0; n < argc; n++) {
        if (strncmp(argv[n], "begun=", 6) == 0)
            begun = strtoull(argv[n] + 6, NULL, 0);
        else if (strncmp(argv[n], "ended=", 6) == 0)
            ended = strtoull(argv[n] + 6, NULL, 0);
        else
            return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
