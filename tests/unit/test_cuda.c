/* CUDA without a GPU: drivers in every state (tests/cuda/fake_driver.c), NVRTC in every folder
 * (fake_nvrtc.c), and rules compiled by the real NVRTC if there is one. A library loads once per
 * process, so each case needs its own process (Check forks them). */
#include "tests/harness/help.h"
#include "tests/harness/random_spec.h"
#include "tests/harness/real_nvrtc.h"

#include "runtime/core/gpu/gpu_device.h"
#include "runtime/library/compile/nvrtc.h"
#include "runtime/library/rule/spec_find.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
typedef char Path[PATH_MAX];

/* The fakes are in build/fake/…, next to the program. */
static const char *fake_path(Path p, const char *file)
{
    Path self;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert(n > 0);
    self[n] = 0;
    *strrchr(self, '/') = 0;
    ck_assert(snprintf(p, PATH_MAX, "%s/fake/%s", self, file) < PATH_MAX);
    ck_assert_msg(access(p, R_OK) == 0, "%s is not built", p);
    return p;
}

/* Once a library with this soname is mapped, opening libcuda.so.1 finds it. */
static void use_driver(const char *kind, const char *mode, int version, int arch)
{
    Path p;
    char file[64], number[16];
    snprintf(file, sizeof file, "%s/libcuda.so.1", kind);
    setenv("FAKE_CUDA", mode, 1);
    snprintf(number, sizeof number, "%d", version);
    setenv("FAKE_VERSION", number, 1);
    snprintf(number, sizeof number, "%d", arch);
    setenv("FAKE_ARCH", number, 1);
    unsetenv("OPTC_NO_CUDA");
    ck_assert_msg(dlopen(fake_path(p, file), RTLD_NOW | RTLD_LOCAL) != NULL, "%s", dlerror());
}

static void use_nvrtc(const char *version)
{
    Path p;
    if (version)
        setenv("FAKE_NVRTC", version, 1);
    unsetenv("OPTC_NO_NVRTC");
    if (!version)
        setenv("OPTC_NO_NVRTC", "1", 1);
    else
        ck_assert_msg(dlopen(fake_path(p, "nvrtc/libnvrtc.so.13"), RTLD_NOW | RTLD_LOCAL) != NULL,
                      "%s", dlerror());
}

/* ---- the driver ---- */
static const struct {
    const char *kind, *mode;
    int version, arch;
    const char *nvrtc, *says[3], *never;
} doctors[] = {
    {"versioned",
     "one",
     13000,
     90,
     "13.0",
     {"driver     libcuda.so.1 (CUDA 13.0)\n",
      "gpu        cuda:0: Fake GPU, 7 multiprocessors, sm_90\n",
      "libnvrtc.so.13 (13.0), compiles for sm_80 sm_90\n"},
     "newer than"},
    {"versioned11",
     "one",
     13000,
     90,
     "13.0",
     {"driver     libcuda.so.1 (CUDA 13.0)\n", "Fake GPU", NULL},
     "newer than"},
    {"symbols",
     "one",
     13000,
     90,
     "13.0",
     {"driver     libcuda.so.1 (CUDA 13.0)\n", "Fake GPU",
      "workspace: at most 1.074 GB for temporaries of products (OPTC_WORKSPACE"},
     "newer than"},
    {"versioned",
     "one",
     13000,
     35,
     "13.0",
     {"sm_35 (NVRTC does not compile for it)\n", NULL, NULL},
     "newer than"},
    {"versioned",
     "one",
     12040,
     90,
     "13.0",
     {"CUDA 12.4", "newer than the driver, which may refuse",
      "pip install nvidia-cuda-nvrtc-cu12'"},
     "its machine code loads"},
    {"versioned",
     "one",
     12040,
     90,
     "12.9",
     {"CUDA 12.4", "its machine code loads", NULL},
     "may refuse"},
    {"versioned", "one", 13000, 90, "12.9", {"CUDA 13.0", "(12.9)", NULL}, "newer than"},
    {"versioned",
     "one",
     13000,
     90,
     NULL,
     {"NVRTC was not found", "only if the cache or a package has their code", NULL},
     "compiles for"},
    {"versioned",
     "none",
     13000,
     90,
     "13.0",
     {"driver     libcuda.so.1 (CUDA 13.0)\n", "gpu        none", NULL},
     "Fake GPU"},
    {"versioned",
     "nodevice",
     13000,
     90,
     "13.0",
     {"driver     the CUDA driver sees no GPU: cuInit: CUDA_ERROR_NO_DEVICE: rules run on the "
      "CPU\n",
      NULL, NULL},
     "gpu   "},
    {"versioned",
     "broken",
     13000,
     90,
     "13.0",
     {"driver     the CUDA driver does not start: cuInit: CUDA_ERROR_UNKNOWN: rules run on the "
      "CPU\n",
      NULL, NULL},
     "gpu   "},
    {"versioned",
     "one",
     11040,
     90,
     "13.0",
     {"driver     the CUDA driver is too old: it is for CUDA 11.4, and 12.0 or newer is needed: "
      "rules run on the CPU\n",
      NULL, NULL},
     "gpu   "},
    {"versioned",
     "lacks",
     12000,
     90,
     "13.0",
     {"the CUDA driver (for CUDA 12.0) lacks cuGraphInstantiateWithFlags, which CUDA 11.4 has",
      NULL, NULL},
     "gpu   "},
};

START_TEST(doctor_says)
{
    if (!forked())
        return;
    use_driver(doctors[_i].kind, doctors[_i].mode, doctors[_i].version, doctors[_i].arch);
    use_nvrtc(doctors[_i].nvrtc);
    char *page = optc_doctor(NULL);
    ck_assert(page != NULL);
    for (int k = 0; k < 3 && doctors[_i].says[k]; k++)
        ck_assert_msg(strstr(page, doctors[_i].says[k]) != NULL, "'%s' is not in:\n%s",
                      doctors[_i].says[k], page);
    ck_assert_msg(!strstr(page, doctors[_i].never), "'%s' is in:\n%s", doctors[_i].never, page);
    free(page);
}
END_TEST

/* The doctor opens each GPU. A variable that an option replaces does not hide the GPU. */
START_TEST(doctor_reads_no_replaced_variable)
{
    if (!forked())
        return;
    use_driver("versioned", "one", 13000, 90);
    use_nvrtc("13.0");
    setenv("OPTC_CACHE_MAX", "much", 1);
    char *page = optc_doctor(&(optc_engine_options){.cache_dir = "", .cache_max = 1 << 20});
    ck_assert_msg(page && strstr(page, "cuda:0: Fake GPU") && !strstr(page, "OPTC_CACHE_MAX is"),
                  "%s", page);
    free(page);
}
END_TEST

static const struct {
    const char *kind, *mode;
    int version;
    const char *nvrtc, *device;
    optc_status status;
    const char *part;
} opens[] = {
    {"versioned", "one", 13000, "13.0", "cuda", OPTC_OK, "cuda:0: Fake GPU"},
    {"symbols", "one", 12000, "13.0", "cuda:0", OPTC_OK, "cuda:0: Fake GPU"},
    {"versioned", "one", 13000, NULL, "cuda", OPTC_OK, "cuda:0: Fake GPU"},
    {"versioned", "one", 13000, "13.0", "cuda:1", OPTC_ERROR_UNAVAILABLE, "no cuda:1"},
    {"versioned", "none", 13000, "13.0", "cuda", OPTC_ERROR_UNAVAILABLE, "no cuda:0"},
    {"versioned", "nodevice", 13000, "13.0", "cuda", OPTC_ERROR_UNAVAILABLE,
     "sees no GPU: cuInit: "
     "CUDA_ERROR_NO_DEVICE; it needs a GPU and NVIDIA's driver, and the device \"cpu\" needs "
     "neither"},
    {"versioned", "broken", 13000, "13.0", "cuda", OPTC_ERROR_UNAVAILABLE,
     "cuInit: CUDA_ERROR_UNKNOWN"},
    {"versioned", "one", 11080, "13.0", "cuda", OPTC_ERROR_UNAVAILABLE,
     "too old: it is for CUDA 11.8"},
    {"versioned", "lacks", 13000, "13.0", "cuda", OPTC_ERROR_UNAVAILABLE,
     "lacks cuGraphInstantiateWithFlags"},
    {"versioned", "one", 13000, "13.0", "best", OPTC_OK, "cuda:0: Fake GPU"},
    {"versioned", "one", 13000, NULL, "best", OPTC_OK, "cpu: "},
    {"versioned", "none", 13000, "13.0", "best", OPTC_OK, "cpu: "},
    {"versioned", "nodevice", 13000, "13.0", "best", OPTC_OK, "cpu: "},
    {"versioned", "broken", 13000, "13.0", "best", OPTC_OK, "cpu: "},
    {"versioned", "one", 11040, "13.0", "best", OPTC_OK, "cpu: "},
    {"versioned", "lacks", 13000, "13.0", "best", OPTC_OK, "cpu: "},
};

START_TEST(open_says)
{
    if (!forked())
        return;
    optc_engine *e;
    use_driver(opens[_i].kind, opens[_i].mode, opens[_i].version, 90);
    use_nvrtc(opens[_i].nvrtc);
    optc_engine_options o = {.device = opens[_i].device, .cache_dir = ""};
    if (opens[_i].status != OPTC_OK) {
        FAILS(optc_open(&o, &e), opens[_i].status, opens[_i].part);
        return;
    }
    OK(optc_open(&o, &e));
    ck_assert_msg(strstr(optc_device_name(e), opens[_i].part) != NULL, "'%s' was opened, not '%s'",
                  optc_device_name(e), opens[_i].part);
    OK(optc_close(e));
}
END_TEST

/* A rule on the fake GPU: errors of NVRTC and the driver are reported with their own messages. */
static const struct {
    int arch;
    const char *nvrtc;
    optc_status status;
    const char *part;
} compiles[] = {
    {90, "12.8", OPTC_ERROR_SPEC, "[--gpu-architecture=sm_90a]"}, /* the fake NVRTC's log */
    {90, NULL, OPTC_ERROR_UNAVAILABLE, "NVRTC was not found"},
    {75, "13.0", OPTC_ERROR_UNAVAILABLE,
     "compiles for sm_80 to sm_90, and not for sm_75; an older version does: "
     "'python3 -m pip install nvidia-cuda-nvrtc-cu12'"},
    {120, "13.0", OPTC_ERROR_UNAVAILABLE,
     "and not for sm_120; a newer version does: "
     "'python3 -m pip install --upgrade nvidia-cuda-nvrtc'"},
    {35, "real", OPTC_ERROR_UNAVAILABLE, "and not for sm_35; an older version does"},
    {90, "real", OPTC_ERROR_DEVICE, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
};

START_TEST(compile_says)
{
    if (!forked())
        return;
    optc_engine *e;
    optc_rule *r;
    bool real = compiles[_i].nvrtc && !strcmp(compiles[_i].nvrtc, "real");
    use_driver("versioned", "one", 13000, compiles[_i].arch);
    if (!real)
        use_nvrtc(compiles[_i].nvrtc);
    else if (!real_nvrtc("a rule refused by NVRTC or by the driver"))
        return;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = ""}, &e));
    FAILS(optc_compile(e, &(optc_rule_options){.spec = "sgd"}, &r), compiles[_i].status,
          compiles[_i].part);
    OK(optc_close(e));
}
END_TEST

/* ---- finding NVRTC ---- */
static void make_folders(char *path)
{
    for (char *s = path + 1; (s = strchr(s, '/')); s++) {
        *s = 0;
        mkdir(path, 0700);
        *s = '/';
    }
}

static void copy_file(const char *from, char *to)
{
    make_folders(to);
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    char piece[4096];
    ck_assert(in && out);
    for (size_t n; (n = fread(piece, 1, sizeof piece, in)) > 0;)
        ck_assert(fwrite(piece, 1, n, out) == n);
    fclose(in);
    ck_assert(fclose(out) == 0 && chmod(to, 0700) == 0);
}

/* The library's place below a folder of the test, and the variable that names it: %s is that
 * folder. */
static const struct { const char *file, *var, *value; bool after_toolkit;
} places[] = {
    {"x/libnvrtc.so.13", "OPTC_NVRTC", "%s/x", false},
    {"x/libnvrtc.so.12", "OPTC_NVRTC", "%s/x", false},
    {"toolkit/lib64/libnvrtc.so.13", "CUDA_HOME", "%s/toolkit", false},
    {"toolkit/targets/x86_64-linux/lib/libnvrtc.so.12", "CUDA_PATH", "%s/toolkit", false},
    {"v/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "VIRTUAL_ENV", "%s/v", true},
    {"v/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "CONDA_PREFIX", "%s/v",
     true},
    {".local/lib/python3.14/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "HOME", "%s", true},
    {"v/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "PATH",
     "none:/no/such:%s/v/bin:/bin", true},
    {"u/local/lib/python3.12/dist-packages/nvidia/cu13/lib/libnvrtc.so.13", "PATH", "%s/u/bin",
     true},
    {"u/lib64/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "PATH", "%s/linked/bin",
     true},
};

static bool toolkit_has_nvrtc(void)
{
    static const char *const at[] = {
        "/usr/local/cuda/lib64/libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.12",
        "/opt/cuda/lib64/libnvrtc.so.13", "/opt/cuda/lib64/libnvrtc.so.12"};
    for (int i = 0; i < COUNT(at); i++)
        if (access(at[i], F_OK) == 0)
            return true;
    return false;
}

static void forget_places(void)
{
    static const char *const vars[] = {"OPTC_NVRTC",  "OPTC_NO_NVRTC", "CUDA_HOME", "CUDA_PATH",
                                       "VIRTUAL_ENV", "CONDA_PREFIX",  "PATH",      "HOME"};
    for (int i = 0; i < COUNT(vars); i++)
        unsetenv(vars[i]);
    setenv("OPTC_NO_CUDA", "1", 1);
}

static void remove_folder(const char *folder)
{
    Path command;
    setenv("PATH", "/usr/bin:/bin", 1);
    ck_assert(snprintf(command, sizeof command, "rm -rf '%s'", folder) < PATH_MAX &&
              system(command) == 0);
}

START_TEST(finds_nvrtc)
{
    if (!forked())
        return;
    if (places[_i].after_toolkit && toolkit_has_nvrtc()) {
        fprintf(stderr, "skipped: NVRTC by %s (the toolkit's comes before it on this machine)\n",
                places[_i].var);
        return;
    }
    char folder[] = "/tmp/optc-nvrtc-XXXXXX";
    const char *why;
    Path from, to, value, python;
    ck_assert(mkdtemp(folder) != NULL);
    snprintf(to, sizeof to, "%s/%s", folder, places[_i].file);
    copy_file(fake_path(from, "nvrtc/libnvrtc.so.13"), to);
    for (const char *const *d = (const char *const[]){"v", "u", NULL}; *d; d++) {
        snprintf(python, sizeof python, "%s/%s/bin/python3", folder, *d);
        copy_file(from, python);
    }
    snprintf(value, sizeof value, "%s/linked/bin/python3", folder);
    make_folders(value);
    ck_assert(symlink(python, value) == 0);          /* python points to u's */
    forget_places();
    snprintf(value, sizeof value, places[_i].value, folder);
    setenv(places[_i].var, value, 1);
    const Nvrtc *n = nvrtc_get(&why);
    ck_assert_msg(n != NULL, "%s=%s: %s", places[_i].var, value, why);
    ck_assert_str_eq(n->path, to);
    remove_folder(folder);
}
END_TEST

/* A library that the process has loaded comes first, also before a named folder. */
START_TEST(mapped_comes_first)
{
    if (!forked())
        return;
    Path mapped;
    forget_places();
    use_nvrtc("13.0");
    setenv("OPTC_NVRTC", "/no/such/folder", 1);
    const Nvrtc *n = nvrtc_get(NULL);
    ck_assert(n != NULL);
    ck_assert_str_eq(n->path, fake_path(mapped, "nvrtc/libnvrtc.so.13"));
}
END_TEST

static const struct { const char *file, *text, *part; } refusals[] = {
    {NULL, NULL, "which holds neither libnvrtc.so.13 nor libnvrtc.so.12"},
    {"libnvrtc.so.13", "no library", "NVRTC does not load: "},
    {"libnvrtc.so.12", NULL, "NVRTC lacks nvrtcGetPTX"},
};

START_TEST(refused_nvrtc)
{
    if (!forked())
        return;
    char folder[] = "/tmp/optc-nvrtc-XXXXXX";
    const char *why;
    Path from, to;
    ck_assert(mkdtemp(folder) != NULL);
    snprintf(to, sizeof to, "%s/%s", folder, refusals[_i].file ? refusals[_i].file : "");
    if (refusals[_i].text) {
        FILE *f = fopen(to, "w");
        ck_assert(f && fputs(refusals[_i].text, f) >= 0 && fclose(f) == 0);
    } else if (refusals[_i].file) {
        copy_file(fake_path(from, "nvrtc_old/libnvrtc.so.13"), to);
    }
    forget_places();
    setenv("OPTC_NVRTC", folder, 1);
    ck_assert(nvrtc_get(&why) == NULL);
    ck_assert_msg(strstr(why, refusals[_i].part) != NULL, "'%s' is not in '%s'", refusals[_i].part,
                  why);
    ck_assert_ptr_null(dlopen(to, RTLD_NOW | RTLD_NOLOAD));    /* no handle to it is held */
    /* nor is it searched again: other threads may be reading the text */
    setenv("OPTC_NVRTC", "/no/such/folder", 1);
    ck_assert(nvrtc_get(NULL) == NULL && strstr(why, refusals[_i].part));
    remove_folder(folder);
}
END_TEST

/* ---- options ---- */
static const struct { const char *version; bool cache_off; } givens[] =
    {{"12.0", false}, {"12.8", false}, {"12.9", true}, {"13.0", true}, {"13.1", true}};

START_TEST(options_by_version)
{
    if (!forked())
        return;
    char *log;
    size_t size;
    use_nvrtc(givens[_i].version);
    const Nvrtc *n = nvrtc_get(NULL);
    ck_assert(n && !nvrtc_build(n, "int x;", "x", 90, false, &size, &log) && log);
    ck_assert_int_eq(strstr(log, "[-no-cache]") != NULL, givens[_i].cache_off);
    ck_assert(strstr(log, "[--gpu-architecture=sm_90a]") && strstr(log, "[--fmad=false]") &&
              strstr(log, "[-modify-stack-limit=false]"));
    /* each option except the target is part of the text that keys are made of */
    for (char *s = strstr(log, "][") + 1, *end; s && (end = strchr(s, ']')); s = strchr(end, '[')) {
        *end = 0;
        ck_assert_msg(strstr(nvrtc_options(), s + 1) != NULL, "'%s' is not in '%s'", s + 1,
                      nvrtc_options());
        *end = ']';
    }
    free(log);
}
END_TEST

/* Programs are split for several threads, except those with one kernel for Hopper's tensor
 * cores. */
START_TEST(split_programs)
{
    static const struct { const char *source; bool splits;
    } c[] = {{"extern \"C\" __global__ void k() {}", true},
             {"extern \"C\" __global__ void k() { asm(\"wgmma.fence\"); }", false},
             {"extern \"C\" __global__ void k() {} extern \"C\" __global__ void n() { "
              "asm(\"wgmma.fence\"); }",
              true}};
    static const struct { const char *version; bool has; } nvrtc[] = {
        {"12.5", false}, {"13.0", true}};
    bool cores = sysconf(_SC_NPROCESSORS_ONLN) >= 4;
    if (!forked())
        return;
    use_nvrtc(nvrtc[_i].version);
    const Nvrtc *n = nvrtc_get(NULL);
    for (size_t i = 0; n && i < sizeof c / sizeof *c; i++) {
        char *log;
        size_t size;
        ck_assert(!nvrtc_build(n, c[i].source, "x", 90, false, &size, &log) && log);
        ck_assert_msg((strstr(log, "[--split-compile=4]") != NULL) ==
                          (cores && nvrtc[_i].has && c[i].splits),
                      "%s: %s", c[i].source, log);
        free(log);
    }
}
END_TEST

/* NVRTC before 12.3 lacks functions that NVIDIA added later. The fake one refuses programs that
 * call them. */
static const struct { const char *nvrtc, *spec; optc_type type; bool conditions;
} olds[] = {{"12.2", "muon", OPTC_F32, false},
            {"12.3", "muon", OPTC_F32, true},
            {"12.2", "sgd", OPTC_BF16SR, false}};

START_TEST(old_nvrtc)
{
    if (!forked())
        return;
    static int64_t shape[] = {3, 4};
    static float p[12], g[12];
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    setenv("FAKE_CODE", "1", 1);
    setenv("OPTC_CUBLAS", "none", 1);
    use_driver("versioned", "works", 13000, 90);
    use_nvrtc(olds[_i].nvrtc);
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = ""}, &e));
    OK(optc_compile(
        e, &(optc_rule_options){.spec = olds[_i].spec, .param = olds[_i].type, .grad = OPTC_F32},
        &r));
    optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = shape};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    ck_assert_int_eq(b->gpu->code->call[KERNEL_PHASE] != NULL, olds[_i].conditions);
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Indices of sort are f32: one value more than f32 can count is refused on every device. */
START_TEST(sorted_indices_are_exact)
{
    static const char text[] =
        "return optimizer { name = 'sorted', matrix = function() p = p - sort(rowsum(g)) end, "
        "step = function() p = p - g end }";
    if (!forked())
        return;
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    int64_t shape[] = {(1 << 24) + 1, 1};
    setenv("FAKE_CODE", "1", 1);
    setenv("OPTC_CUBLAS", "none", 1);
    use_driver("versioned", "works", 13000, 90);
    use_nvrtc("13.0");
    /* never written */
    void *p = malloc(4 * (size_t)shape[0]), *g = malloc(4 * (size_t)shape[0]);
    /* one thread: each has scratch for the longest column, and 16 of them exceed the workspace */
    OK(optc_open(
        &(optc_engine_options){.device = _i ? "cuda" : "cpu", .threads = 1, .cache_dir = ""}, &e));
    OK(optc_compile(e, &(optc_rule_options){.text = text}, &r));
    optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = shape};
    FAILS(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b), OPTC_ERROR_ARGUMENT,
          "cannot sort 16777217");
    shape[0]--;
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
    free(p), free(g);
}
END_TEST

/* ---- the real NVRTC ---- */
static char *cuda_source(Gen *g, const char *spec)
{
    Source s;
    GenOptions o = {.find = find_wrapper};
    ck_assert(find_spec(NULL, spec, &g->arena, &s, &g->diag) && gen_compile(g, s, &o));
    char *text = gen_emit(g, &(EmitOptions){.target = &target_cuda, .command = "test"}, &g->diag);
    ck_assert(text != NULL);
    return text;
}

/* A block has 48 KB of shared memory: 13 column sums of f32, or 7 of f64, would need more if they
 * did not share it in rotation. */
START_TEST(crowds_have_room)
{
    if (getenv("OPTC_THIN"))               /* the work is NVRTC's */
        return;
    static const struct { Type type; int cols, sums; bool turns; } crowd[] =
        {{T_F32, 2, 2, false}, {T_F32, 13, 1, true}, {T_F64, 7, 3, true}};
    const Nvrtc *n = real_nvrtc("a crowd of folds in one pass");
    int arch[64];
    if (!n)
        return;
    ck_assert_int_gt(nvrtc_archs(n, arch, 64), 0);
    Gen g = {0};
    char *text = crowded_spec(crowd[_i].cols, crowd[_i].sums), *log = NULL;
    GenOptions o = {.find = find_wrapper,
                    .types = {.p = crowd[_i].type, .g = crowd[_i].type, .state = crowd[_i].type}};
    ck_assert_msg(gen_compile(&g, (Source){"crowd.lua", text, strlen(text)}, &o), "%s",
                  g.diag.text);
    int tiles = 0;
    for (int f = 0; f < g.plan->nfn; f++) {
        const Stage *s = plan_at(g.plan, f).stage;
        if (!s || stage_form(s) != FORM_TILE)
            continue;
        Launch l = launch_model(g.plan, s, 0);
        ck_assert(launch_valid(g.plan, s, &l) && !tile_strips(g.plan, s) == crowd[_i].turns);
        tiles++;
    }
    ck_assert_int_eq(tiles, 1);
    size_t size;
    char *source = gen_emit(&g, &(EmitOptions){.target = &target_cuda, .command = "test"}, &g.diag),
        *code = nvrtc_build(n, source, "crowd", arch[0], false, &size, &log);
    ck_assert_msg(code != NULL, "%s", log);
    free(code);
    free(source);
    free(text);
    gen_free(&g);
}
END_TEST

START_TEST(equal_bytes)
{
    if (getenv("OPTC_THIN"))               /* likewise */
        return;
    Gen g = {0};
    int arch[64];
    const Nvrtc *n = real_nvrtc("equal source gives equal machine code");
    if (!n)
        return;
    ck_assert_int_gt(nvrtc_archs(n, arch, 64), 0);
    char *source = cuda_source(&g, "lamb");
    size_t size[2] = {0, 0};
    char *log[2], *code[2];
    for (int i = 0; i < 2; i++)
        code[i] = nvrtc_build(n, source, "lamb", arch[0], false, &size[i], &log[i]);
    ck_assert_msg(code[0] && code[1], "%s", log[0] ? log[0] : log[1]);
    ck_assert_uint_eq(size[0], size[1]);
    ck_assert(memcmp(code[0], code[1], size[0]) == 0);
    for (int i = 0; i < 2; i++)
        free(code[i]);
    free(source);
    gen_free(&g);
}
END_TEST

/* Remarks of ptxas are not for the user of a program. A multiplication without a fence gets one in
 * NVRTC 13.0. With fewer than four cores nvrtc_build never uses the option that writes remarks to
 * stderr. */
static const char remarked[] =
    "extern \"C\" __global__ void k(float *y, unsigned long long a)\n{\n"
    "    float d[4] = {y[0], y[1], y[2], y[3]};\n"
    "    asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, "
    "%4, 1, 1, 1, 0, 0;\"\n"
    "                 : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) : \"l\"(a));\n"
    "    asm volatile(\"wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;\");\n"
    "    for (int i = 0; i < 4; i++)\n        y[threadIdx.x * 4 + i] = d[i];\n}\n";

static bool gets_a_remark(const Nvrtc *n)
{
    const char *target = "--gpu-architecture=sm_90a";
    char log[4000] = "";
    nvrtcProgram p;
    size_t size;
    ck_assert(!n->nvrtcCreateProgram(&p, remarked, "x", 0, NULL, NULL) &&
              !n->nvrtcCompileProgram(p, 1, &target));
    ck_assert(!n->nvrtcGetProgramLogSize(p, &size) && size <= sizeof log &&
              !n->nvrtcGetProgramLog(p, log));
    n->nvrtcDestroyProgram(&p);
    return strstr(log, "ptxas info");
}

START_TEST(remarks_stay_in_the_log)
{
    const Nvrtc *n = real_nvrtc("NVRTC's stderr");
    if (!n || getenv("OPTC_THIN"))
        return;
    char *log = NULL, text[1000] = "";
    size_t size;
    FILE *f = tmpfile();
    int was = dup(STDERR_FILENO);
    ck_assert(n->version != 13000 || gets_a_remark(n));
    ck_assert(f && was >= 0 && dup2(fileno(f), STDERR_FILENO) >= 0);
    char *code = nvrtc_build(n, remarked, "x", 90, false, &size, &log);
    bool back = dup2(was, STDERR_FILENO) >= 0;
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    ck_assert_msg(back && code && !*text, "%s%s", code ? "" : log, text);
    fclose(f);
    close(was);
    free(code);
}
END_TEST

/* A rule's source with an undeclared name: the message has NVRTC's log with the name and
 * position. */
START_TEST(broken_source)
{
    Gen g = {0};
    int arch[64];
    const Nvrtc *n = real_nvrtc("NVRTC's log of broken source");
    if (!n)
        return;
    ck_assert_int_gt(nvrtc_archs(n, arch, 64), 0);
    char *source = cuda_source(&g, "sgd"), *log = NULL;
    size_t size = 0;
    Buf b = {0};
    buf_printf(&b, "%s\n__device__ float broken = no_such_name;\n", source);
    ck_assert(nvrtc_build(n, b.s, "sgd", arch[0], false, &size, &log) == NULL);
    ck_assert_msg(log && strstr(log, "no_such_name") && strstr(log, "sgd("), "%s",
                  log ? log : "no log");
    free(log);
    buf_free(&b);
    free(source);
    gen_free(&g);
}
END_TEST

/* An error inside a stage is reported at the spec's line of the value, and after it the emitted
 * file's own lines count again. The #line directives do not change the key. */
START_TEST(cites_the_spec)
{
    static const char text[] = "return optimizer {\n  name = \"mine\",\n  hyper = { lr = 0.1 },\n  "
                               "step = function()\n\n    local twice = g * "
                               "g\n    p = p - lr * twice / (abs(p) + twice)\n  end,\n}\n";
    Gen g = {0};
    GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}};
    ck_assert(gen_compile(&g, (Source){"specs/my \"own\".lua", text, sizeof text - 1}, &o));
    char *plain = gen_emit(&g, &(EmitOptions){.target = &target_cuda, .command = "test"}, &g.diag),
         *log = NULL;
    char *cited = gen_emit(
        &g, &(EmitOptions){.target = &target_cuda, .command = "test", .cite = true}, &g.diag);
    ck_assert(plain && cited && !strstr(plain, "#line"));
    char key[2][DIGEST_HEX];
    ck_assert(emit_key(plain, key[0]) && emit_key(cited, key[1]));
    ck_assert_str_eq(key[0], key[1]);
    char *at = strstr(cited, "#line 6 \"my _own_.lua\"\n");
    ck_assert_msg(at && strstr(strchr(at, '\n'), "const float twice = ") <
                            strchr(strchr(at, '\n') + 1, '\n'),
                  "%.2000s", at ? at : strstr(cited, "---- the stages"));
    const Nvrtc *n = real_nvrtc("NVRTC citing the spec");
    if (n) {
        int arch[64], line = 1;
        size_t size = 0;
        ck_assert_int_gt(nvrtc_archs(n, arch, 64), 0);
        memcpy(strstr(at, "twice"), "9wice", 5);
        char *end = strrchr(cited, '}');
        *end = '$';
        for (const char *c = cited; c < end; c++)
            line += *c == '\n';
        ck_assert(nvrtc_build(n, cited, "mine", arch[0], false, &size, &log) == NULL);
        char want[40];
        snprintf(want, sizeof want, "mine.cu(%d)", line);
        ck_assert_msg(log && strstr(log, "my _own_.lua(6)") && strstr(log, want), "%s\nlacks %s",
                      log ? log : "no log", want);
        free(log);
    }
    free(plain);
    free(cited);
    gen_free(&g);
}
END_TEST

Suite *cuda_suite(void)
{
    Suite *s = suite_create("cuda");
    TCase *t = tcase_create("cuda");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, doctor_says, 0, COUNT(doctors));
    tcase_add_test(t, doctor_reads_no_replaced_variable);
    tcase_add_loop_test(t, open_says, 0, COUNT(opens));
    tcase_add_loop_test(t, compile_says, 0, COUNT(compiles));
    tcase_add_loop_test(t, finds_nvrtc, 0, COUNT(places));
    tcase_add_test(t, mapped_comes_first);
    tcase_add_loop_test(t, refused_nvrtc, 0, COUNT(refusals));
    tcase_add_loop_test(t, options_by_version, 0, COUNT(givens));
    tcase_add_loop_test(t, split_programs, 0, 2);
    tcase_add_loop_test(t, old_nvrtc, 0, COUNT(olds));
    tcase_add_loop_test(t, sorted_indices_are_exact, 0, 2);
    tcase_add_test(t, equal_bytes);
    tcase_add_test(t, remarks_stay_in_the_log);
    tcase_add_loop_test(t, crowds_have_room, 0, 3);
    tcase_add_test(t, broken_source);
    tcase_add_test(t, cites_the_spec);
    suite_add_tcase(s, t);
    return s;
}
