/* What the runtime and generated C agree on. Pasted into generated files and included by the runtime. */

//@ none
#ifndef OPTC_ABI

#define OPTC_ABI 2

typedef struct optc_view {              /* what a stage sees of one tensor, or of one group */
    void *const *mem;                   /* arrays by number: p, g, inputs, states, temporaries, partials */
    const double *hyper;                /* its group's: [0] is the step t, the hyperparameters follow */
    long long n, slices, rows, cols;    /* n = slices * rows * cols */
    long long id, ntensors, total;      /* this tensor among all; elements of all tensors */
    long long first;                    /* of a piece of a larger tensor: its first element's number there; else 0 */
} optc_view;

//@ = optc_stage_fn
typedef void (*optc_stage_fn)(const optc_view *t, long long unit);

typedef struct optc_module { unsigned abi, nfn; const optc_stage_fn *fn; } optc_module;

//@ none
#endif
