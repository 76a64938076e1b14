/* The fixed sizes that give every reduction its shape: gen/plan.h explains them. */
#define OPTC_SEG 4096
#define OPTC_LANES 128
#define OPTC_CHUNK 512          /* values computed at a time before they are folded: fits the first-level cache */
#define OPTC_TILE_ROWS 64
#define OPTC_ROW_LANES 8
#define OPTC_COL_LANES 32

OPTC_FN long long optc_up(long long a, long long b) { return (a + b - 1) / b; }
OPTC_FN int optc_least(long long a, int b) { return a < b ? (int)a : b; }

