/* Packs fatbins with the library nvFatbin if it is found, otherwise with the toolkit's tool
 * `fatbinary`. The driver chooses the same image from both.
 *
 * nvFatbin is searched in this order: libraries that the process has mapped already, the folder of
 * NVRTC (or the Python package next to it), $CUDA_HOME and $CUDA_PATH, the toolkit's folder, the
 * loader's own search. $OPTC_NO_NVFATBIN hides it. fatbinary: $OPTC_FATBINARY ("": none), otherwise
 * the PATH, $CUDA_HOME, $CUDA_PATH, the toolkit's folder. */
#include "runtime/library/package/fatbin.h"

#include "runtime/core/matrix/cuda_library.h"
#include "runtime/library/compile/nvrtc.h"
#include "runtime/library/cache/files.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- nvFatbin ---- */
#define MEMBER(name, args) int (*name) args;
#define WANT(name, args) {#name, offsetof(NvFatbin, name)},
typedef struct NvFatbin { NVFATBIN_FUNCTIONS(MEMBER) Path path; } NvFatbin;
static const struct { const char *name; size_t at; } wants[] = {NVFATBIN_FUNCTIONS(WANT)};
static const char *const names[] = {"libnvfatbin.so.13", "libnvfatbin.so.12"};

static void *open_in(const char *folder, const char *name)
{
    Path p;
    return path_print(p, "%s/%s", folder, name) && access(p, F_OK) == 0
               ? dlopen(p, RTLD_NOW | RTLD_LOCAL)
               : NULL;
}

static void *find_one(const char *name)
{
    static const char *const below[] = {"lib64", "lib", "targets/x86_64-linux/lib",
                                        "targets/sbsa-linux/lib"};
    const Nvrtc *n = nvrtc_get(NULL);
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    Path p;
    if (!library && n && strrchr(n->path, '/')) {
        int len = (int)(strrchr(n->path, '/') - n->path);
        if (path_print(p, "%.*s", len, n->path))
            library = open_in(p, name);
        if (!library && path_print(p, "%.*s/../../nvfatbin/lib", len, n->path))
            library = open_in(p, name);
    }
    for (size_t i = 0; !library && cuda_toolkit(i); i++)
        for (size_t k = 0; *cuda_toolkit(i) && k < sizeof below / sizeof *below && !library; k++)
            if (path_print(p, "%s/%s", cuda_toolkit(i), below[k]))
                library = open_in(p, name);
    return library ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static bool nvfatbin_find(NvFatbin *f)
{
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library && !getenv("OPTC_NO_NVFATBIN");
         i++)
        library = find_one(names[i]);
    for (size_t i = 0; library && i < sizeof wants / sizeof *wants; i++) {
        void *s = dlsym(library, wants[i].name);
        if (!s)
            return false;
        memcpy((char *)f + wants[i].at, &s, sizeof s);
    }
    Dl_info at;
    void *any = library ? dlsym(library, "nvFatbinCreate") : NULL;
    snprintf(f->path, sizeof f->path, "%s",
             any && dladdr(any, &at) && at.dli_fname ? at.dli_fname : names[0]);
    return library != NULL;
}

/* Machine code for sm_90 is compiled for sm_90a (nvrtc.c). */
static const char *arch_suffix(const FatImage *m) { return m->arch == 90 && !m->ptx ? "a" : ""; }

static int add_image(const NvFatbin *f, nvFatbinHandle h, const FatImage *m, const char *name)
{
    char arch[16];
    snprintf(arch, sizeof arch, "%d%s", m->arch, arch_suffix(m));
    if (!m->ptx)
        return f->nvFatbinAddCubin(h, m->code, m->size, arch, name);
    char *text = malloc(m->size + 1);              /* nvFatbin expects PTX with its closing 0 */
    int rc = -1;
    if (text) {
        memcpy(text, m->code, m->size);
        text[m->size] = 0;
        rc = f->nvFatbinAddPTX(h, text, m->size + 1, arch, name, "");
    }
    free(text);
    return rc;
}

static char *by_library(const NvFatbin *f, const FatImage *image, int n, const char *name,
                        size_t *size, char *why, size_t nwhy)
{
    /* The mode "size" is zstd, which drivers of CUDA 13 read, and not all of CUDA 12; older
     * versions lack it. */
    const char *options[] = {"-64", "-compress-all", "-compress-mode=size"};
    nvFatbinHandle h = NULL;
    unsigned major = 0, minor = 0;
    int rc = f->nvFatbinVersion(&major, &minor);
    rc = rc ? rc : f->nvFatbinCreate(&h, options, major < 13 ? 2 : 3);
    for (int i = 0; i < n && !rc; i++)
        rc = add_image(f, h, &image[i], name);
    char *out = !rc && !(rc = f->nvFatbinSize(h, size)) ? malloc(*size + 8) : NULL;
    if (out && (rc = f->nvFatbinGet(h, out))) {
        free(out);
        out = NULL;
    }
    if (!out)
        snprintf(why, nwhy, "nvFatbin (%s) failed: error %d%s", f->path, rc,
                 rc > 0 ? "" : " (out of memory)");
    if (h)
        f->nvFatbinDestroy(&h);
    return out;
}

/* ---- the tool ---- */
static bool tool_find(Path out)
{
    const char *own = getenv("OPTC_FATBINARY");
    if (own)
        return *own && path_print(out, "%s", own) && access(out, X_OK) == 0;
    for (const char *at = getenv("PATH"); at && *at; at += strspn(at, ":")) {
        int n = (int)strcspn(at, ":");
        if (*at == '/' && path_print(out, "%.*s/fatbinary", n, at) && access(out, X_OK) == 0)
            return true;
        at += n;
    }
    for (size_t i = 0; cuda_toolkit(i); i++)
        if (*cuda_toolkit(i) && path_print(out, "%s/bin/fatbinary", cuda_toolkit(i)) &&
            access(out, X_OK) == 0)
            return true;
    return false;
}

/* Runs the tool in `dir`, so that the fatbin contains no path of this machine. Its output goes to a
 * file. */
static int run_tool(const char *tool, char **argv, const char *dir)
{
    pid_t id = fork();
    int status = -1;
    if (id == 0) {
        if (chdir(dir) != 0 || !freopen("said", "w", stdout) || dup2(fileno(stdout), 2) < 0)
            _exit(127);
        execv(tool, argv);
        _exit(127);
    }
    while (id > 0 && waitpid(id, &status, 0) < 0 && errno == EINTR)
        ;
    return id > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

enum { MOST_IMAGES = 70 };
static void remove_in(const char *dir, const char *name)
{
    Path p;
    if (path_print(p, "%s/%s", dir, name))
        unlink(p);
}

static char *by_tool(const char *tool, const FatImage *image, int n, const char *dir, size_t *size,
                     char *why, size_t nwhy)
{
    char word[MOST_IMAGES + 8][96], *argv[MOST_IMAGES + 8], file[40];
    int argc = 0;
    const char *first[] = {"fatbinary", "-64", "--create=made", "--compress-all"};
    for (int i = 0; i < 4; i++)
        snprintf(word[argc++], sizeof *word, "%s", first[i]);
    bool ok = true;
    Path p;
    for (int i = 0; i < n && i < MOST_IMAGES; i++) {
        snprintf(file, sizeof file, "image%d", i);
        snprintf(word[argc++], sizeof *word, "--image3=kind=%s,sm=%d%s,file=%s",
                 image[i].ptx ? "ptx" : "elf", image[i].arch, arch_suffix(&image[i]), file);
        ok = ok && path_print(p, "%s/%s", dir, file) && file_write(p, image[i].code, image[i].size);
    }
    for (int i = 0; i < argc; i++)
        argv[i] = word[i];
    argv[argc] = NULL;
    char *out = NULL, *said = NULL;
    size_t len;
    int rc = ok ? run_tool(tool, argv, dir) : 0;
    if (ok && rc == 0)
        out = path_print(p, "%s/made", dir) ? file_read(p, size) : NULL;
    said = path_print(p, "%s/said", dir) ? file_read(p, &len) : NULL;
    if (!ok)
        snprintf(why, nwhy, "%s cannot be written to: %s", dir, strerror(errno));
    else if (!out)
        snprintf(why, nwhy, "%s failed: %.400s", tool, said && *said ? said : "it said nothing");
    free(said);
    for (int i = 0; i < n; i++) {
        snprintf(file, sizeof file, "image%d", i);
        remove_in(dir, file);
    }
    remove_in(dir, "made");
    remove_in(dir, "said");
    return out;
}

/* ---- either ---- */
const char *fatbin_packer(char buf[1200], char *why, size_t nwhy)
{
    NvFatbin f;
    Path tool;
    unsigned major = 0, minor = 0;
    if (nvfatbin_find(&f)) {
        if (f.nvFatbinVersion(&major, &minor)) {
            snprintf(why, nwhy, "nvFatbin fails when it is asked for its version (%.300s)", f.path);
            return NULL;
        }
        snprintf(buf, 1200, "nvFatbin %u.%u (%.1000s)", major, minor, f.path);
        return buf;
    }
    if (tool_find(tool)) {
        snprintf(buf, 1200, "%.1100s", tool);
        return buf;
    }
    snprintf(why, nwhy,
             "nothing that packs fatbins was found: 'python3 -m pip install nvidia-nvfatbin' "
             "brings the library %s; or "
             "have the toolkit's tool fatbinary on the PATH, or name it in OPTC_FATBINARY",
             names[0]);
    return NULL;
}

char *fatbin_make(const FatImage *image, int n, const char *name, const char *dir, size_t *size,
                  char *why, size_t nwhy)
{
    NvFatbin f;
    Path tool;
    if (nvfatbin_find(&f))
        return by_library(&f, image, n, name, size, why, nwhy);
    if (tool_find(tool))
        return by_tool(tool, image, n, dir, size, why, nwhy);
    char buf[1200];
    fatbin_packer(buf, why, nwhy);
    return NULL;
}

/* ---- reading ---- */
/* The format that both packers write and cuobjdump lists: a header, then a header and the data of
 * each image. */
typedef struct { uint32_t magic; uint16_t version, header; uint64_t size; } Head;
typedef struct {
    uint16_t kind, version;
    uint32_t header;
    uint64_t stored;
    uint32_t compressed, options;
    uint16_t minor, major;
    uint32_t arch, name, name_len;
    uint64_t flags, zero, bytes;
} ImageHead;
enum { MAGIC = (int)0xba55ed50u, KIND_PTX = 1, KIND_ELF = 2 };

int fatbin_list(const char *data, size_t size, FatEntry *out, int most)
{
    Head h;
    ImageHead m;
    int n = 0;
    if (size < sizeof h)
        return -1;
    memcpy(&h, data, sizeof h);
    if ((int)h.magic != MAGIC || h.header < sizeof h || h.size > size || h.header + h.size != size)
        return -1;
    for (size_t at = h.header; at < size;) {
        if (size - at < sizeof m)
            return -1;
        memcpy(&m, data + at, sizeof m);
        if (m.header < sizeof m || m.header > size - at || m.stored > size - at - m.header ||
            (m.kind != KIND_PTX && m.kind != KIND_ELF))
            return -1;
        if (n < most)
            out[n] =
                (FatEntry){(int)m.arch, m.kind == KIND_PTX, m.bytes ? m.bytes : m.stored, m.stored};
        n++;
        at += m.header + m.stored;
    }
    return n < most ? n : most;
}

bool fatbin_entry_is(const FatEntry *e, int arch, bool ptx, uint64_t bytes)
{
    return e->arch == arch && e->ptx == ptx && e->stored &&
           (ptx ? e->bytes <= bytes + 16 : e->bytes >= bytes && e->bytes < bytes + 16);
}
