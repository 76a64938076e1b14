/* The fixed sizes that determine the order of every reduction on every target (gen/plan/plan.h).
 * The last four: array numbers that a launch of a shared kernel passes (gen/plan/merge_stages.c),
 * scalars in device memory that are read before a run, values of a block of codes, and elements of
 * the smallest tensor that stores codes (templates/codes.h). */

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
#define OPTC_CODED 128
#define OPTC_LEAST_CODED 4096
