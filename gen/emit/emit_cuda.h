/* The CUDA target's stages: what emit_cuda.c and emit_cuda_loads.c share. */
#ifndef OPTC_EMIT_CUDA_H
#define OPTC_EMIT_CUDA_H
#include "gen/emit/emit.h"

typedef struct CudaStage {
    Emit e;
    LaunchForm form;
    const int *knob;               /* of its launch */
    int vec;
    Buf wide;                      /* what must be aligned for whole vectors, as a condition */
    const char **rowfold; /* by node folded and class: the name of its rows' results, where a fold before made them */
    bool by_matrix;       /* of a flat pass: nothing but values of matrices is looked up */
    const char *strip;     /* the strip that column folds take in turn, where there is not room for one of each */
} CudaStage;

static inline const char *number(CudaStage *c, int64_t x) { return arena_printf(c->e.arena, "%d", (int)x); }

/* A list over two axes is walked as the elements are. */
static inline bool in_vectors(const CudaStage *c) { return c->form <= FORM_ROWS || c->form == FORM_HALF; }
static inline bool squares(const CudaStage *c) { return is_list(c->e.st->kind) && in_vectors(c); }

/* ---- emit_cuda_loads.c ---- */
const char *cuda_pointer(CudaStage *c, Access a);
void cuda_load(CudaStage *c, Access a);
void cuda_indices(CudaStage *c);                               /* DOWN and ACROSS */
bool cuda_by_matrix(const CudaStage *c);
#endif
