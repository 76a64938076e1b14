/* The contents of an emulated CUtensorMap: emu_driver.c encodes it, emu_hopper.h reads it. It
 * describes rows of 16-bit values. Rows are `stride` bytes apart, and matrices start at any
 * multiple of 16 bytes from `base`. A box has `rows` rows. */
enum { EMU_MAP = 0x9a9a };
typedef struct emu_map {
    char *base;
    long long width, lines, stride;
    unsigned rows, mark;
} emu_map;
