
// ---- behind the emitted source ----
static void (*emu_kernel)(const optc_launch);
static const optc_launch *emu_args;
static void emu_call(void) { emu_kernel(*emu_args); }
#ifdef EMU_NUMBERS
static const optc_numbers *emu_numbers;
static void emu_call_numbers(void) { ((void (*)(const optc_launch, const optc_numbers))(void (*)(void))emu_kernel)(*emu_args, *emu_numbers); }
#endif

// numbers: the second parameter; NULL: the kernel has but one
extern "C" __attribute__((visibility("default"))) void emu_launch(void *kernel, const void *args, const void *numbers, unsigned grid, unsigned threads)
{
    memcpy(&emu_kernel, &kernel, sizeof kernel);
    emu_args = (const optc_launch *)args;
    emu_body = emu_call;
    (void)numbers;
#ifdef EMU_NUMBERS
    emu_numbers = (const optc_numbers *)numbers;
    if (numbers)
        emu_body = emu_call_numbers;
#endif
    blockDim.x = threads;
    gridDim.x = grid;
    emu_count = (int)threads;
    for (unsigned b = EMU_FIRST; b < grid; b++) {
        blockIdx.x = b;
        emu_block();
    }
}
