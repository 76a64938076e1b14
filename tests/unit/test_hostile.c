/* Hostile input: strings of a spec in other files, compilers that never end, numbers beyond any
 * machine. */
#include "runtime/library/rule/spec_find.h"
#include "tests/harness/help.h"
#include "runtime/library/package/package.h"

#include <errno.h>
#include <locale.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool compile_text(Gen *g, const char *text, const char *with, const char *options)
{
    GenOptions o = {.with = with, .options = options,
                    .types = {.p = T_F32, .g = T_F32, .state = T_F32}, .find = find_wrapper};
    *g = (Gen){0};
    return strncmp(text, "optc-ir", 7) ? gen_compile(g, (Source){"x.lua", text, strlen(text)}, &o)
                                       : gen_read_ir(g, (Source){"x.ir", text, strlen(text)}, &o);
}

/* ---- words of a spec ---- */
#define SPEC(fields) \
    "return optimizer { name = \"x\", " fields ", step = function() p = p - g end }"
#define IR(line) \
    "optc-ir 2\nrule x\nvariant any\n" line \
    "nodes\n  %0 = p elem\n  %1 = g elem\n  %2 = sub elem %0 %1\n" \
    "entry step\n  any p = %2\n"
static const struct { const char *text, *with, *options; } refused[] = {
    {SPEC("options = { mode = \"a\\nrule adamw\" }"), NULL, NULL},
    {SPEC("options = { mode = \"a\\27[2J\" }"), NULL, NULL},
    {SPEC("options = { mode = \"a\\xc2\\x9b2J\" }"), NULL, NULL},
    {SPEC("options = { mode = \"a\" }"), NULL, "mode=b\nrule adamw\n  key 0"},
    {SPEC("options = { mode = \"a\" }"), NULL, "mode=b\033[2J"},
    {SPEC("doc = \"a\\27[2J\""), NULL, NULL},
    {SPEC("cite = \"a\\127\""), NULL, NULL},
    {SPEC("doc = \"a\""), "clip(norm=1\033[2J)", NULL},
    {IR("doc \"a\033[2J\"\n"), NULL, NULL},
    {IR("with \"clip(1)\\nrule adamw\"\n"), NULL, NULL},
    {IR("option mode \"a\\nrule adamw\"\n"), NULL, NULL},
    {IR("file \"a\\nrule adamw\"\n"), NULL, NULL},
};
enum { NREFUSED = sizeof refused / sizeof *refused };

/* A newline in an option's value once added lines to a package's manifest, and escape sequences
 * reached the terminal. */
START_TEST(words_refused)
{
    Gen g;
    ck_assert(!compile_text(&g, refused[_i].text, refused[_i].with, refused[_i].options));
    ck_assert_msg(g.diag.text != NULL, "no message");
    ck_assert_msg(text_plain(g.diag.text, "\n\t"), "a control character is in the message");
    gen_free(&g);
}
END_TEST

/* Prose may have several lines; a spec's own error texts cannot control a terminal. */
START_TEST(words_cleaned)
{
    Gen g;
    ck_assert_msg(compile_text(&g, SPEC("doc = \"one\\n\\ttwo\""), NULL, NULL), "%s", g.diag.text);
    gen_free(&g);
    ck_assert(!compile_text(&g, "error(\"a\\27[2Jb\\xc2\\x9bc\\rd\\x9be\")", NULL, NULL));
    ck_assert_msg(strstr(g.diag.text, "a [2Jb  c d e") != NULL, "%s", g.diag.text);
    gen_free(&g);
}
END_TEST

/* An 8-bit terminal also interprets the bytes 0x80 to 0x9f; inside a UTF-8 character they are
 * harmless. */
START_TEST(bytes_cleaned)
{
    static const struct { const char *text, *clean;
    } texts[] = {{"a\x9b"
                  "2Jb",
                  "a 2Jb"},
                 {"\x80\x9f\xa0\xff", "  \xa0\xff"},
                 {"\xc2\x9b\xc2\xa0", "  \xc2\xa0"},
        /* complete characters */
                 {"\xe2\x80\x9b\xc3\x9b\xf0\x9f\x9b\x90", NULL},
        /* truncated ones */
                 {"\xe2\x80", "\xe2 "},
                 {"\xe2\x80z\x9b", "\xe2 z "},
                 {"\xc3\xc2\x9b", "\xc3  "},
                 {"\xe0\x82\x9b", "\xe0  "},
                 {"\xf0\x80\x82\x9b", "\xf0   "},
                 {"\xc0\x9b", "\xc0 "},
                 {"\xf8\x9b\x80\x80\x80", "\xf8    "}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s", texts[i].text);
        ck_assert_msg(text_plain(text, "") == !texts[i].clean, "%d", (int)i);
        text_clean(text, "");
        ck_assert_msg(!strcmp(text, texts[i].clean ? texts[i].clean : texts[i].text), "%d", (int)i);
        ck_assert_msg(text_plain(text, ""), "%d", (int)i);
    }
}
END_TEST

/* The head of emitted code has the command that makes it again: pasting it runs that command and
 * nothing else. */
START_TEST(commands_quoted)
{
    Gen g;
    ck_assert_msg(
        compile_text(&g, SPEC("options = { mode = \"a\" }"), NULL, "mode=$(reboot)'; reboot #"),
        "%s", g.diag.text);
    char *text = gen_emit(&g, &(EmitOptions){.target = &target_c}, &g.diag);
    ck_assert(text != NULL);
    ck_assert_msg(strstr(text, "--options 'mode=$(reboot)'") != NULL, "%.600s", text);
    free(text);
    gen_free(&g);
}
END_TEST

/* ---- a manifest's end ---- */
START_TEST(manifest_ends)
{
    char dir[] = "/tmp/optc-manifest-XXXXXX", path[64], why[700];
    static const struct { const char *text; size_t n; bool whole;
    } behind[] = {{"", 0, true},
                  {"\0", 1, false},
                  {"\0\nrule adamw\n", 13, false},
                  {"\n", 1, false},
                  {"x", 1, false}};
    static const char *const inside[] = {"rule x\033[2J\n", "rule x\r\n", "rule x\xc2\x9b\n",
                                         "rule x\x9b\n"};
    ck_assert(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/manifest", dir);
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        Buf b = {0};
        Manifest m;
        buf_puts(&b, PACKAGE_MARK "name x\noptc 0\ncuda 13.0\narch sm_90 1 0\nrule x\n  key 0\n");
        package_seal(&b);
        buf_add(&b, behind[i].text, behind[i].n);
        FILE *f = fopen(path, "wb");
        ck_assert(f && fwrite(buf_text(&b), 1, b.len, f) == b.len && fclose(f) == 0);
        bool ok = manifest_read(dir, false, &m, why, sizeof why);
        ck_assert_msg(ok == behind[i].whole, "%d: %s", (int)i, ok ? "taken" : why);
        ck_assert_msg(ok || strstr(why, "damaged") || strstr(why, "cut short"), "%s", why);
        manifest_free(&m);
        buf_free(&b);
    }
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        Buf b = {0};
        Manifest m;
        buf_printf(&b, PACKAGE_MARK "name x\noptc 0\ncuda 13.0\narch sm_90 1 0\n%s  key 0\n",
                   inside[i]);
        package_seal(&b);
        FILE *f = fopen(path, "wb");
        ck_assert(f && fwrite(buf_text(&b), 1, b.len, f) == b.len && fclose(f) == 0);
        ck_assert(!manifest_read(dir, false, &m, why, sizeof why) &&
                  strstr(why, "control characters"));
        manifest_free(&m);
        buf_free(&b);
    }
    unlink(path);
    rmdir(dir);
}
END_TEST

/* ---- keys ---- */
/* RFC 7693's digests, and others by Python's hashlib for the bytes (7 i + i / 256) mod 256. */
static const struct { int n; const char *hex; } digests[] = {
    {0, "69217a3079908094e11121d042354a7c1f55b6482ca1a51e1b250dfd1ed0eef9"},
    {1, "e34d74dbaf4ff4c6abd871cc220451d2ea2648846c7757fbaac82fe51ad64bea"},
    {55, "d3c3b26042fc00500b5a11530f84fe2e0a786132d456e9e3069d8c105486f189"},
    {63, "8711b32e3542deae1acce6409fec6577d9ca7daf80e1dcb5534236beea38e6b3"},
    {64, "b09537398e20f8cd56dca19d34b4b467633721bef880f40f2f707ebffd097551"},
    {65, "8936ffcf32a157440820fc06674e4682f76fe78fa7184bfad264c2f6eff6a151"},
    {128, "9462ab46c9c7779556af81a31d87fe184e631d5e4836bbda5998669d86a6544b"},
    {129, "9f8fd169776b12dcccd43b31edd795c1542759f975cc5842e88355a96c38234b"},
    {1000, "175c4c73ef0580223c314829fceae6f0e20f5555bdba864dc4afe984af1e10da"},
    {100000, "246cdb83fca7ea8e362ea0568cebbc8a0c48a45a388e8ea4f82548982be5b6f3"},
};

START_TEST(digest_vectors)
{
    static unsigned char data[100000];
    char hex[DIGEST_HEX];
    for (int i = 0; i < 100000; i++)
        data[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t i = 0; i < sizeof digests / sizeof *digests; i++) {
        digest_hex(data, (size_t)digests[i].n, hex);
        ck_assert_str_eq(hex, digests[i].hex);
    }
    digest_hex("abc", 3, hex);
    ck_assert_str_eq(hex, "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982");
}
END_TEST

/* With an earlier hash, two contents of one key were found in 76 seconds: keys of code and of
 * package files are digests. */
START_TEST(keys_are_digests)
{
    static const char code[] = "int f(void);\n",
                      cited[] = "/* head */\n#line 7 \"x.lua\"\nint f(void);\n";
    char key[DIGEST_HEX], want[DIGEST_HEX], dir[] = "/tmp/optc-key-XXXXXX", path[64], why[700];
    digest_hex(code, strlen(code), want);
    ck_assert(emit_key(cited, key));
    ck_assert_str_eq(key, want);
    ck_assert(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/file", dir);
    FILE *f = fopen(path, "wb");
    ck_assert(f && fputs(code, f) >= 0 && fclose(f) == 0);
    PackageFile file = {.name = "file", .bytes = strlen(code)};
    size_t n;
    memcpy(file.hash, want, sizeof want);
    char *data = package_read(dir, &file, false, &n, why, sizeof why);
    ck_assert_msg(data != NULL, "%s", why);
    free(data);
    file.hash[63] ^= 1;                        /* all bytes count */
    data = package_read(dir, &file, false, &n, why, sizeof why);
    ck_assert(!data && strstr(why, "checksum"));
    unlink(path);
    rmdir(dir);
}
END_TEST

/* ---- compilers ---- */
static const char own[] = "return optimizer { name = \"own\", hyper = { lr = 0.25 }, state = { m = "
                          "zeros }, step = function() m = lerp(m, g, "
                          "0.3) p = p - lr * m / (1 + t) end }";

/* Steps a user's rule and returns a hash of the bits. */
static uint64_t step_own(const char *cc, char *path, size_t n, int *native)
{
    Fixture f;
    optc_engine_options eo = {.threads = 1, .cache_dir = "", .compiler = cc};
    fix_open(&f, &eo, &(optc_rule_options){.spec = "own.lua", .text = own}, odd_shapes, NODD, NULL,
             0);
    for (int s = 0; s < 3; s++) {
        for (int k = 0; k < f.n; k++)
            for (int64_t i = 0; i < f.count[k]; i++)
                ((float *)f.g[k])[i] = (float)ref_value(k, s + 1, i);
        OK(optc_step(f.binding));
    }
    uint64_t h = fix_hash(&f);
    snprintf(path, n, "%s", optc_rule_path(f.rule));
    *native = optc_rule_native(f.rule);
    fix_close(&f);
    return h;
}

/* OPTC_CC and its fixed arguments: arguments cannot change bits, and no shell interprets them. */
START_TEST(compiler_words)
{
    static const char *const commands[] = {
        "cc -O0",
        "  cc   -g\t-O1 ",
        "env cc",
        "cc -ffast-math",
        "cc -funsafe-math-optimizations -fsingle-precision-constant",
        "cc -Dx=$(exit)'\""};
    char path[700];
    int native;
    uint64_t want = step_own("cc", path, sizeof path, &native);
    ck_assert_msg(native, "%s", path);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        uint64_t got = step_own(commands[i], path, sizeof path, &native);
        ck_assert_msg(native && strstr(path, "compiled by"), "%s: %s", commands[i], path);
        ck_assert_msg(got == want, "%s gives other bits", commands[i]);
    }
    setenv("OPTC_CFLAGS", "-Ofast -fsingle-precision-constant", 1);
    ck_assert_msg(step_own("cc", path, sizeof path, &native) == want && native,
                  "OPTC_CFLAGS gives other bits: %s", path);
}
END_TEST

/* A compiler gets all of its arguments, or the rule is not compiled: truncated arguments would lose
 * the last ones. */
START_TEST(long_words)
{
    char cc[5000], path[700];
    int native;
    for (int i = 0; i < 2; i++) {
        int room = i ? 4500 : 1500, n = snprintf(cc, sizeof cc, "cc");
        while (n < room)
            n += snprintf(cc + n, sizeof cc - (size_t)n, " -Dx%d", n);
        setenv("OPTC_CFLAGS",
               i ? ""
                 : "-DONE_THAT_IS_LONGER_THAN_A_HUNDRED_BYTES_WITH_ALL_THAT_COMES_BEFORE_IT=1 "
                   "-DANOTHER_BEHIND_IT=2 --no-such-option-stands-here",
               1);
        step_own(cc, path, sizeof path, &native);
        ck_assert_msg(!native && strstr(path, i ? "is too long" : " failed: "), "%s", path);
    }
}
END_TEST

/* The cache does not mix results of commands with different arguments. */
START_TEST(words_in_key)
{
    static const struct { const char *cc, *says; } tries[] = {
        {"cc", "compiled by"}, {"cc -DOTHER", "compiled by"}, {"cc", "from the cache"},
        {"cc -DOTHER", "from the cache"}};
    char dir[] = "/tmp/optc-words-XXXXXX", command[64];
    ck_assert(mkdtemp(dir) != NULL);
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        optc_engine *e;
        optc_rule *r;
        OK(optc_open(
            &(optc_engine_options){.device = "cpu", .cache_dir = dir, .compiler = tries[i].cc},
            &e));
        OK(optc_compile(e, &(optc_rule_options){.spec = "own.lua", .text = own}, &r));
        ck_assert_msg(strstr(optc_rule_path(r), tries[i].says), "%zu, %s: %s", i, tries[i].cc,
                      optc_rule_path(r));
        OK(optc_release(r));
        OK(optc_close(e));
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* If the evaluator is used instead, the path says why, and that its bits differ. */
START_TEST(evaluator_reported)
{
    static const char *const commands[] = {"", "/no/such/cc -O0", "no-such-cc -O2",
                                           "false --never"};
    static const char *const says[] = {"turned off", "no C compiler '/no/such/cc -O0' was found",
                                       "'no-such-cc -O2'", "false --never failed"};
    char path[700];
    int native;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        step_own(commands[i], path, sizeof path, &native);
        ck_assert_msg(!native && strstr(path, says[i]) &&
                          strstr(path, "its bits are not those of a compiled rule"),
                      "%s: %s", commands[i], path);
    }
}
END_TEST

/* A compiler that never ends and its children are killed, and no files are left. */
START_TEST(compiler_ends)
{
    char dir[] = "/tmp/optc-slow-XXXXXX", cc[64], pids[64], tmp[64], path[700], text[400];
    ck_assert(mkdtemp(dir) != NULL);
    snprintf(cc, sizeof cc, "%s/cc", dir);
    snprintf(pids, sizeof pids, "%s/pids", dir);
    snprintf(tmp, sizeof tmp, "%s/tmp", dir);
    ck_assert_int_eq(mkdir(tmp, 0700), 0);
    snprintf(text, sizeof text,
             "#!/bin/sh\n: > \"$TMPDIR/left\"\nsleep 1000 &\necho $$ $! > %s\nwait\n", pids);
    FILE *f = fopen(cc, "w");
    ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0 && chmod(cc, 0700) == 0);
    setenv("OPTC_CC_SECONDS", "0.5", 1);
    setenv("TMPDIR", tmp, 1);
    int native, pid[2] = {0};
    step_own(cc, path, sizeof path, &native);
    ck_assert_msg(!native && strstr(path, "was ended after 0.5 s") &&
                      strstr(path, "OPTC_CC_SECONDS"),
                  "%s", path);
    f = fopen(pids, "r");
    /* on a very busy machine it may not have started yet */
    if (f && fscanf(f, "%d %d", &pid[0], &pid[1]) == 2)
        for (int tries = 0; tries < 1000 && kill(pid[1], 0) == 0; tries++)
            usleep(10000);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(!pid[i] || (kill(pid[i], 0) != 0 && errno == ESRCH),
                      "process %d of the compiler is still there", pid[i]);
    if (f)
        fclose(f);
    ck_assert_msg(rmdir(tmp) == 0, "something is left in TMPDIR");
    unlink(cc);
    unlink(pids);
    rmdir(dir);
}
END_TEST

static void write_script(char *dir, char *cc, size_t n, const char *body)
{
    ck_assert(mkdtemp(dir) != NULL);
    snprintf(cc, n, "%s/cc", dir);
    FILE *f = fopen(cc, "w");
    ck_assert(f && fprintf(f, "#!/bin/sh\n%s\n", body) > 0 && fclose(f) == 0 &&
              chmod(cc, 0700) == 0);
}

static void *reap(void *stop)
{
    while (!__atomic_load_n((int *)stop, __ATOMIC_SEQ_CST))
        if (waitpid(-1, NULL, 0) < 0)
            usleep(100);
    return NULL;
}

/* If this process cannot wait for its children (SIGCHLD ignored), the object decides: the same
 * rule, the same bits. */
START_TEST(children_of_others)
{
    char path[700];
    int native, stop = 0;
    pthread_t thread;
    uint64_t want = step_own("cc", path, sizeof path, &native);
    ck_assert_msg(native, "%s", path);
    if (_i)
        ck_assert_int_eq(pthread_create(&thread, NULL, reap, &stop), 0);
    else
        signal(SIGCHLD, SIG_IGN);
    ck_assert_msg(step_own("cc", path, sizeof path, &native) == want && native, "%s", path);
    step_own("false", path, sizeof path, &native);
    ck_assert_msg(
        !native &&
            (strstr(
                 path,
                 "false failed: its exit status is not known, since SIGCHLD is ignored or taken") ||
             (_i && strstr(path, "false failed: exit status 1"))),
        "%s", path);
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    if (_i)
        pthread_join(thread, NULL);
}
END_TEST

/* If a compiler prints nothing, the reason says how it ended and its limits. */
START_TEST(compilers_that_say_nothing)
{
    static const struct { const char *body, *memory, *says;
    } tries[] = {{"exit 3", NULL, "/cc failed: exit status 3)"},
                 {"kill -9 $$", NULL, "/cc was ended by signal 9 (Killed))"},
                 {"echo it runs; kill -11 $$", NULL,
                  "/cc was ended by signal 11 (Segmentation fault): it runs)"},
                 {"echo error: $(ulimit -v); exit 1", NULL, "failed: error: 1048576)"},
                 {"echo error: $(ulimit -v); exit 1", "64M", "failed: error: 65536)"},
                 {"echo error: $(ulimit -v); exit 1", "0", "failed: error: unlimited)"},
                 {"echo out of memory; exit 1", "64M",
                  "failed: out of memory; OPTC_CC_MEMORY limits its memory to 64 MB)"},
                 {"exec cc \"$@\"", "24M", "OPTC_CC_MEMORY limits its memory to 24 MB)"}};
    struct rlimit most;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        char dir[] = "/tmp/optc-quiet-XXXXXX", cc[64], path[700];
        int native;
        if (!getrlimit(RLIMIT_AS, &most) && most.rlim_cur != RLIM_INFINITY)
            continue;
        write_script(dir, cc, sizeof cc, tries[i].body);
        if (tries[i].memory)
            setenv("OPTC_CC_MEMORY", tries[i].memory, 1);
        step_own(cc, path, sizeof path, &native);
        ck_assert_msg(!native && strstr(path, tries[i].says), "%s: %s", tries[i].body, path);
        unsetenv("OPTC_CC_MEMORY");
        unlink(cc);
        rmdir(dir);
    }
}
END_TEST

/* optc_open refuses limits of the environment that it cannot read, and names the variable and the
 * value. The doctor still reports. An empty value is none, and an option replaces the variable. */
START_TEST(limits_that_cannot_be_read)
{
    static const struct { const char *name, *value; bool reads;
    } tries[] = {{"OPTC_CC_SECONDS", "", true},
                 {"OPTC_CC_SECONDS", "0", true},
                 {"OPTC_CC_SECONDS", "0.5", true},
                 {"OPTC_CC_SECONDS", ".5", true},
                 {"OPTC_CC_SECONDS", "soon", false},
                 {"OPTC_CC_SECONDS", "-1", false},
                 {"OPTC_CC_SECONDS", "1e999", false},
                 {"OPTC_CC_SECONDS", "inf", false},
                 {"OPTC_CC_SECONDS", "nan", false},
                 {"OPTC_CC_SECONDS", "60s", false},
                 {"OPTC_CC_SECONDS", "0x10", false},
                 {"OPTC_CC_SECONDS", " ", false},
                 {"OPTC_CC_MEMORY", "", true},
                 {"OPTC_CC_MEMORY", "2G", true},
                 {"OPTC_CC_MEMORY", "lots", false},
                 {"OPTC_CC_MEMORY", "-1", false},
                 {"OPTC_CC_MEMORY", "99999999999999999999", false},
                 {"OPTC_CC_MEMORY", "1.5G", false},
                 {"OPTC_CACHE_MAX", "", true},
                 {"OPTC_CACHE_MAX", "12M", true},
                 {"OPTC_CACHE_MAX", "much", false},
                 {"OPTC_CACHE_MAX", "-1", false},
                 {"OPTC_CACHE_MAX", "9999999999G", false}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        char says[100];
        optc_engine *e = NULL;
        snprintf(says, sizeof says, "%s is '%s'; it must be a ", tries[i].name, tries[i].value);
        setenv(tries[i].name, tries[i].value, 1);
        optc_status s = optc_open(&(optc_engine_options){.cache_dir = ""}, &e);
        ck_assert_msg(tries[i].reads ? s == OPTC_OK
                                     : s == OPTC_ERROR_ARGUMENT && strstr(optc_message(), says),
                      "%s=%s: %s", tries[i].name, tries[i].value, optc_message());
        OK(optc_close(e));
        char *d = optc_doctor(&(optc_engine_options){.cache_dir = ""});
        ck_assert_msg(d && !tries[i].reads == (strstr(d, says) != NULL), "%s", d);
        free(d);
        e = NULL;
        s = optc_open(&(optc_engine_options){.cache_dir = "", .cache_max = 1 << 20}, &e);
        ck_assert((s == OPTC_OK) == (tries[i].reads || !strcmp(tries[i].name, "OPTC_CACHE_MAX")));
        OK(optc_close(e));
        d = optc_doctor(&(optc_engine_options){.cache_dir = "", .cache_max = 1 << 20});
        ck_assert_msg(d && (s != OPTC_OK) == (strstr(d, says) != NULL), "%s", d);
        free(d);
        unsetenv(tries[i].name);
    }
}
END_TEST

/* In a German locale strtod reads 0,5 and not 0.5. Runs if such a locale is installed. */
START_TEST(seconds_with_a_point)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        optc_engine *e;
        if (!setlocale(LC_ALL, names[i]))
            continue;
        setenv("OPTC_CC_SECONDS", "0.5", 1);
        OK(optc_open(&(optc_engine_options){.cache_dir = ""}, &e));
        OK(optc_close(e));
        setenv("OPTC_CC_SECONDS", "0,5", 1);
        FAILS(optc_open(&(optc_engine_options){.cache_dir = ""}, &e), OPTC_ERROR_ARGUMENT,
              "OPTC_CC_SECONDS is '0,5'");
    }
    unsetenv("OPTC_CC_SECONDS");
    setlocale(LC_ALL, "C");
}
END_TEST

/* A limit on file sizes costs native code, or the cache, but never the process: SIGXFSZ would end
 * it. */
START_TEST(files_limited)
{
    static const rlim_t sizes[] = {0, 3000, 12000};
    char dir[] = "/tmp/optc-limit-XXXXXX", command[64], path[1024];
    struct rlimit was, now;
    ck_assert(mkdtemp(dir) != NULL && getrlimit(RLIMIT_FSIZE, &was) == 0);
    /* LLVM's OpenMP creates a file when it starts */
    ck_assert_int_gt(omp_get_max_threads(), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        optc_engine *e;
        optc_rule *r = NULL;
        now = (struct rlimit){sizes[i], was.rlim_max};
        /* Check writes files too, so the limit is lifted */
        setrlimit(RLIMIT_FSIZE, &now);
        optc_status s = optc_open(&(optc_engine_options){.device = "cpu", .cache_dir = dir}, &e);
        s = s == OPTC_OK ? optc_compile(e, &(optc_rule_options){.spec = "own.lua", .text = own}, &r)
                         : s;
        snprintf(path, sizeof path, "%s", optc_rule_path(r));
        int native = r && optc_rule_native(r);
        setrlimit(RLIMIT_FSIZE, &was);
        OK(s);
        ck_assert_msg(!native && !strstr(path, "()") && !strstr(path, "failed: )") &&
                      (i == 2 || strstr(path, "cannot be written: File too large")), "%s", path);
        OK(optc_release(r));
        OK(optc_close(e));
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Without free file descriptors the message does not suggest to install a BLAS. */
START_TEST(no_descriptors_for_a_blas)
{
    float p[4] = {0}, g[4] = {0};
    int64_t shape[] = {2, 2};
    optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = shape};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    struct rlimit was, now;
    if (getenv("OPTC_BLAS"))
        return;
    OK(optc_open(&(optc_engine_options){.device = "cpu", .cache_dir = "", .threads = 1}, &e));
    int fd = dup(0);
    ck_assert(fd >= 0 && getrlimit(RLIMIT_NOFILE, &was) == 0);
    close(fd);
    now = (struct rlimit){(rlim_t)fd, was.rlim_max};
    setrlimit(RLIMIT_NOFILE, &now);
    OK(optc_compile(e, &(optc_rule_options){.spec = "muon"}, &r));
    FAILS(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b), OPTC_ERROR_IO,
          "too few file descriptors are left (ulimit -n)");
    ck_assert_msg(strstr(optc_rule_path(r), "too few file descriptors") &&
                      !strstr(optc_rule_path(r), "install"),
                  "%s", optc_rule_path(r));
    setrlimit(RLIMIT_NOFILE, &was);
    /* with free descriptors everything works */
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* ---- numbers ---- */
START_TEST(devices_by_number)
{
    static const char *const names[] = {
        "cuda:9999999999999", "cuda:4294967296", "cuda:", "cuda:-1", "cuda:+0", "cuda: 0",
        "cuda:0x0",           "cuda:0 ",         "cuda0"};
    optc_engine *e;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        FAILS(optc_open(&(optc_engine_options){.device = names[i]}, &e), OPTC_ERROR_UNAVAILABLE,
              "there is no device '");
        ck_assert_msg(strstr(optc_message(), names[i]) != NULL, "%s", optc_message());
    }
}
END_TEST

/* Many states that a machine might just hold: their sum must not overflow to a small number. */
START_TEST(sums_of_bytes)
{
    enum { MANY = 64 };
    static optc_tensor t[MANY];
    static char at[MANY * 64];
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    OK(optc_open(&(optc_engine_options){.cache_dir = ""}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    for (int bits = 50; bits < 63; bits++) {
        int64_t shape[1] = {(int64_t)1 << bits};
        for (int i = 0; i < MANY; i++)
            t[i] = (optc_tensor){.param = at + i * 64, .rank = 1, .shape = shape};
        optc_group all = {.tensors = t, .ntensors = MANY};
        optc_status s = optc_bind(r, &all, 1, &b);
        ck_assert_msg(s == OPTC_ERROR_MEMORY || s == OPTC_ERROR_ARGUMENT,
                      "2^%d elements, %d times: %s", bits, MANY, optc_status_name(s));
        ck_assert_ptr_null(b);
    }
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* ---- processes ---- */
/* The child of a process that has stepped with two threads: its step once never returned. */
START_TEST(fork_after_step)
{
    TestShape large = {1, {300000}};
    optc_engine_options eo = {.threads = 2, .cache_dir = ""};
    Fixture f, g;
    fix_open(&f, &eo, &(optc_rule_options){.spec = "adamw", .with = "clip(1)"}, &large, 1, NULL, 0);
    OK(optc_step(f.binding));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(100);
        bool ok = optc_step(f.binding) == OPTC_OK;
        uint64_t here = fix_hash(&f);
        fix_open(&g, &eo, &(optc_rule_options){.spec = "adamw", .with = "clip(1)"}, &large, 1, NULL,
                 0);
        ok = ok && optc_step(g.binding) == OPTC_OK && optc_step(g.binding) == OPTC_OK &&
             fix_hash(&g) == here;
        _exit(ok ? 0 : 3);
    }
    int status = -1;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child %s",
                  WIFSIGNALED(status) ? "never came back from its step" : "has other bits");
    OK(optc_step(f.binding));                  /* this process continues */
    fix_close(&f);
}
END_TEST

Suite *hostile_suite(void)
{
    Suite *s = suite_create("hostile");
    TCase *t = tcase_create("hostile");
    tcase_add_loop_test(t, words_refused, 0, NREFUSED);
    tcase_add_test(t, words_cleaned);
    tcase_add_test(t, bytes_cleaned);
    tcase_add_test(t, commands_quoted);
    tcase_add_test(t, manifest_ends);
    tcase_add_test(t, digest_vectors);
    tcase_add_test(t, keys_are_digests);
    tcase_add_test(t, compiler_words);
    tcase_add_test(t, long_words);
    tcase_add_test(t, words_in_key);
    tcase_add_test(t, evaluator_reported);
    tcase_add_test(t, compiler_ends);
    tcase_add_loop_test(t, children_of_others, 0, 2);
    tcase_add_test(t, compilers_that_say_nothing);
    tcase_add_test(t, limits_that_cannot_be_read);
    tcase_add_test(t, seconds_with_a_point);
    tcase_add_test(t, files_limited);
    tcase_add_test(t, no_descriptors_for_a_blas);
    tcase_add_test(t, devices_by_number);
    tcase_add_test(t, sums_of_bytes);
    tcase_add_test(t, fork_after_step);
    suite_add_tcase(s, t);
    return s;
}
