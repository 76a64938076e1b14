/* Reads shipped packages: the manifest, files with their hashes, and rules for a GPU. Writes
 * nothing. */
#include "runtime/library/package/package.h"

#include "runtime/library/cache/files.h"
#include "runtime/library/base/line_reader.h"
#include "runtime/library/rule/gpu_code.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_MANIFEST = 64 << 20, MOST_FILE = 1 << 30 };

/* ---- files ---- */
static char *read_all(const char *dir, const char *name, int64_t most, bool trusted, size_t *size,
                      char *why, size_t nwhy)
{
    char path[CACHE_PATH], *data;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return file_load(path, most, trusted ? FILE_TRUSTED : 0, &data, size, why, nwhy) ? data : NULL;
}

bool manifest_is(const char *dir)
{
    /* of any version: manifest_read checks the version */
    static const char mark[] = "optc-package ";
    char path[CACHE_PATH], head[sizeof mark] = "";
    snprintf(path, sizeof path, "%s/manifest", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, head, sizeof head - 1) : -1;
    if (fd >= 0)
        close(fd);
    return n == (ssize_t)sizeof head - 1 && !memcmp(head, mark, sizeof head - 1);
}

char *package_read(const char *dir, const PackageFile *f, bool trusted, size_t *size, char *why,
                   size_t nwhy)
{
    char hex[DIGEST_HEX], *data = read_all(dir, f->name, MOST_FILE, trusted, size, why, nwhy);
    if (!data)
        return NULL;
    digest_hex(data, *size, hex);
    if (*size == f->bytes && !strcmp(hex, f->hash))
        return data;
    snprintf(why, nwhy, "%s: %s", f->name,
             *size != f->bytes ? "its size differs from the manifest's"
                               : "its checksum differs from the manifest's");
    free(data);
    return NULL;
}

/* ---- the manifest ---- */
static bool read_image(Manifest *m, const char *word, const char *rest)
{
    PackageImage x = {.ptx = !strcmp(word, "ptx")};
    unsigned long long bytes;
    int end = 0;
    if (m->nrule)                      /* launches are stored by image, so all images come before
                                        * the rules */
        return false;
    if (sscanf(rest, x.ptx ? "compute_%d %llu %64s%n" : "sm_%d %llu %64s%n", &x.arch, &bytes,
               x.hash, &end) != 3 ||
        rest[end])
        return false;
    x.bytes = bytes;
    PUSH(&m->arena, m->image, m->nimage, m->image_cap) = x;
    return true;
}

static bool read_file(Manifest *m, const char *rest)
{
    PackageFile x;
    char name[100];
    unsigned long long bytes;
    int end = 0;
    if (sscanf(rest, "%99s %llu %64s%n", name, &bytes, x.hash, &end) != 3 || rest[end] ||
        strchr(name, '/'))
        return false;
    x.bytes = bytes;
    x.name = arena_strdup(&m->arena, name);
    PUSH(&m->arena, m->file, m->nfile, m->file_cap) = x;
    return true;
}

static bool read_launch(Manifest *m, PackageRule *r, const char *rest)
{
    int arch = 0, end = 0;
    bool ptx = !strncmp(rest, "compute_", 8);
    if (sscanf(rest, ptx ? "compute_%d%n" : "sm_%d%n", &arch, &end) != 1)
        return false;
    if (!r->launch)
        r->launch = NEWS(&m->arena, const char *, m->nimage + 1);
    for (int i = 0; i < m->nimage; i++)
        if (m->image[i].arch == arch && m->image[i].ptx == ptx)
            r->launch[i] = rest + end;
    return true;
}

/* One line: a word and the rest. Unknown words are ignored: later versions may add some. */
static bool read_line(Manifest *m, char *line)
{
    bool inner = !strncmp(line, "  ", 2);
    char *rest = line, *word = line_word(&rest);
    int major, minor;
    PackageRule *r = m->nrule ? &m->rule[m->nrule - 1] : NULL;
    if (!word)
        return true;
    if (inner && r) {
        if (!strcmp(word, "key"))
            r->key = rest;
        else if (!strcmp(word, "prefix"))
            r->prefix = rest;
        else if (!strcmp(word, "kind"))
            r->function = !strcmp(rest, "function");
        else if (!strcmp(word, "with"))
            r->about = rest;
        else if (!strcmp(word, "launch"))
            return read_launch(m, r, rest);
        return true;
    }
    if (!strcmp(word, "name"))
        m->name = rest;
    else if (!strcmp(word, "optc"))
        m->optc = rest;
    else if (!strcmp(word, "cuda"))
        return sscanf(rest, "%d.%d", &major, &minor) == 2 && (m->cuda = major * 1000 + minor * 10);
    else if (!strcmp(word, "arch") || !strcmp(word, "ptx"))
        return read_image(m, word, rest);
    else if (!strcmp(word, "rule"))
        PUSH(&m->arena, m->rule, m->nrule,
             m->rule_cap) = (PackageRule){.id = rest, .about = "-", .key = "", .prefix = ""};
    else if (!strcmp(word, "file"))
        return read_file(m, rest);
    return true;
}

static bool read_text(Manifest *m, const char *text, size_t size, const char *dir, char *why,
                      size_t nwhy)
{
    char hex[DIGEST_HEX], *last = NULL;
    char *all = arena_strndup(&m->arena, text, size);
    if (size < strlen(PACKAGE_MARK) || memcmp(all, PACKAGE_MARK, strlen(PACKAGE_MARK))) {
        snprintf(why, nwhy, "%.300s is not a package of optc, or of another version", dir);
        return false;
    }
    for (char *s = strstr(all, "\nsum "); s; s = strstr(s + 1, "\nsum "))
        last = s + 1;
    if (last)
        digest_hex(all, (size_t)(last - all), hex);
    /* nothing may follow the last line, and no 0 byte may end the text early */
    if (!last || (size_t)(last - all) + 4 + DIGEST_HEX != size ||
        strncmp(last + 4, hex, DIGEST_HEX - 1) || last[4 + DIGEST_HEX - 1] != '\n') {
        snprintf(why, nwhy, "the manifest of %.300s is %s", dir,
                 last ? "damaged or was edited: its checksum differs" : "cut short");
        return false;
    }
    *last = 0;
    if (!text_plain(all, "\n")) {              /* its words are printed on terminals */
        snprintf(why, nwhy, "the manifest of %.300s is damaged: it contains control characters",
                 dir);
        return false;
    }
    LineReader in = {.at = all + strlen(PACKAGE_MARK), .end = last, .line = 1};
    for (char *line; line_next(&in, &line);)
        if (!read_line(m, line)) {
            snprintf(why, nwhy, "line %d of the manifest of %.300s cannot be read", in.line, dir);
            return false;
        }
    if (m->name && is_ident(m->name) && !m->cuda == !m->nimage && m->nrule)
        return true;
    snprintf(why, nwhy, "the manifest of %.300s lacks a name, a version, a rule or an architecture",
             dir);
    return false;
}

bool manifest_read(const char *dir, bool trusted, Manifest *m, char *why, size_t nwhy)
{
    jmp_buf out;
    size_t size;
    *m = (Manifest){0};
    char *text = read_all(dir, "manifest", MOST_MANIFEST, trusted, &size, why, nwhy);
    volatile bool ok = false;
    m->arena.out = &out;
    if (setjmp(out))
        snprintf(why, nwhy, "out of memory");
    else
        ok = text && read_text(m, text, size, dir, why, nwhy);
    m->arena.out = NULL;
    free(text);
    return ok;
}

void package_seal(Buf *b)
{
    char hex[DIGEST_HEX];
    if (!buf_text(b))
        return;
    digest_hex(buf_text(b), b->len, hex);
    buf_printf(b, "sum %s\n", hex);
}

void manifest_free(Manifest *m)
{
    arena_free(&m->arena);
    *m = (Manifest){0};
}

const PackageFile *manifest_file(const Manifest *m, const char *name)
{
    for (int i = 0; i < m->nfile; i++)
        if (!strcmp(m->file[i].name, name))
            return &m->file[i];
    return NULL;
}

int manifest_functions(const Manifest *m)
{
    int n = 0;
    for (int i = 0; i < m->nrule; i++)
        n += m->rule[i].function;
    return n;
}

/* Chooses as the package's own loader does. driver 0: unknown, any is accepted. */
int manifest_pick(const Manifest *m, int arch, int driver, char *why, size_t nwhy)
{
    int best = -1;
    Image taken = {0, false};
    bool old = driver && !nvrtc_fits(m->cuda, driver), ptx_old = driver && driver < m->cuda;
    for (int i = 0; i < m->nimage; i++) {
        Image x = {m->image[i].arch, m->image[i].ptx};
        if (!image_suits(x, taken, arch, !ptx_old))
            continue;
        taken = x;
        best = i;
    }
    if (best < 0 && !m->nimage)
        snprintf(why, nwhy, "it has no GPU code");
    else if (best < 0)
        snprintf(why, nwhy, "it has no code for sm_%d", arch);
    else if (old)
        snprintf(why, nwhy,
                 "the driver is for CUDA %d.%d, and its code needs one for %d.0 or newer",
                 driver / 1000, driver % 1000 / 10, m->cuda / 1000);
    return old ? -1 : best;
}

/* ---- as a base of the cache ---- */
static bool find_in(const char *dir, const char *key, int arch, int driver, Package *out, char *why,
                    size_t nwhy)
{
    char name[80];
    if (!cache_trusted(dir, true, why, nwhy) || !manifest_is(dir))
        return false;
    *out = (Package){.rule = NULL};
    if (manifest_read(dir, true, &out->m, why, nwhy) &&
        (out->image = manifest_pick(&out->m, arch, driver, why, nwhy)) >= 0) {
        for (int i = 0; i < out->m.nrule && !out->rule; i++)
            if (!strcmp(out->m.rule[i].key, key) && out->m.rule[i].launch &&
                out->m.rule[i].launch[out->image])
                out->rule = &out->m.rule[i];
        snprintf(name, sizeof name, "%.60s.fatbin", out->m.name);
        const PackageFile *f = out->rule ? manifest_file(&out->m, name) : NULL;
        if (f && (out->fatbin = package_read(dir, f, true, &out->size, why, nwhy)))
            return true;
        if (!f)
            snprintf(why, nwhy, "it does not have %s", out->rule ? name : "this rule");
    }
    manifest_free(&out->m);
    return false;
}

bool package_find(const Cache *c, const char *key, int arch, int driver, Package *out, char *why,
                  size_t nwhy)
{
    char dir[CACHE_DIR], one[700];
    size_t at = 0;
    *why = 0;
    for (const char *list = c->base; cache_next_base(&list, dir);) {
        *one = 0;
        if (find_in(dir, key, arch, driver, out, one, sizeof one))
            return true;
        bool named = !strncmp(one, dir, strlen(dir));
        if (*one && at < nwhy)
            at += (size_t)snprintf(why + at, nwhy - at, "%s%.300s%s%s", at ? "; " : "",
                                   named ? "" : dir, named ? "" : ": ", one);
    }
    return false;
}

bool package_any(const char *bases, int arch, int driver)
{
    char dir[CACHE_DIR], why[700];
    bool found = false;
    for (const char *list = bases ? bases : getenv("OPTC_CACHE_BASE");
         !found && cache_next_base(&list, dir);) {
        Manifest m;
        if (!cache_trusted(dir, true, why, sizeof why) || !manifest_is(dir))
            continue;
        found = manifest_read(dir, true, &m, why, sizeof why) &&
                manifest_pick(&m, arch, driver, why, sizeof why) >= 0;
        manifest_free(&m);
    }
    return found;
}

bool package_launch(const Package *p, int fn, Launch *out)
{
    char mark[24];
    snprintf(mark, sizeof mark, " %d:", fn);
    const char *s = strstr(p->rule->launch[p->image], mark);
    s = s ? s + strlen(mark) - 1 : NULL;
    for (int k = 0; s && k < NKNOB; k++) {
        char *end;
        long v = strtol(s + 1, &end, 10);
        if (end == s + 1 || v < 0 || v > 1 << 20)
            return false;
        out->v[k] = (int)v;
        s = end;
    }
    return s != NULL;
}

void package_free(Package *p)
{
    free(p->fatbin);
    manifest_free(&p->m);
    p->fatbin = NULL;
}
