/* The variants of a rule, and which tensors take which.
 *
 * A spec may query a tensor in a plain `if`: whether it is a matrix (`matrix` beside `step`), how
 * its sizes compare, its name, its tags. Each combination of answers is traced as one variant; when
 * a tensor is bound, it takes the one variant whose tests it passes. Constant data, read by the
 * compiler and by binding; pasted into packages after counts.h. */
#ifndef OPTC_VARIANTS_H
#define OPTC_VARIANTS_H

typedef enum { TEST_MATRIX, TEST_SIZES, TEST_NAMED, TEST_TAGGED } TestKind;
typedef enum { SIZE_ONE, SIZE_NUMEL, SIZE_ROWS, SIZE_COLS, SIZE_DIMS, NSIZE } Size;
typedef enum { IS_LESS, IS_AT_MOST, IS_EQUAL, IS_MULTIPLE, NRELATION } Relation;

typedef struct Test {
    TestKind kind;
    bool yes;                              /* the answer that passes */
    /* MATRIX: with factor[0] 1, tensors of one dimension pass too, as matrices of one row.
     * SIZES: compares factor[0] * size[0] with factor[1] * size[1], sizes taken in `view`.
     * IS_MULTIPLE: factor[1] is a whole number from 1, size[1] is SIZE_ONE */
    Relation relation;
    Size size[2];
    double factor[2];
    int view;
    const char *word;                      /* NAMED: a pattern with * and ?; TAGGED: a word */
} Test;

typedef struct Variant {
    const char *name;
    int view;                              /* bits: the views that its row, col and slice values
                                            * use */
    const Test *test; int ntest;           /* all must pass; every tensor passes exactly one variant
                                            * of a rule */
} Variant;

typedef struct TensorFacts {               /* the input of the tests */
    const char *name, *tags;               /* either may be NULL; tags: words separated by blanks or
                                            * commas */
    int rank; const int64_t *dim;
    bool matrix, flat;                     /* matrix: the caller lets it be one; flat: treated as a
                                            * vector */
    int64_t split;                         /* each matrix is this many matrices, stacked by rows; 0
                                            * or 1: not split */
} TensorFacts;

/* The tensor's shape in a view, after splitting its matrices. */
OPTC_COUNT Shape facts_shape(const TensorFacts *a, int view)
{
    Shape s = count_shape(view, a->rank, a->dim, a->flat);
    if (a->split > 1 && a->rank > 1 && !a->flat && s.rows % a->split == 0)
        s.slices *= a->split, s.rows /= a->split;
    return s;
}

OPTC_COUNT bool word_matches(const char *pattern, const char *s)
{
    const char *star = NULL, *back = NULL;
    while (*s) {
        if (*pattern == '*') {
            star = ++pattern;
            back = s;
        } else if (*pattern == '?' || *pattern == *s) {
            pattern++;
            s++;
        } else if (star) {
            pattern = star;
            s = ++back;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

OPTC_COUNT bool has_word(const char *words, const char *word)
{
    for (const char *s = words; s && *s;) {
        size_t n = 0, k = 0;
        while (s[n] && s[n] != ' ' && s[n] != ',')
            n++;
        while (k < n && word[k] == s[k])
            k++;
        if (n && k == n && !word[k])
            return true;
        s += n + (s[n] != 0);
    }
    return false;
}

OPTC_COUNT bool test_passes(const Test *t, const TensorFacts *a)
{
    bool is = false;
    if (t->kind == TEST_SIZES) {
        Shape s = facts_shape(a, t->view);
        double x[2];
        for (int i = 0; i < 2; i++)
            x[i] = t->factor[i] * (t->size[i] == SIZE_NUMEL  ? (double)s.n
                                   : t->size[i] == SIZE_ROWS ? (double)s.rows
                                   : t->size[i] == SIZE_COLS ? (double)s.cols
                                   : t->size[i] == SIZE_DIMS ? a->rank
                                                             : 1);
        is = t->relation == IS_LESS ? x[0] < x[1] : t->relation == IS_AT_MOST ? x[0] <= x[1]
             : t->relation == IS_EQUAL ? x[0] == x[1] : (int64_t)x[0] % (int64_t)x[1] == 0;
    } else {
        is = t->kind == TEST_MATRIX  ? a->matrix && a->rank > (t->factor[0] == 1 ? 0 : 1)
             : t->kind == TEST_NAMED ? word_matches(t->word, a->name ? a->name : "")
                                     : has_word(a->tags, t->word);
    }
    return is == t->yes;
}

OPTC_COUNT int variant_of(const Variant *v, int n, const TensorFacts *a)
{
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < v[i].ntest && test_passes(&v[i].test[k], a))
            k++;
        if (k == v[i].ntest)
            return i;
    }
    return 0;
}
#endif
