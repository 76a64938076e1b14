/* The reader of safetensors headers: what it accepts, a corpus of hostile headers, and random
 * damage. */
#include "tests/harness/help.h"
#include "runtime/core/checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses a header in memory of exactly its size, so that the sanitizers see reads behind it. */
static bool parse(const char *text, size_t n, int64_t data, SafeFile *f, char *why)
{
    char *header = malloc(n + 1);
    memcpy(header, text, n);
    return safe_parse(f, header, (int64_t)n, 8 + (int64_t)n + data, why, 200);
}

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct { const char *text; int64_t data; const char *says;
} corpus[] = {
    {"{}", 0, NULL},
    {" { } \n", 0, NULL},
    {"{" T("a", "F32", "[2,3]", "[0,24]") "}", 24, NULL},
    {"{" T("b", "U8", "[]", "[8,9]") "," T("a", "I64", "[1]", "[0,8]") "," T("c", "F16", "[0,7]",
                                                                             "[8,8]") "}  ",
     9, NULL},
    {"{\"__metadata__\":{\"k\":\"v\",\"\":\"\"}," T("\\u00e4\\ud83d\\ude00\\n\\/", "BF16", "[1]",
                                                    "[0,2]") "}",
     2, NULL},
    {"{" T("a", "F32", "[0,4611686018427387904,8]", "[0,0]") "}", 0, "do not fit its shape"},
    {"", 0, "it does not begin with {"},
    {"[]", 0, "it does not begin with {"},
    {"{", 0, "neither a comma nor an end|a string is missing"},
    {"{}x", 0, "something follows its last }"},
    {"{}{}", 0, "something follows its last }"},
    {"{\"a\"}", 0, "a colon is missing"},
    {"{\"a\":1}", 0, "a tensor is not an object"},
    {"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0, "a tensor is not an object"},
    {"{\"a\":{\"shape\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0, "a whole number is missing"},
    {"{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{", 0, "a tensor has an unknown member"},
    {"{\"a\":{}}", 0, "a tensor lacks dtype, shape or data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, "a tensor has a member twice"},
    {"{" T("a", "F33", "[1]", "[0,4]") "}", 4, "a tensor has an unknown dtype"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("a", "F32", "[1]", "[4,8]") "}", 8,
     "two tensors have the same name"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("\\u0061", "F32", "[1]", "[4,8]") "}", 8,
     "two tensors have the same name"},
    {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0,
     "two entries of __metadata__ have the same name"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ occurs twice"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "a string is missing"},
    {"{\"__metadata__\":{\"k\":{}}}", 0, "a string is missing"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[4,12]") "}", 12,
     "the data of two tensors overlaps"},
    {"{" T("a", "F32", "[1]", "[4,8]") "}", 8, "there is a gap in the data"},
    {"{" T("a", "F32", "[1]", "[0,4]") "}", 5, "the file is longer than its tensors"},
    {"{" T("a", "F32", "[1]", "[0,4]") "}", 3, "the file is cut off"},
    {"{" T("a", "F32", "[1]", "[-4,0]") "}", 4, "a number is negative"},
    {"{" T("a", "F32", "[-1]", "[0,4]") "}", 4, "a number is negative"},
    {"{" T("a", "F32", "[1]", "[4,0]") "}", 4, "do not fit its shape and dtype"},
    {"{" T("a", "F32", "[1]", "[0,8]") "}", 8, "do not fit its shape and dtype"},
    {"{" T("a", "F32", "[1]", "[0,4,8]") "}", 8, "data_offsets has more than two numbers"},
    {"{" T("a", "F32", "[1]", "[0]") "}", 8, "data_offsets has fewer than two numbers"},
    {"{" T("a", "F32", "[4611686018427387905]", "[0,4]") "}", 4, "do not fit its shape and dtype"},
    {"{" T("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0,
     "do not fit its shape and dtype"},
    {"{" T("a", "F32", "[9223372036854775808]", "[0,4]") "}", 4, "a number is too large"},
    {"{" T("a", "F32", "[1]", "[0,99999999999999999999999]") "}", 4, "a number is too large"},
    {"{" T("a", "F32", "[1.0]", "[0,4]") "}", 4, "a number is not whole"},
    {"{" T("a", "F32", "[1e0]", "[0,4]") "}", 4, "a number is not whole"},
    {"{" T("a", "F32", "[01]", "[0,4]") "}", 4, "a whole number is missing"},
    {"{" T("a", "F32", "[1,]", "[0,4]") "}", 4, "a whole number is missing"},
    {"{" T("a", "F32", "[1 1]", "[0,4]") "}", 4, "neither a comma nor an end"},
    {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
           "[0,1]") "}",
     1, "more than 32 dimensions"},
    {"{\"a", 0, "a string does not end"},
    {"{\"a\\", 0, "a string has an invalid escape"},
    {"{\"a\\x\":1}", 0, "a string has an invalid escape"},
    {"{\"a\\u12\"", 0, "a string has an invalid \\u escape"},
    {"{\"\\ud800\":1}", 0, "a string has an invalid \\u escape"},
    {"{\"\\ud800\\ud800\":1}", 0, "a string has an invalid \\u escape"},
    {"{\"\\udc00\":1}", 0, "a string has an invalid \\u escape"},
    {"{\"\\u0000\":1}", 0, "a string has an invalid \\u escape"},
    {"{\"a\nb\":1}", 0, "a string has a control character"},
    {"{\"\xff\":1}", 0, "it is not UTF-8 text"},
    {"{\"\xc0\x80\":1}", 0, "it is not UTF-8 text"},
    {"{\"\xed\xa0\x80\":1}", 0, "it is not UTF-8 text"},
    {"{\"\xf4\x90\x80\x80\":1}", 0, "it is not UTF-8 text"},
    {"{\"\xe4\"", 0, "it is not UTF-8 text"}};
enum { CORPUS = sizeof corpus / sizeof *corpus };

START_TEST(hostile_headers)
{
    SafeFile f;
    char why[200] = "";
    for (int i = 0; i < CORPUS; i++) {
        bool ok = parse(corpus[i].text, strlen(corpus[i].text), corpus[i].data, &f, why);
        const char *says = corpus[i].says;
        size_t first = says ? strcspn(says, "|") : 0;
        char part[100];
        snprintf(part, sizeof part, "%.*s", (int)first, says ? says : "");
        ck_assert_msg(
            says ? !ok && (strstr(why, part) || (says[first] && strstr(why, says + first + 1)))
                 : ok,
            "%s: %s", corpus[i].text, ok ? "accepted" : why);
        safe_free(&f);
    }
    ck_assert(!parse("{}\0{}", 5, 0, &f, why) && strstr(why, "it is not UTF-8 text"));
    safe_free(&f);
}
END_TEST

START_TEST(contents)
{
    SafeFile f;
    char why[200];
    ck_assert(parse(corpus[4].text, strlen(corpus[4].text), 2, &f, why));
    ck_assert_str_eq(f.tensor[0].name, "ä😀\n/");
    ck_assert_str_eq(safe_meta(&f, "k"), "v");
    ck_assert_str_eq(safe_meta(&f, ""), "");
    ck_assert_ptr_null(safe_meta(&f, "x"));
    ck_assert_ptr_null(safe_find(&f, "x"));
    safe_free(&f);
    ck_assert(parse(corpus[3].text, strlen(corpus[3].text), 9, &f, why));
    ck_assert(safe_find(&f, "b")->begin == 8 && safe_find(&f, "a")->end == 8 && f.n == 3);
    safe_free(&f);
    SafeBuf b = {0};                                       /* what the writer quotes reads back */
    static const char odd[] = "\x01\"\\/ä😀\x7f\n";
    safe_print(&b, "{");
    safe_quote(&b, odd);
    safe_print(&b, ":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}");
    ck_assert_msg(parse(b.s, b.n, 1, &f, why), "%s", why);
    ck_assert_str_eq(f.tensor[0].name, odd);
    safe_free(&f);
    free(b.s);
}
END_TEST

/* Headers of the corpus, damaged and spliced at random: read without a crash, and what is accepted
 * is consistent. OPTC_FUZZ_SECONDS runs longer. */
START_TEST(random_damage)
{
    static const char bytes[] =
        "{}[]\",:\\u0123456789-.eEF3I64dtypeshapedata_offsets \n\xc3\xa4\xff";
    const char *longer = getenv("OPTC_FUZZ_SECONDS");
    uint64_t dice = 1, rounds = longer ? 400000 * (uint64_t)atoi(longer) : 60000, accepted = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        char text[600], why[200];
        const int from = (int)((dice = splitmix(dice)) % CORPUS);
        size_t n = strlen(corpus[from].text);
        memcpy(text, corpus[from].text, n);
        for (int k = (int)((dice = splitmix(dice)) % 6); k > 0 && n; k--) {
            size_t at = (dice = splitmix(dice)) % n;
            char c = bytes[(dice = splitmix(dice)) % (sizeof bytes - 1)];
            int how = (int)((dice = splitmix(dice)) % 4);
            if (how == 0)
                text[at] = c;
            else if (how == 1 && n < sizeof text - 1)
                memmove(text + at + 1, text + at, n++ - at), text[at] = c;
            else if (how == 2)
                memmove(text + at, text + at + 1, --n - at);
            else
                n = at;
        }
        SafeFile f;
        if (parse(text, n, corpus[from].data, &f, why)) {
            int64_t sum = 0;
            for (int64_t k = 0; k < f.n; k++)
                sum += f.tensor[k].end - f.tensor[k].begin;
            ck_assert(sum == f.bytes);
            accepted++;
        }
        safe_free(&f);
    }
    ck_assert(accepted > rounds / 100);
}
END_TEST

Suite *safetensors_suite(void)
{
    Suite *s = suite_create("safetensors");
    TCase *t = tcase_create("safetensors");
    tcase_add_test(t, hostile_headers);
    tcase_add_test(t, contents);
    tcase_add_test(t, random_damage);
    suite_add_tcase(s, t);
    return s;
}
