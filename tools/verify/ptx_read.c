/* Reads PTX. Only what NVRTC prints for optc's kernels is understood; anything else is an error. */
#include "tools/verify/ptx.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Reader {
    Arena *a; PtxKernel *k; const char *want; int line, depth; bool inside, ended; char *error;
} Reader;

static bool bad(Reader *r, const char *what, const char *text)
{
    if (!*r->error)
        snprintf(r->error, PTX_ERROR, "line %d of the PTX: %s: %.80s", r->line, what, text);
    return false;
}

/* ---- registers and symbols ---- */
static uint64_t name_hash(const char *s, size_t n) { return hash64(7, s, n); }

static int find_reg(PtxKernel *k, const char *s, size_t n)
{
    if (!k->reg_table_cap)
        return -1;
    uint64_t h = name_hash(s, n), mask = (uint64_t)(k->reg_table_cap - 1);
    for (; k->reg_table[h & mask]; h++) {
        int i = k->reg_table[h & mask] - 1;
        if (!strncmp(k->reg_name[i], s, n) && !k->reg_name[i][n])
            return i;
    }
    return -1;
}

static void add_reg(Reader *r, const char *name, int width)
{
    PtxKernel *k = r->k;
    int at = find_reg(k, name, strlen(name));
    /* a block of inline assembly declares it again */
    if (at >= 0) {
        k->reg_width[at] = (uint8_t)width;
        return;
    }
    int cap = k->reg_cap, same = k->nreg;
    PUSH(r->a, k->reg_width, same, cap) = (uint8_t)width;
    PUSH(r->a, k->reg_name, k->nreg, k->reg_cap) = arena_strdup(r->a, name);
    if (k->nreg * 2 > k->reg_table_cap) {
        k->reg_table_cap = k->reg_table_cap ? k->reg_table_cap * 2 : 1024;
        k->reg_table = NEWS(r->a, int32_t, k->reg_table_cap);
        for (int i = 0; i < k->nreg - 1; i++) {
            uint64_t h = name_hash(k->reg_name[i], strlen(k->reg_name[i]));
            while (k->reg_table[h & (uint64_t)(k->reg_table_cap - 1)])
                h++;
            k->reg_table[h & (uint64_t)(k->reg_table_cap - 1)] = i + 1;
        }
    }
    uint64_t h = name_hash(name, strlen(name));
    while (k->reg_table[h & (uint64_t)(k->reg_table_cap - 1)])
        h++;
    k->reg_table[h & (uint64_t)(k->reg_table_cap - 1)] = k->nreg;
}

/* "u32" -> type and width */
static bool read_type(const char *s, size_t n, char *type, uint8_t *width)
{
    static const struct { const char *name; char type; uint8_t width;
    } all[] = {{"u8", 'u', 1},    {"u16", 'u', 2},    {"u32", 'u', 4},    {"u64", 'u', 8},
               {"s8", 's', 1},    {"s16", 's', 2},    {"s32", 's', 4},    {"s64", 's', 8},
               {"b8", 'b', 1},    {"b16", 'b', 2},    {"b32", 'b', 4},    {"b64", 'b', 8},
               {"f32", 'f', 4},   {"f64", 'f', 8},    {"f16", 'h', 2},    {"bf16", 'h', 2},
               {"f16x2", 'h', 4}, {"bf16x2", 'h', 4}, {"e4m3x2", 'h', 2}, {"e5m2x2", 'h', 2},
               {"pred", 'p', 0},  {"b128", 'b', 16}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strlen(all[i].name) == n && !memcmp(all[i].name, s, n)) {
            *type = all[i].type;
            *width = all[i].width;
            return true;
        }
    return false;
}

/* ".reg .f32 %f<488>;" or ".reg .pred p;" */
static bool declare_reg(Reader *r, const char *s)
{
    char type[16], list[400];
    uint8_t width;
    char kind;
    if (sscanf(s, " .reg .%15[a-z0-9] %399[^;];", type, list) != 2 ||
        !read_type(type, strlen(type), &kind, &width))
        return bad(r, "a declaration of registers is not understood", s);
    for (char *name = strtok(list, ", \t"); name; name = strtok(NULL, ", \t")) {
        char *lt = strchr(name, '<');
        int n = lt ? atoi(lt + 1) : 0;
        if (!lt)
            add_reg(r, name, width);
        else
            *lt = 0;
        for (int i = 0; i < n; i++)
            add_reg(r, arena_printf(r->a, "%s%d", name, i), width);
    }
    return true;
}

/* ".shared .align 16 .b8 name[5120];", ".param .align 8 .b8 name[56]", ".shared .align 4 .u32
 * name;" */
static bool declare_symbol(Reader *r, const char *s, PtxSpace space)
{
    const char *align = strstr(s, ".align ");
    char type[16] = "", name[300] = "", kind;
    uint8_t width;
    long long count = 1;
    int a = align ? atoi(align + 7) : 1;
    const char *p = align ? strchr(align + 7, '.') : strchr(strchr(s, '.') + 1, '.');
    int got = p ? sscanf(p, ".%15[a-z0-9] %299[A-Za-z0-9_$%%][%lld]", type, name, &count) : 0;
    if (got < 2 || !read_type(type, strlen(type), &kind, &width))
        return bad(r, "a declaration is not understood", s);
    a = align ? a : width;
    int64_t *end = space == SPACE_PARAM   ? &r->k->param_bytes
                   : space == SPACE_LOCAL ? &r->k->local_bytes
                                          : &r->k->shared_bytes;
    *end = (*end + a - 1) / a * a;
    PUSH(r->a, r->k->symbol, r->k->nsymbol, r->k->symbol_cap) =
        (PtxSymbol){arena_strdup(r->a, name), *end, count * width, space};
    *end += count * width;
    return true;
}

static const PtxSymbol *find_symbol(const PtxKernel *k, const char *s, size_t n)
{
    for (int i = 0; i < k->nsymbol; i++)
        if (!strncmp(k->symbol[i].name, s, n) && !k->symbol[i].name[n])
            return &k->symbol[i];
    return NULL;
}

/* ---- operands ---- */
static size_t word_length(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_' || s[n] == '$' || s[n] == '%' || s[n] == '.')
        n++;
    return n;
}

static bool read_number(const char *s, int64_t *out)
{
    char *end;
    if (s[0] == '0' && (s[1] == 'f' || s[1] == 'd') && isxdigit((unsigned char)s[2])) {
        *out = (int64_t)strtoull(s + 2, &end, 16);
        return true;
    }
    *out = *s == '-' ? -(int64_t)strtoull(s + 1, &end, 0) : (int64_t)strtoull(s, &end, 0);
    return isdigit((unsigned char)s[*s == '-']);
}

static bool read_word(Reader *r, const char *s, size_t n, PtxOperand *o)
{
    static const char *const special[NSPECIAL] = {"%tid.x",    "%ntid.x", "%ctaid.x",
                                                  "%nctaid.x", "%laneid", "%warpid"};
    for (int i = 0; i < NSPECIAL; i++)
        if (strlen(special[i]) == n && !memcmp(special[i], s, n)) {
            *o = (PtxOperand){.kind = OPERAND_SPECIAL, .reg = i};
            return true;
        }
    int reg = find_reg(r->k, s, n);
    if (reg >= 0) {
        *o = (PtxOperand){.kind = OPERAND_REG, .reg = reg};
        return true;
    }
    if (n == 1 && *s == '_') {
        *o = (PtxOperand){.kind = OPERAND_NONE};
        return true;
    }
    const PtxSymbol *x = find_symbol(r->k, s, n);
    if (x) {
        *o = (PtxOperand){.kind = OPERAND_BITS, .imm = x->at};
        return true;
    }
    return (isdigit((unsigned char)*s) || *s == '-') && read_number(s, &o->imm)
               ? (o->kind = OPERAND_BITS, true) : bad(r, "an operand is not understood", s);
}

static const char *blank(const char *s)
{
    while (*s == ' ' || *s == '\t')
        s++;
    return s;
}

static const char *read_operand(Reader *r, const char *s, PtxOperand *o)
{
    s = blank(s);
    *o = (PtxOperand){.kind = OPERAND_NONE};
    if (*s == '{') {
        o->kind = OPERAND_VECTOR;
        for (s = blank(s + 1); *s && *s != '}'; s = blank(*s == ',' ? s + 1 : s)) {
            PtxOperand part;
            size_t n = word_length(s);
            if (!n || o->n == 4 || !read_word(r, s, n, &part) || part.kind == OPERAND_SPECIAL)
                return bad(r, "a list is not understood", s), NULL;
            if (part.kind == OPERAND_BITS && part.imm)
                return bad(r, "a number in a list is not understood", s), NULL;
            o->vec[o->n++] = part.kind == OPERAND_REG ? part.reg : -1;
            s = blank(s + n);
        }
        return *s ? s + 1 : NULL;
    }
    if (*s == '[') {
        PtxOperand base;
        s = blank(s + 1);
        size_t n = word_length(s);
        if (!read_word(r, s, n, &base))
            return NULL;
        s = blank(s + n);
        *o = (PtxOperand){.kind = OPERAND_ADDRESS,
                          .reg = base.kind == OPERAND_REG ? base.reg : -1,
                          .imm = base.imm};
        if (*s == '+' || *s == '-') {
            int64_t by = 0;
            read_number(s + (*s == '+'), &by);
            o->imm += by;
        }
        s = strchr(s, ']');
        return s ? s + 1 : NULL;
    }
    size_t n = *s == '-' ? 1 + word_length(s + 1) : word_length(s);
    return n && read_word(r, s, n, o) ? s + n : NULL;
}

/* ---- instructions ---- */
static const struct { const char *name; PtxKind kind;
} kinds[] = {{"mov", PTX_MOV},     {"ld", PTX_LD},
             {"ldu", PTX_LD},      {"st", PTX_ST},
             {"add", PTX_ADD},     {"sub", PTX_SUB},
             {"mul", PTX_MUL},     {"mad", PTX_MAD},
             {"fma", PTX_FMA},     {"div", PTX_DIV},
             {"rem", PTX_REM},     {"sqrt", PTX_SQRT},
             {"rcp", PTX_RCP},     {"abs", PTX_ABS},
             {"neg", PTX_NEG},     {"min", PTX_MIN},
             {"max", PTX_MAX},     {"and", PTX_AND},
             {"or", PTX_OR},       {"xor", PTX_XOR},
             {"not", PTX_NOT},     {"shl", PTX_SHL},
             {"shr", PTX_SHR},     {"setp", PTX_SETP},
             {"selp", PTX_SELP},   {"cvt", PTX_CVT},
             {"cvta", PTX_CVTA},   {"bra", PTX_BRA},
             {"ret", PTX_RET},     {"exit", PTX_RET},
             {"bar", PTX_BAR},     {"barrier", PTX_BAR},
             {"shfl", PTX_SHFL},   {"prmt", PTX_PRMT},
             {"vote", PTX_VOTE},   {"redux", PTX_REDUX},
             {"cp", PTX_CP_ASYNC}, {"copysign", PTX_COPYSIGN}, {"bfi", PTX_BFI}, {"bfe", PTX_BFE}};

static void read_suffix(PtxInst *x, const char *s, size_t n)
{
    static const char *const compares[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",
                                           "equ", "neu", "ltu", "leu", "gtu", "geu",
                                           "num", "nan", "lo",  "ls",  "hi",  "hs"};
    static const struct { const char *name; PtxSpace space;
    } spaces[] = {{"global", SPACE_GLOBAL},
                  {"shared", SPACE_SHARED},
                  {"param", SPACE_PARAM},
                  {"local", SPACE_LOCAL}};
    char type;
    uint8_t width;
    if (read_type(s, n, &type, &width)) {
        if (!x->type)
            x->type = type, x->width = width;
        else
            x->from = type, x->from_width = width;
        return;
    }
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (strlen(spaces[i].name) == n && !memcmp(s, spaces[i].name, n) && x->kind != PTX_CVTA)
            x->space = spaces[i].space;
    if (n == 4 && !memcmp(s, "wide", 4))
        x->wide = true;
    else if (n == 2 && !memcmp(s, "hi", 2))
        x->high = true;
    else if (n == 2 && !memcmp(s, "rn", 2))
        x->rounded = true;
    else if (x->kind != PTX_SETP && !(n == 2 && !memcmp(s, "lo", 2)))
        x->plain = false;
    for (size_t i = 0; i < sizeof compares / sizeof *compares && x->kind == PTX_SETP; i++)
        if (strlen(compares[i]) == n && !memcmp(s, compares[i], n))
            memcpy(x->cmp, compares[i], n);
}

static bool read_name(Reader *r, PtxInst *x, const char *s, size_t n)
{
    x->name = arena_strndup(r->a, s, n);
    x->plain = true;
    const char *at = x->name;
    size_t w = strcspn(at, ".");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].name) == w && !memcmp(kinds[i].name, at, w))
            x->kind = kinds[i].kind;
    for (at += w; *at == '.'; at += w) {
        at++;
        w = strcspn(at, ".");
        if (*at == ':')
            w = strcspn(at, ".");
        read_suffix(x, at, w);
    }
    if (strstr(x->name, "warp.sync"))
        x->kind = PTX_WARPSYNC;
    if (strstr(x->name, "commit_group"))
        x->kind = PTX_COMMIT;
    if (strstr(x->name, "wait_group") || strstr(x->name, "wait_all"))
        x->kind = PTX_WAIT;
    return true;
}

static bool read_inst(Reader *r, const char *s)
{
    PtxInst x = {.guard = -1, .target = -1, .line = r->line};
    if (*s == '@') {
        x.guard_not = s[1] == '!';
        s += 1 + x.guard_not;
        size_t n = word_length(s);
        x.guard = find_reg(r->k, s, n);
        if (x.guard < 0)
            return bad(r, "a predicate is not declared", s);
        s = blank(s + n);
    }
    size_t n = strcspn(s, " \t;");
    read_name(r, &x, s, n);
    s = blank(s + n);
    if (x.kind == PTX_BRA) {
        n = word_length(s);
        int at = 0;
        while (at < r->k->nlabel && strcmp(r->k->label[at], arena_strndup(r->a, s, n)))
            at++;
        if (at == r->k->nlabel) {
            int same = r->k->nlabel;
            PUSH(r->a, r->k->label_at, same, r->k->label_at_cap) = -1;
            PUSH(r->a, r->k->label, r->k->nlabel, r->k->label_cap) = arena_strndup(r->a, s, n);
        }
        x.target = at;
    } else {
        PtxOperand all[7] = {{.kind = OPERAND_NONE}};
        int count = 0;
        while (*s && *s != ';' && count < 7) {
            if (!(s = read_operand(r, s, &all[count])))
                return bad(r, "operands are not understood", x.name);
            s = blank(s);
            if (*s == '|') {
                if (!(s = read_operand(r, s + 1, &x.pred)))
                    return bad(r, "operands are not understood", x.name);
                s = blank(s);
            }
            count++;
            if (*s == ',')
                s++;
        }
        bool no_result = x.kind == PTX_BAR || x.kind == PTX_WARPSYNC || x.kind == PTX_CP_ASYNC ||
                         x.kind == PTX_COMMIT || x.kind == PTX_WAIT;
        x.to = no_result ? (PtxOperand){.kind = OPERAND_NONE} : all[0];
        x.narg = count - !no_result;
        if (x.narg > 5)
            return bad(r, "too many operands", x.name);
        for (int i = 0; i < x.narg; i++)
            x.arg[i] = all[i + !no_result];
    }
    PUSH(r->a, r->k->inst, r->k->ninst, r->k->inst_cap) = x;
    return true;
}

static void set_label(Reader *r, const char *name)
{
    PtxKernel *k = r->k;
    int at = 0;
    while (at < k->nlabel && strcmp(k->label[at], name))
        at++;
    if (at == k->nlabel) {
        int same = k->nlabel;
        PUSH(r->a, k->label_at, same, k->label_at_cap) = -1;
        PUSH(r->a, k->label, k->nlabel, k->label_cap) = name;
    }
    k->label_at[at] = k->ninst;
}

static bool read_line(Reader *r, char *s)
{
    size_t n = word_length(s);
    if (n && s[n] == ':' && s[n + 1] != ':') {             /* not ld.global.L1::no_allocate */
        set_label(r, arena_strndup(r->a, s, n));
        return true;
    }
    if (!strncmp(s, ".reg", 4))
        return declare_reg(r, s);
    if (!strncmp(s, ".shared", 7))
        return declare_symbol(r, s, SPACE_SHARED);
    if (!strncmp(s, ".local", 6))
        return declare_symbol(r, s, SPACE_LOCAL);
    if (!strncmp(s, ".param", 6) && !r->depth)
        return declare_symbol(r, s, SPACE_PARAM);
    if (*s == '.' || *s == '(' || *s == ')' || !*s)
        return true;
    return r->depth ? read_inst(r, s) : true;
}

static bool end_kernel(Reader *r)
{
    for (int i = 0; i < r->k->ninst; i++) {
        PtxInst *x = &r->k->inst[i];
        if (x->target >= 0)
            x->target = r->k->label_at[x->target];
        if (x->kind == PTX_BRA && x->target < 0)
            return bad(r, "a branch has no target", r->k->name);
    }
    r->k->ran = NEWS(r->a, bool, r->k->ninst + 1);
    r->k->join = NEWS(r->a, int, r->k->ninst + 1);
    for (int i = 0; i <= r->k->ninst; i++)
        r->k->join[i] = -2;
    r->ended = true;
    return true;
}

/* One line, or a part of it that ends with ';', '{' or '}'. */
static bool read_part(Reader *r, char *s)
{
    if (!r->inside) {
        char *entry = strstr(s, ".entry ");
        size_t n = strlen(r->want);
        r->inside = entry && !strncmp(entry + 7, r->want, n) && word_length(entry + 7) == n;
        return true;
    }
    if (*s == '{' || *s == '}') {
        r->depth += *s == '{' ? 1 : -1;
        return r->depth || *s == '{' ? true : end_kernel(r);
    }
    return read_line(r, s);
}

bool ptx_read(Arena *a, const char *text, const char *name, PtxKernel *k, char error[PTX_ERROR])
{
    Reader r = {.a = a, .k = k, .want = name, .error = error};
    bool ok = true;
    *error = 0;
    *k = (PtxKernel){.name = name};
    while (*text && ok && !r.ended) {
        size_t n = strcspn(text, "\n");
        char *line = arena_strndup(a, text, n), *comment = strstr(line, "//");
        text += n + (text[n] == '\n');
        r.line++;
        if (comment)
            *comment = 0;
        /* inline assembly has several instructions on a line */
        for (const char *s = line; ok && *(s = blank(s)) && !r.ended;) {
            const char *end = strchr(s, ';');
            bool brace = (*s == '{' || *s == '}') && r.inside;
            size_t len = brace ? 1 : end ? (size_t)(end - s) + 1 : strlen(s);
            char *part = arena_strndup(a, s, len);
            for (size_t i = len; i && isspace((unsigned char)part[i - 1]); i--)
                part[i - 1] = 0;
            ok = read_part(&r, part);
            s += len;
        }
    }
    return ok && (r.ended || bad(&r, "there is no kernel of this name", name));
}
