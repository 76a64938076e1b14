/* The fixed sizes that determine the order of every reduction on every target (gen/plan/plan.h). The last two:
 * OPTC_SHARED, the array numbers that a launch of a shared kernel passes (gen/plan/merge_stages.c), and OPTC_SOURCES,
 * the device scalars that are read before a run. */

//@ lines
#define OPTC_SEG 4096
#define OPTC_LANES 128
#define OPTC_TILE_ROWS 64
#define OPTC_TILE_COLS 1024
#define OPTC_BAND_ROWS 16
#define OPTC_BAND_COLS 4096
#define OPTC_ROW_LANES 8
#define OPTC_COL_LANES 32
#define OPTC_SHARED 24
#define OPTC_SOURCES 24
