/* How a stage is cut into blocks and threads on a GPU: numbers that change the speed and never a bit.
 *
 * A stage's form (which template it is emitted from) decides which knobs it has and what values they may take;
 * `launch_model` picks values without having measured anything, a tuner looks for better ones. Emitted code has them
 * built in, so a stage with other values is another kernel. Forms, knobs and what follows from them for a grid stand in
 * gen/abi/counts.h. */
#ifndef OPTC_LAUNCH_H
#define OPTC_LAUNCH_H
#include "gen/plan/plan.h"

enum { MOST_VALUES = 8 };

extern const char *const form_name[NFORM];
extern const char *const knob_name[NKNOB];
/* As files of results have it; NULL: such forms have none. Of calls (FORM_EIGEN, FORM_ROOT), which are launched by no
 * numbers, the first is the way they are computed in (EigenMethod), the only one. */
#define KNOB_METHOD KNOB_THREADS
const char *knob_text(LaunchForm f, Knob k);
LaunchForm stage_form(const Stage *s);
/* Of a list that folds: rows of arrays that its warps fold ahead of each chunk; 0: none, or too many to keep */
int rows_ahead(const Plan *p, const Stage *s);
bool stage_tunes(const Stage *s);                             /* a pass over the elements: its launch is tuned */
/* what may be tried, the count; 1 where there is nothing to choose */
int knob_values(LaunchForm f, Knob k, int out[MOST_VALUES]);
bool launch_valid(const Plan *p, const Stage *s, const Launch *l);
/* for tensors of so many elements in all; 0: many */
Launch launch_model(const Plan *p, const Stage *s, int64_t elements);
/* for sizes on the other side of the model's border; where it has none, the model's */
Launch launch_rival(const Plan *p, const Stage *s, int64_t elements);
/* Sizes, as powers of two, at which the model is the same: what was measured at one of them may serve the others. */
void launch_range(const Plan *p, const Stage *s, int64_t elements, int *lo, int *hi);
/* each knob's first value: to know a stage by, whatever the model says */
Launch launch_plain(const Stage *s);
/* What a block keeps between two barriers, as much as its shared memory has room for: of a tile that folds columns,
 * strips of 128 of them (0: one, for one fold after the other); of a list that folds, values. */
int tile_strips(const Plan *p, const Stage *s);
int list_chunk(const Plan *p, const Stage *s);
/* of a map: blocks a unit of work is split into */
int64_t launch_unit_blocks(const Stage *s, const Launch *l);
#endif
