/* A libnvfatbin.so.13 for the code of emu_nvrtc.c: concatenates images, uncompressed, in the format
 * that runtime/library/package/fatbin.c reads and emu_driver.c loads. */
#include "runtime/library/package/fatbin.h"

#include "tests/emu/emu_fail.h"
#define CALL do { if (told_to_fail("libnvfatbin.so.13")) return 1; } while (0)

#include <stdlib.h>
#include <string.h>

typedef struct { uint32_t magic; uint16_t version, header; uint64_t size; } Head;
typedef struct {
    uint16_t kind, version;
    uint32_t header;
    uint64_t stored;
    uint32_t compressed, options;
    uint16_t minor, major;
    uint32_t arch, name, name_len;
    uint64_t flags, zero, bytes;
} Image;
struct _nvFatbinHandle { char *data; size_t size; };

int nvFatbinCreate(nvFatbinHandle *h, const char **options, size_t n)
{
    CALL;
    bool small = false;
    for (size_t i = 0; i < n; i++)
        small = small || !strcmp(options[i], "-compress-mode=size");
    if (!small)                                /* wheels would be a quarter larger */
        return 4;
    *h = calloc(1, sizeof **h);
    (*h)->size = sizeof(Head);
    (*h)->data = calloc(1, sizeof(Head));
    return 0;
}

int nvFatbinAddCubin(nvFatbinHandle h, const void *code, size_t size, const char *arch,
                     const char *name)
{
    CALL;
    Image m = {.kind = 2,
               .version = 0x101,
               .header = sizeof m,
               .stored = (size + 7) / 8 * 8,
               .arch = (uint32_t)atoi(arch)};
    (void)name;
    h->data = realloc(h->data, h->size + sizeof m + m.stored);
    memcpy(h->data + h->size, &m, sizeof m);
    memset(h->data + h->size + sizeof m, 0, m.stored);
    memcpy(h->data + h->size + sizeof m, code, size);
    h->size += sizeof m + m.stored;
    return 0;
}

int nvFatbinAddPTX(nvFatbinHandle h, const char *code, size_t size, const char *arch,
                   const char *name, const char *options)
{
    CALL;
    (void)h, (void)code, (void)size, (void)arch, (void)name, (void)options;
    return 1;
}

int nvFatbinSize(nvFatbinHandle h, size_t *size) { CALL; return *size = h->size, 0; }

int nvFatbinGet(nvFatbinHandle h, void *out)
{
    CALL;
    Head head = {0xba55ed50u, 1, sizeof head, h->size - sizeof head};
    memcpy(h->data, &head, sizeof head);
    memcpy(out, h->data, h->size);
    return 0;
}

int nvFatbinDestroy(nvFatbinHandle *h) { return free((*h)->data), free(*h), *h = NULL, 0; }
int nvFatbinVersion(unsigned *major, unsigned *minor) { CALL; return *major = 13, *minor = 0, 0; }
