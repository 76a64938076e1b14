/* Reads and writes structs of callers that were compiled with another version of the header. A
 * shorter struct gets zeros, which mean "default", for the missing members. A longer struct must
 * have zeros after the members known here. One that is shorter than in the first version is no such
 * struct: without a rank, a tensor would be a scalar. */
#include "runtime/core/base/core.h"

#include <stdlib.h>
#include <string.h>

static bool all_zero(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

static optc_status no_size(const StructVersion *s, size_t size)
{
    return fail(OPTC_ERROR_ARGUMENT,
                "%s: the size of %s is %zu; pass sizeof(%s), as %s in the header does (%zu here, "
                "and never below %zu)",
                s->call, s->what, size, s->what, s->usual, s->ours, s->first);
}

CORE optc_status struct_read(const StructVersion *s, void *to, const void *from, size_t size)
{
    size_t both = size < s->ours ? size : s->ours;
    if (size < s->first)
        return no_size(s, size);
    if (size > s->ours && !all_zero((const unsigned char *)from + s->ours, size - s->ours))
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: %s has members set that this version (%s, %zu bytes) does not know (%zu "
                    "bytes): leave them 0, "
                    "or use the version that the caller was compiled with",
                    s->call, s->what, OPTC_VERSION, s->ours, size);
    memset(to, 0, s->ours);
    memcpy(to, from, both);
    return OPTC_OK;
}

CORE optc_status struct_write(const StructVersion *s, void *to, size_t size, const void *from)
{
    if (size < s->first)
        return no_size(s, size);
    memset(to, 0, size);
    memcpy(to, from, size < s->ours ? size : s->ours);
    return OPTC_OK;
}

CORE optc_status struct_read_array(const StructVersion *s, void *to, const void *from, size_t size,
                                   int n)
{
    optc_status st = size < s->first ? no_size(s, size) : OPTC_OK;
    for (int i = 0; i < n && st == OPTC_OK; i++)
        st = struct_read(s, (char *)to + s->ours * (size_t)i, (const char *)from + size * (size_t)i,
                         size);
    return st;
}
