/* The binary interface between the runtime and generated C. Generated files contain a copy; the
 * runtime includes it. */

//@ none
#ifndef OPTC_ABI

#define OPTC_ABI 5

typedef struct optc_view {              /* what a stage is given for one tensor or one group */
    void *const *mem;                   /* pointers by array number: p, g, inputs, states,
                                         * temporaries, partials */
    const double *hyper;                /* of its group: [0] is t, then the hyperparameters, then
                                         * the lag of t */
    long long n, slices, rows, cols;    /* n = slices * rows * cols; n < 0: skipped in this step */
    /* number of the tensor; tensors in all, in this step; its elements */
    long long id, ntensors, present, total;
    /* Sizes of the whole tensor, of which this may be a piece, and the piece's first element, row,
     * column and matrix. Random numbers and means use these. */
    long long whole_n, whole_slices, whole_rows, whole_cols;
    long long first, first_row, first_col, first_slice;
    long long rank;                     /* length of the rank axis; 0: the rule has none */
} optc_view;

//@ = optc_stage_fn
typedef void (*optc_stage_fn)(const optc_view *t, long long unit);

typedef struct optc_module { unsigned abi, nfn; const optc_stage_fn *fn; } optc_module;

//@ none
#endif
