/* What is said of factors: for each matrix of each stage that makes one, how many were computed and refused, and how
 * far off the last was. On the CPU it is written by the thread that has the matrix, on a GPU by kernels. */
#include "core.h"

CORE bool stage_factor(const ProgStage *s)
{
    return s->kind == S_CALL && s->call->callee >= CALL_POWER && s->call->callee <= CALL_SOLVE;
}

static int64_t matrices_of(const optc_binding *b, const ProgStage *s, int tensor)
{
    bool there = stage_of_blocks(s) ? tensor >= b->ntensor : tensor < b->ntensor;
    return there && b->tensor[tensor].variant == s->variant ? b->tensor[tensor].shape.slices : 0;
}

CORE optc_status said_make(optc_binding *b)
{
    const Program *p = b->rule->program;
    int n = 0;
    int64_t all = 0, at = 0;
    for (int i = 0; i < p->nstage; i++)
        n += stage_factor(&p->stage[i]);
    int64_t *first = n ? TAKE(b, int64_t, (int64_t)n * b->nall + 1) : NULL;
    if (!first)
        return n ? no_memory("optc_bind") : OPTC_OK;
    for (int i = 0; i < p->nstage; i++)
        for (int t = 0; stage_factor(&p->stage[i]) && t < b->nall; t++) {
            first[at++] = all;
            all += matrices_of(b, &p->stage[i], t);
        }
    first[at] = all;
    b->said_at = first;
    b->nfactor = n;
    return OPTC_OK;
}

CORE int64_t said_first(const optc_binding *b, const ProgStage *s, int tensor)
{
    int n = 0;
    for (const ProgStage *x = b->rule->program->stage; x < s; x++)
        n += stage_factor(x);
    return b->said_at[(int64_t)n * b->nall + tensor];
}
