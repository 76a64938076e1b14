/* Rewrites a line of a spec that changes p by itself, p = p - lr * m / d, with the words shrink and
 * descend (step_parts.c), for the message about it. Text only: a form that it does not know gives
 * NULL. */
#include "gen/front/trace.h"

#include <ctype.h>
#include <string.h>

enum { REWRITE_FACTORS = 16 };
/* A factor; op: '*' or '/' ahead of it. */
typedef struct Piece { const char *at; size_t n; char op; } Piece;

static bool word_at(const char *s, const char *word, const char *from)
{
    size_t n = strlen(word);
    bool starts = s == from || (!isalnum((unsigned char)s[-1]) && s[-1] != '_' && s[-1] != '.');
    return starts && !strncmp(s, word, n) && !isalnum((unsigned char)s[n]) && s[n] != '_';
}

static bool piece_has(Piece f, const char *word)
{
    for (const char *s = f.at; s < f.at + f.n; s++)
        if (word_at(s, word, f.at))
            return true;
    return false;
}

/* Without spaces around it, and without parentheses around all of it. */
static Piece bare(Piece f)
{
    int depth = 0;
    for (; f.n && isspace((unsigned char)*f.at); f.n--)
        f.at++;
    while (f.n && isspace((unsigned char)f.at[f.n - 1]))
        f.n--;
    for (size_t i = 0; i < f.n && *f.at == '('; i++) {
        depth += f.at[i] == '(' ? 1 : f.at[i] == ')' ? -1 : 0;
        if (!depth)
            return i + 1 == f.n ? bare((Piece){f.at + 1, f.n - 2, f.op}) : f;
    }
    return f;
}

/* The factors of the product that begins at s, up to the end of the statement. 0: it is no product,
 * or it does not end in this line. */
static int split_product(const char *s, Piece *f)
{
    int n = 0, depth = 0;
    const char *from = s;
    char op = '*';
    for (;; s++) {
        bool after = isspace((unsigned char)s[-1]);
        bool ends = !*s || strchr("\r\n;", *s) || (*s == '-' && s[1] == '-') ||
                    (!depth && (*s == ',' || (after && word_at(s, "end", from))));
        if (!ends && !depth && (*s == '+' || *s == '-' || *s == '^'))
            return 0;
        depth += strchr("([{", *s) && *s ? 1 : strchr(")]}", *s) && *s ? -1 : 0;
        if (depth < 0 || n == REWRITE_FACTORS)
            return 0;
        if (!ends && (depth || (*s != '*' && *s != '/')))
            continue;
        f[n] = (Piece){from, (size_t)(s - from), op};
        if (depth || !bare(f[n++]).n)
            return 0;
        if (ends)
            return n;
        op = *s, from = s + 1;
    }
}

static void put_pieces(Buf *b, const Piece *f, int n)
{
    for (int i = 0; i < n; i++) {
        Piece x = n == 1 ? bare(f[i]) : f[i];
        for (; x.n && isspace((unsigned char)*x.at); x.n--)
            x.at++;
        while (x.n && isspace((unsigned char)x.at[x.n - 1]))
            x.n--;
        buf_printf(b, "%s%.*s", i ? f[i].op == '*' ? " * " : " / " : "", (int)x.n, x.at);
    }
}

/* The step is rate * x, rate * x * y, rate * x / d or rate * x * y / d; a longer one is
 * rate * (x …). */
static void put_step(Buf *b, const Piece *f, int n, int rate)
{
    const Piece *x = f + rate;
    int m = n - rate, times = m > 1 && x[1].op == '*', over = m > 1 + times;
    bool one = m == 1, apart = m == 1 + times + over;
    buf_puts(b, one || !apart ? "p = descend(p, " : "p = descend(p, { ");
    put_pieces(b, x, apart ? 1 : m);
    if (apart && times)
        buf_puts(b, ", times = "), put_pieces(b, x + 1, 1);
    if (apart && over)
        buf_puts(b, ", over = "), put_pieces(b, x + 1 + times, 1);
    buf_puts(b, one || !apart ? ", " : " }, ");
    put_pieces(b, f, rate);
    buf_puts(b, ")");
}

const char *step_rewrite(Arena *a, const char *line)
{
    static const char begin[] = "p = p - ";
    Piece f[REWRITE_FACTORS];
    Buf b = {.arena = a};
    const char *s = line, *end = line + strcspn(line, "\r\n");
    while (s < end && !(word_at(s, "p", line) && !strncmp(s, begin, sizeof begin - 1)))
        s++;
    int n = s < end ? split_product(s + sizeof begin - 1, f) : 0, rate = 1;
    if (n < 2)
        return NULL;
    Piece last = bare(f[n - 1]);
    bool product = true;
    for (int i = 0; i < n; i++)
        product = product && f[i].op == '*';
    if (product && last.n == 1 && *last.at == 'p') {
        buf_puts(&b, "p = shrink(p, ");
        put_pieces(&b, f, n - 1);
        buf_puts(&b, ")");
        return buf_text(&b);
    }
    while (rate < n && f[rate].op == '/')
        rate++;
    if (rate == n || !piece_has(f[0], "lr"))
        return NULL;
    put_step(&b, f, n, rate);
    return buf_text(&b);
}
