/* Shared by the suites of tuning results: hand-written texts, so that reader and printer do not
 * only confirm each other, and a folder for each test. */
#ifndef OPTC_TUNED_HOME_H
#define OPTC_TUNED_HOME_H
#include "tests/harness/help.h"
#include "runtime/library/tuned/tuned.h"

#include "gen/emit/emit.h"
#include "runtime/library/rule/spec_find.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HASH "0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210"
#define HEAD "optc-tune 1\n"
#define H200 "device NVIDIA H200 | units 132 | driver 580\n"
#define MAP "map f32,f32,f32 " HASH " 2^28 "
#define KNOBS "threads=256 vector=4 items=2 blocks=0 load=0 store=0 grid=0"
#define TIMES " ms=1.795 model=1.801 n=25"
#define LINE MAP KNOBS TIMES " # adamw step_1_map\n"

static char home[64], why[600];

static inline void make_home(void)
{
    strcpy(home, "/tmp/optc-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(home));
}

static inline void drop_home(void)
{
    char cmd[200];
    snprintf(cmd, sizeof cmd, "chmod -R u+rwx %s; rm -rf %s", home, home);
    ck_assert_int_eq(system(cmd), 0);
}

static const char *in_home(const char *name)
{
    static char path[16][200];
    static int at;
    char *p = path[at++ % 16];
    snprintf(p, 200, "%s/%s", home, name);
    return p;
}

static inline void spill(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f && fwrite(text, 1, n, f) == n && fclose(f) == 0, "%s: %s", path,
                  strerror(errno));
}

static inline char *slurp(const char *path)
{
    static char buf[1 << 16];
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
    buf[fread(buf, 1, sizeof buf - 1, f)] = 0;
    fclose(f);
    return buf;
}

static inline bool parse(TunedList *l, const char *text)
{
    return tuned_parse(l, "f", text, strlen(text), why, sizeof why);
}

static inline TunedList list_of(const char *text)
{
    TunedList l = {0};
    ck_assert_msg(parse(&l, text), "%s", why);
    return l;
}

static inline Tuned entry(const char *device, LaunchForm form, const char *stage, int bucket,
                          double ms, double model, int samples)
{
    static const Launch usual[NFORM] = {[FORM_MAP] = {{256, 4, 2, 0, 0, 0, 0}},
                                        [FORM_FOLD] = {{128, 4, 4, 0, 0, 0, 0}},
                                        [FORM_CPU] = {{3, 1, 77, 0, 0, 0, 0}}};
    Tuned t = {.launch = usual[form],
               .ms = ms,
               .model_ms = model,
               .samples = samples,
               .label = "rule kernel"};
    tuned_set_device(&t.key, device, 132, 580);
    t.key.form = form;
    strcpy(t.key.types, "f32,f32,f32");
    strcpy(t.key.stage, stage);
    t.key.bucket = bucket;
    return t;
}
#endif
