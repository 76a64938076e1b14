/* Internal interface of the CUDA target: what emit_cuda.c, emit_cuda_loads.c and emit_cuda_folds.c
 * share. */
#ifndef OPTC_EMIT_CUDA_H
#define OPTC_EMIT_CUDA_H
#include "gen/emit/emit.h"

/* of a fold: what it computes */
enum { CLASS_SUM, CLASS_MAX, CLASS_MIN, CLASS_NORM, NCLASS };

typedef struct CudaStage {
    Emit e;
    LaunchForm form;
    const int *knob;               /* of its launch */
    int vec;                       /* values per vector: KNOB_VECTOR */
    Buf wide;                      /* the condition under which all vectors are aligned */
    const char **rowfold;          /* by folded node and class: the name of its rows' results; NULL:
                                    * not folded yet */
    bool by_matrix;                /* a flat pass that reads values of slices, but none of rows or
                                    * columns */
    int group;                     /* maps that take turns: vectors of a thread per turn; otherwise
                                    * 0 */
    bool staged;                   /* vectors wait in shared memory (templates/staged_cuda.h) */
    int nfold;                     /* folds by a block: their number so far */
    const char *strip;             /* the strip that all column folds share, if shared memory is
                                    * short; else NULL */
} CudaStage;

static inline const char *number(CudaStage *c, int64_t x)
{
    return arena_printf(c->e.arena, "%d", (int)x);
}

/* Element passes and lists over two axes are walked in vectors. squares: such a list. */
static inline bool in_vectors(const CudaStage *c)
{
    return c->form <= FORM_ROWS || c->form == FORM_HALF;
}
static inline bool squares(const CudaStage *c) { return is_list(c->e.st->kind) && in_vectors(c); }

/* A flat fold whose units take a block each: a thread takes two vectors at a time, and the lanes
 * are added in shared memory. */
static inline bool folds_by_block(const CudaStage *c)
{
    return c->form == FORM_FOLD && c->knob[KNOB_VECTOR] == 8;
}

/* ---- emit_cuda_loads.c ---- */
const char *cuda_pointer(CudaStage *c, Access a);
bool cuda_walks_coded(const CudaStage *c);      /* its walk is compiled for codes and for f32 */
void cuda_load(CudaStage *c, Access a);
void cuda_indices(CudaStage *c);                               /* DOWN and ACROSS */
bool cuda_by_matrix(const CudaStage *c);
/* ---- emit_cuda_folds.c ---- */
void cuda_finish(CudaStage *c, Access f);
const char *cuda_columns_alone(CudaStage *c);
const char *cuda_column_finish(CudaStage *c);
void cuda_fold(CudaStage *c, Access f);
#endif
