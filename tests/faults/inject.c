/* Every allocation of the process goes through this file (also the C library's own), and every call
 * about files or processes that optc makes: the linker redirects those (--wrap). */
#include "tests/faults/inject.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

const char *const kind_names[NKIND] = {"none",   "allocations", "allocations from one on",
                                       "files",  "driver",      "nvrtc",
                                       "fatbin", "cublas",      "cusolver"};
static const char *const libraries[NKIND] = {[DRIVER] = "libcuda.so.1",
                                             [NVRTC] = "libnvrtc.so.13",
                                             [FATBIN] = "libnvfatbin.so.13",
                                             [CUBLAS] = "libcublas.so.13",
                                             [CUSOLVER] = "libcusolver.so.12"};

static Kind kind;
static int at, seen;
static bool say;
static _Thread_local bool resting;
static long held;
/* Exempt code: OpenMP ends the program if it gets no memory, and the emulated GPU is test code. */
static struct { uintptr_t from, to; } exempt[16];
static int nexempt;

static int note_exempt(struct dl_phdr_info *i, size_t n, void *to)
{
    static const char *const names[] = {"libgomp",     "libcuda",   "libnvrtc",
                                        "libnvfatbin", "libcublas", "libcusolver"};
    bool known = false;
    (void)n, (void)to;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        known = known || strstr(i->dlpi_name, names[k]);
    for (int k = 0; known && k < i->dlpi_phnum && nexempt < 16; k++)
        if (i->dlpi_phdr[k].p_type == PT_LOAD && (i->dlpi_phdr[k].p_flags & PF_X)) {
            exempt[nexempt].from = i->dlpi_addr + i->dlpi_phdr[k].p_vaddr;
            exempt[nexempt].to = exempt[nexempt].from + i->dlpi_phdr[k].p_memsz;
            nexempt++;
        }
    return 0;
}

static bool is_exempt(void *caller)
{
    for (int i = 0; i < nexempt; i++)
        if ((uintptr_t)caller >= exempt[i].from && (uintptr_t)caller < exempt[i].to)
            return true;
    return false;
}

static void where(void)
{
    void *stack[24];
    Kind was = kind;
    kind = NO_CALLS;
    backtrace_symbols_fd(stack, backtrace(stack, 24), 2);
    kind = was;
}

static bool fails(Kind k)
{
    bool ends = kind == MEMORY_ENDS && k == ALLOCATIONS;
    if ((kind != k && !ends) || resting)
        return false;
    int now = __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED);
    if (now != at && !(ends && at && now > at))
        return false;
    if (say && now == at)
        where();
    errno = k == ALLOCATIONS ? ENOMEM : EIO;
    return true;
}

void inject_rest(bool yes) { resting = yes; }
void inject_say_where(bool yes) { say = yes; }
long inject_held(void) { return __atomic_load_n(&held, __ATOMIC_RELAXED); }

void inject_begin(Kind k, int n)
{
    if (!nexempt)
        dl_iterate_phdr(note_exempt, NULL);
    seen = 0;
    at = n;
    char text[40];
    snprintf(text, sizeof text, "%s %d", k < NKIND && libraries[k] ? libraries[k] : "-", n);
    setenv("EMU_FAIL", text, 1);
    __atomic_store_n(&kind, k, __ATOMIC_SEQ_CST);
}

int inject_end(void)
{
    Kind was = kind;
    kind = NO_CALLS;
    if (was < NKIND && libraries[was]) {
        setenv("EMU_FAIL", "- 0", 1);
        void *h = dlopen(libraries[was], RTLD_NOW | RTLD_NOLOAD);
        int (*calls)(void) = NULL;
        if (h)
            *(void **)&calls = dlsym(h, "emu_calls");
        seen = calls ? calls() : 0;
        if (h)
            dlclose(h);
    }
    return seen;
}

/* ---- memory ---- */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

static void *kept(void *p, void *caller)
{
    __atomic_add_fetch(&held, p && !is_exempt(caller), __ATOMIC_RELAXED);
    return p;
}

static bool none(void *caller) { return kind && !is_exempt(caller) && fails(ALLOCATIONS); }
#define CALLER __builtin_return_address(0)

void *malloc(size_t n) { return none(CALLER) ? NULL : kept(__libc_malloc(n), CALLER); }
void *calloc(size_t n, size_t size)
{
    return none(CALLER) ? NULL : kept(__libc_calloc(n, size), CALLER);
}
void *realloc(void *p, size_t n)
{
    return none(CALLER) ? NULL : p ? __libc_realloc(p, n) : kept(__libc_realloc(p, n), CALLER);
}
void *aligned_alloc(size_t align, size_t n)
{
    return none(CALLER) ? NULL : kept(__libc_memalign(align, n), CALLER);
}
void free(void *p)
{
    __atomic_sub_fetch(&held, p && !is_exempt(CALLER), __ATOMIC_RELAXED);
    __libc_free(p);
}

/* ---- files and processes ---- */
#define WRAP(type, name, args, values, failed) \
    type __real_##name args; \
    type __wrap_##name args; \
    type __wrap_##name args { return fails(FILES) ? failed : __real_##name values; }
/* closes and removes, and then reports failure */
#define WRAP_LAST(type, name, args, values, failed) \
    type __real_##name args; \
    type __wrap_##name args; \
    type __wrap_##name args \
    { \
        bool not = fails(FILES); \
        type r = __real_##name values; \
        errno = not ? EIO : errno; \
        return not ? failed : r; \
    }
/* glibc's error flag, which ferror reads */
static size_t marked(FILE *f) { return f->_flags |= 0x20, (size_t)0; }

WRAP(FILE *, fopen, (const char *p, const char *m), (p, m), NULL)
WRAP(FILE *, fdopen, (int fd, const char *m), (fd, m), NULL)
WRAP(size_t, fread, (void *to, size_t s, size_t n, FILE *f), (to, s, n, f), marked(f))
WRAP(size_t, fwrite, (const void *p, size_t s, size_t n, FILE *f), (p, s, n, f), marked(f))
WRAP(char *, fgets, (char *to, int n, FILE *f), (to, n, f), (marked(f), NULL))
WRAP(int, fflush, (FILE *f), (f), EOF)
WRAP(ssize_t, read, (int fd, void *to, size_t n), (fd, to, n), -1)
WRAP(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), -1)
WRAP(ssize_t, pread, (int fd, void *to, size_t n, off_t o), (fd, to, n, o), -1)
WRAP(int, rename, (const char *a, const char *b), (a, b), -1)
WRAP(int, mkdir, (const char *p, mode_t m), (p, m), -1)
WRAP(char *, mkdtemp, (char *p), (p), NULL)
WRAP(int, mkostemp, (char *p, int f), (p, f), -1)
WRAP(int, stat, (const char *p, struct stat *st), (p, st), -1)
WRAP(int, fstat, (int fd, struct stat *st), (fd, st), -1)
WRAP(int, lstat, (const char *p, struct stat *st), (p, st), -1)
WRAP(int, access, (const char *p, int m), (p, m), -1)
WRAP(int, statvfs, (const char *p, struct statvfs *v), (p, v), -1)
WRAP(char *, realpath, (const char *p, char *to), (p, to), NULL)
WRAP(DIR *, opendir, (const char *p), (p), NULL)
WRAP(int, fsync, (int fd), (fd), -1)
WRAP(int, chmod, (const char *p, mode_t m), (p, m), -1)
WRAP(void *, dlopen, (const char *p, int f), (p, f), NULL)
WRAP(int, memfd_create, (const char *p, unsigned f), (p, f), -1)
WRAP(int, pipe2, (int fd[2], int f), (fd, f), -1)
WRAP(pid_t, fork, (void), (), -1)
WRAP(int, posix_spawn,
     (pid_t * pid, const char *p, const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *a,
      char *const argv[], char *const env[]),
     (pid, p, fa, a, argv, env), EIO)
WRAP_LAST(int, close, (int fd), (fd), -1)
WRAP_LAST(int, fclose, (FILE *f), (f), EOF)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode)
{
    return fails(FILES) ? -1 : __real_open(path, flags, mode);
}
int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, void *arg);
int __wrap_fcntl(int fd, int command, void *arg)
{
    return fails(FILES) ? -1 : __real_fcntl(fd, command, arg);
}
