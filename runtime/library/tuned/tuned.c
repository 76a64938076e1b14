/* Lists of tuned results: sorted by key, searched, merged. */
#include "runtime/library/tuned/tuned.h"
#include "runtime/library/base/line_reader.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int tuned_bucket(int64_t elements) { return size_bucket(elements); }

/* Compares keys without the size bucket. */
static int compare_stage(const TunedKey *a, const TunedKey *b)
{
    int c = strcmp(a->device, b->device);
    c = c ? c : (a->units > b->units) - (a->units < b->units);
    c = c ? c : (a->driver > b->driver) - (a->driver < b->driver);
    c = c ? c : (int)a->form - (int)b->form;
    c = c ? c : strcmp(a->types, b->types);
    return c ? c : strcmp(a->stage, b->stage);
}

int tuned_compare(const TunedKey *a, const TunedKey *b)
{
    int c = compare_stage(a, b);
    return c ? c : a->bucket - b->bucket;
}

/* Cleans text for a line of a file: invalid bytes, control characters and `not` become spaces, a
 * run of spaces becomes one, spaces at the ends are dropped. Text that is too long is cut between
 * characters. */
static void clean_text(char *out, size_t size, const char *s, char not)
{
    size_t n = 0, left = strlen(s);
    while (left) {
        size_t len = *s == not ? 0 : line_char(s, left);
        if (n + (len ? len : 1) >= size)
            break;
        if (len && *s != ' ') {
            memcpy(out + n, s, len);
            n += len;
        } else if (n && out[n - 1] != ' ') {
            out[n++] = ' ';
        }
        s += len ? len : 1;
        left -= len ? len : 1;
    }
    while (n && out[n - 1] == ' ')
        n--;
    out[n] = 0;
}

void tuned_set_device(TunedKey *k, const char *name, int units, int driver)
{
    char text[sizeof k->device];
    clean_text(text, sizeof text, name, '|');
    memcpy(k->device, *text ? text : "unknown", *text ? sizeof text : sizeof "unknown");
    k->units = units;
    k->driver = driver;
}

void tuned_free(TunedList *l)
{
    free(l->v);
    *l = (TunedList){0};
}

static bool room(TunedList *l, int n)
{
    if (n <= l->cap)
        return true;
    int cap = n < 16 ? 16 : n + n / 2;
    Tuned *v = realloc(l->v, (size_t)cap * sizeof *v);
    if (!v)
        return false;
    l->v = v;
    l->cap = cap;
    return true;
}

/* Index of the first entry that is not before k. */
static int lower(const TunedList *l, const TunedKey *k)
{
    int lo = 0, hi = l->n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (tuned_compare(&l->v[mid].key, k) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static const Tuned *find_between(const TunedList *l, const TunedKey *k, int lo, int hi)
{
    int at = lower(l, k);
    const Tuned *above = at < l->n && !compare_stage(&l->v[at].key, k) && l->v[at].key.bucket <= hi
                             ? &l->v[at]
                             : NULL;
    const Tuned *below =
        at > 0 && !compare_stage(&l->v[at - 1].key, k) && l->v[at - 1].key.bucket >= lo
            ? &l->v[at - 1]
            : NULL;
    if (!above || !below)
        return above ? above : below;
    return above->key.bucket - k->bucket <= k->bucket - below->key.bucket ? above : below;
}

const Tuned *tuned_find(const TunedList *l, const TunedKey *k)
{
    return find_between(l, k, 0, INT_MAX);
}

bool tuned_put(TunedList *l, const Tuned *t)
{
    Tuned clean = *t;
    tuned_set_device(&clean.key, t->key.device, t->key.units, t->key.driver);
    clean_text(clean.label, sizeof clean.label, t->label, '\n');
    int at = lower(l, &clean.key);
    bool same = at < l->n && !tuned_compare(&l->v[at].key, &clean.key);
    if (!same) {
        if (!room(l, l->n + 1))
            return false;
        memmove(l->v + at + 1, l->v + at, (size_t)(l->n - at) * sizeof *l->v);
        l->n++;
    }
    l->v[at] = clean;
    return true;
}

static bool better(const Tuned *a, const Tuned *b)
{
    double ga = a->model_ms / a->ms, gb = b->model_ms / b->ms;
    return ga > gb || (ga == gb && a->samples > b->samples);
}

/* Merges two sorted lists into a third, which replaces the first one when it is complete. */
bool tuned_merge(TunedList *into, const TunedList *from, TunedHow how, TunedMerge *m)
{
    TunedList all = {0};
    TunedMerge count = {0};
    if (!room(&all, into->n + from->n + 1))
        return false;
    for (int i = 0, j = 0; i < into->n || j < from->n;) {
        int c = i == into->n   ? 1
                : j == from->n ? -1
                               : tuned_compare(&into->v[i].key, &from->v[j].key);
        bool take = c > 0 || (c == 0 && (how == TUNED_NEWEST || better(&from->v[j], &into->v[i])));
        count.added += c > 0;
        count.replaced += c == 0 && take;
        count.kept += c == 0 && !take;
        all.v[all.n++] = take ? from->v[j] : into->v[i];
        i += c <= 0;
        j += c >= 0;
    }
    tuned_free(into);
    *into = all;
    if (m)
        *m = count;
    return true;
}

void tuned_reach(const TunedKey *k, int *lo, int *hi)
{
    int least = k->bucket - TUNED_REACH < TUNED_LARGE ? k->bucket - TUNED_REACH : TUNED_LARGE,
        most = k->bucket < TUNED_LARGE ? k->bucket + TUNED_REACH : INT_MAX;
    *lo = *lo > least ? *lo : least;
    *hi = *hi < most ? *hi : most;
}

const Tuned *tuned_look(const TunedSet *s, const TunedKey *k, int lo, int hi, const char **from)
{
    const SharedResults *shared = __atomic_load_n(&s->shared, __ATOMIC_ACQUIRE);
    const TunedList *list[] = {shared ? &shared->list : &s->user, &s->builtin};
    /* first the exact size in each list, then the nearest in each */
    for (int i = 0; i < 4; i++) {
        const Tuned *t = find_between(list[i % 2], k, lo, hi);
        if (t && (i >= 2 || t->key.bucket == k->bucket)) {
            if (from)
                *from = i % 2 ? "built-in" : shared ? "rank 0" : "user";
            return t;
        }
    }
    return NULL;
}
