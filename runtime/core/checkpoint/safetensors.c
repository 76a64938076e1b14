/* The reader of safetensors headers, and the parts of text that the writer needs. The reader
 * accepts hostile input: it does not recurse, checks every sum, and uses memory in proportion to
 * the header. */
#include "runtime/core/checkpoint/safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CORE const SafeType *safe_type(const char *name)
{
    static const SafeType types[] = {
        {"F64", 8},     {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
        {"F8_E8M0", 1}, {"I64", 8}, {"I32", 4}, {"I16", 2},  {"I8", 1},      {"U64", 8},
        {"U32", 4},     {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"C64", 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name))
            return &types[i];
    return NULL;
}

/* ---- text ---- */
CORE void safe_add(SafeBuf *b, const char *s, size_t n)
{
    if (!b->failed && b->room - b->n < n + 1) {
        size_t room = 2 * b->room + n + 64;
        char *more = (char *)realloc(b->s, room);
        b->failed = !more;
        b->s = more ? more : b->s;
        b->room = more ? room : b->room;
    }
    if (b->failed)
        return;
    memcpy(b->s + b->n, s, n);
    b->n += n;
    b->s[b->n] = 0;
}

CORE void safe_print(SafeBuf *b, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    safe_add(b, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

CORE void safe_quote(SafeBuf *b, const char *s)
{
    safe_add(b, "\"", 1);
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            safe_print(b, "\\%c", *s);
        else if ((unsigned char)*s < ' ' || *s == 127)
            safe_print(b, "\\u%04x", (unsigned)(unsigned char)*s);
        else
            safe_add(b, s, 1);
    safe_add(b, "\"", 1);
}

/* The length of the UTF-8 character at s; 0: it is none (overlong, a surrogate, above U+10FFFF, cut
 * off). */
static size_t utf8_length(const unsigned char *s, size_t n)
{
    size_t len = s[0] < 0x80   ? 1
                 : s[0] < 0xc2 ? 0
                 : s[0] < 0xe0 ? 2
                 : s[0] < 0xf0 ? 3
                 : s[0] < 0xf5 ? 4
                               : 0;
    if (len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool bad = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
               (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f);
    return bad ? 0 : len;
}

CORE bool safe_utf8(const char *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = utf8_length((const unsigned char *)s + i, n - i)))
            return false;
    return true;
}

/* ---- JSON: objects, arrays of numbers, strings ---- */
/* why: the first reason to refuse the text; NULL: none so far */
typedef struct Json { char *begin, *at, *end; const char *why; } Json;

static bool json_no(Json *j, const char *why)
{
    j->why = j->why ? j->why : why;
    return false;
}

/* the next character that is not a blank; 0: the end */
static char json_peek(Json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r'))
        j->at++;
    return j->at < j->end ? *j->at : 0;
}

static bool json_take(Json *j, char c, const char *why)
{
    if (json_peek(j) != c || !c)
        return json_no(j, why);
    j->at++;
    return true;
}

/* Between the members of a list: true if another one follows. first: none was read yet */
static bool json_more(Json *j, char close, bool first)
{
    char c = json_peek(j);
    if (c == close) {
        j->at++;
        return false;
    }
    return first || json_take(j, ',', "a list has neither a comma nor an end");
}

static int json_hex(const char *s)             /* four digits; -1: not four digits */
{
    int x = 0;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)s[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        x = x << 4 | digit;
    }
    return x;
}

/* Writes the character of \uXXXX, or of a pair of them, at `to`; it is never longer than what it
 * was read from. */
static bool json_unicode(Json *j, char **to)
{
    int x = j->end - j->at >= 5 ? json_hex(j->at + 1) : -1;
    bool pair =
        x >= 0xd800 && x < 0xdc00 && j->end - j->at >= 11 && j->at[5] == '\\' && j->at[6] == 'u';
    int low = pair ? json_hex(j->at + 7) : -1;
    if (low >= 0xdc00 && low < 0xe000)
        x = 0x10000 + ((x - 0xd800) << 10) + (low - 0xdc00);
    if (x <= 0 || (x >= 0xd800 && x < 0xe000))
        return json_no(j, "a string has an invalid \\u escape");
    j->at += pair ? 11 : 5;
    if (x < 0x80)
        *(*to)++ = (char)x;
    else {
        int more = x < 0x800 ? 1 : x < 0x10000 ? 2 : 3;
        *(*to)++ = (char)((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | x >> 6 * more);
        for (; more--;)
            *(*to)++ = (char)(0x80 | (x >> 6 * more & 0x3f));
    }
    return true;
}

static bool json_escape(Json *j, char **to)    /* after a backslash */
{
    static const char from[] = "\"\\/bfnrt", as[] = "\"\\/\b\f\n\r\t";
    const char *x = j->at < j->end && *j->at ? strchr(from, *j->at) : NULL;
    if (j->at < j->end && *j->at == 'u')
        return json_unicode(j, to);
    if (!x)
        return json_no(j, "a string has an invalid escape");
    *(*to)++ = as[x - from];
    j->at++;
    return true;
}

/* Decodes a string in place and ends it with a 0. */
static bool json_string(Json *j, const char **out)
{
    if (!json_take(j, '"', "a string is missing"))
        return false;
    char *to = j->at;
    *out = to;
    while (j->at < j->end && *j->at != '"') {
        if ((unsigned char)*j->at < ' ')
            return json_no(j, "a string has a control character");
        if (*j->at != '\\')
            *to++ = *j->at++;
        else if (j->at++, !json_escape(j, &to))
            return false;
    }
    if (j->at >= j->end)
        return json_no(j, "a string does not end");
    j->at++;
    *to = 0;
    return true;
}

static bool json_number(Json *j, int64_t *out)
{
    char c = json_peek(j);
    int64_t x = 0;
    if (c == '-')
        return json_no(j, "a number is negative");
    if (c < '0' || c > '9' ||
        (c == '0' && j->at + 1 < j->end && j->at[1] >= '0' && j->at[1] <= '9'))
        return json_no(j, "a whole number is missing");
    for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++)
        if (__builtin_mul_overflow(x, (int64_t)10, &x) ||
            __builtin_add_overflow(x, (int64_t)(*j->at - '0'), &x))
            return json_no(j, "a number is too large");
    *out = x;
    return j->at < j->end && strchr(".eE", *j->at) ? json_no(j, "a number is not whole") : true;
}

/* ---- the header ---- */
/* Makes room for one more member of an array. */
static bool safe_grow(Json *j, void **v, int64_t n, int64_t *room, size_t size)
{
    if (n < *room)
        return true;
    void *more = realloc(*v, (size_t)(2 * *room + 16) * size);
    if (!more)
        return json_no(j, "out of memory");
    *v = more;
    *room = 2 * *room + 16;
    return true;
}

static bool read_meta(Json *j, SafeFile *f)
{
    SafeText x;
    if (!json_take(j, '{', "__metadata__ is not an object"))
        return false;
    for (bool first = true; json_more(j, '}', first); first = false) {
        void *v = f->meta;
        if (!json_string(j, &x.key) || !json_take(j, ':', "a colon is missing") ||
            !json_string(j, &x.text) || !safe_grow(j, &v, f->nmeta, &f->meta_room, sizeof x))
            return false;
        f->meta = (SafeText *)v;
        f->meta[f->nmeta++] = x;
    }
    return !j->why;
}

static bool read_shape(Json *j, SafeFile *f, SafeTensor *t)
{
    if (!json_take(j, '[', "a shape is not a list"))
        return false;
    t->dim = f->ndim;
    for (bool first = true; json_more(j, ']', first); first = false) {
        void *v = f->dim;
        int64_t n = 0;
        if (t->rank == SAFE_RANK_MOST)
            return json_no(j, "a tensor has more than 32 dimensions");
        if (!json_number(j, &n) || !safe_grow(j, &v, f->ndim, &f->dim_room, sizeof n))
            return false;
        f->dim = (int64_t *)v;
        f->dim[f->ndim++] = n;
        t->rank++;
    }
    return !j->why;
}

static bool read_offsets(Json *j, SafeTensor *t)
{
    return json_take(j, '[', "data_offsets is not a list") && json_number(j, &t->begin) &&
           json_take(j, ',', "data_offsets has fewer than two numbers") &&
           json_number(j, &t->end) && json_take(j, ']', "data_offsets has more than two numbers");
}

/* Bytes of a tensor of this type and shape; false: they are too many. */
static bool tensor_bytes(const SafeFile *f, const SafeTensor *t, int64_t *out)
{
    int64_t all = t->type->bytes;
    bool none = false;
    for (int k = 0; k < t->rank; k++) {
        int64_t n = f->dim[t->dim + k];
        none = none || !n;
        if (n && __builtin_mul_overflow(all, n, &all))
            return false;
    }
    *out = none ? 0 : all;
    return true;
}

static bool read_tensor(Json *j, SafeFile *f, const char *name)
{
    static const char *const members[] = {"dtype", "shape", "data_offsets"};
    const char *key = NULL, *type = NULL;
    SafeTensor t;
    unsigned have = 0;
    int64_t bytes = 0;
    memset(&t, 0, sizeof t);
    t.name = name;
    if (!json_take(j, '{', "a tensor is not an object"))
        return false;
    for (bool first = true; json_more(j, '}', first); first = false) {
        if (!json_string(j, &key) || !json_take(j, ':', "a colon is missing"))
            return false;
        unsigned k = 0;
        while (k < 3 && strcmp(members[k], key))
            k++;
        if (k == 3 || have >> k & 1)
            return json_no(j, k == 3 ? "a tensor has an unknown member"
                                     : "a tensor has a member twice");
        have |= 1u << k;
        if (k == 0 ? !json_string(j, &type) : k == 1 ? !read_shape(j, f, &t) : !read_offsets(j, &t))
            return false;
    }
    if (j->why || have != 7)
        return json_no(j, "a tensor lacks dtype, shape or data_offsets");
    if (!(t.type = safe_type(type)))
        return json_no(j, "a tensor has an unknown dtype");
    if (!tensor_bytes(f, &t, &bytes) || t.begin > t.end || t.end - t.begin != bytes)
        return json_no(j, "the data_offsets of a tensor do not fit its shape and dtype");
    void *v = f->tensor;
    if (!safe_grow(j, &v, f->n, &f->room, sizeof t))
        return false;
    f->tensor = (SafeTensor *)v;
    f->tensor[f->n++] = t;
    return true;
}

static int by_offset(const void *a, const void *b)
{
    const SafeTensor *x = (const SafeTensor *)a, *y = (const SafeTensor *)b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                : (x->end > y->end) - (x->end < y->end);
}
static int by_name(const void *a, const void *b)
{
    return strcmp(((const SafeTensor *)a)->name, ((const SafeTensor *)b)->name);
}
static int by_meta_key(const void *a, const void *b)
{
    return strcmp(((const SafeText *)a)->key, ((const SafeText *)b)->key);
}

/* The tensors fill the data without gaps or overlaps, and no name occurs twice. */
static bool check_layout(Json *j, SafeFile *f)
{
    int64_t at = 0;
    if (f->n)
        qsort(f->tensor, (size_t)f->n, sizeof *f->tensor, by_offset);
    for (int64_t i = 0; i < f->n; at = f->tensor[i++].end)
        if (f->tensor[i].begin != at)
            return json_no(j, f->tensor[i].begin < at ? "the data of two tensors overlaps"
                                                      : "there is a gap in the data");
    if (at != f->bytes)
        return json_no(j, at < f->bytes ? "the file is longer than its tensors"
                                        : "the file is cut off");
    if (f->n)
        qsort(f->tensor, (size_t)f->n, sizeof *f->tensor, by_name);
    if (f->nmeta)
        qsort(f->meta, (size_t)f->nmeta, sizeof *f->meta, by_meta_key);
    for (int64_t i = 1; i < f->n; i++)
        if (!strcmp(f->tensor[i - 1].name, f->tensor[i].name))
            return json_no(j, "two tensors have the same name");
    for (int64_t i = 1; i < f->nmeta; i++)
        if (!strcmp(f->meta[i - 1].key, f->meta[i].key))
            return json_no(j, "two entries of __metadata__ have the same name");
    return true;
}

static bool read_members(Json *j, SafeFile *f)
{
    const char *name = NULL;
    bool meta = false;
    if (!json_take(j, '{', "it does not begin with {"))
        return false;
    for (bool first = true; json_more(j, '}', first); first = false) {
        if (!json_string(j, &name) || !json_take(j, ':', "a colon is missing"))
            return false;
        bool is_meta = !strcmp(name, "__metadata__");
        if (is_meta && meta)
            return json_no(j, "__metadata__ occurs twice");
        meta = meta || is_meta;
        if (is_meta ? !read_meta(j, f) : !read_tensor(j, f, name))
            return false;
    }
    return !j->why && (!json_peek(j) || json_no(j, "something follows its last }"));
}

CORE bool safe_parse(SafeFile *f, char *header, int64_t n, int64_t size, char *why, size_t nwhy)
{
    Json j;
    memset(f, 0, sizeof *f);
    f->text = header;
    f->data = 8 + n;
    f->bytes = size - f->data;
    j.begin = j.at = header;
    j.end = header + n;
    j.why = NULL;
    header[n] = 0;
    /* a 0 inside of the header would end json_peek early */
    if (memchr(header, 0, (size_t)n) || !safe_utf8(header, (size_t)n))
        j.why = "it is not UTF-8 text";
    if (!j.why && read_members(&j, f) && check_layout(&j, f))
        return true;
    snprintf(why, nwhy, "%s (byte %lld of the header)", j.why, (long long)(j.at - j.begin));
    return false;
}

CORE void safe_free(SafeFile *f)
{
    free(f->text);
    free(f->tensor);
    free(f->meta);
    free(f->dim);
    memset(f, 0, sizeof *f);
}

CORE const SafeTensor *safe_find(const SafeFile *f, const char *name)
{
    SafeTensor x;
    memset(&x, 0, sizeof x);
    x.name = name;
    return f->n ? (const SafeTensor *)bsearch(&x, f->tensor, (size_t)f->n, sizeof x, by_name)
                : NULL;
}

CORE const char *safe_meta(const SafeFile *f, const char *key)
{
    SafeText x = {key, NULL};
    const SafeText *t =
        f->nmeta ? (const SafeText *)bsearch(&x, f->meta, (size_t)f->nmeta, sizeof x, by_meta_key)
                 : NULL;
    return t ? t->text : NULL;
}
