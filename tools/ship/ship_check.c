/* optc ship --check: compares a package with its manifest and with the devices of this machine. */
#include "tools/ship/ship.h"
#include "optc.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool bad(const char *text)
{
    printf("  %sBAD%s  %s\n", cli_paint(PAINT_BAD), cli_paint(PAINT_NONE), text);
    return false;
}

static void good(const char *text)
{
    printf("  %sok%s   %s\n", cli_paint(PAINT_GOOD), cli_paint(PAINT_NONE), text);
}

static const char *image_name(char buf[32], int arch, bool ptx)
{
    snprintf(buf, 32, "%s_%d", ptx ? "compute" : "sm", arch);
    return buf;
}

/* A failure for lack of memory is not a fault of the package. */
static void note_starved(const char *why, bool *starved)
{
    *starved = *starved || strstr(why, "out of memory");
}

static bool check_files(const char *dir, const Manifest *m, bool *starved)
{
    bool ok = true;
    for (int i = 0; i < m->nfile; i++) {
        char why[700];
        size_t size;
        char *data = package_read(dir, &m->file[i], false, &size, why, sizeof why);
        if (data) {
            snprintf(why, sizeof why, "%s, %zu bytes", m->file[i].name, size);
            good(why);
        } else {
            ok = bad(why);
            note_starved(why, starved);
        }
        free(data);
    }
    return ok;
}

/* Files that are not in the manifest are allowed, because a build creates some; they are listed. */
static void list_others(const char *dir, const Manifest *m)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, "manifest") &&
            !manifest_file(m, e->d_name)) {
            printf("       ");
            cli_put_clean(stdout, e->d_name, false);
            printf(" is not part of the package\n");
        }
    if (d)
        closedir(d);
}

static bool check_images(const char *dir, const Manifest *m, bool *starved)
{
    char name[80], why[700];
    FatEntry e[128];
    size_t size = 0;
    snprintf(name, sizeof name, "%.60s.fatbin", m->name);
    const PackageFile *f = manifest_file(m, name);
    char *data = f ? package_read(dir, f, false, &size, why, sizeof why) : NULL;
    bool whole = data != NULL;
    if (f && !data)
        note_starved(why, starved);
    int n = data ? fatbin_list(data, size, e, 128) : -1;
    free(data);
    if (!f && !m->nimage) {
        good("for the CPU alone: no GPU code");
        return true;
    }
    if (!f)
        return bad("the manifest names no fatbin");
    bool ok = true, seen[128] = {false};
    if (n < 0 && whole)
        ok = bad("the fatbin is none");
    for (int i = 0; i < m->nimage; i++) {
        const PackageImage *x = &m->image[i];
        int at = 0;
        while (at < n && (seen[at] || !fatbin_entry_is(&e[at], x->arch, x->ptx, x->bytes)))
            at++;
        char text[200], arch[32];
        image_name(arch, x->arch, x->ptx);
        if (at < n) {
            seen[at] = true;
            snprintf(text, sizeof text, "%s: %llu bytes, %llu in the fatbin; runs on %s", arch,
                     (unsigned long long)x->bytes, (unsigned long long)e[at].stored,
                     x->ptx          ? "every GPU from there on, once its driver has compiled it"
                     : x->arch == 90 ? "GPUs of compute capability 9.0 (compiled for sm_90a)"
                                     : "GPUs of this major version from there on");
            good(text);
        } else {
            snprintf(text, sizeof text,
                     n < 0 ? "%s would be in the fatbin, which is damaged"
                           : "%s is not in the fatbin as the manifest says",
                     arch);
            ok = bad(text);
        }
    }
    for (int i = 0; i < n; i++)
        if (!seen[i])
            ok = bad("the fatbin holds code that the manifest does not name");
    return ok;
}

static void check_here(const Manifest *m)
{
    const char *why = "it has no GPU code";
    const Driver *d = m->nimage ? driver_get(&why) : NULL;
    int count = 0;
    if (!d || d->cuDeviceGetCount(&count) || !count) {
        printf("here: %s, so it takes its CPU path\n", d ? "no GPU" : why);
        return;
    }
    for (int i = 0; i < count; i++) {
        CUdevice device;
        int major = 0, minor = 0;
        char name[128] = "", reason[300], arch[32];
        if (d->cuDeviceGet(&device, i) || d->cuDeviceGetName(name, sizeof name, device) ||
            d->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ||
            d->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
            continue;
        int image = manifest_pick(m, major * 10 + minor, d->version, reason, sizeof reason);
        printf("here: cuda:%d, %s, sm_%d: ", i, name, major * 10 + minor);
        if (image >= 0)
            printf("it would load, with its code for %s\n",
                   image_name(arch, m->image[image].arch, m->image[image].ptx));
        else
            printf("it would not load (%s) and takes its CPU path\n", reason);
    }
}

int ship_check(const char *dir)
{
    Manifest m;
    char why[700];
    if (!manifest_read(dir, false, &m, why, sizeof why)) {
        manifest_free(&m);
        return cli_fail("ship: %s", why);
    }
    printf("%s, made by optc %s", m.name, m.optc ? m.optc : "?");
    if (m.cuda)
        printf(" with CUDA %d.%d", m.cuda / 1000, m.cuda % 1000 / 10);
    int functions = manifest_functions(&m), rules = m.nrule - functions;
    printf(": %d rule%s", rules, rules == 1 ? "" : "s");
    if (functions)
        printf(", %d programs of functions of matrices", functions);
    printf("\n");
    snprintf(why, sizeof why, "%.60s.c", m.name);
    if (!manifest_file(&m, why))
        printf("GPU code alone, without C sources: the library loads it from a folder of "
               "$OPTC_CACHE_BASE\n");
    for (int i = 0; i < m.nrule; i++)
        printf("       %s%s%s\n", m.rule[i].id, strcmp(m.rule[i].about, "-") ? " with " : "",
               strcmp(m.rule[i].about, "-") ? m.rule[i].about : "");
    bool starved = false, ok = check_files(dir, &m, &starved);
    list_others(dir, &m);
    ok = check_images(dir, &m, &starved) && ok;
    if (ok)
        check_here(&m);
    manifest_free(&m);
    if (starved)
        return cli_fail("ship: out of memory: the package in %s was not checked to its end", dir);
    return ok ? CLI_OK : cli_fail("ship: the package in %s is damaged: make it again", dir);
}
