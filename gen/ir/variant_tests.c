/* Tests of variants in IR text, printed and parsed as one word each. */
#include "gen/ir/ir.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const size_name[] = {
    [SIZE_ONE] = "", [SIZE_NUMEL] = "numel", [SIZE_ROWS] = "nrows", [SIZE_COLS] = "ncols",
    [SIZE_DIMS] = "ndims"};
static const char *const relation_name[] = {[IS_LESS] = "<", [IS_AT_MOST] = "<=", [IS_EQUAL] = "==",
                                            [IS_MULTIPLE] = "%"};
_Static_assert(sizeof size_name / sizeof *size_name == NSIZE, "every size has a name");
_Static_assert(sizeof relation_name / sizeof *relation_name == NRELATION,
               "every relation has a sign");

bool test_same(const Test *a, const Test *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == TEST_SIZES)
        return a->relation == b->relation && a->view == b->view && a->size[0] == b->size[0] &&
               a->size[1] == b->size[1] && a->factor[0] == b->factor[0] &&
               a->factor[1] == b->factor[1];
    return a->kind == TEST_MATRIX ? a->factor[0] == b->factor[0] : !strcmp(a->word, b->word);
}

static void put_side(Buf *b, const Test *t, int i)
{
    if (t->size[i] == SIZE_ONE || t->factor[i] != 1)
        buf_double(b, t->factor[i]);
    if (t->size[i] != SIZE_ONE && t->factor[i] != 1)
        buf_puts(b, "*");
    buf_puts(b, size_name[t->size[i]]);
}

void test_print(Buf *b, const Test *t)
{
    if (!t->yes)
        buf_puts(b, "!");
    if (t->kind == TEST_MATRIX) {
        buf_puts(b, t->factor[0] == 1 ? "matrix_or_vector" : "matrix");
    } else if (t->kind == TEST_SIZES) {
        put_side(b, t, 0);
        buf_puts(b, relation_name[t->relation]);
        put_side(b, t, 1);
        if (t->view == VIEW_LAST)
            buf_puts(b, "@last");
    } else {
        buf_printf(b, "%s=%s", t->kind == TEST_NAMED ? "named" : "tagged", t->word);
    }
}

/* Parses "nrows", "2*ncols" or "64"; returns its end, or NULL. */
static const char *parse_side(const char *s, Test *t, int i)
{
    char *end;
    double x = strtod(s, &end);
    bool number = end != s && isfinite(x);
    t->factor[i] = number ? x : 1;
    t->size[i] = SIZE_ONE;
    if (number && *end != '*')
        return end;
    s = number ? end + 1 : s;
    for (int k = SIZE_NUMEL; k < NSIZE; k++)
        if (!strncmp(s, size_name[k], strlen(size_name[k]))) {
            t->size[i] = (Size)k;
            return s + strlen(size_name[k]);
        }
    return NULL;
}

static bool parse_sizes(const char *s, Test *t)
{
    t->kind = TEST_SIZES;
    t->view = VIEW_FIRST;
    s = parse_side(s, t, 0);
    if (!s)
        return false;
    t->relation = *s == '%'              ? IS_MULTIPLE
                  : !strncmp(s, "==", 2) ? IS_EQUAL
                  : !strncmp(s, "<=", 2) ? IS_AT_MOST
                                         : IS_LESS;
    if (strncmp(s, relation_name[t->relation], strlen(relation_name[t->relation])))
        return false;
    s = parse_side(s + strlen(relation_name[t->relation]), t, 1);
    double k = t->factor[1];
    if (t->relation == IS_MULTIPLE &&
        (t->size[1] != SIZE_ONE || !(k >= 1 && k <= MOST_DIVISOR && k == floor(k))))
        return false;
    if (s && !strcmp(s, "@last")) {
        t->view = VIEW_LAST;
        return true;
    }
    return s && !*s;
}

bool test_parse(Arena *a, const char *word, Test *out)
{
    *out = (Test){.yes = *word != '!'};
    word += !out->yes;
    out->factor[0] = !strcmp(word, "matrix_or_vector");
    if (out->factor[0] == 1 || !strcmp(word, "matrix"))
        return true;
    bool named = !strncmp(word, "named=", 6);
    if (!named && strncmp(word, "tagged=", 7))
        return parse_sizes(word, out);
    out->kind = named ? TEST_NAMED : TEST_TAGGED;
    out->word = arena_strdup(a, word + (named ? 6 : 7));
    return *out->word != 0;
}

bool rule_takes_vectors(const Rule *r)
{
    const Variant *v = r->nvariant ? r->variant : NULL;
    return v && v->ntest && v->test[0].kind == TEST_MATRIX && v->test[0].factor[0] == 1;
}

const char *variant_tensors(const Variant *v)
{
    bool plain = v->ntest == 1 && v->test[0].kind == TEST_MATRIX;
    return !plain                        ? v->name
           : v->test[0].factor[0] == 1 ? v->test[0].yes ? "matrices and vectors" : "scalars"
           : v->test[0].yes            ? "matrices"
                                       : "vectors";
}
