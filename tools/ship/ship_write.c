/* Writes the folder of a package under a temporary name next to its final one, and renames it when
 * it is complete. */
#include "tools/ship/ship.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Removes a folder of plain files, which is all that optc makes; anything else stays. */
static void remove_folder(const char *dir)
{
    DIR *d = opendir(dir);
    char path[PATH_MAX + 300];
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) {
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
            unlink(path);
        }
    if (d)
        closedir(d);
    rmdir(dir);
}

void ship_drop(Ship *s)
{
    if (*s->dir)
        remove_folder(s->dir);
    *s->dir = 0;
}

/* An old package may contain only its files and those that its Makefile builds. With any other file
 * in it, it is not replaced. */
static int check_old(const Ship *s)
{
    Manifest m;
    char why[700], built[4][80] = {"example"};
    if (!manifest_read(s->out, false, &m, why, sizeof why)) {
        manifest_free(&m);
        return cli_fail("ship: %s is there, and %s: remove it, or name another folder", s->out,
                        why);
    }
    snprintf(built[1], sizeof built[1], "%.60s.o", m.name);
    snprintf(built[2], sizeof built[2], "lib%.60s.a", m.name);
    snprintf(built[3], sizeof built[3], "lib%.60s.so", m.name);
    DIR *d = opendir(s->out);
    int rc = d ? CLI_GO : cli_fail("ship: %s: %s", s->out, strerror(errno));
    for (struct dirent *e; d && rc == CLI_GO && (e = readdir(d));) {
        const char *n = e->d_name;
        bool known =
            !strcmp(n, ".") || !strcmp(n, "..") || !strcmp(n, "manifest") || manifest_file(&m, n);
        for (int i = 0; i < 4; i++)
            known = known || !strcmp(n, built[i]);
        if (!known)
            rc = cli_fail("ship: the package in %s cannot be replaced: '%s' is not part of it; "
                          "move it away first",
                          s->out, n);
    }
    if (d)
        closedir(d);
    manifest_free(&m);
    return rc;
}

int ship_begin(Ship *s)
{
    struct stat st;
    const char *slash = strrchr(s->out, '/');
    char dir[PATH_MAX];
    if (lstat(s->out, &st) == 0) {
        if (!S_ISDIR(st.st_mode) || !manifest_is(s->out))
            return cli_fail("ship: %s exists and is not a package: it is left as it is", s->out);
        int rc = check_old(s);
        if (rc != CLI_GO)
            return rc;
        s->replaces = true;
    } else if (errno != ENOENT) {
        return cli_fail("ship: %s: %s", s->out, strerror(errno));
    }
    snprintf(dir, sizeof dir, "%.*s.%.40s-ship.XXXXXX", slash ? (int)(slash - s->out) + 1 : 0,
             s->out, s->pack.name);
    if (!mkdtemp(dir))
        return cli_fail("ship: a folder cannot be made beside %s: %s", s->out, strerror(errno));
    memcpy(s->dir, dir, sizeof s->dir);
    return CLI_GO;
}

/* ---- files ---- */
typedef struct File { char name[80]; char *data; size_t size; } File;
enum { MOST_FILES = 8 };

static int by_name(const void *a, const void *b)
{
    return strcmp(((const File *)a)->name, ((const File *)b)->name);
}

static bool write_file(const Ship *s, const char *name, const char *data, size_t n)
{
    char path[PATH_MAX + 100];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(data, 1, n, f) == n && fflush(f) == 0 && fsync(fileno(f)) == 0;
    if (f)
        ok = fclose(f) == 0 && ok;
    if (!ok)
        cli_error("ship: %s cannot be written: %s", path, strerror(errno));
    return ok;
}

static bool put_manifest(Ship *s, const File *file, int n, Buf *b)
{
    Pack *p = &s->pack;
    char hex[DIGEST_HEX];
    buf_printf(b, PACKAGE_MARK "name %s\noptc %s\n", p->name, p->version);
    if (p->narch)
        buf_printf(b, "cuda %d.%d\npacker %s\nnvrtc %.*s\n", p->cuda / 1000, p->cuda % 1000 / 10,
                   s->packer,
                   /* the options end with a blank */
                   (int)strlen(nvrtc_options()) - 1, nvrtc_options());
    buf_printf(b, "command %s\n", p->command);
    for (int i = 0; i < p->narch; i++) {
        digest_hex(p->arch[i].code, p->arch[i].size, hex);
        buf_printf(b, "%s_%d %zu %s\n", p->arch[i].ptx ? "ptx compute" : "arch sm", p->arch[i].arch,
                   p->arch[i].size, hex);
    }
    bool ok = pack_manifest_rules(p, b);
    for (int i = 0; i < n; i++) {
        digest_hex(file[i].data, file[i].size, hex);
        buf_printf(b, "file %s %zu %s\n", file[i].name, file[i].size, hex);
    }
    package_seal(b);
    if (!ok)
        cli_error("ship: out of memory");
    return ok;
}

static bool write_files(Ship *s)
{
    static const char *const form[] = {
        [PACK_HEADER] = "%s.h",       [PACK_SOURCE] = "%s.c",          [PACK_EXAMPLE] = "example.c",
        [PACK_MAKEFILE] = "Makefile", [PACK_CMAKE] = "CMakeLists.txt", [PACK_LICENSE] = "LICENSE"};
    _Static_assert(sizeof form / sizeof *form == NPACKFILE, "every file of a package has a name");
    File file[MOST_FILES];
    int n = 0;
    bool ok = true;
    for (int i = 0; i < NPACKFILE && ok && !s->code_only; i++) {
        File *f = &file[n];
        const char *hole = strstr(form[i], "%s");
        snprintf(f->name, sizeof f->name, "%s%s", hole ? s->pack.name : "",
                 hole ? hole + 2 : form[i]);
        f->data = pack_file(&s->pack, (PackFile)i);
        ok = f->data != NULL;
        f->size = ok ? strlen(f->data) : 0;
        n += ok;
        if (!ok)
            cli_error("ship: out of memory, or a template is broken");
    }
    if (ok && s->pack.fatbin) {
        File *f = &file[n++];
        snprintf(f->name, sizeof f->name, "%s.fatbin", s->pack.name);
        f->data = s->pack.fatbin;
        f->size = s->pack.fatbin_size;
    }
    qsort(file, (size_t)n, sizeof *file, by_name);
    /* if memory runs out, ship_drop removes the files so far */
    Buf m = {.arena = &s->pack.arena};
    ok = ok && put_manifest(s, file, n, &m);
    for (int i = 0; i < n && ok; i++)
        ok = write_file(s, file[i].name, file[i].data, file[i].size);
    ok = ok && write_file(s, "manifest", cli_text(&m), m.len);
    buf_free(&m);
    for (int i = 0; i < n; i++)
        if (file[i].data != s->pack.fatbin)
            free(file[i].data);
    return ok;
}

/* ---- renaming ---- */
static bool let_others_read(const char *dir)
{
    mode_t mask = umask(0);
    umask(mask);
    /* mkdtemp makes folders that only the owner can read */
    return chmod(dir, 0755 & ~mask) == 0;
}

/* A folder cannot be renamed over one that is not empty. So the old one is renamed first, and back
 * again if renaming the new one fails. */
static bool swap_in(Ship *s)
{
    char old[PATH_MAX + 8];
    snprintf(old, sizeof old, "%s.old", s->dir);
    if (s->replaces && rename(s->out, old) != 0)
        return false;
    if (rename(s->dir, s->out) != 0) {
        int err = errno;
        if (s->replaces)
            (void)!rename(old, s->out);
        errno = err;
        return false;
    }
    *s->dir = 0;
    if (s->replaces)
        remove_folder(old);
    return true;
}

int ship_finish(Ship *s)
{
    char size[32];
    if (ship_stopped || !write_files(s) || ship_stopped)
        return CLI_FAILED;
    if (!let_others_read(s->dir) || !swap_in(s))
        return cli_fail("ship: %s cannot be made: %s", s->out, strerror(errno));
    int ptx = s->pack.narch && s->pack.arch[s->pack.narch - 1].ptx;
    int rules = s->pack.nrule - s->pack.nfunction;
    cli_print("%s: %d rule%s, ", s->out, rules, rules == 1 ? "" : "s");
    if (s->pack.narch)
        printf("%d architecture%s%s, %s of GPU code\n", s->pack.narch - ptx,
               s->pack.narch - ptx == 1 ? "" : "s", ptx ? " and PTX" : "",
               cli_bytes(size, (double)s->pack.fatbin_size));
    else
        printf("for the CPU alone (--arch adds GPUs)\n");
    for (int i = 0; i < rules; i++)
        printf("  %s\n", s->pack.rule[i].id);
    if (s->pack.functions)
        printf("  functions of matrices: %s\n", s->pack.functions);
    return CLI_OK;
}
