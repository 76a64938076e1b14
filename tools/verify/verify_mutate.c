/* Mutants: the PTX of a stage, changed in one place. Each one must be refused, or be equal for all
 * cases. An equal mutant is either equivalent or shows what the check is blind to, so it is
 * printed. */
#include "tools/verify/verify.h"

#include <stdio.h>
#include <string.h>

typedef struct Change { const char *what; bool (*make)(PtxKernel *k, PtxInst *i); } Change;

static bool is_float(const PtxInst *i)
{
    return i->type == 'f' && i->kind >= PTX_ADD && i->kind <= PTX_MAX && i->kind != PTX_ABS &&
           i->kind != PTX_NEG;
}

static bool swap_operands(PtxKernel *k, PtxInst *i)
{
    (void)k;
    bool ordered = i->kind == PTX_SUB || i->kind == PTX_DIV || i->kind == PTX_REM ||
                   i->kind == PTX_SELP || i->kind == PTX_SETP || i->kind == PTX_SHL ||
                   i->kind == PTX_SHR;
    PtxOperand x = i->arg[0];
    if (!ordered || !strcmp(i->cmp, "eq") || !strcmp(i->cmp, "ne") || !strcmp(i->cmp, "nan"))
        return false;
    i->arg[0] = i->arg[1];
    i->arg[1] = x;
    return memcmp(&i->arg[0], &x, sizeof x) != 0;
}

/* The register before this one, of the same width. */
static bool other_register(PtxKernel *k, PtxInst *i)
{
    for (int a = 0; a < i->narg; a++) {
        int r = i->arg[a].reg;
        if (i->arg[a].kind != OPERAND_REG || i->kind == PTX_ST)
            continue;
        for (int near = r - 1; near >= 0 && near > r - 3; near--)
            if (k->reg_width[near] == k->reg_width[r] &&
                k->reg_name[near][1] == k->reg_name[r][1]) {
                i->arg[a].reg = near;
                return true;
            }
    }
    return false;
}

static bool other_constant(PtxKernel *k, PtxInst *i)
{
    (void)k;
    for (int a = 0; a < i->narg; a++)
        if (i->arg[a].kind == OPERAND_BITS && i->kind != PTX_BAR && i->kind != PTX_SHFL &&
            i->type != 'p') {
            i->arg[a].imm ^= 1;
            return true;
        }
    return false;
}

static bool other_predicate(PtxKernel *k, PtxInst *i)
{
    (void)k;
    i->guard_not = !i->guard_not;
    return i->guard >= 0;
}

static bool other_comparison(PtxKernel *k, PtxInst *i)
{
    static const char *const pairs[][2] = {
        {"lt", "le"},  {"le", "lt"},  {"gt", "ge"},  {"ge", "gt"},   {"eq", "ne"},  {"ne", "eq"},
        {"geu", "ge"}, {"leu", "le"}, {"neu", "ne"}, {"nan", "num"}, {"ltu", "lt"}, {"gtu", "gt"}};
    (void)k;
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs && i->kind == PTX_SETP; p++)
        if (!strcmp(i->cmp, pairs[p][0])) {
            memset(i->cmp, 0, sizeof i->cmp);
            memcpy(i->cmp, pairs[p][1], strlen(pairs[p][1]));
            return true;
        }
    return false;
}

static bool other_rounding(PtxKernel *k, PtxInst *i)
{
    (void)k;
    bool any = i->rounded && (i->type == 'f' || i->type == 'h');
    i->rounded = i->plain = false;
    i->name = i->kind == PTX_CVT ? "cvt.rz" : "op.rz";
    return any;
}

static bool other_operation(PtxKernel *k, PtxInst *i)
{
    (void)k;
    PtxKind to = i->kind == PTX_ADD                  ? PTX_SUB
                 : i->kind == PTX_SUB                ? PTX_ADD
                 : i->kind == PTX_MUL && is_float(i) ? PTX_ADD
                 : i->kind == PTX_DIV                ? PTX_MUL
                 : i->kind == PTX_MIN                ? PTX_MAX
                 : i->kind == PTX_MAX                ? PTX_MIN
                 : i->kind == PTX_SQRT               ? PTX_ABS
                 : i->kind == PTX_AND                ? PTX_OR
                 : i->kind == PTX_OR                 ? PTX_AND
                                                     : PTX_OTHER;
    i->kind = to;
    i->narg = to == PTX_ABS ? 1 : i->narg;
    return to != PTX_OTHER;
}

static bool other_address(PtxKernel *k, PtxInst *i)
{
    (void)k;
    if (i->kind == PTX_LD)
        i->arg[0].imm += i->width;
    if (i->kind == PTX_ST)
        i->to.imm += i->width;
    return i->kind == PTX_LD || i->kind == PTX_ST;
}

static bool no_instruction(PtxKernel *k, PtxInst *i)
{
    (void)k;
    bool any =
        i->kind == PTX_BAR || i->kind == PTX_ST || i->kind == PTX_SHFL || i->kind == PTX_WAIT;
    *i = (PtxInst){.kind = PTX_MOV,
                   .name = "nothing",
                   .type = 'b',
                   .width = 4,
                   .guard = -1,
                   .narg = 1,
                   .arg = {{.kind = OPERAND_BITS}},
                   .line = i->line};
    return any;
}

static const Change changes[] = {
    {"operands exchanged", swap_operands},    {"another register", other_register},
    {"another constant", other_constant},     {"predicate negated", other_predicate},
    {"another comparison", other_comparison}, {"another rounding", other_rounding},
    {"another operation", other_operation},   {"address moved", other_address},
    {"instruction removed", no_instruction}};
enum { NCHANGES = sizeof changes / sizeof *changes };

static const char *line_text(Verify *v, int line)
{
    const char *s = v->ptx;
    for (int i = 1; i < line && *s; i++)
        s += strcspn(s, "\n") + 1;
    return arena_strndup(&v->arena, s, strcspn(s, "\n"));
}

/* Makes at most `most` mutants, spread over the instructions that the cases execute. */
void verify_mutants(Verify *v, int most, MutantCount *out)
{
    PtxKernel *k = &v->kernel;
    int all = 0, nth = 0;
    for (int i = 0; i < k->ninst; i++)
        for (int c = 0; c < NCHANGES; c++) {
            PtxInst x = k->inst[i];
            all += changes[c].make(k, &x) && k->ran[i];
        }
    int64_t values = v->values;
    v->most_steps = v->steps + 10000;                      /* the cases took as many together */
    for (int i = 0; i < k->ninst; i++)
        for (int c = 0; c < NCHANGES; c++) {
            const PtxInst before = k->inst[i];
            PtxInst x = before;
            if (!changes[c].make(k, &x) || !k->ran[i])
                continue;
            nth++;
            if ((int64_t)nth * most / all == (int64_t)(nth - 1) * most / all)
                continue;
            k->inst[i] = x;
            k->join[0] = -2;
            VerifyResult r = verify_stage(v);
            k->inst[i] = before;
            out->made++;
            out->refused += r != VERIFY_PROVED;
            out->equal += r == VERIFY_PROVED;
            if (r == VERIFY_PROVED)
                cli_print("  equal: line %d, %s: %s\n", before.line, changes[c].what,
                          line_text(v, before.line));
        }
    v->values = values;
    v->most_steps = 0;
}
