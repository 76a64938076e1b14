/* Functions of matrices without a rule (optc_matrix_power, optc_eigh, …).
 *
 *   FunctionForm   one call, after the caller's struct was read: a small spec whose matrices are
 *                  inputs and whose results are states, and where the caller's matrices are. It is
 *                  the spec that the Python package uses, so both have the same bits
 *   FunctionEntry  a compiled spec, bound to memory of its own. Operands are copied in and results
 *                  out, from and to any strides and types, so a binding fits every call of its
 *                  signature: spec, sizes and compute type
 *   MatrixFunctions  the engine's entries. A call takes an entry out, so that no other thread uses
 *                    it, and puts it back. The last MOST_FUNCTIONS of them stay, within
 *                    MOST_FUNCTION_BYTES. Entries that a captured call used stay until the engine
 *                    is closed, because graphs contain their addresses */
#ifndef OPTC_FUNCTION_H
#define OPTC_FUNCTION_H
#include "runtime/core/functions/multiply.h"

enum {
    MOST_FUNCTIONS = 16, MOST_FUNCTION_BYTES = 256 << 20, MOST_SPEC = 1024
};

/* MatrixBatch.flags. templates/copy_cuda.txt has these numbers too. The tolerance of
 * COPY_SYMMETRIC, and the digits of the type for COPY_FITS, are in the bits from 16 on. */
typedef enum CopyFlag {
    COPY_STORE = 1,            /* from flat to the caller's matrix */
    COPY_REVERSED = 2,         /* its columns are in the opposite order */
    COPY_TRANSPOSED = 4,       /* with COPY_LOWER: the lower triangle is not read */
    COPY_FINITE = 8,           /* look for values that are not finite */
    COPY_LOWER = 16,           /* the upper triangle is not read: the lower one takes its place */
    COPY_SYMMETRIC = 32,       /* look for values that differ from their mirror image */
    COPY_UPPER = 64,           /* store zeros below the diagonal */
    COPY_LOOK = 128,           /* do not copy */
    COPY_FITS = 129,           /* both: look for values of flat that are not finite in the caller's
                                * type */
    COPY_RAW = 256,            /* with COPY_STORE: flat has the caller's type */
    COPY_WIDE = 512            /* with COPY_STORE: both have f64, without gaps */
} CopyFlag;

typedef enum FunctionName {
    FUNCTION_MATRIX_POWER,
    FUNCTION_EIGH,
    FUNCTION_CHOLESKY,
    FUNCTION_SOLVE,
    FUNCTION_POLAR,
    FUNCTION_QR,
    NFUNCTION
} FunctionName;

/* shape: of the spec's parameter. scratch: bytes of an entry without a spec, which is memory only.
 * group: entries of the same group other than 0 belong to one call, and none of them replaces
 * another. why: more reasons for a result that does not exist. name, given: the function and the
 * caller's struct; NULL: a step of another call. exponent: of a power in a package, whose spec then
 * has PACKED_EXPONENT; else 0. low: a lower bound of eigenvalue / norm, which follows from
 * `relative` (call_low); 0: that of the spec. first, of: the matrices are a part of the caller's
 * `of` ones, from `first` on; of 0: they are all of them. */
typedef struct FunctionForm {
    const char *call, *why;
    FunctionName name;
    const optc_function *given;
    char spec[MOST_SPEC];
    int64_t scratch, group;
    double exponent, low;
    Type type, compute;
    int64_t shape[3], batch, first, of;
    MatrixBatch in[2], out[2];
    int nin, nout;
    optc_setting hyper[3]; int nhyper;
    bool unchecked;
    void *stream;
    double *residual;
    int64_t *bytes;
} FunctionForm;

/* A compiled spec. of: the call that it was made for; users: entries that are bound to it */
typedef struct FunctionRule {
    struct FunctionRule *next;
    FunctionForm of;
    optc_rule *rule;
    int users;
} FunctionRule;

/* of: the call that it was made for, with the numbers and the group of the last one. memory: of
 * operands and of a parameter that is none of them; bad: two numbers per matrix (CopyFlag). result:
 * by FunctionForm.out. done: on a GPU, recorded after the entry's last call; the caller may have
 * destroyed the stream of that call, so the entry and its binding do not keep it. pending: `done`
 * was recorded */
typedef struct FunctionEntry {
    struct FunctionEntry *next;
    FunctionForm of;
    FunctionRule *rule;
    optc_binding *b;
    char *memory, *in[2], *result[2];
    unsigned *bad;
    int64_t own_bytes, bytes;
    CUevent done;
    bool pending;
} FunctionEntry;

/* ---- functions.c: all inside matrix_enter ---- */
/* Packages have powers with this exponent alone; the package's host puts others into a copy of the
 * program. */
#define PACKED_EXPONENT "-1/4"
CORE optc_status function_run(optc_engine *e, const FunctionForm *f);
/* Takes an entry, for function_put. *capturing: the call is captured. */
CORE optc_status function_begin(optc_engine *e, const FunctionForm *f, FunctionEntry **out,
                                bool *capturing);
/* Fails with OPTC_ERROR_RANGE if a value of x is not finite (COPY_LOOK | COPY_FINITE), or would not
 * be in its type (COPY_FITS; x has the compute type). entry: has two numbers per matrix. */
CORE optc_status function_look(optc_engine *e, const FunctionForm *f, const MatrixBatch *x,
                               unsigned flags, const FunctionEntry *entry);
/* Fills in the spec: its name, what it declares, and what it computes. */
CORE void function_spec(FunctionForm *f, const char *name, const char *declares, const char *body);
/* ---- function_forms.c ---- */
CORE const char *function_call(FunctionName name);         /* "optc_eigh" */
/* Fills in the spec, the matrices and the numbers of a call. packed: for a package. f->call and the
 * types are set. */
CORE optc_status function_form(FunctionName name, const optc_function *x, bool packed,
                               FunctionForm *f);
/* ---- function_residual.c ---- */
/* *out: the largest residual of the batch, as optc_function has it. The results are in the
 * entry. */
CORE optc_status function_residual(optc_engine *e, const FunctionForm *f, const FunctionEntry *x,
                                   double *out);
/* ---- linear_layer.c ---- */
typedef enum LinearStep { LINEAR_GRAM, LINEAR_NORM, LINEAR_CLIP, NLINEARSTEP } LinearStep;
CORE void linear_spec(LinearStep step, FunctionForm *f);
/* ---- function_cache.c ---- */
/* Takes an entry out of the table, or makes one. capturing: only one that was used before, with the
 * same numbers. */
CORE optc_status function_take(optc_engine *e, const FunctionForm *f, bool capturing,
                               FunctionEntry **out);
/* stream: of the call that used the entry */
CORE void function_put(optc_engine *e, FunctionEntry *x, void *stream, bool captured);
CORE void functions_close(optc_engine *e);
CORE int64_t function_bytes(const FunctionForm *f);        /* of a new entry, without its binding */
/* ---- function_copy.c ---- */
/* Copies between the caller's matrices and `flat`, which has the compute type and no gaps. bad: two
 * numbers per matrix, or NULL. On a GPU in the order of the stream, inside matrix_enter. */
CORE optc_status function_copy(optc_engine *e, const FunctionForm *f, const MatrixBatch *x,
                               unsigned flags, char *flat, unsigned *bad);
/* Stores up to two results: all of them, or none and an error. flat: by operand. */
CORE optc_status function_store(optc_engine *e, const FunctionForm *f, const MatrixBatch *x,
                                char *const *flat, int n);
#endif
