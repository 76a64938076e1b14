/* Executes a thread block: thread after thread, each until it ends or waits for others at a barrier
 * or a shuffle.
 *
 * A branch on a float is taken both ways, up to where the ways meet; registers and memory then hold
 * a choice between the two. No thread may wait for others inside of such a branch. */
#include "tools/verify/ptx.h"

#include <stdlib.h>
#include <string.h>

enum { RUNNING, AT_BARRIER, AT_WARP, ENDED };
enum { MOST_FORKS = 12, UNSET = 1 };                       /* UNSET: the index of a leaf of RACED */

/* ---- operands ---- */
static Value special(const PtxMachine *x, int thread, int which)
{
    const int v[NSPECIAL] = {
        [TID_X] = thread,       [NTID_X] = x->threads,  [CTAID_X] = x->block,
        [NCTAID_X] = x->blocks, [LANEID] = thread % 32, [WARPID] = thread / 32};
    return value_bits((uint64_t)v[which]);
}

static Value fitted(PtxMachine *x, Value v, int width)
{
    if (!v.term) {
        v.bits = width >= 8 || !width ? v.bits : v.bits & (((uint64_t)1 << 8 * width) - 1);
        return v;
    }
    int w = term_at(x->pool, v.term)->width;
    if (w == width || !width)
        return v;
    Byte b[16] = {{0, 0, 0}};
    bytes_of(x->pool, w, v, b);
    return bytes_value(x->pool, width, b);
}

static Value fetch(PtxMachine *x, int thread, const PtxOperand *o, int width)
{
    const PtxThread *t = &x->thread[thread];
    switch (o->kind) {
    case OPERAND_REG: return fitted(x, t->reg[o->reg], width);
    case OPERAND_BITS: return fitted(x, value_bits((uint64_t)o->imm), width);
    case OPERAND_SPECIAL: return special(x, thread, o->reg);
    case OPERAND_VECTOR: {
        Byte b[16];
        int part = width / o->n;
        for (int i = 0; i < o->n; i++)
            bytes_of(x->pool, part,
                     o->vec[i] < 0 ? value_bits(0) : fitted(x, t->reg[o->vec[i]], part),
                     b + i * part);
        return bytes_value(x->pool, width, b);
    }
    default: return value_bits(0);
    }
}

/* Writes a register. when: 0, or the case in which the instruction is executed. */
static void assign(PtxMachine *x, int thread, int reg, Value v, Term when)
{
    PtxThread *t = &x->thread[thread];
    if (reg < 0)
        return;
    int w = x->kernel->reg_width[reg];
    v = fitted(x, v, w);
    if (when)
        v = term_value(x->pool, term_select(x->pool, when, term_of(x->pool, w, v),
                                            term_of(x->pool, w, fitted(x, t->reg[reg], w))));
    t->reg[reg] = v;
}

static void assign_to(PtxMachine *x, int thread, const PtxOperand *o, int width, Value v, Term when)
{
    if (o->kind == OPERAND_REG)
        assign(x, thread, o->reg, v, when);
    if (o->kind != OPERAND_VECTOR)
        return;
    Byte b[16];
    bytes_of(x->pool, width, v, b);
    for (int i = 0; i < o->n; i++)
        assign(x, thread, o->vec[i], bytes_value(x->pool, width / o->n, b + i * (width / o->n)),
               when);
}

static bool address(PtxMachine *x, int thread, const PtxOperand *o, uint64_t *at)
{
    *at = (uint64_t)o->imm;
    if (o->reg >= 0) {
        Value v = x->thread[thread].reg[o->reg];
        if (v.term)
            machine_fail(x, "an address depends on a float");
        *at += x->kernel->reg_width[o->reg] == 4 ? (uint32_t)v.bits : v.bits;
    }
    return !x->failed;
}

/* ---- memory ---- */
static void load(PtxMachine *x, int thread, const PtxInst *i, Term when)
{
    uint64_t at;
    int n = i->to.kind == OPERAND_VECTOR ? i->to.n : 1, w = i->width;
    if (!address(x, thread, &i->arg[0], &at))
        return;
    if (at % (uint64_t)(n * w) && i->space != SPACE_PARAM)
        machine_fail(x, "loads %d bytes from an address that is not a multiple of them", n * w);
    for (int k = 0; k < n && !x->failed; k++) {
        Value v = {0, 0};
        if (i->space == SPACE_PARAM) {
            if ((int64_t)at + w > x->kernel->param_bytes)
                machine_fail(x, "reads beyond the kernel's arguments");
            else
                memcpy(&v.bits, x->param + at, (size_t)w);
        } else
            machine_load(x, thread, i->space, at, w, &v);
        int reg = n > 1 ? i->to.vec[k] : i->to.reg;
        if (i->type == 's' && !v.term && w < 8)
            v.bits = (uint64_t)((int64_t)(v.bits << (64 - 8 * w)) >> (64 - 8 * w));
        if (i->type == 's' && v.term && reg >= 0 && x->kernel->reg_width[reg] > w)
            v = term_value(
                x->pool, term_named(x->pool, "sext", x->kernel->reg_width[reg], false, 1, &v.term));
        assign(x, thread, reg, v, when);
        at += (uint64_t)w;
    }
}

static void store(PtxMachine *x, int thread, const PtxInst *i, Term when)
{
    uint64_t at;
    const PtxOperand *from = &i->arg[0];
    int n = from->kind == OPERAND_VECTOR ? from->n : 1;
    Term was = x->thread[thread].path;
    if (!address(x, thread, &i->to, &at))
        return;
    if (at % (uint64_t)(n * i->width))
        machine_fail(x, "stores %d bytes to an address that is not a multiple of them",
                     n * i->width);
    if (when)
        x->thread[thread].path = was ? term_logic(x->pool, TERM_AND, was, when) : when;
    for (int k = 0; k < n && !x->failed; k++, at += i->width) {
        if (n > 1 && from->vec[k] < 0)
            machine_fail(x, "stores a number in a list of registers, which is not understood");
        PtxOperand one = n > 1 ? (PtxOperand){.kind = OPERAND_REG, .reg = from->vec[k]} : *from;
        if (!x->failed)
            machine_store(x, thread, i->space, at, i->width, fetch(x, thread, &one, i->width));
    }
    x->thread[thread].path = was;
}

/* ---- instructions ---- */
static int arg_width(const PtxInst *i, int k)
{
    switch (i->kind) {
    case PTX_SHL: case PTX_SHR: return k ? 4 : i->width;
    case PTX_BFI: return k > 1 ? 4 : i->width;
    case PTX_BFE: return k ? 4 : i->width;
    case PTX_SELP: return k == 2 ? 0 : i->width;
    case PTX_SETP: return k == 2 ? 0 : i->width;
    case PTX_CVT: return i->from_width;
    case PTX_MAD: return k == 2 && i->wide ? 2 * i->width : i->width;
    default: return i->width;
    }
}

static void compute(PtxMachine *x, int thread, const PtxInst *i, Term when)
{
    Value v[5] = {{0, 0}}, out = {0, 0};
    for (int k = 0; k < i->narg; k++)
        v[k] = fetch(x, thread, &i->arg[k], arg_width(i, k));
    if (i->kind == PTX_CVTA) {
        bool to = strstr(i->name, ".to.") != NULL, shared = strstr(i->name, "shared") != NULL;
        uint64_t window = shared                     ? (uint64_t)0xfff << 32
                          : strstr(i->name, "local") ? (uint64_t)0xffe << 32
                                                     : 0;
        out = value_bits(to ? v[0].bits - window : v[0].bits + window);
    } else if (!ptx_compute(x, i, v, &out)) {
        machine_fail(x, "line %d of the PTX: %s is not understood", i->line, i->name);
        return;
    }
    int w = i->wide ? 2 * i->width : i->width;
    if (i->kind == PTX_SETP && i->pred.kind == OPERAND_REG)
        machine_fail(x, "line %d of the PTX: %s with two results is not understood", i->line,
                     i->name);
    assign_to(x, thread, &i->to, w, out, when);
}

static void run_until(PtxMachine *x, int thread, int stop);

/* Both ways of a branch on p, up to `join`. */
static void fork_branch(PtxMachine *x, int thread, const PtxInst *i, Term p)
{
    PtxThread *t = &x->thread[thread];
    int n = x->kernel->nreg, at = t->pc,
        join = ptx_join(x->arena, (PtxKernel *)(uintptr_t)x->kernel, at);
    int end = join < 0 ? x->kernel->ninst : join;
    Term was = t->path;
    size_t bytes = sizeof *t->reg * (size_t)n;
    Value *before = malloc(2 * bytes), *first = before + n;
    if (!before)
        arena_out(x->arena);
    if (++t->forks > MOST_FORKS)
        machine_fail(x,
                     "line %d of the PTX: too many branches on floats, or a loop that ends by one",
                     i->line);
    memcpy(before, t->reg, bytes);
    for (int way = 0; way < 2 && !x->failed; way++) {
        Term when = way ? term_not(x->pool, p) : p;
        memcpy(t->reg, before, bytes);
        t->path = was ? term_logic(x->pool, TERM_AND, was, when) : when;
        t->state = RUNNING;
        t->pc = way ? at + 1 : i->target;
        run_until(x, thread, end);
        if (t->state == AT_BARRIER || t->state == AT_WARP)
            machine_fail(
                x, "line %d of the PTX: a thread waits for others inside of a branch on a float",
                i->line);
        if (!way)
            memcpy(first, t->reg, bytes);
    }
    for (int r = 0; r < n && !x->failed; r++) {
        int w = x->kernel->reg_width[r];
        if (first[r].bits != t->reg[r].bits || first[r].term != t->reg[r].term)
            t->reg[r] = term_value(
                x->pool, term_select(x->pool, p, term_of(x->pool, w, fitted(x, first[r], w)),
                                     term_of(x->pool, w, fitted(x, t->reg[r], w))));
    }
    free(before);
    t->path = was;
    t->forks--;
    t->state = join < 0 ? ENDED : RUNNING;
    t->pc = end;
}

static void branch(PtxMachine *x, int thread, const PtxInst *i)
{
    PtxThread *t = &x->thread[thread];
    Value g = i->guard >= 0 ? t->reg[i->guard] : value_bits(1);
    if (g.term) {
        fork_branch(x, thread, i, i->guard_not ? term_not(x->pool, g.term) : g.term);
        return;
    }
    bool go = i->guard < 0 || (g.bits != 0) != i->guard_not;
    if (i->kind == PTX_RET && go)
        t->state = ENDED;
    else
        t->pc = go ? i->target : t->pc + 1;
}

/* false: the thread waits or has ended, and the program counter stays */
static bool step(PtxMachine *x, int thread)
{
    PtxThread *t = &x->thread[thread];
    const PtxInst *i = &x->kernel->inst[t->pc];
    x->kernel->ran[t->pc] = true;
    if (x->steps++ > x->most_steps && x->most_steps)
        machine_fail(x, "does not end after %lld instructions", (long long)x->most_steps);
    if (i->kind == PTX_BRA || i->kind == PTX_RET) {
        branch(x, thread, i);
        return t->state == RUNNING;
    }
    Term when = 0;
    if (i->guard >= 0) {
        Value g = t->reg[i->guard];
        if (!g.term && (g.bits != 0) == i->guard_not) {
            t->pc++;
            return true;
        }
        when = !g.term ? 0 : i->guard_not ? term_not(x->pool, g.term) : g.term;
    }
    switch (i->kind) {
    case PTX_LD: load(x, thread, i, when); break;
    case PTX_ST: store(x, thread, i, when); break;
    case PTX_BAR: t->state = AT_BARRIER; break;
    case PTX_SHFL: case PTX_WARPSYNC: case PTX_VOTE: case PTX_REDUX: t->state = AT_WARP; break;
    default: compute(x, thread, i, when);
    }
    if (t->state == AT_BARRIER || t->state == AT_WARP) {
        if (when)
            machine_fail(x,
                         "line %d of the PTX: whether a thread waits for others depends on a float",
                         i->line);
        return false;
    }
    t->pc++;
    return true;
}

static void run_until(PtxMachine *x, int thread, int stop)
{
    PtxThread *t = &x->thread[thread];
    while (!x->failed && t->state == RUNNING && t->pc != stop) {
        if (t->pc >= x->kernel->ninst)
            machine_fail(x, "runs past its end");
        else if (!step(x, thread))
            return;
    }
}

/* ---- threads that wait for each other ---- */
static bool ptx_warp_operation(PtxMachine *x, int warp, const PtxInst *i)
{
    (void)x, (void)warp, (void)i;
    return false;
}

static void shuffle(PtxMachine *x, int warp, const PtxInst *i)
{
    Value from[32];
    for (int l = 0; l < 32; l++)
        from[l] = fetch(x, warp + l, &i->arg[0], 4);
    for (int l = 0; l < 32 && !x->failed; l++) {
        int b = (int)fetch(x, warp + l, &i->arg[1], 4).bits & 31,
            c = (int)fetch(x, warp + l, &i->arg[2], 4).bits;
        int seg = c >> 8 & 31, most = (l & seg) | (c & 31 & ~seg), j = l;
        bool down = strstr(i->name, ".down") != NULL, up = strstr(i->name, ".up") != NULL;
        bool across = strstr(i->name, ".bfly") != NULL;
        j = down ? l + b : up ? l - b : across ? (l ^ b) : (l & seg) | (b & ~seg);
        bool in = up ? j >= most : j <= most;
        j = in ? j : l;
        assign_to(x, warp + l, &i->to, 4, from[j], 0);
        if (i->pred.kind == OPERAND_REG)
            assign(x, warp + l, i->pred.reg, value_bits(in), 0);
    }
}


/* Continues the threads of a warp that all wait at the same shuffle. */
static bool resume_warp(PtxMachine *x, int warp)
{
    const PtxThread *t = &x->thread[warp];
    for (int l = 0; l < 32; l++)
        if (t[l].state != AT_WARP || t[l].pc != t[0].pc)
            return false;
    const PtxInst *i = &x->kernel->inst[t[0].pc];
    int mask_at = i->narg - 1;
    Value mask = fetch(x, warp, &i->arg[mask_at < 0 ? 0 : mask_at], 4);
    if (mask.term || (uint32_t)mask.bits != 0xffffffffu)
        machine_fail(x, "line %d of the PTX: %s of a part of a warp", i->line, i->name);
    else if (i->kind == PTX_SHFL)
        shuffle(x, warp, i);
    else if (i->kind != PTX_WARPSYNC && !ptx_warp_operation(x, warp, i))
        machine_fail(x, "line %d of the PTX: %s is not understood", i->line, i->name);
    for (int l = 0; l < 32; l++) {
        x->thread[warp + l].state = RUNNING;
        x->thread[warp + l].pc++;
        x->thread[warp + l].warp_time += i->kind == PTX_WARPSYNC;
    }
    return true;
}

/* Continues all threads if those that have not ended wait at one barrier. */
static bool resume_block(PtxMachine *x)
{
    int at = -1;
    for (int t = 0; t < x->threads; t++) {
        if (x->thread[t].state == ENDED)
            continue;
        if (x->thread[t].state != AT_BARRIER || (at >= 0 && x->thread[t].pc != at))
            return false;
        at = x->thread[t].pc;
    }
    const PtxInst *i = &x->kernel->inst[at];
    if (i->narg != 1 || fetch(x, 0, &i->arg[0], 4).bits)
        machine_fail(x, "line %d of the PTX: %s of a part of a block", i->line, i->name);
    for (int t = 0; t < x->threads; t++)
        if (x->thread[t].state == AT_BARRIER) {
            x->thread[t].state = RUNNING;
            x->thread[t].pc++;
        }
    x->time++;
    return true;
}

static void start_block(PtxMachine *x)
{
    size_t need = (size_t)x->kernel->nreg * (size_t)x->threads;
    if (x->file_len < need) {
        free(x->file);
        x->file = malloc(sizeof *x->file * need);
        x->file_len = x->file ? need : 0;
    }
    if (x->thread_cap < x->threads) {
        free(x->thread);
        x->thread = malloc(sizeof *x->thread * (size_t)x->threads);
        x->thread_cap = x->thread ? x->threads : 0;
    }
    if (!x->file || !x->thread)
        arena_out(x->arena);
    Value unset = {0, term_leaf(x->pool, 8, RACED, UNSET)};
    for (size_t i = 0; i < need; i++)
        x->file[i] = unset;
    for (int t = 0; t < x->threads; t++)
        x->thread[t] = (PtxThread){.reg = x->file + (size_t)t * (size_t)x->kernel->nreg};
    machine_empty_block(x);
    x->time = 0;
}

bool ptx_run_block(PtxMachine *x, int block)
{
    x->block = block;
    start_block(x);
    for (bool going = true; going && !x->failed;) {
        int live = 0;
        for (int t = 0; t < x->threads && !x->failed; t++) {
            run_until(x, t, -1);
            live += x->thread[t].state != ENDED;
        }
        going = false;
        for (int w = 0; w + 32 <= x->threads && !x->failed; w += 32)
            going = resume_warp(x, w) || going;
        if (!going && live && !x->failed)
            going = resume_block(x);
        if (!going && live && !x->failed)
            machine_fail(x, "threads wait for each other at different places");
    }
    return !x->failed;
}
