/* Memory, text and hashing for one compilation.
 *
 * Everything a compilation makes lives in one Arena and is freed with it. An arena that cannot grow jumps to the
 * place its owner set (`out`), so that no pass checks for it. A Buf is the one growing piece of text. In an arena
 * ({.arena = a}) it jumps as the arena does, so its text is always whole; else ({0}) it is malloc'ed, remembers that it
 * ran out, and hands NULL to whoever asks for the text. */
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
size_t arena_bytes(const Arena *a);                /* held, used or not */
void arena_out(Arena *a) __attribute__((noreturn));        /* memory has ended: to the owner */
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_free(Arena *a);
/* Runs f with an arena that is freed afterwards, also where memory ends and `a` jumps to its owner. */
void arena_scratch(Arena *a, void (*f)(void *ctx, Arena *scratch), void *ctx);
#define NEW(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define NEWS(arena, T, n) ((T *)arena_alloc((arena), sizeof(T) * (size_t)(n)))

typedef struct Buf { char *s; size_t len, cap; bool oom; Arena *arena; } Buf;
void buf_add(Buf *b, const char *s, size_t n);
void buf_puts(Buf *b, const char *s);
void buf_printf(Buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(Buf *b, const char *fmt, va_list ap);
const char *buf_text(const Buf *b);                /* the whole text; NULL: memory ended (never of one in an arena) */
char *buf_take(Buf *b);                            /* likewise, owned by the caller (free) */
void buf_free(Buf *b);
/* shortest text that reads back to the same double; inf, -inf, nan */
void buf_double(Buf *b, double x);

/* Growing array in an arena: PUSH(arena, v, n, cap) = item. The old room is left to the arena. */
void *arena_grow(Arena *a, void *old, int *cap, int n, size_t item);
#define PUSH(ar, v, n, cap) \
    (*((n) < (cap) ? &(v)[(n)++] : (((v) = arena_grow((ar), (v), &(cap), (n), sizeof *(v))), &(v)[(n)++])))

/* Numbers as text have a decimal point, whatever the caller's program has set for its users. */
typedef struct LocaleMark { void *was; } LocaleMark;
LocaleMark locale_plain(void);
void locale_back(LocaleMark m);

uint64_t hash64(uint64_t seed, const void *data, size_t n);
typedef struct Hash128 { uint64_t a, b; } Hash128;
Hash128 hash128(const void *data, size_t n);
void hash_hex(Hash128 h, char out[33]);

bool is_ident(const char *s);
/* Text that leaves: control characters (also the second set, in UTF-8 or as a byte alone) rule terminals, end lines. */
int text_char(const char *s, const char *but, bool *control);      /* bytes of the one at s; is it one, but these? */
bool text_plain(const char *s, const char *but);           /* it has none but these */
void text_clean(char *s, const char *but);                 /* others become blanks */
/* as one word of a shell */
void buf_shell(Buf *b, const char *s);
void buf_quoted(Buf *b, const char *s);                      /* in single quotes, as a shell reads it */
#endif
