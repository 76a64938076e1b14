/* What the runtime and generated C agree on. Pasted into generated files and included by the runtime. */

//@ none
#ifndef OPTC_ABI

#define OPTC_ABI 5

typedef struct optc_view {              /* what a stage sees of one tensor, or of one group */
    void *const *mem;                   /* arrays by number: p, g, inputs, states, temporaries, partials */
    const double *hyper;                /* its group's: [0] is the step t, then hyperparameters, then t's lag (step_cohorts.c) */
    long long n, slices, rows, cols;    /* n = slices * rows * cols; n < 0: it takes no part in this step */
    long long id, ntensors, present, total;     /* this tensor among all; tensors that take part, their elements */
    /* The whole tensor that this is a piece of (or is): its sizes, and which of its elements, rows, columns and matrices
     * come first here. Draws and means go by these. */
    long long whole_n, whole_slices, whole_rows, whole_cols;
    long long first, first_row, first_col, first_slice;
    long long rank;                     /* directions that its values over that axis have; 0: there are none */
} optc_view;

//@ = optc_stage_fn
typedef void (*optc_stage_fn)(const optc_view *t, long long unit);

typedef struct optc_module { unsigned abi, nfn; const optc_stage_fn *fn; } optc_module;

//@ none
#endif
