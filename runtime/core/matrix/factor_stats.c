/* Factor statistics: for each matrix of each factor, how often it was computed and refused, and the
 * error of the last result. On the CPU the thread that computes the matrix writes them, on a GPU
 * kernels do. */
#include "runtime/core/matrix/cpu_calls.h"

CORE bool stage_factor(const ProgStage *s) { return stage_of_kind(s, CALLEE_FACTOR); }

static int64_t matrices_of(const optc_binding *b, const ProgStage *s, int tensor)
{
    bool there = stage_of_blocks(s) ? tensor >= b->nheld : tensor < b->nheld;
    return there && b->tensor[tensor].variant == s->variant ? b->tensor[tensor].shape.slices : 0;
}

/* ---- one factor, several stages ---- */
static bool phase_has(const ProgPhase *ph, int stage)
{
    for (int i = 0; i < ph->naction; i++)
        if (ph->action[i].kind == ACT_LAUNCH && ph->action[i].stage == stage)
            return true;
    return false;
}

static bool side_by_side(const Program *p, int i, int j)
{
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < program_phases(p); m++)
            if (phase_has(&p->entry[e].phase[m], i) && phase_has(&p->entry[e].phase[m], j))
                return true;
    return false;
}

/* A rule with periods has one stage per phase that computes a factor. Such stages share their
 * statistics. */
static bool same_factor(const Program *p, int i, int j)
{
    const ProgStage *s = &p->stage[i], *t = &p->stage[j];
    const ProgCall *a = s->call, *b = t->call;
    return stage_factor(t) && s->variant == t->variant && a->callee == b->callee &&
           a->flags == b->flags && a->out == b->out && a->c == b->c && a->alpha == b->alpha &&
           !side_by_side(p, i, j);
}

CORE optc_status factor_stats_make(optc_binding *b)
{
    const Program *p = b->program;
    int n = 0, *row = TAKE(b, int, p->nstage);
    int64_t all = 0, *first;
    for (int i = 0; row && i < p->nstage; i++) {
        int j = 0;
        while (stage_factor(&p->stage[i]) && j < i && !same_factor(p, i, j))
            j++;
        row[i] = !stage_factor(&p->stage[i]) ? -1 : j < i ? row[j] : n++;
    }
    b->stats_factor = row;
    b->nfactor = n;
    b->stats_at = first = row ? TAKE(b, int64_t, (int64_t)n * b->nall + 1) : NULL;
    if (!first)
        return no_memory("optc_bind");
    for (int i = 0, next = 0; i < p->nstage; i++) {
        bool another = row[i] == next;
        for (int t = 0; another && t < b->nall; t++) {
            *first++ = all;
            all += matrices_of(b, &p->stage[i], t);
        }
        next += another;
    }
    *first = all;
    return OPTC_OK;
}

CORE int64_t factor_stats_first(const optc_binding *b, const ProgStage *s, int tensor)
{
    return b->stats_at[(int64_t)b->stats_factor[s - b->program->stage] * b->nall + tensor];
}
