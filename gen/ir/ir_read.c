/* Reads the text of a rule that ir_print.c prints, and text of older versions. IR.md describes
 * it. */
#include "gen/ir/rule_passes.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    Arena *a; const char *path, *text, *s; int line, version; Diag *d; bool bad; char tok[4096];
} Reader;

static void complain(Reader *p, const char *what)
{
    if (!p->bad)
        diag_set(p->d, p->path, p->line, p->text, "IR text: expected %s, found '%.200s'", what,
                 p->tok);
    p->bad = true;
}

/* Reads the next word of the line into p->tok; "" at its end. Quoted text loses its quotes. */
static const char *word(Reader *p)
{
    size_t n = 0;
    while (*p->s == ' ' || *p->s == '\t')
        p->s++;
    if (*p->s == '"') {
        for (p->s++; *p->s && *p->s != '"' && *p->s != '\n'; p->s++) {
            char c = *p->s;
            if (c == '\\' && p->s[1]) {
                c = *++p->s;
                c = c == 'n' ? '\n' : c == 'r' ? '\r' : c;
            }
            if (n + 1 < sizeof p->tok)
                p->tok[n++] = c;
        }
        p->s += *p->s == '"';
    } else {
        while (*p->s && !isspace((unsigned char)*p->s)) {
            if (n + 1 < sizeof p->tok)
                p->tok[n++] = *p->s;
            p->s++;
        }
    }
    p->tok[n] = 0;
    return p->tok;
}

static bool next_line(Reader *p)
{
    if (!p->bad && *word(p))
        complain(p, "the end of the line");
    while (*p->s && *p->s != '\n')
        p->s++;
    while (*p->s == '\n') {
        p->s++;
        p->line++;
    }
    return *p->s && !p->bad;
}

static char *copy(Reader *p) { return arena_strdup(p->a, p->tok); }

/* An identifier, or several with dots between them: "clip.max_norm". */
static const char *name(Reader *p)
{
    for (char *s = (word(p), p->tok), *dot; s; s = dot ? dot + 1 : NULL) {
        dot = strchr(s, '.');
        if (!is_ident(dot ? arena_strndup(p->a, s, (size_t)(dot - s)) : s))
            complain(p, "a name");
    }
    return copy(p);
}

static double number(Reader *p)
{
    char *e;
    double x = strtod(word(p), &e);
    if (e == p->tok || *e)
        complain(p, "a number");
    return x;
}

static int one_of(Reader *p, int i, const char *what)
{
    if (i < 0)
        complain(p, what);
    return i < 0 ? 0 : i;
}

static Ref ref(Reader *p, int limit)
{
    char *e;
    long i = *p->tok == '%' && isdigit((unsigned char)p->tok[1]) ? strtol(p->tok + 1, &e, 10) : -1;
    if (i < 0 || i >= limit || *e)
        complain(p, "an earlier node such as %3");
    return p->bad ? 0 : (Ref)i;
}

#define FIND_BY_NAME(kind)                                              \
    static int find_##kind(const Rule *r, const char *s)                \
    {                                                                   \
        for (int i = 0; i < r->n##kind; i++)                            \
            if (!strcmp(r->kind[i].name, s))                            \
                return i;                                               \
        return -1;                                                      \
    }
FIND_BY_NAME(hyper)
FIND_BY_NAME(state)
FIND_BY_NAME(input)
FIND_BY_NAME(variant)

static void read_variant(Reader *p, Rule *r)
{
    Variant v = {.name = name(p)};
    Test *test = NEWS(p->a, Test, MAX_TESTS);
    while (*word(p) && !p->bad) {
        if (!strcmp(p->tok, "first") || !strcmp(p->tok, "last") || !strcmp(p->tok, "plain"))
            v.view |= *p->tok == 'f' ? VIEW_FIRST : *p->tok == 'l' ? VIEW_LAST : VIEW_PLAIN;
        else if (v.ntest == MAX_TESTS || !test_parse(p->a, p->tok, &test[v.ntest++]))
            complain(p, "a test such as matrix or nrows<=ncols");
    }
    v.test = test;
    if (v.ntest && test[0].kind == TEST_MATRIX && test[0].factor[0] == 1 && p->version < 4)
        complain(p, "no 'matrix_or_vector', which needs 'optc-ir 4' on the first line");
    if (r->nvariant == MAX_VARIANTS || r->g.len || r->nentry || !is_ident(v.name) ||
        find_variant(r, v.name) >= 0)
        complain(p, "up to eight variants of different names, ahead of the nodes");
    else
        PUSH(p->a, r->variant, r->nvariant, r->variant_cap) = v;
}

static void read_hyper(Reader *p, Rule *r)
{
    Hyper h = {.name = name(p)};
    h.def = number(p);
    char *e;
    word(p);
    h.lo_open = p->tok[0] == '(';
    h.lo = strtod(p->tok[0] ? p->tok + 1 : "x", &e);
    if (*e || !strchr("([", p->tok[0]))
        complain(p, "a range such as [0 1)");
    word(p);
    h.hi = strtod(p->tok, &e);
    h.hi_open = *e == ')';
    if (e == p->tok || (strcmp(e, ")") && strcmp(e, "]")))
        complain(p, "the end of a range");
    PUSH(p->a, r->hyper, r->nhyper, r->hyper_cap) = h;
}

static void read_place(Reader *p, int32_t *file, int32_t *line, int nfile)
{
    if (sscanf(p->tok, "@%d:%d", file, line) != 2 || *file < 0 || (*file >= nfile && *file != 0))
        complain(p, "a place such as @0:12");
}

static int read_count(Reader *p, const char *what)
{
    char *e;
    long n = strtol(word(p), &e, 10);
    if (e == p->tok || *e || n < 0 || n > 1000000000)
        complain(p, what);
    return (int)n;
}

static void read_state(Reader *p, Rule *r)
{
    State s = {.name = name(p)};
    s.dom = (Dom)one_of(p, dom_by_name(word(p)), "a domain");
    s.type = strcmp(word(p), "any") ? one_of(p, type_by_name(p->tok), "a storage type or any") : -1;
    if (!strcmp(word(p), "copy")) {
        s.init = INIT_COPY_P;
    } else if (!strcmp(p->tok, "normal")) {
        s.init = INIT_NORMAL;
        s.hyper =
            one_of(p, rule_seed(r), "the hyperparameter seed before a state that starts as normal");
    } else if (!strcmp(p->tok, "kernel")) {
        s.init = INIT_KERNEL;
    } else if (*p->tok == '=') {
        s.init = INIT_HYPER;
        s.hyper = one_of(p, find_hyper(r, p->tok + 1), "a hyperparameter behind =");
    } else {
        char *e;
        s.value = strtod(p->tok, &e);
        if (e == p->tok || *e)
            complain(p, "copy, normal, kernel or a number");
    }
    word(p);
    s.eye = !strcmp(p->tok, "eye");
    if (s.eye)
        word(p);
    s.nonneg = !strcmp(p->tok, "nonneg");
    if (s.nonneg)
        word(p);
    s.follows_p = !strcmp(p->tok, "follows");
    if (s.follows_p)
        word(p);
    s.rotates = !strcmp(p->tok, "ring");
    if (s.rotates) {
        s.ring = read_count(p, "the number of values of a ring");
        s.age = read_count(p, "the number in a ring");
        word(p);
    }
    if ((s.rotates || s.init == INIT_NORMAL || s.init == INIT_KERNEL) && p->version < 3)
        complain(p, "no ring, 'normal' and 'kernel', which need 'optc-ir 3' on the first line");
    if (*p->tok)
        read_place(p, &s.file, &s.line, r->nfile);
    PUSH(p->a, r->state, r->nstate, r->state_cap) = s;
}

static void read_slots(Reader *p, Rule *r)
{
    State s = {.name = name(p), .type = T_F64};
    s.dom = (Dom)one_of(p, dom_by_name(word(p)), "a domain");
    s.slots.every = read_count(p, "how many slots");
    s.slots.of = read_count(p, "the clock's period");
    s.slots.ahead = read_count(p, "how far the clock is ahead");
    s.slots.first = !strcmp(word(p), "first");
    if (s.slots.first)
        word(p);
    if (*p->tok)
        read_place(p, &s.file, &s.line, r->nfile);
    PUSH(p->a, r->state, r->nstate, r->state_cap) = s;
}

/* The current spelling of a word. Text with the old words is still read. */
static const char *current_word(const char *word)
{
    static const char *const renamed[][2] = {
        {"turn", "transpose"}, {"given", "carried"}, {"turn_a", "trans_a"}, {"turn_b", "trans_b"}};
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (!strcmp(word, renamed[i][0]))
            return renamed[i][1];
    return word;
}

static bool read_product_word(Reader *p, Node *n)
{
    for (int i = 0; i < NPRODUCT_WORDS; i++)
        if (!strcmp(current_word(p->tok), product_words[i].word)) {
            int needs = product_words[i].flag & IN_F64          ? 4
                        : product_words[i].flag & OWN_PRECISION ? 3
                                                                : 2;
            if (p->version < needs)
                complain(p, arena_printf(
                                p->a,
                                "no precision of a single product, which needs 'optc-ir %d' on the "
                                "first line",
                                needs));
            n->sym |= product_words[i].flag;
            return true;
        }
    double *to = !strcmp(p->tok, "alpha")                           ? &n->imm
                 : !strcmp(p->tok, n->op == OP_MM ? "beta" : "low") ? &n->beta
                 : n->op == OP_MM && !strcmp(p->tok, "diagonal")    ? &n->diagonal
                                                                    : NULL;
    if (!to)
        return false;
    if (to == &n->diagonal && p->version < 3)
        complain(p, "no diagonal of a product, which needs 'optc-ir 3' on the first line");
    *to = number(p);
    return true;
}

static void read_product(Reader *p, const Rule *r, Node *n)
{
    n->imm = 1;
    n->beta = facts_of(n)->traits & EXPONENT ? USUAL_LOW : 0;
    n->from = n->nargs && !p->bad ? r->g.n[n->arg[0]].dom : 0;
    while (!p->bad && read_product_word(p, n))
        word(p);
}

/* Reads the fields after the operands, which depend on the operation. */
static void read_extra(Reader *p, const Rule *r, Node *n)
{
    char *e;
    if (!p->bad && is_call(n))
        read_product(p, r, n);
    switch (n->op) {
    case OP_CONST: case OP_EVERY:
        n->imm = strtod(p->tok, &e);
        if (e == p->tok || *e)
            complain(p, "a number");
        word(p);
        if (n->op == OP_EVERY && isdigit((unsigned char)*p->tok)) {
            long offset = strtol(p->tok, &e, 10);
            n->sym = (int32_t)offset;
            if (*e || n->sym != offset)
                complain(p, "an offset");
            word(p);
        }
        break;
    case OP_HYPER: n->sym = one_of(p, find_hyper(r, p->tok), "a hyperparameter"); word(p); break;
    case OP_STATE:
    case OP_SLOT: n->sym = one_of(p, find_state(r, p->tok), "a state"); word(p); break;
    case OP_STORED:
        n->sym = strcmp(p->tok, "p") ? one_of(p, find_state(r, p->tok), "p or a state") : TO_P;
        word(p);
        break;
    case OP_INPUT: n->sym = one_of(p, find_input(r, p->tok), "an input"); word(p); break;
    case OP_COUNT: n->from = (uint8_t)one_of(p, dom_by_name(p->tok), "a domain"); word(p); break;
    case OP_RANDOM: case OP_NORMAL:
        n->sym = one_of(p, find_hyper(r, p->tok), "the seed's hyperparameter");
        n->imm = number(p);
        word(p);
        break;
    default: break;
    }
}

static void read_value(Reader *p, Rule *r)
{
    State s = {.name = name(p), .type = -1, .report = true};
    s.dom = (Dom)one_of(p, dom_by_name(word(p)), "a domain");
    word(p);
    s.follows_p = !strcmp(p->tok, "follows");
    if (s.follows_p) {
        s.type = one_of(p, type_by_name(word(p)), "a type");
        s.init = INIT_COPY_P;
        word(p);
    }
    if (*p->tok)
        read_place(p, &s.file, &s.line, r->nfile);
    PUSH(p->a, r->state, r->nstate, r->state_cap) = s;
}

static void read_node(Reader *p, Rule *r)
{
    Ref arg[MAX_ARGS];
    Node n = {.arg = arg};
    char want[16];
    snprintf(want, sizeof want, "%%%d", r->g.len);
    if (strcmp(p->tok, want))
        complain(p, want);
    if (strcmp(word(p), "="))
        complain(p, "=");
    n.op = (uint8_t)one_of(p, op_by_name(current_word(word(p))), "an operation");
    word(p);
    char *colon = strchr(p->tok, ':');
    n.ty = colon && !strcmp(colon, ":bool") ? BOOL : NUM;
    if (n.ty == BOOL)
        *colon = 0;
    n.dom = (uint8_t)one_of(p, dom_by_name(p->tok), "a domain");
    for (word(p); *p->tok == '%' && n.nargs < MAX_ARGS && !p->bad; word(p))
        arg[n.nargs++] = ref(p, r->g.len);
    read_extra(p, r, &n);
    if (is_red(&n)) {
        if (strcmp(p->tok, "from"))
            complain(p, "from");
        n.from = (uint8_t)one_of(p, dom_by_name(word(p)), "a domain");
        word(p);
    }
    if (!strcmp(p->tok, "in")) {
        double at = number(p);
        if (!n.nargs || !(at >= 1 && at < MAX_ENTRIES && at == floor(at)))
            complain(p, "the number of an entry");
        n.entry = p->bad ? 0 : (uint8_t)at;
        word(p);
    }
    if (*p->tok == '\'') {
        n.name = is_ident(p->tok + 1) ? arena_strdup(p->a, p->tok + 1)
                                      : (complain(p, "an identifier after '"), NULL);
        word(p);
    }
    if (*p->tok) {
        read_place(p, &n.file, &n.line, r->nfile);
        word(p);
    }
    if (*p->tok)
        complain(p, "the end of the line");
    if (r->g.len >= MAX_NODES)
        complain(p, "fewer nodes");
    int before = r->g.len;
    if (!p->bad && graph_add(&r->g, n) != before)
        complain(p, "a node that differs from the earlier ones");
}

static void read_entry(Reader *p, Rule *r)
{
    Entry e = {.name = name(p), .body = NEWS(p->a, Body, r->nvariant + 1)};
    while (next_line(p)) {
        const char *mark = p->s;
        word(p);
        int v = find_variant(r, p->tok);
        if (v < 0) {
            p->s = mark;
            break;
        }
        Write w = {.state = TO_P};
        if (strcmp(name(p), "p"))
            w.state = one_of(p, find_state(r, p->tok), "p or a state");
        if (strcmp(word(p), "="))
            complain(p, "=");
        word(p);
        w.val = ref(p, r->g.len);
        PUSH(p->a, e.body[v].w, e.body[v].n, e.body[v].cap) = w;
    }
    PUSH(p->a, r->entry, r->nentry, r->entry_cap) = e;
}

static void read_gradient(Reader *p, Rule *r)
{
    Gradient g = {.entry = name(p)};
    g.at.every = read_count(p, "a period");
    g.at.offset = read_count(p, "an offset");
    if (r->ngradient == MAX_ENTRIES)
        complain(p, "fewer gradients");
    if (!r->gradient)
        r->gradient = NEWS(p->a, Gradient, MAX_ENTRIES);
    if (!p->bad)
        r->gradient[r->ngradient++] = g;
}

static void read_rank(Reader *p, Rule *r)
{
    double rank = number(p);
    if (!(rank >= 1 && rank <= MAX_DIRECTIONS && rank == floor(rank)))
        complain(p, "a rank");
    r->rank = p->bad ? 0 : (int)rank;
    if (!*word(p))
        return;
    bool word_share = !strcmp(p->tok, "share");
    double share = word_share ? number(p) : 0;
    bool rows = !strcmp(word(p), "rows"), cols = !strcmp(p->tok, "cols");
    if (!(share > 0 && share <= 1) || !(rows || cols || !strcmp(p->tok, "side")))
        complain(p, "a share such as share 0.25 rows");
    r->share = (RankShare){share, rows ? AXIS_ROWS : cols ? AXIS_COLS : AXIS_ONE};
}

static void read_line(Reader *p, Rule *r)
{
    const char *k = p->tok;
    if (!strcmp(k, "rule")) {
        r->name = name(p);
    } else if (!strcmp(k, "variant")) {
        read_variant(p, r);
    } else if (!strcmp(k, "cite")) {
        r->cite = (word(p), copy(p));
    } else if (!strcmp(k, "doc")) {
        r->doc = (word(p), copy(p));
    } else if (!strcmp(k, "with")) {
        r->with = (word(p), copy(p));
    } else if (!strcmp(k, "file")) {
        PUSH(p->a, r->file, r->nfile, r->file_cap) = (word(p), copy(p));
    } else if (!strcmp(k, "option")) {
        const char *n = name(p);
        PUSH(p->a, r->option, r->noption, r->option_cap) =
            (Option){.name = n, .value = (word(p), copy(p))};
    } else if (!strcmp(k, "hyper")) {
        read_hyper(p, r);
    } else if (!strcmp(k, "products")) {
        r->product = one_of(p, product_by_name(word(p)), "a precision of products");
    } else if (!strcmp(k, "rank")) {
        read_rank(p, r);
    } else if (!strcmp(k, "block")) {
        double block = number(p);
        if (!(block >= 1 && block <= MAX_BLOCK && block == floor(block)))
            complain(p, "a block");
        r->block = p->bad ? 0 : (int)block;
    } else if (!strcmp(k, "input")) {
        const char *n = name(p);
        PUSH(p->a, r->input, r->ninput, r->input_cap) =
            (Input){n, (Dom)one_of(p, dom_by_name(word(p)), "a domain")};
    } else if (!strcmp(k, "state")) {
        read_state(p, r);
    } else if (!strcmp(k, "slots")) {
        read_slots(p, r);
    } else if (!strcmp(k, "value")) {
        read_value(p, r);
    } else if (!strcmp(k, "gradient")) {
        read_gradient(p, r);
    } else if (*k == '%') {
        read_node(p, r);
    } else if (strcmp(k, "nodes")) {
        complain(p,
                 "rule, variant, hyper, state, slots, value, input, gradient, nodes, entry or end");
    }
}

Rule *rule_parse(Arena *a, Source text, Diag *d)
{
    Rule *r = NEW(a, Rule);
    LocaleMark was = locale_plain();
    *r = (Rule){.arena = a, .name = "", .cite = "", .doc = "", .with = "", .product = -1};
    r->g.arena = a;
    Reader p = {.a = a,
                .path = text.path,
                .text = arena_strndup(a, text.text, text.len),
                .line = 1,
                .d = d};
    p.s = p.text;
    word(&p);
    bool right = !strcmp(p.tok, "optc-ir");
    word(&p);
    p.version = strlen(p.tok) == 1 && *p.tok >= '2' && *p.tok <= '4' ? *p.tok - '0' : 0;
    if (!right || !p.version)
        complain(&p, "'optc-ir 2', 'optc-ir 3' or 'optc-ir 4' on the first line");
    bool ended = false;
    while (!ended && next_line(&p)) {
        word(&p);
        ended = !strcmp(p.tok, "end");
        /* an entry also reads the next line's first word */
        while (!p.bad && !strcmp(p.tok, "entry") && *p.s) {
            read_entry(&p, r);
            word(&p);
            ended = !strcmp(p.tok, "end");
        }
        if (!ended)
            read_line(&p, r);
    }
    if (!ended)
        complain(&p, "'end'");
    if (!p.bad && (!is_ident(r->name) || !r->nvariant || !r->nentry))
        complain(&p, "a rule with a name, a variant and an entry");
    locale_back(was);
    return p.bad || !pass_verify(r, d) ? NULL : r;
}
