/* Build helper: writes the built-in rules as C, one file each, and a table of them by the hash of
 * their code.
 *   prebuild FOLDER [ID…]     all rules, or the named ones
 * The Makefile compiles every file once for each vector level N, with
 * OPTC_MODULE=optc_builtin_NAME_N. A rule whose text and flags are as before keeps its file, and so
 * its objects. */
#include "runtime/library/rule/spec_find.h"

#include "runtime/library/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *create(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        exit(1);
    }
    return f;
}

static bool file_holds(const char *path, const char *text)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    int c;
    while ((c = getc(f)) != EOF && c == (unsigned char)*text)
        text++;
    fclose(f);
    return c == EOF && !*text;
}

/* The flags are a comment at the end: objects are made again when they change. */
static void write_rule(const char *dir, const char *id, const char *text)
{
    char path[1024];
    Buf b = {0};
    buf_printf(&b, "%s/* %s", text, compile_flags);
    for (int i = 0; i < optc_isas(); i++)
        buf_printf(&b, ", %s", isas[i].flags);
    buf_puts(&b, " */\n");
    snprintf(path, sizeof path, "%s/%s.c", dir, id);
    if (!buf_text(&b) || !file_holds(path, buf_text(&b))) {
        FILE *f = create(path);
        if (!buf_text(&b) || fputs(buf_text(&b), f) == EOF || fclose(f) != 0)
            exit(1);
    }
    buf_free(&b);
}

static char **wanted;          /* IDs from the command line; none: all rules */

static bool is_wanted(const char *id)
{
    bool found = !*wanted;
    for (char **w = wanted; *w; w++)
        found = found || !strcmp(*w, id);
    return found;
}

static void put_rule(const char *dir, const char *rule, const char *with, const char *options,
                     const char *types, const char *id, FILE *table, Buf *rows)
{
    if (!is_wanted(id))
        return;
    Gen g = {0};
    Source src;
    GenOptions o = {.with = with, .options = options, .find = find_wrapper, .find_ctx = ""};
    char *text = NULL;
    if (types_choose(&g.arena, types, -1, -1, -1, &o.types, &g.diag) &&
        find_spec("", rule, &g.arena, &src, &g.diag) && gen_compile(&g, src, &o))
        text = gen_emit(&g, &(EmitOptions){.target = &target_c}, &g.diag);
    char key[DIGEST_HEX];
    if (!text || !emit_key(text, key)) {
        fprintf(stderr, "prebuild: %s: %s\n", id, g.diag.text ? g.diag.text : "failed");
        exit(1);
    }
    write_rule(dir, id, text);
    int n = optc_isas();
    fprintf(table, "extern const optc_module");
    for (int i = 0; i < n; i++)
        fprintf(table, " optc_builtin_%s_%d%s", id, i, i + 1 < n ? "," : ";\n");
    fprintf(table, "static const optc_module *const module_%s[] = {", id);
    for (int i = 0; i < n; i++)
        fprintf(table, "&optc_builtin_%s_%d, ", id, i);
    fprintf(table, "0};\n");
    buf_printf(rows, "    {\"%s\", module_%s},\n", key, id);
    free(text);
    gen_free(&g);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--flags") && atoi(argv[2]) < optc_isas())
        return printf("%s %s\n", compile_flags, isas[atoi(argv[2])].flags) < 0;
    if (argc < 2) {
        fprintf(stderr, "usage: prebuild FOLDER [ID...] | --flags LEVEL\n");
        return 2;
    }
    wanted = argv + 2;
    char path[1024];
    snprintf(path, sizeof path, "%s/builtin_table.c", argv[1]);
    FILE *table = create(path);
    Buf rows = {0};
    fprintf(table, "#include \"runtime/library/internal.h\"\n");
    for (const BuiltinName *b = library_builtin; b->rule; b++)
        put_rule(argv[1], b->rule, "", "", "", b->rule, table, &rows);
    for (const Composition *c = library_compositions; c->rule; c++)
        put_rule(argv[1], c->rule, c->with, "", "", c->id, table, &rows);
    for (const Configuration *v = library_variants; v->rule; v++)
        put_rule(argv[1], v->rule, "", v->options, "", v->id, table, &rows);
    for (const TypedRule *t = library_types; t->rule; t++)
        put_rule(argv[1], t->rule, t->with, "", t->types, t->id, table, &rows);
    fprintf(table, "const Builtin builtin_rules[] = {\n%s    {0, 0},\n};\n",
            buf_text(&rows) ? buf_text(&rows) : "#error out of memory\n");
    buf_free(&rows);
    return fclose(table) == 0 ? 0 : 1;
}
