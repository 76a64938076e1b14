/* Release figures: `optc bench` with tables of bars, suites of rows, every rule of the library, and
 * rivals that are sharded or have other types. The program links the command's objects. */
#ifndef OPTC_RELEASE_H
#define OPTC_RELEASE_H
#include "tools/bench/bench.h"

/* ---- bars.c ---- */
/* The figures that a rule must reach; 0: no requirement. ms: a step; share: of the rate of copying;
 * eager, graph: speed relative to torch's best and to its CUDA graph; host: microseconds; slowest:
 * a period's slowest step over its mean;
 * cold, warm: milliseconds to the end of the first step; suite: the row belongs to --suite. */
typedef struct Bar {
    const char *work, *rule; double ms, share, eager, graph, host, slowest, cold, warm, suite;
} Bar;
enum { MOST_BARS = 100 };
typedef struct Bars { char *text; Bar v[MOST_BARS]; int n; } Bars;
/* path NULL: the file of the source tree; no bars if there is no tree. false: it has printed the
 * reason. */
bool bars_read(Bars *t, const char *path);
const Bar *bars_find(const Bars *t, const char *work, const char *rule);    /* NULL: none */
/* NAME=VALUE,… of --bar; false: it has printed the reason */
bool bars_add(Bar *x, const char *list);
void bars_over(Bar *x, const Bar *y);          /* the bars of y replace those of x */
void bars_print(const Bar *x);                 /* " NAME=VALUE…" */
void bars_list(Bars *t);
/* Appends the names of the bars that the case misses. asked: a figure that was not measured misses
 * these. */
void bars_missed(const Case *c, const Medians *m, const Bar *bar, const Bar *asked, Buf *names);

/* ---- sharded_rival.c, mixed_rival.c ---- */
extern const RivalKind rival_sharded, rival_mixed, rival_types;
extern const char *rival_other_types;          /* --other-types; NULL: none */
#endif
