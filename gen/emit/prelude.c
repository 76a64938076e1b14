/* Selects the snippets of the prelude that emitted code needs.
 *
 * A snippet is a paragraph of a file: from an unindented line after an empty line to the next one.
 * Its names are those that it defines at the left margin and that begin with optc_ or OPTC_. It is
 * needed if the code or another needed snippet uses one of its names. A mark in its first line,
 * which is not printed, changes that:
 *   //@ none             never used (include guards of the file)
 *   //@ cuda, //@ c      for this target only
 *   //@ if NAME          only if NAME is needed too
 *   //@ lines            every line is a snippet
 *   //@ = NAME…          the names of the snippet
 *   //@ types            repeated for each storage type, with the holes of type_holes (also `//@
 *                        types = NAME…`); an earlier snippet that defines the same name replaces
 *                        it */
#include "gen/emit/prelude.h"

#include "gen/emit/template.h"

#include <ctype.h>
#include <string.h>

typedef struct { const char *s; size_t n; } Part;
typedef struct Snippet { Part text, mark; Part *name; int nname, cap; bool line, taken; } Snippet;

typedef struct Names { Part *name; int n, cap; } Names;        /* a hash table */

typedef struct Prelude {
    Arena *arena;
    const char *target;
    Snippet *snippet; int nsnippet, cap;
    Names wanted, defined;                     /* defined: by the snippets so far */
} Prelude;

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }
static bool same(Part a, const char *s) { return strlen(s) == a.n && !memcmp(a.s, s, a.n); }

/* The next name that begins with optc_ or OPTC_ in [s, end), outside of comments; n 0: none. */
static Part next_name(const char *s, const char *end)
{
    while (s < end) {
        if (end - s > 1 && s[0] == '/' && s[1] == '*') {
            for (s += 2; s < end && !(s[-1] == '*' && s[0] == '/' && s[-2] != '/'); s++)
                ;
            s += s < end;
        } else if (is_word(*s)) {
            const char *at = s;
            while (s < end && is_word(*s))
                s++;
            if (s - at > 5 && (!memcmp(at, "optc_", 5) || !memcmp(at, "OPTC_", 5)))
                return (Part){at, (size_t)(s - at)};
        } else {
            s++;
        }
    }
    return (Part){end, 0};
}

static Part *find_name(const Names *t, Part name)
{
    uint64_t h = hash64(5, name.s, name.n), mask = (uint64_t)(t->cap - 1);
    while (t->name[h & mask].n &&
           (t->name[h & mask].n != name.n || memcmp(t->name[h & mask].s, name.s, name.n)))
        h++;
    return &t->name[h & mask];
}

static bool has_name(const Names *t, Part name) { return t->cap && find_name(t, name)->n; }

static void add_name(Names *t, Arena *a, Part name)
{
    if (t->n * 2 >= t->cap) {
        Names old = *t;
        t->cap = old.cap ? old.cap * 2 : 256;
        t->name = NEWS(a, Part, t->cap);
        for (int i = 0; i < old.cap; i++)
            if (old.name[i].n)
                *find_name(t, old.name[i]) = old.name[i];
    }
    Part *at = find_name(t, name);
    t->n += !at->n;
    *at = name;
}

static void want_all(Prelude *p, Part text)
{
    const char *end = text.s + text.n;
    for (Part n = next_name(text.s, end); n.n; n = next_name(n.s + n.n, end))
        add_name(&p->wanted, p->arena, n);
}

/* ---- snippets ---- */
static const char *line_end(const char *s)
{
    return s + strcspn(s, "\n") + (s[strcspn(s, "\n")] == '\n');
}

/* The name that an unindented line defines: the word after #define or struct, else the first name
 * that is followed by a parenthesis or semicolon. */
static Part defined(const char *s, const char *end)
{
    const char *word = !strncmp(s, "#define ", 8) ? s
                       : strncmp(s, "template", 8) && strncmp(s, "struct", 6)
                           ? NULL
                           : memmem(s, (size_t)(end - s), "struct optc_", 12);
    if (word)
        return next_name(word, end);
    for (Part n = next_name(s, end); n.n; n = next_name(n.s + n.n, end))
        if (n.s[n.n] == '(' || n.s[n.n] == ';')
            return n;
    return strncmp(s, "struct", 6) ? (Part){end, 0} : next_name(s, end);
}

static void name_snippet(Prelude *p, Snippet *x)
{
    bool named = x->mark.n && *x->mark.s == '=';
    const char *end = named ? x->mark.s + x->mark.n : x->text.s + x->text.n;
    for (const char *s = named ? x->mark.s : x->text.s; s < end; s = named ? s : line_end(s)) {
        bool margin = isalpha((unsigned char)*s) || *s == '#' || *s == '}';
        Part n = named ? next_name(s, end) : margin ? defined(s, line_end(s)) : (Part){s, 0};
        if (n.n)
            PUSH(p->arena, x->name, x->nname, x->cap) = n;
        s = named ? n.s + n.n : s;
    }
}

static void push_snippet(Prelude *p, const Snippet *x)
{
    for (int i = 0; i < x->nname; i++)
        add_name(&p->defined, p->arena, x->name[i]);
    PUSH(p->arena, p->snippet, p->nsnippet, p->cap) = *x;
}

static void add_snippet(Prelude *p, Part mark, const char *from, const char *to)
{
    bool lines = same(mark, "lines");
    for (const char *s = from, *end; s < to && (!lines || *s != '\n'); s = end) {
        end = lines ? line_end(s) : to;
        Snippet x = {
            .text = {s, (size_t)(end - s)}, .mark = lines ? (Part){"", 0} : mark, .line = lines};
        name_snippet(p, &x);
        push_snippet(p, &x);
    }
}

void type_holes(Type t, Hole h[NTYPEHOLE])
{
    const TypeInfo *x = &type_info[t];
    memcpy(h, (Hole[]){{"name", x->name}, {"c", x->c}, {"load", x->load}, {"store", x->store},
                       {"real", type_info[x->compute].c}}, sizeof(Hole) * NTYPEHOLE);
}

static bool defined_before(const Prelude *p, const Snippet *x)
{
    for (int i = 0; i < x->nname; i++)
        if (has_name(&p->defined, x->name[i]))
            return true;
    return false;
}

/* A snippet with an unknown hole is left out: code that needs it does not compile. */
static void add_per_type(Prelude *p, Part mark, const char *from, const char *to)
{
    for (int t = 0; t < NTYPES; t++) {
        Hole h[NTYPEHOLE];
        Buf names = {.arena = p->arena}, text = {.arena = p->arena};
        type_holes((Type)t, h);
        bool ok = template_fill_text(&names, mark.s, mark.s + mark.n, h, NTYPEHOLE) &&
                  template_fill_text(&text, from, to, h, NTYPEHOLE);
        const char *named = strchr(buf_text(&names), '=');
        Snippet x = {.text = {buf_text(&text), text.len},
                     .mark = {named, named ? strlen(named) : 0}};
        name_snippet(p, &x);
        if (ok && !defined_before(p, &x))
            push_snippet(p, &x);
    }
}

static void add_file(Prelude *p, const char *text)
{
    for (const char *s = text, *end; *s; s = end) {
        Part mark = {"", 0};
        const char *from = s;
        if (!strncmp(s, "//@ ", 4)) {
            from = line_end(s);
            mark = (Part){s + 4, strcspn(s + 4, "\n")};
        }
        for (end = from; *end && !(*end == '\n' && !isspace((unsigned char)end[1]));
             end = line_end(end));
        end += *end == '\n';
        bool per_type = mark.n >= 5 && !memcmp(mark.s, "types", 5);
        (per_type ? add_per_type : add_snippet)(p, mark, from, end);
    }
}

static bool knows(const Prelude *p, const Snippet *x)
{
    for (int i = 0; i < x->nname; i++)
        if (has_name(&p->wanted, x->name[i]))
            return true;
    return false;
}

static bool fits(const Prelude *p, const Snippet *x)
{
    if (!x->mark.n || *x->mark.s == '=')
        return true;
    if (x->mark.n > 3 && !memcmp(x->mark.s, "if ", 3))
        return has_name(&p->wanted, (Part){x->mark.s + 3, x->mark.n - 3});
    return same(x->mark, p->target);
}

void prelude_put(Buf *out, Arena *a, const char *const *files, const char *target, const char *code)
{
    Prelude p = {.arena = a, .target = target};
    for (; *files; files++)
        add_file(&p, template_text(*files));
    want_all(&p, (Part){code, strlen(code)});
    for (bool more = true; more;) {
        more = false;
        /* snippets mostly use earlier ones: one round finds nearly all */
        for (int i = p.nsnippet - 1; i >= 0; i--)
            if (!p.snippet[i].taken && fits(&p, &p.snippet[i]) && knows(&p, &p.snippet[i])) {
                p.snippet[i].taken = more = true;
                want_all(&p, p.snippet[i].text);
            }
    }
    const Snippet *last = NULL;
    for (int i = 0; i < p.nsnippet; i++) {
        const Snippet *x = &p.snippet[i];
        if (!x->taken)
            continue;
        if (last && !(last->line && x->line) && memcmp(out->s + out->len - 2, "\n\n", 2))
            buf_puts(out, "\n");
        buf_add(out, x->text.s, x->text.n);
        last = x;
    }
    if (last && memcmp(out->s + out->len - 2, "\n\n", 2))
        buf_puts(out, "\n");
}
