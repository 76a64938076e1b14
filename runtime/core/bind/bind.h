/* Making a binding: checks of tensors, views of blocks, slots, cohorts, initial states. */
#ifndef OPTC_CORE_BIND_H
#define OPTC_CORE_BIND_H
#include "runtime/core/base/core.h"

/* ---- tensor_check.c ---- */
CORE TensorFacts tensor_facts(const optc_tensor *t);
CORE int view_of(const Program *p, const TensorFacts *a);
/* of the tensor that this one is a piece of */
CORE int64_t whole_dim(const optc_tensor *t, int k);
CORE int64_t begins_at(const optc_tensor *t, int k);        /* where the piece begins in it */
CORE int64_t elements_before(const optc_tensor *t);
/* A piece with these dimensions consists of runs of *run elements, *apart elements of the whole
 * tensor apart; one run: *apart is 0. false: its runs are not equally far apart */
CORE bool box_runs(int rank, const int64_t *shape, const int64_t *whole, int64_t *run,
                   int64_t *apart);
/* the same for a tensor; true: it has several runs, and the host has code that numbers their
 * elements */
CORE bool piece_runs(const optc_binding *b, const optc_tensor *t, int64_t *run, int64_t *apart);
CORE bool is_row_major(const optc_tensor *t, const int64_t *stride);
CORE optc_status check_tensor(const optc_binding *b, const optc_tensor *t, int i);

/* ---- matrix_blocks.c ---- */
CORE optc_status blocks_make(optc_binding *b);
/* after the tensors' pointers are set */
CORE void blocks_point(optc_binding *b);
CORE void blocks_views(optc_binding *b);                    /* after the tensors' views are set */
/* x is a view or an extra entry of t: takes its cohort, participation and values per group */
CORE void tensor_follow(const optc_binding *b, Tensor *x, const Tensor *t);
/* after cohorts or participation changed */
CORE void blocks_update(optc_binding *b);
/* after one pointer changed */
CORE void blocks_moved(optc_binding *b, int tensor, int array);
CORE int64_t row_stride(const optc_binding *b, const Tensor *t);           /* of the elements */
/* offset of the nth matrix of an array from t's pointer, in values */
CORE int64_t matrix_at(const optc_binding *b, const Tensor *t, int array, int64_t nth);
/* the tensors, or views of their blocks, that a stage covers; batch -1: all */
CORE const Units *stage_tensors(const optc_binding *b, const ProgStage *s, int batch);
CORE optc_status blocks_units(optc_binding *b, const Units *of, Units *out);

/* ---- units.c ---- */
/* fills u from u->tensor and u->n */
CORE optc_status units_count(optc_binding *b, Units *u);

/* ---- stagger_slots.c ---- */
CORE optc_status stagger_make(optc_binding *b);               /* assigns slots; after blocks_make */
/* takes the slots that the tensors have in a binding of whole tensors */
CORE optc_status stagger_follow(optc_binding *b, const optc_binding *model);
/* writes slots to the device; after allocation */
CORE optc_status stagger_write(optc_binding *b);
CORE StaggerNow stagger_now(const optc_binding *b, int64_t t);
/* A slot array in `stagger` (bits) schedules the tensor, or this matrix of a view of blocks (-1:
 * any of its matrices), at this step. Always true when `stagger` is 0 */
CORE bool stagger_active(const optc_binding *b, const StaggerNow *x, unsigned stagger,
                         const Tensor *y, int64_t matrix);
/* the matrix that a stage's unit belongs to; -1: the unit may contain several */
CORE int64_t stagger_matrix(const ProgStage *s, const Tensor *y, int64_t unit);

/* ---- cohorts.c ---- */
CORE void cohorts_place(optc_binding *b);                      /* fills their views */
/* each cohort has its own copy of the array */
CORE bool cohort_owns(const ProgArray *m);
/* an entry with this participation mask skips t */
CORE bool tensor_out(const Tensor *t, unsigned mask);
/* before a run: copies the groups' states to their cohorts */
CORE optc_status cohorts_copy_states(optc_binding *b,
                                     optc_status (*copy)(optc_binding *b, void *to,
                                                         const void *from, size_t n));

/* ---- state_start.c ---- */
CORE double state_start(const optc_binding *b, const ProgArray *m, int group);
/* n values of a state from index `at` on. side: rows of its square matrices, to find their
 * diagonals. of: the tensor;
 * NULL: a state of the group */
typedef struct StateSpan { int64_t at, n, side; const Tensor *of; } StateSpan;
OPTC_COUNT StateSpan state_span(const Tensor *of, int64_t at, int64_t n, int64_t side)
{
    StateSpan x;
    x.at = at, x.n = n, x.side = side, x.of = of;
    return x;
}
CORE void state_fill(const optc_binding *b, const ProgArray *m, int group, void *dst,
                     const void *param, StateSpan x);
#endif
