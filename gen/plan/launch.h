/* Launches: how a stage is divided into blocks and threads on a GPU. A launch changes the speed and
 * no bit of a result.
 *
 * The form of a stage (the template it is emitted from) decides which knobs it has and which values
 * they may take. `launch_model` picks values from a table; a tuner searches for better ones. The
 * values are built into the emitted code, so each launch is a kernel of its own. gen/abi/counts.h
 * defines forms, knobs and grid sizes. */
#ifndef OPTC_LAUNCH_H
#define OPTC_LAUNCH_H
#include "gen/plan/plan.h"

enum { MOST_VALUES = 8 };

extern const char *const form_name[NFORM];
extern const char *const knob_name[NKNOB];
/* The name of a knob in files of tuned results; NULL: the form does not have this knob. Calls
 * (FORM_EIGEN, FORM_ROOT) have no launch. Their only knob, in the first position, is the method
 * they are computed with (EigenMethod). */
#define KNOB_METHOD KNOB_THREADS
const char *knob_text(LaunchForm f, Knob k);
LaunchForm stage_form(const Stage *s);
/* For list stages with folds (FORM_LANES): the number of arrays whose rows the warps fold before
 * each chunk. 0 if there are none, or too many for shared memory. */
int rows_ahead(const Plan *p, const Stage *s);
/* element passes are tuned, other stages are not */
bool stage_tunes(const Stage *s);
/* Writes the values that a tuner may try and returns how many; 1 if the knob is fixed. */
int knob_values(LaunchForm f, Knob k, int out[MOST_VALUES]);
bool launch_valid(const Plan *p, const Stage *s, const Launch *l);
/* The model's launch. elements: of all tensors together; 0: a large number. */
Launch launch_model(const Plan *p, const Stage *s, int64_t elements);
/* The model's launch for sizes on the other side of its size limit; the same launch if the model
 * has no limit. */
Launch launch_rival(const Plan *p, const Stage *s, int64_t elements);
/* The range of sizes, as exponents of two, that share the model's launch. A result measured at one
 * of them may be used for the others. */
void launch_range(const Plan *p, const Stage *s, int64_t elements, int *lo, int *hi);
/* The first value of each knob: identifies a stage independently of the model. */
Launch launch_plain(const Stage *s);
/* For bands: the rows that a warp walks at once. Two rows share the loads of column values, and
 * their trees overlap. Stages with many folds or several arrays would spill registers: AdamP took
 * 1.56 ms instead of 1.30. */
int band_lines(const Plan *p, const Stage *s, const Launch *l);
/* These functions size the shared memory of a thread block. tile_strips: strips of 128 columns, for
 * each column fold of a tile; 0: one strip that all folds use in turn. list_chunk: values of a list
 * that folds. */
int tile_strips(const Plan *p, const Stage *s);
int list_chunk(const Plan *p, const Stage *s);
/* For maps: the number of blocks that one unit of work is divided into. */
int64_t launch_unit_blocks(const Stage *s, const Launch *l);
#endif
