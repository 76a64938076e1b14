/* A spec's names in emitted source: they compile even if C reserves them, and free text stays in
 * comments. */
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"
#include "tests/harness/help.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static const char *cc(void)
{
    const char *c = getenv("CC");
    return c && *c ? c : "cc";
}

/* Runs the compiler on emitted source and returns its output. */
static char *through_cc(const char *source, const char *flags, int *rc)
{
    char name[] = "/tmp/optc-emit-XXXXXX.c";
    int fd = mkstemps(name, 2);
    ck_assert(fd >= 0);
    ck_assert(write(fd, source, strlen(source)) == (ssize_t)strlen(source));
    close(fd);
    Buf command = {0}, out = {0};
    buf_printf(&command, "%s %s %s 2>&1", cc(), flags, name);
    FILE *f = popen(buf_text(&command), "r");
    char line[512];
    while (f && fgets(line, sizeof line, f))
        buf_puts(&out, line);
    *rc = f ? pclose(f) : -1;
    unlink(name);
    buf_free(&command);
    return buf_take(&out);
}

static char *emit(const char *text, const Target *target)
{
    Gen g = {0};
    bool ok = gen_compile(&g, (Source){"try.lua", text, strlen(text)},
                          &(GenOptions){.find = find_wrapper});
    char *c = ok ? gen_emit(&g, &(EmitOptions){.target = target}, &g.diag) : NULL;
    ck_assert_msg(c || (!ok && g.diag.text), "%s",
                  g.diag.text ? g.diag.text : "it failed without a message");
    gen_free(&g);
    return c;
}

static const char *const hostile[] = {"double",     "int",
                                      "float",      "restrict",
                                      "inline",     "asm",
                                      "typeof",     "register",
                                      "self",       "unit",
                                      "stages",     "offset",
                                      "count",      "i",
                                      "l",          "sqrtf",
                                      "sqrt_",      "fabsf",
                                      "fmaf",       "linux",
                                      "unix",       "optc_x",
                                      "optc",       "OPTC_SEG",
                                      "OPTC_FN",    "optc_view",
                                      "_x",         "_",
                                      "__x",        "_Bool",
                                      "_Complex",   "__attribute__",
                                      "__FILE__",   "__LINE__",
                                      "INFINITY",   "NAN",
                                      "M_PI",       "HUGE_VAL",
                                      "FP_NAN",     "MAXFLOAT",
                                      "NULL",       "main",
                                      "errno",      "x1",
                                      "x2",         "x12",
                                      "p_i",        "g_i",
                                      "p_new",      "m_new",
                                      "m_i",        "a_2",
                                      "fold",       "sum_lanes",
                                      "fold_buf",   "isnan",
                                      "signbit",    "bool",
                                      "size_t",     "wchar_t",
                                      "alignas",    "constexpr",
                                      "nullptr",    "and_",
                                      "class",      "this",
                                      "new",        "threadIdx",
                                      "blockDim",   "half",
                                      "char16_t",   "char32_t",
                                      "char8_t",    "EOF",
                                      "I",          "complex",
                                      "stdin",      "at_p",
                                      "at_m",       "sum_g_lanes",
                                      "m_plus_sum", "aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd"};

/* As a hyperparameter, a state, a local, an input and an entry; each with a reduction, so that
 * folds get names too. A package also includes headers. Each name has two of the five roles
 * (OPTC_ALL: all). */
START_TEST(names_in_source)
{
    if (thinned(_i))
        return;
    static const char *const role[] = {
        "return optimizer { name = \"x\", hyper = { %s = 1 }, state = { m = zeros }, step = "
        "function()\n"
        "m = m + sum(g) * %s p = p - %s * m end }",
        "return optimizer { name = \"x\", state = { %s = zeros }, step = function()\n"
        "%s = %s + g * rowsum(g) p = p - g end }",
        "return optimizer { name = \"x\", state = { m = zeros }, step = function()\n"
        "local %s = g * m m = %s + sum(%s) p = p - m end }",
        "return optimizer { name = \"x\", inputs = { %s = \"elem\" }, state = { m = zeros }, step "
        "= function()\n"
        "m = %s p = p - sum(%s) * g end }",
        "return optimizer { name = \"%s\", step = function() p = p - g end, %s = function() p = p "
        "+ g end --%s\n}"};
    static const char headers[] =
        "-std=gnu11 -w -fsyntax-only -include math.h -include complex.h -include stdio.h "
        "-include errno.h -include limits.h -include uchar.h";
    const char *n = hostile[_i];
    int chosen = sample(n, COUNT(role));
    for (int k = 0; k < COUNT(role); k++) {
        if (chosen >= 0 && k != chosen && k != (chosen + 2) % COUNT(role))
            continue;
        Buf text = {0};
        const char *parts = role[k];
        for (const char *s; (s = strstr(parts, "%s")); parts = s + 2) {
            buf_add(&text, parts, (size_t)(s - parts));
            buf_puts(&text, n);
        }
        buf_puts(&text, parts);
        char *source = emit(text.s, &target_c);
        int rc = 0;
        char *said = source ? through_cc(source, headers, &rc) : NULL;
        ck_assert_msg(rc == 0, "'%s', role %d, does not compile: %.300s", n, k, said);
        free(said);
        free(source);
        buf_free(&text);
    }
}
END_TEST

/* Free text appears only in comments, whatever it contains. %s: the text as a Lua string. */
static const char *const breakouts[] = {
    "*/ int evil; /*", "**/ int evil; /**", "*\\\\\\n/ int evil; /*", "*\\\\ \\n/ int evil; /*",
    "*?\?/\\n/ int evil; /*", "\\n*/\\nint evil;\\n/*", "*\\r/ int evil; /*", "*\\0/ int evil; /*",
    "\\\" int evil; \\\"", "{{stages}} */ int evil; /*", "%s%n%d */ int evil; /*", "//\\nint evil;",
    "\\n#define float evil\\n", "*\\\\\\n\\\\\\n/ int evil; /*", "' */ int evil; /* '"};

START_TEST(text_in_source)
{
    static const char *const role[] = {"cite = \"%s\"", "doc = \"%s\"", "options = { o = \"%s\" }",
                                       "options = { o = { \"%s\", \"b\" } }"};
    /* c11 has trigraphs */
    static const char *const flags[] = {"-std=gnu11 -E -P -w", "-std=c11 -E -P -w"};
    /* the sources of every role and target: one call preprocesses them */
    Buf all = {0};
    for (int k = 0; k < COUNT(role); k++) {
        const char *at = strstr(role[k], "%s");
        Buf text = {0};
        buf_printf(&text,
                   "return optimizer { name = \"x\", %.*s%s%s, step = function() p = p - g end }",
                   (int)(at - role[k]), role[k], breakouts[_i], at + 2);
        for (const Target *const *target = gen_targets; *target; target++) {
            char *source = emit(text.s, *target);
            buf_puts(&all, source ? source : "");
            buf_puts(&all, "\n");
            free(source);
        }
        buf_free(&text);
    }
    for (int k = 0; k < COUNT(flags); k++) {
        int rc = 0;
        char *said = through_cc(all.s, flags[k], &rc);
        ck_assert_msg(rc == 0, "it does not even preprocess: %.300s", said);
        ck_assert_msg(!strstr(said, "evil"), "free text became code (%s): %s", flags[k],
                      breakouts[_i]);
        free(said);
    }
    buf_free(&all);
}
END_TEST

Suite *spec_words_suite(void)
{
    Suite *s = suite_create("spec_words");
    TCase *t = tcase_create("spec_words");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, names_in_source, 0, COUNT(hostile));
    tcase_add_loop_test(t, text_in_source, 0, COUNT(breakouts));
    suite_add_tcase(s, t);
    return s;
}
