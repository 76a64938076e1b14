/* Files in the safetensors format: 8 bytes with the length of the header (little-endian), the
 * header (a JSON object, padded with blanks), then the data of all tensors without gaps.
 * runtime/CHECKPOINTS.md describes what checkpoints contain. Machines that run optc are
 * little-endian, like the format. */
#ifndef OPTC_SAFETENSORS_H
#define OPTC_SAFETENSORS_H
#include "runtime/core/base/core.h"

/* limits of the format's own reader, and of optc_tensor.rank */
enum { SAFE_HEADER_MOST = 100000000, SAFE_RANK_MOST = 32 };

typedef struct SafeType { const char *name; int bytes; } SafeType;
CORE const SafeType *safe_type(const char *name);          /* NULL: unknown */

/* A tensor of a file. dim: the index of its first dimension in SafeFile.dim; begin, end: relative
 * to the data */
typedef struct SafeTensor {
    const char *name; const SafeType *type; int rank; int64_t dim, begin, end;
} SafeTensor;
typedef struct SafeText { const char *key, *text; } SafeText;
/* text: the header, in which all strings are. Tensors and metadata are sorted by name */
typedef struct SafeFile {
    char *text;
    SafeTensor *tensor; int64_t n, room;
    SafeText *meta; int64_t nmeta, meta_room;
    int64_t *dim, ndim, dim_room;
    int64_t data;                          /* where the data begins in the file */
    int64_t bytes;                         /* of the data */
} SafeFile;

/* Reads a header of n bytes, which must end with a byte for a 0. size: of the whole file. Checks
 * everything that the format demands. false: `why` has the reason. The caller frees the file in any
 * case; the header belongs to it. */
CORE bool safe_parse(SafeFile *f, char *header, int64_t n, int64_t size, char *why, size_t nwhy);
CORE void safe_free(SafeFile *f);
/* NULL: there is none */
CORE const SafeTensor *safe_find(const SafeFile *f, const char *name);
/* NULL: there is none */
CORE const char *safe_meta(const SafeFile *f, const char *key);
CORE bool safe_utf8(const char *s, size_t n);

/* ---- text that grows ---- */
/* failed: out of memory */
typedef struct SafeBuf { char *s; size_t n, room; bool failed; } SafeBuf;
CORE void safe_add(SafeBuf *b, const char *s, size_t n);
CORE void safe_print(SafeBuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
CORE void safe_quote(SafeBuf *b, const char *s);           /* as a JSON string; s is UTF-8 */
#endif
