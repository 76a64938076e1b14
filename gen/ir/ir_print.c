/* Prints a rule as text, after any pass. ir_read.c reads the text; IR.md describes it. */
#include "gen/ir/rule_passes.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_quoted(Buf *b, const char *s)
{
    buf_puts(b, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            buf_printf(b, "\\%c", *s);
        else if (*s == '\n' || *s == '\r')
            buf_puts(b, *s == '\n' ? "\\n" : "\\r");
        else
            buf_add(b, s, 1);
    }
    buf_puts(b, "\"");
}

static void put_range(Buf *b, const Hyper *h)
{
    buf_puts(b, h->lo_open ? " (" : " [");
    buf_double(b, h->lo);
    buf_puts(b, " ");
    buf_double(b, h->hi);
    buf_puts(b, h->hi_open ? ")" : "]");
}

const ProductWord product_words[NPRODUCT_WORDS] = {
    {"trans_a", TRANS_A}, {"trans_b", TRANS_B}, {"symmetric", SYMMETRIC}, {"blocked", BLOCKED},
    {"floor", FLOORED}, {"last", KEEP_LAST}, {"right", FROM_RIGHT}, {"cols", OF_COLS},
    {"f32", IN_F32}, {"tf32", IN_TF32}, {"f64", IN_F64}};

/* "trans_b symmetric alpha 2 beta 0.5 diagonal 3": flags and numbers that differ from the
 * defaults. */
static void print_product(Buf *b, const Node *n)
{
    for (int i = 0; i < NPRODUCT_WORDS; i++)
        if (n->sym & product_words[i].flag)
            buf_printf(b, " %s", product_words[i].word);
    if (n->imm != 1) {
        buf_puts(b, " alpha ");
        buf_double(b, n->imm);
    }
    if (n->op == OP_MM ? n->nargs > 2 : facts_of(n)->traits & EXPONENT && n->beta != USUAL_LOW) {
        buf_puts(b, n->op == OP_MM ? " beta " : " low ");
        buf_double(b, n->beta);
    }
    if (n->diagonal != 0) {
        buf_puts(b, " diagonal ");
        buf_double(b, n->diagonal);
    }
}

static void print_node(Buf *b, const Rule *r, Ref i)
{
    const Node *n = &r->g.n[i];
    buf_printf(b, "  %%%d = %s %s", i, op_info[n->op].name, dom_info[n->dom].name);
    if (n->ty == BOOL)
        buf_puts(b, ":bool");
    for (int k = 0; k < n->nargs; k++)
        buf_printf(b, " %%%d", n->arg[k]);
    switch (n->op) {
    case OP_CONST: case OP_EVERY:
        buf_puts(b, " ");
        buf_double(b, n->imm);
        if (n->sym)
            buf_printf(b, " %d", n->sym);
        break;
    case OP_HYPER: buf_printf(b, " %s", r->hyper[n->sym].name); break;
    case OP_STATE: case OP_SLOT: buf_printf(b, " %s", r->state[n->sym].name); break;
    case OP_INPUT: buf_printf(b, " %s", r->input[n->sym].name); break;
    case OP_COUNT: buf_printf(b, " %s", dom_info[n->from].name); break;
    case OP_STORED: buf_printf(b, " %s", n->sym == TO_P ? "p" : r->state[n->sym].name); break;
    case OP_RANDOM:
    case OP_NORMAL: buf_printf(b, " %s %d", r->hyper[n->sym].name, (int)n->imm); break;
    default: break;
    }
    if (is_call(n))
        print_product(b, n);
    if (is_red(n))
        buf_printf(b, " from %s", dom_info[n->from].name);
    if (n->entry)
        buf_printf(b, " in %d", n->entry);
    if (n->name)
        buf_printf(b, " '%s", n->name);
    if (n->line)
        buf_printf(b, " @%d:%d", n->file, n->line);
    buf_puts(b, "\n");
}

static void print_variant(Buf *b, const Variant *v)
{
    buf_printf(b, "variant %s%s%s%s", v->name, v->view & VIEW_FIRST ? " first" : "",
               v->view & VIEW_LAST ? " last" : "", v->view & VIEW_PLAIN ? " plain" : "");
    for (int i = 0; i < v->ntest; i++) {
        buf_puts(b, " ");
        test_print(b, &v->test[i]);
    }
    buf_puts(b, "\n");
}

/* The oldest version that has all words of the rule. Version 3 adds the precision of single
 * products, their diagonal, rings and states that start as normal or as the size of a kernel;
 * version 4 single products in f64 and vectors as matrices. */
static int version_of(const Rule *r)
{
    if (rule_takes_vectors(r))
        return 4;
    for (Ref i = 0; i < r->g.len; i++)
        if (r->g.n[i].op == OP_MM && r->g.n[i].sym & IN_F64)
            return 4;
    for (int i = 0; i < r->nstate; i++)
        if (r->state[i].rotates || r->state[i].init == INIT_NORMAL ||
            r->state[i].init == INIT_KERNEL)
            return 3;
    for (Ref i = 0; i < r->g.len; i++)
        if (r->g.n[i].op == OP_MM &&
            (r->g.n[i].sym & (IN_F32 | IN_TF32) || r->g.n[i].diagonal != 0))
            return 3;
    return 2;
}

static void print_texts(Buf *b, const Rule *r)
{
    const struct { const char *key, *text; } text[] = {
        {"cite", r->cite}, {"doc", r->doc}, {"with", r->with}};
    for (int i = 0; i < 3; i++)
        if (*text[i].text) {
            buf_printf(b, "%s ", text[i].key);
            put_quoted(b, text[i].text);
            buf_puts(b, "\n");
        }
    for (int i = 0; i < r->nfile; i++) {
        buf_puts(b, "file ");
        put_quoted(b, r->file[i]);
        buf_puts(b, "\n");
    }
    for (int i = 0; i < r->noption; i++) {
        buf_printf(b, "option %s ", r->option[i].name);
        put_quoted(b, r->option[i].value);
        buf_puts(b, "\n");
    }
}

static void print_axes(Buf *b, const Rule *r)
{
    if (r->rank)
        buf_printf(b, "rank %d", r->rank);
    if (r->rank && r->share.share > 0) {
        buf_puts(b, " share ");
        buf_double(b, r->share.share);
        buf_printf(b, " %s", r->share.of == AXIS_ONE ? "side" : axis_name(r->share.of));
    }
    buf_puts(b, r->rank ? "\n" : "");
    if (r->block)
        buf_printf(b, "block %d\n", r->block);
}

static void print_state(Buf *b, const Rule *r, const State *s)
{
    if (s->report) {
        buf_printf(b, "value %s %s%s%s @%d:%d\n", s->name, dom_info[s->dom].name,
                   s->follows_p ? " follows " : "", s->follows_p ? type_info[s->type].name : "",
                   s->file, s->line);
        return;
    }
    if (s->slots.every) {
        buf_printf(b, "slots %s %s %d %d %d%s @%d:%d\n", s->name, dom_info[s->dom].name,
                   s->slots.every, s->slots.of, s->slots.ahead, s->slots.first ? " first" : "",
                   s->file, s->line);
        return;
    }
    buf_printf(b, "state %s %s %s ", s->name, dom_info[s->dom].name,
               s->type < 0 ? "any" : type_info[s->type].name);
    if (s->init == INIT_COPY_P)
        buf_puts(b, "copy");
    else if (s->init == INIT_HYPER)
        buf_printf(b, "=%s", r->hyper[s->hyper].name);
    else if (s->init == INIT_NORMAL)
        buf_puts(b, "normal");
    else if (s->init == INIT_KERNEL)
        buf_puts(b, "kernel");
    else
        buf_double(b, s->value);
    buf_printf(b, "%s%s%s", s->eye ? " eye" : "", s->nonneg ? " nonneg" : "",
               s->follows_p ? " follows" : "");
    if (s->rotates)
        buf_printf(b, " ring %d %d", s->ring, s->age);
    buf_printf(b, " @%d:%d\n", s->file, s->line);
}

void rule_print(Buf *b, const Rule *r)
{
    LocaleMark was = locale_plain();
    buf_printf(b, "optc-ir %d\nrule %s\n", version_of(r), r->name);
    for (int v = 0; v < r->nvariant; v++)
        print_variant(b, &r->variant[v]);
    print_texts(b, r);
    if (r->product >= 0)
        buf_printf(b, "products %s\n", product_info[r->product].name);
    print_axes(b, r);
    for (int i = 0; i < r->nhyper; i++) {
        buf_printf(b, "hyper %s ", r->hyper[i].name);
        buf_double(b, r->hyper[i].def);
        put_range(b, &r->hyper[i]);
        buf_puts(b, "\n");
    }
    for (int i = 0; i < r->ninput; i++)
        buf_printf(b, "input %s %s\n", r->input[i].name, dom_info[r->input[i].dom].name);
    for (int i = 0; i < r->nstate; i++)
        print_state(b, r, &r->state[i]);
    for (int i = 0; i < r->ngradient; i++)
        buf_printf(b, "gradient %s %d %d\n", r->gradient[i].entry, r->gradient[i].at.every,
                   r->gradient[i].at.offset);
    buf_puts(b, "nodes\n");
    for (Ref i = 0; i < r->g.len; i++)
        print_node(b, r, i);
    for (int e = 0; e < r->nentry; e++) {
        buf_printf(b, "entry %s\n", r->entry[e].name);
        for (int v = 0; v < r->nvariant; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++) {
                Write w = r->entry[e].body[v].w[k];
                buf_printf(b, "  %s %s = %%%d\n", r->variant[v].name,
                           w.state == TO_P ? "p" : r->state[w.state].name, w.val);
            }
    }
    buf_puts(b, "end\n");
    locale_back(was);
}
