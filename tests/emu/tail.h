
// ---- behind the emitted source ----
static void (*emu_kernel)(const optc_launch);
static const optc_launch *emu_args;
static void emu_call(void) { emu_kernel(*emu_args); }

extern "C" __attribute__((visibility("default"))) void emu_launch(void *kernel, const void *args, unsigned grid, unsigned threads)
{
    memcpy(&emu_kernel, &kernel, sizeof kernel);
    emu_args = (const optc_launch *)args;
    emu_body = emu_call;
    blockDim.x = threads;
    gridDim.x = grid;
    emu_count = (int)threads;
    for (unsigned b = EMU_FIRST; b < grid; b++) {
        blockIdx.x = b;
        emu_block();
    }
}
