/* Domains as rows of gen/abi/domains.h: joins of two domains, offsets of their values, and indices
 * in stages. */
#include "gen/gen.h"
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* The joins as they were written by hand before domains became table rows. */
START_TEST(domains_join)
{
    static const Dom old[] = {CONST_, GROUP, TENSOR, SLICE, ROW, COL, ELEM};
    static const struct { Dom a, b, both;
    } more[] = {{ROW, ROW_T, ROWS2},      {COL_T, COL, COLS2},        {RANK, RANK_T, RANK2},
                {ROW, RANK_T, ROWS_RANK}, {COL_T, RANK_T, COLS_RANK}, {RANK, ROW_T, RANK_ROWS},
                {RANK, COL, RANK_COLS},   {COL_T, ROW_T, ELEM_T},     {ROWS2, ROW, ROWS2},
                {ROWS2, ROW_T, ROWS2},    {COLS2, TENSOR, COLS2},     {ROWS2, COL, NDOM},
                {ROWS2, ELEM, NDOM},      {ELEM, ELEM_T, NDOM},       {ROW, COL_T, NDOM},
                {COL, ROW_T, NDOM}};
    for (size_t a = 0; a < sizeof old / sizeof *old; a++)
        for (size_t b = 0; b < sizeof old / sizeof *old; b++) {
            bool crossed = (old[a] == ROW && old[b] == COL) || (old[a] == COL && old[b] == ROW);
            ck_assert_int_eq(dom_join(old[a], old[b]), crossed ? ELEM : a > b ? old[a] : old[b]);
        }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        ck_assert_int_eq(dom_join(more[i].a, more[i].b), more[i].both);
        ck_assert_int_eq(dom_join(more[i].b, more[i].a), more[i].both);
    }
    for (int d = 0; d < NDOM; d++) {
        ck_assert_int_eq(dom_join((Dom)d, (Dom)d), d);
        ck_assert_int_eq(dom_wide((Dom)d),
                         d == CONST_ || d == GROUP || d == TENSOR || d == SLICE || d == BLOCK);
        ck_assert_int_eq(dom_transposed(dom_transposed((Dom)d)), d);
    }
}
END_TEST

/* The offset of an element's row, column or slice value, against three loops. */
START_TEST(domains_place)
{
    Shape s = {2 * 3 * 5, 2, 3, 5, 0, 0};
    for (int64_t k = 0, i = 0; k < s.slices; k++)
        for (int64_t r = 0; r < s.rows; r++)
            for (int64_t c = 0; c < s.cols; c++, i++) {
                ck_assert_int_eq(dom_index(ELEM, ROW, i, s), k * s.rows + r);
                ck_assert_int_eq(dom_index(ELEM, COL, i, s), k * s.cols + c);
                ck_assert_int_eq(dom_index(ELEM, SLICE, i, s), k);
                ck_assert_int_eq(dom_index(ROW, SLICE, k * s.rows + r, s), k);
                ck_assert_int_eq(dom_index(COL, SLICE, k * s.cols + c, s), k);
                ck_assert_int_eq(dom_index(ELEM, TENSOR, i, s), 0);
                ck_assert_int_eq(dom_index(ELEM, ELEM, i, s), i);
            }
    ck_assert_int_eq(dom_len(ROW, s), 6);
    ck_assert_int_eq(dom_len(COL, s), 10);
    ck_assert_int_eq(dom_len(SLICE, s), 2);
    ck_assert_int_eq(dom_len(GROUP, s), 1);
}
END_TEST

/* The index in emitted stages against the evaluator's; and the operations that produce a domain. */
START_TEST(domains_find)
{
    Shape s = {2 * 3 * 5, 2, 3, 5, 0, 0};
    for (int in = GROUP; in < NDOM; in++)
        for (int d = GROUP; d < NDOM; d++) {
            DomIndex at = dom_find((Dom)in, (Dom)d);
            int64_t across = axis_len(dom_info[in].axis[1], s), each = dom_len_inside((Dom)in, s),
                of = dom_len_inside((Dom)d, s);
            ck_assert_int_eq(at == INDEX_NONE, dom_join((Dom)in, (Dom)d) != (Dom)in);
            for (int64_t i = 0; i < dom_len((Dom)in, s) && at != INDEX_NONE; i++) {
                int64_t slice = i / each, k = i % each;
                int64_t want = at == INDEX_ONE      ? 0
                               : at == INDEX_MATRIX ? slice
                               : at == INDEX_SAME
                                   ? i
                                   : slice * of + (at == INDEX_DOWN ? k / across : k % across);
                ck_assert_int_eq(dom_index((Dom)in, (Dom)d, i, s), want);
            }
        }
    ck_assert_int_eq(stage_of(CONST_), NSTAGEKIND);
    for (int d = GROUP; d < NDOM; d++)
        ck_assert(stage_info[stage_of((Dom)d)].dom == (Dom)d);
    ck_assert_int_eq(list_length(S_ROW, s), 3);
    ck_assert_int_eq(list_length(S_SLICE, s), 2);
    ck_assert_int_eq(dom_times((int64_t)1 << 40, (int64_t)1 << 40), (int64_t)1 << 58);
    ck_assert_int_eq(dom_times((int64_t)1 << 40, 3), (int64_t)3 << 40);
    ck_assert_int_eq(dom_times(7, 0), 0);
}
END_TEST

/* Squares join with values along their axes, in the right orientation; invalid pairs have no join.
 * A product has the axes that remain. */
START_TEST(domains_square)
{
    static const struct { Dom a, b; int join;
    } want[] = {{ROWS2, ROW, ROWS2},
                {ROWS2, ROW_T, ROWS2},
                {ROWS2, GROUP, ROWS2},
                {ROWS2, SLICE, ROWS2},
                {COLS2, COL, COLS2},
                {COLS2, COL_T, COLS2},
                {ROWS2, ELEM, NDOM},
                {COLS2, ELEM, NDOM},
                {ROWS2, COLS2, NDOM},
                {ROWS2, COL, NDOM},
                {COLS2, ROW, NDOM},
                {ROW, ROW_T, ROWS2},
                {COL_T, COL, COLS2},
                {ROW, COL, ELEM},
                {ROW, RANK_T, ROWS_RANK},
                {RANK, COL, RANK_COLS},
                {COL_T, ROW_T, ELEM_T},
                {ELEM_T, ELEM, NDOM},
                {BLOCK_ROWS2, BLOCK_ROW, BLOCK_ROWS2},
                {BLOCK_ROW, BLOCK_ROW_T, BLOCK_ROWS2},
                {BLOCK_ROWS2, TENSOR, BLOCK_ROWS2},
                {BLOCK, GROUP, BLOCK},
                {BLOCK_ROW, BLOCK_COL, NDOM},
                {BLOCK, ELEM, NDOM},
                {BLOCK, SLICE, NDOM},
                {BLOCK_ROWS2, ROW, NDOM},
                {BLOCK_ROWS2, ROWS2, NDOM},
                {BLOCK_ROWS2, BLOCK_COLS2, NDOM},
                {BLOCK_ROW, BLOCK_RANK_T, BLOCK_ROWS_RANK}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ck_assert_int_eq(dom_join(want[i].a, want[i].b), want[i].join);
        ck_assert_int_eq(dom_join(want[i].b, want[i].a), want[i].join);
    }
    ck_assert_int_eq(dom_transposed(ELEM), ELEM_T);
    ck_assert_int_eq(dom_transposed(ROWS2), ROWS2);
    ck_assert_int_eq(dom_transposed(TENSOR), TENSOR);
    ck_assert_int_eq(dom_matrix(COL, false).down, AXIS_COLS);
    ck_assert_int_eq(dom_matrix(COL, true).across, AXIS_COLS);
    ck_assert_int_eq(dom_matrix(ELEM, true).down, AXIS_COLS);
    ck_assert_int_eq(dom_product(AXIS_COLS, AXIS_ONE), COL);
    ck_assert_int_eq(dom_product(AXIS_ONE, AXIS_ROWS), ROW);
    ck_assert_int_eq(dom_product(AXIS_ONE, AXIS_ONE), SLICE);
    ck_assert_int_eq(dom_product(AXIS_ROWS, AXIS_COLS), ELEM);
}
END_TEST

Suite *domains_suite(void)
{
    Suite *s = suite_create("domains");
    TCase *d = tcase_create("domains");
    tcase_add_test(d, domains_join);
    tcase_add_test(d, domains_place);
    tcase_add_test(d, domains_square);
    tcase_add_test(d, domains_find);
    suite_add_tcase(s, d);
    return s;
}
