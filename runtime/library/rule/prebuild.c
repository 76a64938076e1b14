/* Build helper: writes the built-in rules as C, one file each, and a table of them by the hash of
 * their code.
 *   prebuild FOLDER [ID…]     all rules, or the named ones
 * The Makefile compiles every file once for each vector level N, with
 * OPTC_MODULE=optc_builtin_NAME_N. */
#include "runtime/library/rule/spec_find.h"

#include "runtime/library/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *create(const char *dir, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        exit(1);
    }
    return f;
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
    char name[128], key[DIGEST_HEX];
    if (!text || !emit_key(text, key)) {
        fprintf(stderr, "prebuild: %s: %s\n", id, g.diag.text ? g.diag.text : "failed");
        exit(1);
    }
    snprintf(name, sizeof name, "%s.c", id);
    FILE *f = create(dir, name);
    fputs(text, f);
    if (fclose(f) != 0)
        exit(1);
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
    FILE *table = create(argv[1], "builtin_table.c");
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
