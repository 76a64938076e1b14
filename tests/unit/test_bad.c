/* Every tests/specs/bad/NAME.lua must be refused with the right line and message, quickly, and
 * without leaks. The head of the file states what is expected:
 *    -- expect: LINE: part of the message     LINE 0: the whole file, "-": no position. Several:
 *                                             all, in this order
 *    -- nothing: text                         the messages do not contain this text
 *    -- with: wrappers                        as --with; a wrapper whose name starts with the
 *                                             file's name is this file
 *    -- options: name=value, …
 *    -- rule: NAME                            the file is a wrapper: compile this rule of the
 *                                             library with it
 *    -- in: PATH                              the position is in that file, not in this one */
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"
#include "tests/harness/help.h"

#include <check.h>
#include <dirent.h>
#include <lauxlib.h>
#include <lua.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* CPU seconds, as a last resort: the limits of a spec count work */
static const double slowest = 30;

enum { MAX_FILES = 512, MAX_EXPECT = 8 };
static char *files[MAX_FILES];
static int nfiles;

typedef struct { char line[12]; char part[240]; } Expect;
typedef struct {
    const char *path;
    char stem[64];
    Source text;
    Expect expect[MAX_EXPECT];
    int n;
    char with[256], options[256], rule[64], in[256], nothing[256];
} Case;

static const char *tests_folder(void)
{
    const char *f = getenv("OPTC_TESTS");
    return f && *f ? f : "tests/specs";
}

/* CPU time, which does not depend on other processes. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Bytes in use, as the allocator counts them. Its count includes freed chunks in its size bins, up
 * to a limit per size. All bins are filled first, so that two counts differ only by memory that is
 * really held. */
static size_t held(void)
{
    enum { EACH = 32, LARGEST = 1040 };
    void *volatile piece[EACH];
    for (size_t size = 8; size <= LARGEST; size += 16) {
        for (int i = 0; i < EACH; i++)
            piece[i] = malloc(size);
        for (int i = 0; i < EACH; i++)
            free(piece[i]);
    }
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
#else
    return 0;
#endif
}

/* ---- the head of a file ---- */
static bool head_line(const char *line, size_t len, const char *key, char *out, size_t room)
{
    size_t n = strlen(key);
    if (len < n + 5 || strncmp(line, "-- ", 3) || strncmp(line + 3, key, n) || line[3 + n] != ':')
        return false;
    len -= n + 5;
    snprintf(out, room, "%.*s", (int)(len < room ? len : room - 1), line + n + 5);
    return true;
}

static void read_head(Case *c)
{
    for (const char *s = c->text.text; !strncmp(s, "-- ", 3);) {
        size_t len = strcspn(s, "\n");
        char text[300];
        if (head_line(s, len, "expect", text, sizeof text)) {
            ck_assert_msg(c->n < MAX_EXPECT, "%s: over %d expectations", c->path, MAX_EXPECT);
            Expect *e = &c->expect[c->n++];
            ck_assert_msg(sscanf(text, "%11[0-9-]: %239[^\n]", e->line, e->part) == 2,
                          "%s: cannot read '%s'", c->path, text);
        } else if (!head_line(s, len, "with", c->with, sizeof c->with) &&
                   !head_line(s, len, "options", c->options, sizeof c->options)
                   && !head_line(s, len, "rule", c->rule, sizeof c->rule) &&
                   !head_line(s, len, "in", c->in, sizeof c->in)
                   && !head_line(s, len, "nothing", c->nothing, sizeof c->nothing)) {
            ck_abort_msg("%s: '%.*s' is not expect, nothing, with, options, rule or in", c->path,
                         (int)len, s);
        }
        s += len + (s[len] == '\n');
    }
    ck_assert_msg(c->n > 0, "%s says nowhere what it expects", c->path);
}

static bool find_here(void *ctx, const char *name, Arena *arena, Source *out, Diag *d)
{
    const Case *c = ctx;
    if (strncmp(name, c->stem, strlen(c->stem)))
        return find_wrapper(NULL, name, arena, out, d);
    *out = c->text;
    return true;
}

/* ---- one compilation that must fail ---- */
static Diag compile(const Case *c, Source spec)
{
    Gen g = {0};
    GenOptions o = {.with = c->with,
                    .options = *c->options ? c->options : NULL,
                    .find = find_here,
                    .find_ctx = (void *)c};
    double start = now();
    bool ok = gen_compile(&g, spec, &o);
    double took = now() - start;
    ck_assert_msg(!ok, "%s was accepted", c->path);
    ck_assert_msg(g.diag.text != NULL, "%s failed without a message", c->path);
    ck_assert_msg(took < slowest, "%s took %.1f s to be refused", c->path, took);
    Diag d = g.diag;
    g.diag.text = NULL;
    gen_free(&g);
    return d;
}

static const char *source_line(const char *text, int line, size_t *len)
{
    for (int at = 1; at < line && *text; at++)
        text += strcspn(text, "\n") + (text[strcspn(text, "\n")] == '\n');
    text += strspn(text, " \t");
    *len = strcspn(text, "\n");
    return text;
}

static void check_place(const Case *c, const Diag *d, const char *line, bool first, Arena *arena)
{
    char place[400];
    const char *file = *c->in ? c->in : c->path;
    if (!strcmp(line, "-")) {
        ck_assert_msg(!d->line && !*d->file, "%s: no place was expected: %s", c->path, d->text);
        return;
    }
    int at = atoi(line);
    snprintf(place, sizeof place, at ? "\n%s:%d: " : "\n%s: ", file, at);
    if (first) {
        ck_assert_msg(d->line == at, "%s: line %s was expected, not %d: %s", c->path, line, d->line,
                      d->text);
        ck_assert_msg(!strcmp(d->file, file), "%s: the place is in '%s', not in '%s'", c->path,
                      d->file, file);
        ck_assert_msg(!strncmp(d->text, place + 1, strlen(place) - 1),
                      "%s: the message does not start with '%s': %s", c->path, place + 1, d->text);
    } else {
        ck_assert_msg(!strncmp(d->text, place + 1, strlen(place) - 1) || strstr(d->text, place),
                      "%s: line %s is not told: %s", c->path, line, d->text);
    }
    if (!at)
        return;
    Source text = c->text;
    Diag none = {0};
    if (*c->in)
        ck_assert_msg(read_text(c->in, arena, &text, &none), "%s cannot be read", c->in);
    size_t len;
    const char *src = source_line(text.text, at, &len);
    char *quote = arena_printf(arena, "\n  %4d | %.*s", at, (int)(len < 160 ? len : 160), src);
    ck_assert_msg(!len || strstr(d->text, quote), "%s: the line is not quoted: %s", c->path,
                  d->text);
}

static void open_case(Case *c, const char *path, Arena *arena)
{
    Diag d = {0};
    memset(c, 0, sizeof *c);
    c->path = path;
    const char *slash = strrchr(path, '/');
    snprintf(c->stem, sizeof c->stem, "%s", slash ? slash + 1 : path);
    *strchr(c->stem, '.') = 0;
    ck_assert_msg(read_text(path, arena, &c->text, &d), "%s", d.text);
}

/* The same mistake gives the same message every time, and no memory is leaked. The leak check of
 * the sanitizers sees every file; memory that stays reachable is looked for here, in an eighth of
 * the files (OPTC_ALL: in all). */
static void check_repeats(const Case *c, Source spec, const char *text)
{
    /* noise: chunks that could not be split; a leak of 36 bytes is found, any leak with SAN=1 */
    enum { NOISE = 2048, TIMES = 60 };
    double start = now();
    size_t before = 0;
    int n = 0, times = thinned(1) ? 2 : sample(c->stem, 8) <= 0 ? TIMES : 3;
    for (; n < times && (n < 2 || now() - start < 0.5); n++) {
        if (n == 1)
            before = held();
        Diag again = compile(c, spec);
        ck_assert_msg(!strcmp(text, again.text), "%s: two messages for one mistake:\n%s\n%s",
                      c->path, text, again.text);
        diag_free(&again);
    }
    size_t after = held();
    ck_assert_msg(after <= before + NOISE, "%s leaves %zu bytes behind in %d compilations", c->path,
                  after - before, n - 1);
}

START_TEST(refused)
{
    /* ten seconds under the sanitizers */
    bool long_one = strstr(files[_i], "unrolled_too_far") || strstr(files[_i], "while_value");
    if ((long_one && thinned(1)) || (sanitized() && _i % 3))
        return;
    Arena arena = {0};
    Case c;
    Diag d = {0};
    open_case(&c, files[_i], &arena);
    read_head(&c);
    Source spec = c.text;
    if (*c.rule)
        ck_assert_msg(find_spec(NULL, c.rule, &arena, &spec, &d), "%s: %s", c.path, d.text);
    d = compile(&c, spec);
    for (int i = 0; i < c.n; i++) {
        check_place(&c, &d, c.expect[i].line, i == 0, &arena);
        ck_assert_msg(strstr(d.text, c.expect[i].part) != NULL, "%s: '%s' is not in: %s", c.path,
                      c.expect[i].part, d.text);
    }
    ck_assert_msg(!*c.nothing || !strstr(d.text, c.nothing), "%s: '%s' is in: %s", c.path,
                  c.nothing, d.text);
    check_repeats(&c, spec, d.text);
    diag_free(&d);
    arena_free(&arena);
}
END_TEST

/* ---- texts that cannot lie in a folder of text files ---- */
static void refuse_text(const char *text, size_t len, const char *part)
{
    Case c = {.path = "made.lua", .stem = "made"};
    Diag d = compile(&c, (Source){"made.lua", text, len});
    ck_assert_msg(!strncmp(d.text, "made.lua:", 9), "the message does not name the file: %s",
                  d.text);
    ck_assert_msg(strstr(d.text, part) != NULL, "'%s' is not in: %s", part, d.text);
    diag_free(&d);
}

static int to_buf(lua_State *L, const void *p, size_t n, void *ud)
{
    (void)L;
    buf_add(ud, p, n);
    return 0;
}

static const char plain[] =
    "return optimizer { name = \"plain\", step = function() p = p - g end }\n";

START_TEST(bytecode)
{
    Buf code = {0};
    lua_State *L = luaL_newstate();
    ck_assert_int_eq(luaL_loadstring(L, plain), LUA_OK);
    lua_dump(L, to_buf, &code, 0);
    lua_close(L);
    ck_assert(code.len > 20);
    refuse_text(code.s, code.len, "bytecode");
    for (size_t n = 1; n < code.len; n += 7)
        refuse_text(code.s, n, "bytecode");
    /* The same through --with. */
    Case c = {
        .path = "made.lua", .stem = "made", .with = "made", .text = {"made.lua", code.s, code.len}};
    Diag d = compile(&c, (Source){"plain.lua", plain, strlen(plain)});
    ck_assert_msg(!strncmp(d.text, "made.lua:", 9) && strstr(d.text, "bytecode"), "%s", d.text);
    diag_free(&d);
    buf_free(&code);
}
END_TEST

START_TEST(not_text)
{
    refuse_text("return optimizer {}\0 --", 23, "zero byte");
    refuse_text("\0", 1, "zero byte");
    refuse_text("", 0, "must return optimizer");
    refuse_text("rules/mine.lua", 14,
                "a spec's text is expected, and 'rules/mine.lua' is a name or a path");
    refuse_text("adamw", 5, "Optimizer(params, \"adamw\")");
    refuse_text("\n\n  \n", 5, "must return optimizer");
    refuse_text("\xff\xfe\x00", 2, "unexpected symbol");
    refuse_text("\x7f" "ELF", 4, "unexpected symbol");
}
END_TEST

START_TEST(too_long)
{
    enum { MOST = 256 << 10 };
    size_t n = strlen(plain);
    char *text = malloc(MOST + 2);
    memcpy(text, plain, n);
    memset(text + n, '-', MOST + 1 - n);
    text[MOST + 1] = 0;
    refuse_text(text, MOST + 1, "over 256 KiB");
    Gen g = {0};
    GenOptions o = {0};
    ck_assert_msg(gen_compile(&g, (Source){"long.lua", text, MOST}, &o),
                  "256 KiB to the byte must do: %s", g.diag.text);
    gen_free(&g);
    free(text);
}
END_TEST

START_TEST(unreadable)
{
    Arena arena = {0};
    Source out;
    char folder[] = "/tmp/optc-bad-XXXXXX", fifo[64];
    ck_assert(mkdtemp(folder) != NULL);
    snprintf(fifo, sizeof fifo, "%s/pipe.lua", folder);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    const struct { const char *path, *part;
    } bad[] = {{"no/such/folder/spec.lua", "No such file"},
               {folder, "directory"},
               {fifo, "not a plain file"},
               {"/dev/zero", "not a plain file"},
               {"", "No such file"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Diag d = {0};
        ck_assert_msg(!read_text(bad[i].path, &arena, &out, &d), "%s was read", bad[i].path);
        ck_assert_msg(d.text && strstr(d.text, bad[i].part), "%s: '%s' is not in: %s", bad[i].path,
                      bad[i].part, d.text);
        diag_free(&d);
    }
    unlink(fifo);
    rmdir(folder);
    arena_free(&arena);
}
END_TEST

/* Lua shortens long paths in its messages; optc must still find the line. */
START_TEST(long_path)
{
    char path[240];
    memset(path, 'd', sizeof path);
    memcpy(path + sizeof path - 10, "/spec.lua", 10);
    static const char *const text[] = {"local x = nil + 1\n", "return optimizer {\n",
                                       "local t = {}\nt.x.y = 1\n"};
    static const int line[] = {1, 2, 2};
    for (int i = 0; i < 3; i++) {
        Gen g = {0};
        GenOptions o = {0};
        ck_assert(!gen_compile(&g, (Source){path, text[i], strlen(text[i])}, &o));
        ck_assert_msg(abs(g.diag.line - line[i]) <= (i == 1), "line %d was expected: %s", line[i],
                      g.diag.text);
        ck_assert_msg(!strncmp(g.diag.text, path, strlen(path)) && !strstr(g.diag.text, "..."),
                      "%s", g.diag.text);
        gen_free(&g);
    }
}
END_TEST

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_files(void)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s/bad", tests_folder());
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) && nfiles < MAX_FILES;) {
        size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 4, ".lua"))
            continue;
        size_t room = strlen(folder) + n + 2;
        files[nfiles] = malloc(room);
        snprintf(files[nfiles++], room, "%s/%s", folder, e->d_name);
    }
    if (d)
        closedir(d);
    qsort(files, (size_t)nfiles, sizeof *files, by_text);
}

START_TEST(found_some)
{
    ck_assert_msg(nfiles >= 50, "%d bad specs in %s/bad: run from the repository's root", nfiles,
                  tests_folder());
}
END_TEST

Suite *bad_suite(void)
{
    Suite *s = suite_create("bad");
    TCase *t = tcase_create("bad specs");
    list_files();
    tcase_set_timeout(t, 60);
    tcase_add_test(t, found_some);
    tcase_add_loop_test(t, refused, 0, nfiles);
    tcase_add_test(t, bytecode);
    tcase_add_test(t, not_text);
    tcase_add_test(t, too_long);
    tcase_add_test(t, unreadable);
    tcase_add_test(t, long_path);
    suite_add_tcase(s, t);
    return s;
}
