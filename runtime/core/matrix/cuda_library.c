/* Searches for CUDA's libraries other than the driver. The first folder that has one of the names
 * wins: what the process has mapped already (such as a framework's), the folder that the user
 * names, $CUDA_HOME and $CUDA_PATH, the toolkit's usual folders, Python's packages ($VIRTUAL_ENV,
 * $CONDA_PREFIX, the user's, those of the python3 on the PATH), the loader's own search. Must not
 * run a program. */
#include "runtime/core/matrix/cuda_library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY_COUNT(a) (sizeof(a) / sizeof *(a))
typedef char LibraryPath[PATH_MAX];

static bool library_path(LibraryPath p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool library_path(LibraryPath p, const char *fmt, ...)               /* false: too long */
{
    va_list v;
    va_start(v, fmt);
    int n = vsnprintf(p, sizeof(LibraryPath), fmt, v);
    va_end(v);
    return n >= 0 && n < (int)sizeof(LibraryPath);
}

static const char *const toolkit_folders[] = {"lib64", "lib", "targets/x86_64-linux/lib",
                                              "targets/sbsa-linux/lib", NULL};

CORE const char *cuda_toolkit(size_t i)
{
    static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"},
                      *const usual[] = {"/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda"};
    if (i >= LIBRARY_COUNT(variables))
        return i - LIBRARY_COUNT(variables) < LIBRARY_COUNT(usual)
                   ? usual[i - LIBRARY_COUNT(variables)]
                   : NULL;
    const char *s = getenv(variables[i]);
    return s ? s : "";
}

static bool try_folder(LibrarySearch *s, const char *folder)
{
    for (size_t i = 0; s->names[i] && !s->library; i++) {
        LibraryPath p;
        if (!library_path(p, "%s/%s", folder, s->names[i]))
            continue;
        if (access(p, F_OK) != 0) {
            s->again |= errno == ENOMEM || errno == EIO;
            continue;
        }
        s->library = dlopen(p, RTLD_NOW | RTLD_LOCAL);
        const char *why = s->library ? NULL : dlerror();
        s->again |= !s->library && (!why || strstr(why, strerror(ENOMEM)));
        if (why && !*s->refused)
            snprintf(s->refused, sizeof s->refused, "%s", why);
    }
    return s->library != NULL;
}

static bool try_below(LibrarySearch *s, const char *root, const char *const *folder)
{
    LibraryPath p;
    for (size_t i = 0; folder[i] && !s->library; i++)
        if (library_path(p, "%s/%s", root, folder[i]))
            try_folder(s, p);
    return s->library != NULL;
}

static int is_python(const struct dirent *e) { return !strncmp(e->d_name, "python3", 7); }

/* A Python's packages are in site-packages, and on Debian in dist-packages. The newest of several
 * Pythons comes first. */
static bool try_prefix(LibrarySearch *s, const char *prefix)
{
    static const char *const libs[] = {"lib", "lib64", "local/lib"}, *const packages[] = {
                                                                         "site-packages",
                                                                         "dist-packages"};
    for (size_t i = 0; i < LIBRARY_COUNT(libs); i++) {
        struct dirent **python;
        LibraryPath p;
        int n = library_path(p, "%s/%s", prefix, libs[i])
                    ? scandir(p, &python, is_python, versionsort)
                    : -1;
        for (int k = n - 1; k >= 0; k--) {
            for (size_t j = 0; j < LIBRARY_COUNT(packages) && !s->library; j++)
                if (library_path(p, "%s/%s/%s/%s", prefix, libs[i], python[k]->d_name, packages[j]))
                    try_below(s, p, s->folders);
            free(python[k]);
        }
        if (n >= 0)
            free(python);
    }
    return s->library != NULL;
}

/* The packages of /opt/x/bin/python3 are below /opt/x. If that path is a link, its target's prefix
 * is tried too. */
static bool try_python(LibrarySearch *s, const char *program)
{
    LibraryPath p, real;
    const char *const name[] = {program, realpath(program, real)};
    for (size_t i = 0; i < LIBRARY_COUNT(name) && !s->library; i++) {
        if (!name[i] || !library_path(p, "%s", name[i]))
            continue;
        for (int up = 0; up < 2 && strrchr(p, '/'); up++)
            *strrchr(p, '/') = 0;
        try_prefix(s, p);
    }
    return s->library != NULL;
}

/* Only the first python3: 'pip install' does not mean another one further down the PATH. */
static bool try_path(LibrarySearch *s)
{
    for (const char *at = getenv("PATH"); at && *at; at += strspn(at, ":")) {
        int n = (int)strcspn(at, ":");
        LibraryPath p;
        if (*at == '/' && library_path(p, "%.*s/python3", n, at) && access(p, X_OK) == 0)
            return try_python(s, p);
        at += n;
    }
    return false;
}

static bool try_mapped(LibrarySearch *s)
{
    for (size_t i = 0; s->names[i] && !s->library; i++)
        s->library = dlopen(s->names[i], RTLD_NOW | RTLD_NOLOAD);
    return s->library != NULL;
}

static bool try_toolkits(LibrarySearch *s)
{
    const char *home;
    for (size_t i = 0; (home = cuda_toolkit(i)) && !s->library; i++)
        if (*home)
            try_below(s, home, toolkit_folders);
    return s->library != NULL;
}

static bool try_packages(LibrarySearch *s)
{
    static const char *const variables[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    LibraryPath p;
    for (size_t i = 0; i < LIBRARY_COUNT(variables) && !s->library; i++)
        if (getenv(variables[i]) && *getenv(variables[i]))
            try_prefix(s, getenv(variables[i]));
    if (!s->library && getenv("HOME") && library_path(p, "%s/.local", getenv("HOME")))
        try_prefix(s, p);
    return s->library || try_path(s);
}

static bool try_loader(LibrarySearch *s)
{
    for (size_t i = 0; s->names[i] && !s->library; i++)
        s->library = dlopen(s->names[i], RTLD_NOW | RTLD_LOCAL);
    return s->library != NULL;
}

/* If the user named a folder, no other one is searched. */
CORE bool library_find(LibrarySearch *s)
{
    return try_mapped(s) ||
           (s->own ? try_folder(s, s->own) : try_toolkits(s) || try_packages(s) || try_loader(s));
}

/* A library that is newer than the driver is not guaranteed to run with it. */
CORE void *cuda_library(const CudaLibrary *x, int driver, bool *again, char *why, size_t n)
{
    const char *own = getenv(x->variable);
    bool named = own && *own;
    LibrarySearch s;
    memset(&s, 0, sizeof s);
    s.names = driver / 1000 < 13 ? x->names + 1 : x->names;
    s.folders = x->folders;
    s.own = named ? own : NULL;
    *why = 0;
    *again = false;
    if (named && !strcmp(own, "none")) {
        snprintf(why, n, "%s is none", x->variable);
        return NULL;
    }
    if (library_find(&s))
        return s.library;
    *again = s.again;
    if (s.again)
        snprintf(why, n, "%s could not be searched for or loaded: out of memory", x->name);
    else if (*s.refused)
        snprintf(why, n, "%s does not load: %.300s", x->name, s.refused);
    else if (named)
        snprintf(why, n, "%s was not found: %s names %.300s, which does not contain %s", x->name,
                 x->variable, own, s.names[0]);
    else
        snprintf(why, n,
                 "%s was not found: 'python3 -m pip install %s%s' brings it; or name the folder of "
                 "%s in %s",
                 x->name, x->package, driver / 1000 < 13 ? "-cu12" : "", s.names[0], x->variable);
    return NULL;
}
