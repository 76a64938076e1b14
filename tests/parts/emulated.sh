# Sourced. Selects the emulated GPU of $here/$BUILD/emu. Each library is named, since optc searches
# the folders of the CUDA toolkit before the loader's path.
export EMU_DIR="$here/tests/emu" EMU_PRECOMPILED="$here/$BUILD/emu" \
    LD_LIBRARY_PATH="$here/$BUILD/emu" RULES_CUBLAS="$here/$BUILD/emu" \
    RULES_CUSOLVER="$here/$BUILD/emu" OPTC_NVRTC="$here/$BUILD/emu" \
    OPTC_CUBLAS="$here/$BUILD/emu" OPTC_CUSOLVER="$here/$BUILD/emu" \
    OPTC_NCCL="$here/$BUILD/emu/libnccl.so.2" OPTC_TUNE=
