/* Arenas, growing texts, locale, hashes and checks of characters (util.h). */
#include "gen/base/util.h"

#include <ctype.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/abi/hash.h"

struct ArenaBlock { struct ArenaBlock *next; size_t cap; max_align_t data[]; };

void arena_out(Arena *a)
{
    if (!a->out)
        abort();   /* an arena that can run out of memory has no owner: a bug in optc */
    longjmp(*a->out, 1);
}

static size_t whole(size_t size) { return (size + 15) & ~(size_t)15; }

void *arena_alloc(Arena *a, size_t size)
{
    size = whole(size);
    if (!a->head || a->cap - a->used < size) {
        size_t cap = size > 65536 ? size : 65536;
        struct ArenaBlock *b = cap < SIZE_MAX / 2 ? calloc(1, sizeof *b + cap) : NULL;
        if (!b)
            arena_out(a);
        b->next = a->head;
        b->cap = cap;
        a->head = b;
        a->used = 0;
        a->cap = cap;
    }
    void *p = (char *)a->head->data + a->used;
    a->used += size;
    return p;
}

char *arena_strndup(Arena *a, const char *s, size_t n)
{
    char *d = arena_alloc(a, n + 1);
    memcpy(d, s, n);
    d[n] = 0;
    return d;
}

char *arena_strdup(Arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_printf(Arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        arena_out(a);
    char *s = arena_alloc(a, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

size_t arena_bytes(const Arena *a)
{
    size_t n = 0;
    for (const struct ArenaBlock *b = a->head; b; b = b->next)
        n += b->cap;
    return n;
}

void arena_free(Arena *a)
{
    for (struct ArenaBlock *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    memset(a, 0, sizeof *a);
}

void arena_scratch(Arena *a, void (*f)(void *ctx, Arena *scratch), void *ctx)
{
    jmp_buf out, *outer = a->out;
    /* not a local: its value would be undefined after longjmp */
    Arena *scratch = NEW(a, Arena);
    if (outer && setjmp(out)) {
        a->out = outer;
        arena_free(scratch);
        longjmp(*outer, 1);
    }
    a->out = scratch->out = outer ? &out : NULL;
    f(ctx, scratch);
    a->out = outer;
    arena_free(scratch);
}

void *arena_grow(Arena *a, void *old, int *cap, int n, size_t item)
{
    if (*cap > INT_MAX / 2)
        arena_out(a);
    int want = *cap ? *cap * 2 : 16;
    void *p = arena_alloc(a, (size_t)want * item);
    if (old)
        memcpy(p, old, (size_t)n * item);
    *cap = want;
    return p;
}

/* Grows a buffer in place if it is the arena's last allocation, else copies it. */
static char *grown_in(Arena *a, const Buf *b, size_t cap)
{
    size_t more = whole(cap) - whole(b->cap);
    bool last = a->head && b->s && b->s + whole(b->cap) == (char *)a->head->data + a->used;
    if (last && more <= a->cap - a->used) {
        a->used += more;
        return b->s;
    }
    char *s = arena_alloc(a, cap);
    if (b->len)
        memcpy(s, b->s, b->len + 1);
    return s;
}

static bool buf_room(Buf *b, size_t more)
{
    if (b->oom)
        return false;
    if (b->len + more + 1 <= b->cap)
        return true;
    size_t cap = (b->len + more + 1) * 2;
    cap = cap < 256 ? 256 : cap;
    char *s = b->arena ? grown_in(b->arena, b, cap) : realloc(b->s, cap);
    if (!s) {
        b->oom = true;
        return false;
    }
    b->s = s;
    b->cap = cap;
    return true;
}

void buf_add(Buf *b, const char *s, size_t n)
{
    if (!buf_room(b, n))
        return;
    memcpy(b->s + b->len, s, n);
    b->len += n;
    b->s[b->len] = 0;
}

void buf_puts(Buf *b, const char *s) { buf_add(b, s, strlen(s)); }

void buf_vprintf(Buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0 && b->arena)
        arena_out(b->arena);
    b->oom = b->oom || n < 0;
    if (n >= 0 && buf_room(b, (size_t)n)) {
        vsnprintf(b->s + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void buf_printf(Buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

const char *buf_text(const Buf *b) { return b->oom ? NULL : b->s ? b->s : ""; }

char *buf_take(Buf *b)
{
    if (b->arena) {
        char *copy = malloc(b->len + 1);
        if (copy)
            memcpy(copy, buf_text(b), b->len + 1);
        *b = (Buf){0};
        return copy;
    }
    if (!b->s && !b->oom)
        buf_add(b, "", 0);
    char *s = b->oom ? NULL : b->s;
    if (b->oom)
        free(b->s);
    memset(b, 0, sizeof *b);
    return s;
}

void buf_free(Buf *b)
{
    if (!b->arena)
        free(b->s);
    memset(b, 0, sizeof *b);
}

void buf_double(Buf *b, double x)
{
    char s[40];
    if (isnan(x)) {
        buf_puts(b, "nan");
        return;
    }
    if (isinf(x)) {
        buf_puts(b, x < 0 ? "-inf" : "inf");
        return;
    }
    for (int prec = 1; prec <= 17; prec++) {
        snprintf(s, sizeof s, "%.*g", prec, x);
        if (strtod(s, NULL) == x)
            break;
    }
    buf_puts(b, s);
}

LocaleMark locale_plain(void)
{
    static _Atomic(void *) plain;
    void *l = plain;
    if (!l) {
        void *none = NULL, *made = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        if (made && !atomic_compare_exchange_strong(&plain, &none, made)) {
            freelocale((locale_t)made);
            made = none;
        }
        l = made;
    }
    return (LocaleMark){l ? (void *)uselocale((locale_t)l) : NULL};
}

void locale_back(LocaleMark m)
{
    if (m.was)
        uselocale((locale_t)m.was);
}

/* Not cryptographic: cache entries are checked by length and checksum, and only the user writes the
 * cache folder. */
uint64_t hash64(uint64_t seed, const void *data, size_t n) { return hash_bytes(seed, data, n); }

Hash128 hash128(const void *data, size_t n)
{
    return (Hash128){hash64(0x6f70746331u, data, n), hash64(0x6f70746332u, data, n)};
}

void hash_hex(Hash128 h, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.a, (unsigned long long)h.b);
}

bool is_ident(const char *s)
{
    if (!(isalpha((unsigned char)*s) || *s == '_') || strlen(s) > 40)
        return false;
    for (; *s; s++)
        if (!(isalnum((unsigned char)*s) || *s == '_'))
            return false;
    return true;
}

/* Bytes of the UTF-8 character at s; 1 if it is not valid UTF-8 (overlong forms included). */
static int char_bytes(const unsigned char *s)
{
    int n = *s < 0xc2 || *s > 0xf4 ? 1 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : 4;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 1;
    return (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xf0 && s[1] < 0x90) ? 1 : n;
}

int text_char(const char *text, const char *but, bool *control)
{
    const unsigned char *s = (const unsigned char *)text;
    int n = char_bytes(s);
    /* U+0080 to U+009f, or a single byte */
    unsigned char c = n == 2 && *s == 0xc2 ? s[1] : *s;
    *control = *s < 128 ? (c < 32 || c == 127) && !strchr(but, c) : c < 0xa0;
    return n;
}

bool text_plain(const char *s, const char *but)
{
    bool control = false;
    while (*s && !control)
        s += text_char(s, but, &control);
    return !control;
}

void text_clean(char *s, const char *but)
{
    bool control;
    for (int n; *s; s += n) {
        n = text_char(s, but, &control);
        if (control)
            memset(s, ' ', (size_t)n);
    }
}

void buf_quoted(Buf *b, const char *s)
{
    buf_puts(b, "'");
    for (; *s; s++)
        if (*s == '\'')
            buf_puts(b, "'\\''");
        else
            buf_add(b, s, 1);
    buf_puts(b, "'");
}

void buf_shell(Buf *b, const char *s)
{
    static const char safe[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_=+-.,:/@%";
    if (*s && !s[strspn(s, safe)]) {
        buf_puts(b, s);
        return;
    }
    buf_quoted(b, s);
}
