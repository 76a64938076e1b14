/* How a stage is cut into blocks and threads on a GPU: numbers that change the speed and never a bit.
 *
 * A stage's form (which template it is emitted from) decides which knobs it has and what values they may take; `launch_model` picks values
 * without having measured anything, a tuner looks for better ones. Emitted code has them built in, so a stage with other values is
 * another kernel. */
#ifndef OPTC_LAUNCH_H
#define OPTC_LAUNCH_H
#include "plan.h"

typedef enum { FORM_MAP, FORM_FOLD, FORM_TILE, FORM_ROWS, FORM_LIST, FORM_COLS, FORM_SLICES, FORM_SINGLE, FORM_CPU, NFORM } LaunchForm;      /* cpu: a whole step there; threads (0: all) and, as items, the units a thread takes at once (0: by size) */
typedef enum {
    KNOB_THREADS,      /* threads of a block */
    KNOB_VECTOR,       /* values a thread loads at once */
    KNOB_ITEMS,        /* map: vectors a thread; fold, rows: vectors on their way at once; tile: strips of 128 columns between barriers */
    KNOB_BLOCKS,       /* blocks that must fit a multiprocessor: caps the registers; 0: no cap */
    KNOB_LOAD,         /* 0 plain, 1 streaming (evict first), 2 past the first-level cache */
    KNOB_STORE,        /* 0 plain, 1 streaming */
    KNOB_GRID,         /* 0: a block for every piece; k: k blocks a multiprocessor, which go round */
    NKNOB
} Knob;
typedef struct Launch { int v[NKNOB]; } Launch;
enum { MOST_VALUES = 8 };

extern const char *const form_name[NFORM];
extern const char *const knob_name[NKNOB];
LaunchForm stage_form(const Stage *s);
int knob_values(LaunchForm f, Knob k, int out[MOST_VALUES]);                 /* what may be tried, the count; 1 where there is nothing to choose */
bool launch_valid(const Plan *p, const Stage *s, const Launch *l);
Launch launch_model(const Plan *p, const Stage *s);
int64_t launch_pieces(const Stage *s, const Launch *l);                /* blocks a unit of work is split into (1 where a block takes several) */
void launch_grid(const Stage *s, const Launch *l, int64_t units, int multiprocessors, int64_t *blocks, int *threads);
#endif
