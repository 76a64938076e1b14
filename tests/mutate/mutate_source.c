/* Lists changes of C sources that tests should notice, in an order that a seed decides, or prints a
 * source with one of them.
 *   mutate_source SEED FILE…      per change: NUMBER FILE LINE BEFORE AFTER, separated by tabs
 *   mutate_source SEED=N FILE…    the source with change N, on stdout
 * Changes are inside of functions: a condition is negated, a comparison is off by one, && and ||
 * are exchanged, an integer is one more or less, a statement is deleted, two arguments are
 * exchanged. The number of elements of a declared array stays: a larger buffer is no defect. */
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Token {
    int at, n, line, parens; /* parens: how many are open around it */
    bool in_body;
} Token;

typedef struct Source {
    const char *name;
    char *text;
    Token *token;
    int n;
} Source;

typedef struct Change {
    const Source *source;
    int at, n, line; /* what is replaced */
    char *by;
    uint64_t order;
} Change;

static Change *changes;
static int nchange;
static uint64_t seed;

static _Noreturn void stop(const char *what)
{
    perror(what);
    exit(2);
}

static void *need(void *p)
{
    return p ? p : (stop("memory"), NULL);
}

static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The order depends on the seed, the file and the place, not on the other files. */
static void add(const Source *s, int at, int n, int line, char *by)
{
    uint64_t h = mixed(seed);
    for (const char *c = s->name; *c; c++)
        h = mixed(h ^ (unsigned char)*c);
    h = mixed(h ^ (uint64_t)at);
    for (const char *c = by; *c; c++)
        h = mixed(h ^ (unsigned char)*c);
    changes = need(realloc(changes, sizeof *changes * (size_t)(nchange + 1)));
    changes[nchange++] = (Change){s, at, n, line, by, h};
}

static char *joined(const char *a, const char *b, int n, const char *c)
{
    size_t all = strlen(a) + (size_t)n + strlen(c) + 1;
    char *s = need(malloc(all));
    snprintf(s, all, "%s%.*s%s", a, n, b, c);
    return s;
}

static bool is(const Source *s, int i, const char *word)
{
    return i >= 0 && i < s->n && s->token[i].n == (int)strlen(word) &&
           !memcmp(s->text + s->token[i].at, word, strlen(word));
}

static bool is_one_of(const Source *s, int i, const char *const *words)
{
    for (; *words; words++)
        if (is(s, i, *words))
            return true;
    return false;
}

static bool is_name(const Source *s, int i)
{
    char c = i >= 0 && i < s->n ? s->text[s->token[i].at] : 0;
    return isalpha((unsigned char)c) || c == '_';
}

static int name_length(const char *t)
{
    int n = 0;
    while (isalnum((unsigned char)t[n]) || t[n] == '_')
        n++;
    return n;
}

static int quoted_length(const char *t)
{
    int n = 1;
    while (t[n] && t[n] != t[0])
        n += t[n] == '\\' && t[n + 1] ? 2 : 1;
    return n + (t[n] != 0);
}

static int number_length(const char *t)
{
    int n = 0;
    while (isalnum((unsigned char)t[n]) || t[n] == '.' ||
           ((t[n] == '-' || t[n] == '+') && n && strchr("eEpP", t[n - 1]) &&
            (t[1] != 'x' || strchr("pP", t[n - 1]))))
        n++;
    return n;
}

static int token_length(const char *t)
{
    static const char *const three[] = {"<<=", ">>=", "..."};
    static const char *const two[] = {"->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&",
                                      "||", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="};
    if (isdigit((unsigned char)*t) || (*t == '.' && isdigit((unsigned char)t[1])))
        return number_length(t);
    if (isalpha((unsigned char)*t) || *t == '_')
        return name_length(t);
    if (*t == '"' || *t == '\'')
        return quoted_length(t);
    for (size_t i = 0; i < sizeof three / sizeof *three; i++)
        if (!strncmp(t, three[i], 3))
            return 3;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (!strncmp(t, two[i], 2))
            return 2;
    return 1;
}

/* The length of space, a comment or a directive at t; 0 if a token begins there. */
static int skipped(const char *t, bool line_begins)
{
    if (isspace((unsigned char)*t))
        return 1;
    const char *end = NULL;
    if (t[0] == '/' && t[1] == '*')
        end = strstr(t + 2, "*/") ? strstr(t + 2, "*/") + 2 : NULL;
    else if (*t == '#' && line_begins)
        for (end = t; *end && (*end != '\n' || end[-1] == '\\');)
            end++;
    else
        return 0;
    return end ? (int)(end - t) : (int)strlen(t);
}

static void tokenize(Source *s)
{
    int line = 1, parens = 0, braces = 0;
    bool line_begins = true, in_body = false;
    s->token = need(malloc(sizeof *s->token * (strlen(s->text) + 1)));
    for (int i = 0; s->text[i];) {
        int n = skipped(s->text + i, line_begins);
        bool blank = n > 0;
        if (!blank) {
            n = token_length(s->text + i);
            char c = s->text[i];
            parens -= c == ')';
            if (c == '{' && !braces++)
                in_body = is(s, s->n - 1, ")");
            s->token[s->n++] = (Token){i, n, line, parens, in_body};
            parens += c == '(';
            if (c == '}' && !--braces)
                in_body = false;
            line_begins = false;
        }
        for (int end = i + n; i < end; i++)
            if (s->text[i] == '\n')
                line++, line_begins = true;
    }
}

/* The token that closes the parenthesis of token i. */
static int closing(const Source *s, int i)
{
    int end = i + 1;
    while (end < s->n && !(s->token[end].parens == s->token[i].parens && is(s, end, ")")))
        end++;
    return end;
}

static void replace(const Source *s, int i, char *by)
{
    add(s, s->token[i].at, s->token[i].n, s->token[i].line, by);
}

static void change_condition(const Source *s, int i)
{
    static const char *const pairs[][2] = {{"<", "<="},  {"<=", "<"},  {">", ">="},  {">=", ">"},
                                           {"==", "!="}, {"!=", "=="}, {"&&", "||"}, {"||", "&&"}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
        if (is(s, i, pairs[k][0]))
            replace(s, i, joined(pairs[k][1], "", 0, ""));
    int end = closing(s, i + 1);
    if ((is(s, i, "if") || is(s, i, "while")) && is(s, i + 1, "(") && end < s->n) {
        int at = s->token[i + 1].at, n = s->token[end].at + 1 - at;
        add(s, at, n, s->token[i].line, joined("(!", s->text + at, n, ")"));
    }
}

static bool sizes_an_array(const Source *s, int i)
{
    return is(s, i - 1, "[") && is(s, i + 1, "]") && is_name(s, i - 2) &&
           (is_name(s, i - 3) || is(s, i - 3, "*") || is(s, i - 3, ","));
}

static void change_number(const Source *s, int i)
{
    const char *t = s->text + s->token[i].at;
    int n = s->token[i].n;
    if (!isdigit((unsigned char)*t) || memchr(t, '.', (size_t)n) || sizes_an_array(s, i) ||
        (t[1] != 'x' && (memchr(t, 'e', (size_t)n) || memchr(t, 'E', (size_t)n))))
        return;
    replace(s, i, joined("(", t, n, " + 1)"));
    replace(s, i, joined("(", t, n, " - 1)"));
}

static bool begins_statement(const Source *s, int i)
{
    static const char *const before[] = {";", "{", "}", "else", "do", NULL};
    static const char *const heads[] = {"if", "for", "while", "switch", NULL};
    if (s->token[i].parens)
        return false;
    if (!is(s, i - 1, ")"))
        return is_one_of(s, i - 1, before);
    int open = i - 2;
    while (open > 0 && !(s->token[open].parens == s->token[i - 1].parens && is(s, open, "(")))
        open--;
    return is_one_of(s, open - 1, heads);
}

static void delete_statement(const Source *s, int i)
{
    static const char *const others[] = {"return", "if",   "for",    "while", "do",
                                         "switch", "case", "static", "goto",  NULL};
    static const char *const follows[] = {"(",  ".",  "->", "[",  "=",  "++", "--", "+=",
                                          "-=", "*=", "/=", "%=", "|=", "&=", "^=", NULL};
    static const char *const begins[] = {"*", "(", "++", "--", NULL};
    static const char *const jumps[] = {"break", "continue", NULL};
    if (!begins_statement(s, i) || is_one_of(s, i, others) ||
        !((is_name(s, i) && is_one_of(s, i + 1, follows)) || is_one_of(s, i, begins) ||
          is_one_of(s, i, jumps)))
        return;
    int end = i;
    while (end < s->n && !(is(s, end, ";") && !s->token[end].parens))
        end++;
    if (end < s->n)
        add(s, s->token[i].at, s->token[end].at - s->token[i].at, s->token[i].line,
            joined("", "", 0, ""));
}

/* Two arguments beside each other of the call at token i. */
static void swap_arguments(const Source *s, int i)
{
    static const char *const words[] = {"if", "for", "while", "switch", "sizeof", "return", NULL};
    if (!is_name(s, i) || is_one_of(s, i, words) || !is(s, i + 1, "("))
        return;
    int end = closing(s, i + 1), from[64], n = 0, nested = 0;
    for (int k = i + 1; k <= end && k < s->n && n < 64; k++) {
        nested += is(s, k, "{") || is(s, k, "[");
        nested -= is(s, k, "}") || is(s, k, "]");
        if (k == i + 1 || k == end ||
            (is(s, k, ",") && !nested && s->token[k].parens == s->token[i].parens + 1))
            from[n++] = k;
    }
    for (int k = 0; k + 2 < n; k++) {
        int a = s->token[from[k] + 1].at, b = s->token[from[k + 1] + 1].at;
        int an = s->token[from[k + 1]].at - a, bn = s->token[from[k + 2]].at - b;
        if (an == bn && !memcmp(s->text + a, s->text + b, (size_t)an))
            continue;
        char *first = joined("", s->text + b, bn, ", ");
        add(s, a, b + bn - a, s->token[from[k] + 1].line, joined(first, s->text + a, an, ""));
        free(first);
    }
}

static Source read_source(const char *name)
{
    Source s = {.name = name};
    FILE *f = fopen(name, "rb");
    if (!f || fseek(f, 0, SEEK_END))
        stop(name);
    long size = ftell(f);
    rewind(f);
    s.text = need(calloc(1, (size_t)size + 1));
    if (fread(s.text, 1, (size_t)size, f) != (size_t)size)
        stop(name);
    fclose(f);
    tokenize(&s);
    return s;
}

static int by_order(const void *a, const void *b)
{
    const Change *x = a, *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

/* In one line: runs of space become one. */
static void print_short(const char *text, int n)
{
    const char *const end = text + (n < 90 ? n : 90);
    for (const char *c = text; c < end; c++)
        if (!isspace((unsigned char)*c))
            putchar(*c);
        else if (!isspace((unsigned char)c[1]))
            putchar(' ');
    printf("%s", n > 90 ? "…" : "");
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return fprintf(stderr, "usage: mutate_source SEED[=N] FILE...\n"), 2;
    char *which = strchr(argv[1], '=');
    seed = strtoull(argv[1], NULL, 10);
    Source *sources = need(calloc((size_t)argc, sizeof *sources));
    for (int k = 2; k < argc; k++) {
        Source *s = &sources[k];
        *s = read_source(argv[k]);
        for (int i = 0; i < s->n; i++)
            if (s->token[i].in_body) {
                change_condition(s, i);
                change_number(s, i);
                delete_statement(s, i);
                swap_arguments(s, i);
            }
    }
    if (!nchange)
        return fprintf(stderr, "nothing to change\n"), 2;
    qsort(changes, (size_t)nchange, sizeof *changes, by_order);
    for (int k = 0; k < nchange; k++) {
        const Change *c = &changes[k];
        const char *text = c->source->text;
        if (which && atoi(which + 1) == k)
            return printf("%.*s%s%s", c->at, text, c->by, text + c->at + c->n) < 0;
        if (which)
            continue;
        printf("%d\t%s\t%d\t", k, c->source->name, c->line);
        print_short(text + c->at, c->n);
        putchar('\t');
        print_short(*c->by ? c->by : "nothing", (int)strlen(*c->by ? c->by : "nothing"));
        putchar('\n');
    }
    return which ? 2 : 0;
}
