/* Memory, text and hashing for one compilation.
 *
 * A compilation allocates everything in one Arena and frees it at once. An arena that cannot grow
 * jumps to its owner's jmp_buf (`out`), so passes do not check for it. A Buf is a growing text. In
 * an arena ({.arena = a}) it jumps like the arena, so its text is always complete. Otherwise ({0})
 * it uses malloc; when memory ends it sets `oom`, and buf_text and buf_take return NULL. */
#ifndef OPTC_UTIL_H
#define OPTC_UTIL_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Arena { struct ArenaBlock *head; size_t used, cap; jmp_buf *out; } Arena;
void *arena_alloc(Arena *a, size_t size);          /* zeroed, 16-byte aligned */
char *arena_strdup(Arena *a, const char *s);
char *arena_strndup(Arena *a, const char *s, size_t n);
size_t arena_bytes(const Arena *a);                /* allocated, used or not */
void arena_out(Arena *a) __attribute__((noreturn));        /* out of memory: jumps to the owner */
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_free(Arena *a);
/* Runs f with an arena that is freed afterwards, also if memory ends and `a` jumps to its owner. */
void arena_scratch(Arena *a, void (*f)(void *ctx, Arena *scratch), void *ctx);
#define NEW(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define NEWS(arena, T, n) ((T *)arena_alloc((arena), sizeof(T) * (size_t)(n)))

typedef struct Buf { char *s; size_t len, cap; bool oom; Arena *arena; } Buf;
void buf_add(Buf *b, const char *s, size_t n);
void buf_puts(Buf *b, const char *s);
void buf_printf(Buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(Buf *b, const char *fmt, va_list ap);
/* the whole text; NULL: out of memory (never in an arena) */
const char *buf_text(const Buf *b);
/* the same, owned by the caller (free); empties b */
char *buf_take(Buf *b);
void buf_free(Buf *b);
/* Appends the shortest text that reads back as the same double; inf, -inf, nan. */
void buf_double(Buf *b, double x);

/* Growing array in an arena: PUSH(arena, v, n, cap) = item. The arena keeps the old array until it
 * is freed. */
void *arena_grow(Arena *a, void *old, int *cap, int n, size_t item);
#define PUSH(ar, v, n, cap) \
    (*((n) < (cap) ? &(v)[(n)++] \
                   : (((v) = arena_grow((ar), (v), &(cap), (n), sizeof *(v))), &(v)[(n)++])))

/* Sets the C locale for this thread, so that numbers have a decimal point; locale_back restores the
 * caller's. */
typedef struct LocaleMark { void *was; } LocaleMark;
LocaleMark locale_plain(void);
void locale_back(LocaleMark m);

uint64_t hash64(uint64_t seed, const void *data, size_t n);
typedef struct Hash128 { uint64_t a, b; } Hash128;
Hash128 hash128(const void *data, size_t n);
void hash_hex(Hash128 h, char out[33]);

bool is_ident(const char *s);
/* Control characters in output can control terminals and end lines. They include U+0080 to U+009f,
 * in UTF-8 or as single bytes. `but` lists the ones that are allowed. text_char returns the bytes
 * of the character at s. */
int text_char(const char *s, const char *but, bool *control);
bool text_plain(const char *s, const char *but);           /* no control characters except `but` */
void text_clean(char *s, const char *but);                 /* replaces them by blanks */
void buf_shell(Buf *b, const char *s);                     /* one shell word, quoted if necessary */
void buf_quoted(Buf *b, const char *s);                    /* in single quotes for a shell */
#endif
