# Sourced: the emulated GPU of $here/$BUILD/emu and no other's libraries. Each is named, since one that lies where
# CUDA's toolkit puts it is found ahead of the loader's path.
export EMU_DIR="$here/tests/emu" RULES_CUBLAS="$here/$BUILD/emu" LD_LIBRARY_PATH="$here/$BUILD/emu" \
    OPTC_NVRTC="$here/$BUILD/emu" OPTC_CUBLAS="$here/$BUILD/emu" RULES_CUSOLVER="$here/$BUILD/emu" \
    OPTC_CUSOLVER="$here/$BUILD/emu" OPTC_TUNE= OPTC_TUNE_SITE=
