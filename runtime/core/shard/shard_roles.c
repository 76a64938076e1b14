/* Roles of a sharded binding: which ones each variant of the rule has, and the derived program's
 * variants, arrays and stages in these roles. shard.h describes the roles. */
#include "runtime/core/shard/shard.h"

#include <string.h>

/* ---- roles ---- */
CORE bool any_of_class(const optc_binding *b, int variant, CutClass how)
{
    for (int i = 0; i < b->ntensor; i++)
        if (b->tensor[i].variant == variant && b->shards->cut[i].how == how)
            return true;
    return false;
}

CORE Role entry_role(const optc_binding *b, int entry)
{
    return b->shards->role_of[b->tensor[entry].variant];
}

CORE int rule_variant(const optc_binding *b, int entry)
{
    return b->shards->variant_of[b->tensor[entry].variant];
}

CORE FoldKind fold_kind(const ProgStage *s)
{
    return s->kind == S_FLAT ? FOLD_FLAT : s->kind == S_TILE ? FOLD_TILE : FOLD_BAND;
}

/* A variant has the role, for some tensor. */
static bool has_role(const optc_binding *b, int variant, Role role)
{
    const Program *p = b->rule->program;
    bool has = role == ROLE_ROWS || role == ROLE_ALL;
    if (role < ROLE_ROWS) {
        const bool folds = role == ROLE_PART || role == ROLE_GHOST;
        return any_of_class(b, variant, folds || role == ROLE_OWNED ? CLASS_PIECES : CLASS_WHOLE) &&
               (!folds || variant_folds(b, variant)) &&
               (role != ROLE_OWNED || variant_owned(b, variant));
    }
    for (int i = 0; i < p->nstage && !has; i++) {
        const ProgStage *s = &p->stage[i];
        has = s->kind != S_GROUP && s->variant == variant &&
              (rows_role(p, s) == role ||
               (stage_needs_ghost(p, s) && fold_role(fold_kind(s), true) == role));
    }
    return has && any_of_class(b, variant, CLASS_ROWS);
}

static int count_roles(optc_binding *b)
{
    Shards *x = b->shards;
    int next = b->rule->program->nvariant;
    for (int v = 0; v < b->rule->program->nvariant; v++)
        for (int r = 0; r < NROLE; r++) {
            const int role = r == ROLE_BOUND ? v : has_role(b, v, (Role)r) ? next++ : -1;
            x->role[v][r] = role;
            if (role >= 0) {
                x->role_of[role] = (Role)r;
                x->variant_of[role] = v;
            }
        }
    return x->program.nvariant = next;
}

/* If there are too many, matrices are stepped by their owners instead of by rows, which takes
 * fewer. */
CORE optc_status roles_make(optc_binding *b)
{
    for (int i = 0; i < b->ntensor && count_roles(b) > MOST_ROLES; i++)
        if (b->shards->cut[i].how == CLASS_ROWS)
            b->shards->cut[i].how = CLASS_PIECES;
    int n = count_roles(b);
    return n <= MOST_ROLES
               ? OPTC_OK
               : fail(OPTC_ERROR_ARGUMENT,
                      "optc_bind_sharded: rule '%s' has too many variants (%d roles; at most %d)",
                      b->rule->program->name, n, (int)MOST_ROLES);
}

CORE optc_status roles_copy_variants(optc_binding *b)
{
    const Program *p = b->rule->program;
    Shards *x = b->shards;
    Variant *to = TAKE(b, Variant, x->program.nvariant);
    for (int v = 0; to && v < p->nvariant; v++)
        for (int r = 0; r < NROLE; r++)
            if (x->role[v][r] >= 0)
                to[x->role[v][r]] = p->variant[v];
    x->program.variant = to;
    return to ? OPTC_OK : no_memory("optc_bind_sharded");
}

/* Caller-owned arrays (p, g, inputs) of extra entries are not here: shard_entries.c. */
CORE optc_status roles_copy_arrays_held(optc_binding *b)
{
    const Program *p = b->rule->program;
    Shards *x = b->shards;
    ProgArray *to = TAKE(b, ProgArray, p->narray);
    for (int k = 0; to && k < p->narray; k++) {
        to[k] = p->array[k];
        to[k].held_by = 0;
        for (int v = 0; v < p->nvariant; v++)
            for (int r = 0; r < NROLE; r++)
                if (p->array[k].held_by >> v & 1 && x->role[v][r] >= 0 && r != ROLE_PART &&
                    r != ROLE_IDLE && role_holds(b, v, (Role)r, k))
                    to[k].held_by |= 1u << x->role[v][r];
    }
    x->program.array = to;
    return to ? OPTC_OK : no_memory("optc_bind_sharded");
}

/* ---- stages ---- */
/* The copy of a stage of the rule for the tensors in a role; -1: no tensor has the role. */
static int copy_stage(Shards *x, ProgStage *to, const Program *p, int stage, int role)
{
    if (role < 0)
        return -1;
    to[x->program.nstage] = p->stage[stage];
    to[x->program.nstage].variant = role;
    x->rule_stage[x->program.nstage] = stage;
    return x->program.nstage++;
}

CORE optc_status roles_copy_stages(optc_binding *b, StageCopies *copies)
{
    const Program *p = b->rule->program;
    Shards *x = b->shards;
    ProgStage *to = TAKE(b, ProgStage, 5 * p->nstage);
    x->rule_stage = TAKE(b, int, 5 * p->nstage);
    if (!to || !x->rule_stage)
        return no_memory("optc_bind_sharded");
    for (int i = 0; i < p->nstage; i++) {
        const ProgStage *s = &p->stage[i];
        const int *role = x->role[s->variant];
        to[i] = *s;
        x->rule_stage[i] = i;
        memset(&copies[i], -1, sizeof copies[i]);
        if (s->kind == S_GROUP)
            continue;
        const bool folds = x->place[i] == AT_PIECES && stage_folds(p, s);
        const bool rows = role[ROLE_ROWS] >= 0;
        const int own = x->place[i] == AT_OWNER ? role[ROLE_OWNED] : folds ? role[ROLE_PART] : -1;
        to[i].variant = own < 0 ? s->variant : own;        /* below 0: no tensor has the role */
        int(*of)[2] = copies[i].of;
        of[CLASS_PIECES][0] = any_of_class(b, s->variant, CLASS_PIECES) ? i : -1;
        of[CLASS_PIECES][1] = copy_stage(x, to, p, i, folds ? role[ROLE_GHOST] : -1);
        of[CLASS_WHOLE][0] = copy_stage(x, to, p, i, role[ROLE_WHOLE]);
        of[CLASS_ROWS][0] = copy_stage(x, to, p, i, rows ? role[rows_role(p, s)] : -1);
        of[CLASS_ROWS][1] =
            copy_stage(x, to, p, i,
                       rows && stage_needs_ghost(p, s) ? role[fold_role(fold_kind(s), true)] : -1);
    }
    x->program.stage = to;
    return OPTC_OK;
}
