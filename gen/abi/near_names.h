/* Finds the up to three known names nearest to a misspelt one, for "did you mean". Pasted into
 * packages and included by gen/base/diag.h. */
#ifndef OPTC_NEAR_H
#define OPTC_NEAR_H
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define OPTC_NEAR static inline __attribute__((unused))

typedef struct Near { const char *want; const char *best[3]; int dist[3]; int n; } Near;

OPTC_NEAR int edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > 63 || m > 63)
        return 99;
    int row[64];
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diag = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int up = row[j];
            int cost =
                diag + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            int least = up + 1 < row[j - 1] + 1 ? up + 1 : row[j - 1] + 1;
            row[j] = cost < least ? cost : least;
            diag = up;
        }
    }
    return row[m];
}

OPTC_NEAR void near_try(Near *n, const char *name)
{
    const char *dot = strrchr(name, '.');                  /* max_norm for clip.max_norm */
    int d = edit_distance(n->want, name), own = dot ? edit_distance(n->want, dot + 1) : d;
    d = own < d ? own : d;
    size_t len = strlen(n->want);
    bool prefix = len >= 3 && !strncmp(n->want, name, len);
    if (prefix && d > 2)
        d = 2;
    if (d > (len <= 2 ? 1 : len <= 5 ? 2 : 3))
        return;
    for (int i = 0; i < n->n; i++)
        if (!strcmp(n->best[i], name))
            return;
    int at = n->n;
    while (at > 0 &&
           (n->dist[at - 1] > d || (n->dist[at - 1] == d && strcmp(n->best[at - 1], name) > 0)))
        at--;                            /* equal distances: by name, so the result does not depend
                                          * on input order */
    if (at >= 3)
        return;
    for (int i = n->n < 3 ? n->n : 2; i > at; i--) {
        n->best[i] = n->best[i - 1];
        n->dist[i] = n->dist[i - 1];
    }
    n->best[at] = name;
    n->dist[at] = d;
    if (n->n < 3)
        n->n++;
}

OPTC_NEAR const char *near_print(const Near *n, char *buf, size_t size)
{
    if (n->n == 0)
        snprintf(buf, size, "%s", "");
    else if (n->n == 1)
        snprintf(buf, size, "; did you mean '%s'?", n->best[0]);
    else if (n->n == 2)
        snprintf(buf, size, "; did you mean '%s' or '%s'?", n->best[0], n->best[1]);
    else
        snprintf(buf, size, "; did you mean '%s', '%s' or '%s'?", n->best[0], n->best[1],
                 n->best[2]);
    return buf;
}
#endif
