
// ---- appended to the emitted source ----
static void (*emu_kernel)(const optc_launch);
static const optc_launch *emu_args;
static void emu_call(void) { emu_kernel(*emu_args); }
#ifdef EMU_NUMBERS
static const optc_numbers *emu_numbers;
static void emu_call_numbers(void)
{
    ((void (*)(const optc_launch, const optc_numbers))(void (*)(void))emu_kernel)(*emu_args,
                                                                                  *emu_numbers);
}
#endif

static void emu_blocks(const void *kernel, unsigned grid, unsigned threads)
{
    const bool in_clusters = kernel >= __start_emu_clusters && kernel < __stop_emu_clusters;
    const unsigned together = emu_team ? grid : in_clusters ? 2 : 1;
    blockDim.x = threads;
    gridDim.x = grid;
    emu_count = (int)(threads * together);
    if (emu_team)
        memset(emu_team_room, 0xa5, sizeof emu_team_room);
    if (grid % together) {
        fprintf(stderr, "emulated GPU: %u blocks are no whole clusters\n", grid);
        abort();
    }
    for (emu_first = EMU_FIRST; emu_first < grid; emu_first += together)
        emu_block();
    emu_team = 0;
}

// Kernels whose parameter is not an optc_launch.
#define EMU_OWN(name, type) \
    static const type *emu_args_##name; \
    static void emu_call_##name(void) { name(*emu_args_##name); } \
    extern "C" __attribute__((visibility("default"))) const unsigned emu_bytes_##name = \
        sizeof(type); \
    extern "C" __attribute__((visibility("default"))) void emu_launch_##name( \
        void *, const void *args, const void *, unsigned grid, unsigned threads) \
    { \
        emu_args_##name = (const type *)args; \
        emu_body = emu_call_##name; \
        emu_blocks((const void *)name, grid, threads); \
    }
#ifdef EMU_GUARD
EMU_OWN(optc_guard, optc_guard_args)
#endif
#ifdef EMU_MOVE
EMU_OWN(optc_move, optc_move_args)
#endif
#ifdef EMU_COPIES
EMU_OWN(optc_copy_of_f32, optc_copies)
EMU_OWN(optc_copy_of_f64, optc_copies)
EMU_OWN(optc_copy_of_bf16, optc_copies)
EMU_OWN(optc_copy_of_f16, optc_copies)
EMU_OWN(optc_copy_of_e4m3, optc_copies)
EMU_OWN(optc_copy_of_e5m2, optc_copies)
#endif
#ifdef EMU_AGREE
EMU_OWN(optc_agree, optc_agree_args)
#endif

// numbers: the second parameter; NULL: the kernel has only one
extern "C" __attribute__((visibility("default"))) void
emu_launch(void *kernel, const void *args, const void *numbers, unsigned grid, unsigned threads)
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
    emu_blocks(kernel, grid, threads);
}
