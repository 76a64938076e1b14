/* A libnvrtc.so.13 that compiles emitted CUDA for the CPU with the host's C++ compiler, between
 * emu_threads.h and emu_tail.h. EMU_DIR names their folder. EMU_PRECOMPILED names a folder with a
 * precompiled emu_threads.h; g++ reads the header itself if that does not match its options.
 * Kernels run for a short time, so they are compiled without optimization (EMU_OPT) and with C
 * headers only (C++ headers take longer to read than a kernel). EMU_WRONG: programs that contain
 * this text skip their first block, like a miscompiled one. Programs of teams, which access 16
 * bytes at a time, end at an address that is not aligned. */
#include "runtime/library/compile/nvrtc.h"

#include "tests/emu/emu_fail.h"
#define CALL do { if (told_to_fail("libnvrtc.so.13")) return 11; } while (0)

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct _nvrtcProgram { char *source, *code, log[4000]; size_t size; };

int nvrtcVersion(int *major, int *minor) { CALL; return *major = 13, *minor = 0, 0; }
int nvrtcGetNumSupportedArchs(int *n) { CALL; return *n = 1, 0; }
int nvrtcGetSupportedArchs(int *out) { CALL; return *out = 90, 0; }

int nvrtcCreateProgram(nvrtcProgram *p, const char *source, const char *name, int n,
                       const char *const *headers, const char *const *names)
{
    CALL;
    (void)name, (void)n, (void)headers, (void)names;
    *p = calloc(1, sizeof **p);
    (*p)->source = strdup(source);
    return 0;
}

/* Puts a mark before a kernel with a second parameter, the array numbers; the driver looks for the
 * mark. A long list of parameters continues on the next line. */
static void put_mark(FILE *f, const char *line, const char *end)
{
    static const char first[] = "(const optc_launch a,", second[] = "const optc_numbers";
    const char *params = strncmp(line, "extern \"C\" __global__", 21) ? NULL : strstr(line, first),
               *name = params;
    if (!params || params >= end)
        return;
    const char *next = params + strlen(first);
    next += strspn(next, " \n");
    if (strncmp(next, second, strlen(second)))
        return;
    while (name > line && name[-1] != ' ')
        name--;
    fprintf(f, "extern \"C\" { char emu_numbers_%.*s; }\n", (int)(params - name), name);
}

/* Cache hints are inline assembly of the GPU: plain accesses replace them. */
static void put_source(FILE *f, const char *s)
{
    for (const char *end; *s; s = end) {
        end = s + strcspn(s, "\n");
        end += *end == '\n';
        put_mark(f, s, end);
        const char *load = strstr(s, "asm volatile(\"ld."),
                   *store = strstr(s, "asm volatile(\"st.");
        if ((load && load < end) || (store && store < end)) {
            fputs(load && load < end ? "        x = *p;\n" : "        *p = x;\n", f);
            end = strstr(s, ");\n");                 /* a statement may take several lines */
            end = end ? end + 3 : s + strlen(s);
        } else if (strncmp(s, "#line", 5))
            fwrite(s, 1, (size_t)(end - s), f);
    }
}

/* For the log of emu_driver.c (emu_log.h): the parameter's type of each kernel, and the arrays that
 * it uses; the numbers of arrays, and the length of a row of pointers. */
static void put_uses(FILE *f, const char *at, const char *end)
{
    static const char look[] = "self->mem[";
    const char *by_block = strstr(at, "(a, blockIdx.x), *const self");
    fputc(by_block && by_block < end ? 'B' : 'U', f);
    for (const char *s = at; (s = strstr(s, look)) && s < end; s += strlen(look)) {
        const char *name = s + strlen(look), *cast = s;
        while (cast > at && *cast != '(')
            cast--;
        bool number = !strncmp(name, "arrays.at[", 10);
        name += number ? 10 : 3;
        fprintf(f, "%c:%s%.*s ", strncmp(cast, "(const", 6) ? 'w' : 'r', number ? "#" : "",
                (int)strcspn(name, "]"), name);
    }
}

static void put_log_marks(FILE *f, const char *source)
{
    static const char begin[] = "\nextern \"C\" __global__", mark[] = "extern \"C\" "
        "__attribute__((visibility(\"default\"))) const";
    const char *last = NULL;
    for (const char *s = strstr(source, begin), *next; s; s = next) {
        next = strstr(s + 1, begin);
        const char *params = strstr(s, "(const "), *name = params;
        while (params && name > s && name[-1] != ' ')
            name--;
        /* a kernel may have two forms, for other architectures */
        if (!params || (last && !strncmp(last, name, (size_t)(params - name) + 1)))
            continue;
        last = name;
        fprintf(f, "%s char emu_type_%.*s[] = \"%.*s\";\n", mark, (int)(params - name), name,
                (int)strcspn(params + 7, " "), params + 7);
        fprintf(f, "%s char emu_uses_%.*s[] = \"", mark, (int)(params - name), name);
        put_uses(f, s, next ? next : s + strlen(s));
        fputs("\";\n", f);
    }
    fprintf(f, "%s char emu_arrays[] = \" ", mark);
    for (const char *s = source; (s = strstr(s, " at_")); s++) {
        int n = (int)strcspn(s + 4, " =,;");
        if (!strncmp(s + 4 + n, " = ", 3))
            fprintf(f, "%d:%.*s ", atoi(s + 4 + n + 3), n, s + 4);
    }
    const char *look = strstr(source, "= optc_look<");
    fprintf(f, "\";\n%s int emu_mems = %d;\n", mark, look ? atoi(look + 12) : 0);
}

/* EMU_KEPT: a folder of earlier results, by source. */
static bool kept_path(nvrtcProgram p, char path[400])
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *s = p->source; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    const char *dir = getenv("EMU_KEPT");
    return dir && snprintf(path, 400, "%s/%016llx", dir, (unsigned long long)h) < 400;
}

static bool read_code(nvrtcProgram p, const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    fseek(f, 0, SEEK_END);
    p->size = (size_t)ftell(f);
    rewind(f);
    p->code = malloc(p->size);
    bool ok = fread(p->code, 1, p->size, f) == p->size;
    return fclose(f) == 0 && ok;
}

static void keep_code(const nvrtcProgram p, const char *path)
{
    char aside[420];
    snprintf(aside, sizeof aside, "%s.%ld", path, (long)getpid());
    FILE *f = fopen(aside, "w");
    if (f)
        fwrite(p->code, 1, p->size, f);
    if (f && fclose(f) == 0)
        (void)rename(aside, path);
}

int nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options)
{
    CALL;
    char dir[] = "/tmp/optc-emu-XXXXXX", path[100], kept[400], command[4000];
    const char *here = getenv("EMU_DIR");
    (void)n, (void)options;
    bool keeps = kept_path(p, kept);
    if (keeps && read_code(p, kept))
        return 0;
    if (!here || !mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/k.cc", dir);
    FILE *f = fopen(path, "w");
    if (!f)
        return rmdir(dir), 1;
    const char *wrong = getenv("EMU_WRONG");
    fprintf(f, "#include \"emu_threads.h\"\n%s#define EMU_FIRST %d\n",
            strstr(p->source, "OPTC_HOPPER") ? "#include \"emu_hopper.h\"\n" : "",
            wrong && strstr(p->source, wrong));
    put_source(f, p->source);
    put_log_marks(f, p->source);
    /* emu_tail.h names this type; the program of exchanges has no kernel that takes it */
    fprintf(f, "%s%s%s%s%s%s#include \"%s/emu_tail.h\"\n",
            strstr(p->source, "struct optc_launch")
                ? ""
                : "struct optc_launch { long long unused[8]; };\n",
            strstr(p->source, "struct optc_numbers") ? "#define EMU_NUMBERS\n" : "",
            strstr(p->source, " optc_guard(const") ? "#define EMU_GUARD\n" : "",
            strstr(p->source, " optc_move(const") ? "#define EMU_MOVE\n" : "",
            strstr(p->source, "struct optc_copies") ? "#define EMU_COPIES\n" : "",
            strstr(p->source, " optc_agree(const") ? "#define EMU_AGREE\n" : "", here);
    fclose(f);
    snprintf(command, sizeof command,
             "${CXX:-g++} -std=c++17 -nostdinc++ ${EMU_OPT:--O0} -fPIC -shared -nostdlib "
             "-fno-exceptions "
             "-ffp-contract=off -fno-strict-aliasing -U_FORTIFY_SOURCE -w %s "
             "${EMU_PRECOMPILED:+-I\"$EMU_PRECOMPILED\"} -I'%s' -o %s/k.so %s > %s/log 2>&1",
             strstr(p->source, "OPTC_TEAM")
                 ? "-fsanitize=alignment -fsanitize-undefined-trap-on-error"
                 : "",
             here, dir, path, dir);
    int rc = system(command);
    snprintf(path, sizeof path, "%s/%s", dir, rc ? "log" : "k.so");
    f = rc ? fopen(path, "r") : NULL;
    if (f)
        p->log[fread(p->log, 1, sizeof p->log - 1, f)] = 0;
    if (f)
        fclose(f);
    rc = rc || !read_code(p, path);
    if (!rc && keeps)
        keep_code(p, kept);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return (getenv("EMU_KEEP") ? 0 : system(command)) || rc ? 6 : 0;
}

int nvrtcGetProgramLogSize(nvrtcProgram p, size_t *n) { CALL; return *n = strlen(p->log) + 1, 0; }
int nvrtcGetProgramLog(nvrtcProgram p, char *out) { CALL; return strcpy(out, p->log), 0; }
int nvrtcGetCUBINSize(nvrtcProgram p, size_t *n) { CALL; return *n = p->size, 0; }
int nvrtcGetCUBIN(nvrtcProgram p, char *out) { CALL; return memcpy(out, p->code, p->size), 0; }
static const char ptx[] = ".version 8.0\n.target sm_90\n";       /* never executed */
int nvrtcGetPTXSize(nvrtcProgram p, size_t *n) { CALL; return *n = sizeof ptx, p == NULL; }
int nvrtcGetPTX(nvrtcProgram p, char *out) { CALL; return memcpy(out, ptx, sizeof ptx), p == NULL; }
int nvrtcDestroyProgram(nvrtcProgram *p)
{
    return free((*p)->source), free((*p)->code), free(*p), 0;
}
