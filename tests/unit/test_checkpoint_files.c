/* Checkpoints in files and through functions of the caller: full disks, missing folders, killed
 * processes, two writers, sizes above 4 GiB, sharded bindings. */
#include "tests/harness/checkpoint_run.h"
#include "tests/harness/rank_threads.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[200];
static const char *in_folder(const char *name)
{
    static char path[4][300];
    static int n;
    char *to = path[n++ % 4];
    snprintf(to, sizeof path[0], "%s/%s", folder, name);
    return to;
}

static int files_in_folder(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void make_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/optc-checkpoint-XXXXXX", tmp ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void drop_folder(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert(!system(command));
}

/* Two runs of AdamW with the same parameters: a after some steps, b before its first one. */
static void open_pair(Run *a, Run *b, int steps)
{
    run_open(a, "adamw", NULL, 1);
    run_open(b, "adamw", NULL, 1);
    run_steps(a, 1, steps);
    run_copy_params(b, a);
}

/* A file of the run: the bits that were saved, the mode of the umask, nothing beside it. A link
 * stays a link. */
START_TEST(writes_files)
{
    Run a, b;
    struct stat st;
    run_open(&a, "adamw", "state=q8", 1);
    run_open(&b, "adamw", "state=q8", 1);
    run_steps(&a, 1, 3);
    run_copy_params(&b, &a);
    umask(027);
    optc_checkpoint c = {.path = in_folder("a.safetensors")};
    for (int round = 0; round < 2; round++) {
        OK(optc_save(&a.b, 1, &c));
        OK(optc_load(&b.b, 1, &c));
        ck_assert(run_hash(&a) == run_hash(&b) && files_in_folder() == 1);
        run_steps(&a, 4 + round, 4 + round);
        run_steps(&b, 4 + round, 4 + round);
    }
    ck_assert(!stat(c.path, &st) && (st.st_mode & 0777) == 0640);
    int64_t bytes;
    OK(optc_save_bytes(&a.b, 1, &c, &bytes));
    ck_assert_int_eq(bytes, st.st_size);
    ck_assert(!symlink("a.safetensors", in_folder("link")));
    optc_checkpoint link = {.path = in_folder("link")};
    OK(optc_save(&a.b, 1, &link));
    ck_assert(!lstat(link.path, &st) && S_ISLNK(st.st_mode) && files_in_folder() == 2);
    OK(optc_load(&b.b, 1, &c));
    ck_assert(run_hash(&a) == run_hash(&b));
    ck_assert(!chdir(folder));
    OK(optc_save(&a.b, 1, &(optc_checkpoint){.path = "here"}));
    OK(optc_load(&b.b, 1, &(optc_checkpoint){.path = "here"}));
    run_close(&a);
    run_close(&b);
}
END_TEST

/* A rename is on the disk once its folder is: the folder of the file is synced. File systems that
 * cannot do that are accepted, other errors are not. */
int __real_fsync(int fd);
int __wrap_fsync(int fd);
static int folder_error;               /* of syncing a folder; 0: none */
static ino_t synced_folder;
int __wrap_fsync(int fd)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISDIR(st.st_mode))
        return __real_fsync(fd);
    synced_folder = st.st_ino;
    errno = folder_error;
    return folder_error ? -1 : 0;
}

START_TEST(synced_folders)
{
    static const int errors[] = {0, EINVAL, EACCES, EIO};
    Run a;
    struct stat st, root;
    run_open(&a, "sgd", NULL, 1);
    ck_assert(!stat(folder, &st) && !stat("/", &root) && !chdir(folder));
    for (int i = 0; i < 4; i++) {
        const optc_checkpoint to = {.path = i % 2 ? "here" : in_folder("a")};
        folder_error = errors[i];
        synced_folder = 0;
        if (errors[i] == EIO)
            FAILS(optc_save(&a.b, 1, &to), OPTC_ERROR_IO, "its folder could not be synced");
        else
            OK(optc_save(&a.b, 1, &to));
        ck_assert(synced_folder == st.st_ino && !access(to.path, R_OK));
    }
    folder_error = 0;
    const optc_checkpoint in_root = {.path = "/optc-checkpoint-of-a-test"};
    if (!access("/", W_OK)) {
        OK(optc_save(&a.b, 1, &in_root));
        ck_assert(synced_folder == root.st_ino && !unlink(in_root.path));
    }
    run_close(&a);
}
END_TEST

START_TEST(bad_paths)
{
    Run a;
    run_open(&a, "adamw", NULL, 1);
    optc_checkpoint c = {.path = "/dev/full"};
    FAILS(optc_save(&a.b, 1, &c), OPTC_ERROR_IO, "optc_save: /dev/full: No space left on device");
    struct stat st;
    ck_assert(!stat("/dev/full", &st) && S_ISCHR(st.st_mode));
    FAILS(optc_load(&a.b, 1, &c), OPTC_ERROR_IO, "/dev/full is no regular file");
    c.path = "/dev/null";
    OK(optc_save(&a.b, 1, &c));
    c.path = in_folder("none/a");
    FAILS(optc_save(&a.b, 1, &c), OPTC_ERROR_IO, "No such file or directory");
    FAILS(optc_load(&a.b, 1, &c), OPTC_ERROR_IO, "No such file or directory");
    c.path = folder;
    FAILS(optc_save(&a.b, 1, &c), OPTC_ERROR_IO, "is a folder; name a file in it");
    FAILS(optc_load(&a.b, 1, &c), OPTC_ERROR_IO, "is a folder");
    c.path = "";
    FAILS(optc_save(&a.b, 1, &c), OPTC_ERROR_ARGUMENT, "the path is empty");
    FAILS(optc_load(&a.b, 1, &c), OPTC_ERROR_IO, "No such file or directory");
    c.path = "/proc/self/a";                               /* no file can be made in this folder */
    FAILS(optc_save(&a.b, 1, &c), OPTC_ERROR_IO, "optc_save: /proc/self/a");
    ck_assert(!mkfifo(in_folder("pipe"), 0600));
    c.path = in_folder("pipe");
    FAILS(optc_load(&a.b, 1, &c), OPTC_ERROR_IO, "is no regular file");
    c = (optc_checkpoint){.path = "a", .memory = &a};
    FAILS(optc_save(&a.b, 1, &c), OPTC_ERROR_ARGUMENT,
          "set one of path, memory and write; several are set");
    FAILS(optc_load(&a.b, 1, &c), OPTC_ERROR_ARGUMENT,
          "set one of path, memory and read; several are set");
    FAILS(optc_save(&a.b, 1, &(optc_checkpoint){0}), OPTC_ERROR_ARGUMENT,
          "set one of path, memory and write");
    FAILS(optc_load(&a.b, 1, &(optc_checkpoint){0}), OPTC_ERROR_ARGUMENT,
          "set one of path, memory and read");
    c = (optc_checkpoint){.memory = &a, .size = 100};
    FAILS(optc_save(&a.b, 1, &c), OPTC_ERROR_ARGUMENT,
          "the memory has 100 bytes, and the checkpoint takes");
    FAILS(optc_save(NULL, 1, &c), OPTC_ERROR_ARGUMENT, "the list of bindings is NULL");
    FAILS(optc_save(&a.b, 0, &c), OPTC_ERROR_ARGUMENT, "n must be 1 or more");
    FAILS(optc_load(&(optc_binding *){NULL}, 1, &c), OPTC_ERROR_ARGUMENT, "binding 0 is NULL");
    FAILS(optc_save(&a.b, 1, NULL), OPTC_ERROR_ARGUMENT, "the checkpoint is NULL");
    FAILS(optc_save_bytes(&a.b, 1, &c, NULL), OPTC_ERROR_ARGUMENT, "the result pointer is NULL");
    FAILS(optc_save_sized(&a.b, 1, &c, 4), OPTC_ERROR_ARGUMENT, "the size of optc_checkpoint is 4");
    run_close(&a);
}
END_TEST

/* A disk that is full in the middle: the old file stays, and nothing is left beside it. */
START_TEST(full_disk)
{
    Run a, b;
    open_pair(&a, &b, 2);
    uint64_t then = run_hash(&a);
    optc_checkpoint c = {.path = in_folder("a")};
    OK(optc_save(&a.b, 1, &c));
    run_steps(&a, 3, 4);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit small = {10000, RLIM_INFINITY}, was;
    ck_assert(!getrlimit(RLIMIT_FSIZE, &was) && !setrlimit(RLIMIT_FSIZE, &small));
    FAILS(optc_save(&a.b, 1, &c), OPTC_ERROR_IO, "File too large");
    ck_assert(!setrlimit(RLIMIT_FSIZE, &was) && files_in_folder() == 1);
    OK(optc_load(&b.b, 1, &c));
    ck_assert(run_hash(&b) == then);
    run_close(&a);
    run_close(&b);
}
END_TEST

/* A process that is killed while it saves leaves the old file or the new one. Two processes that
 * save to one path leave the file of one of them. */
static pid_t save_in_child(Run *a, const char *path, int times)
{
    pid_t child = fork();
    if (child)
        return child;
    for (int i = 0; i < times; i++)
        if (optc_save(&a->b, 1, &(optc_checkpoint){.path = path}))
            _exit(1);
    _exit(0);
}

START_TEST(killed_and_rivals)
{
    Run a, b;
    open_pair(&a, &b, 2);
    optc_checkpoint c = {.path = in_folder("a")};
    OK(optc_save(&a.b, 1, &c));
    for (int i = 0; i < 12; i++) {
        pid_t child = save_in_child(&a, c.path, 1000);
        usleep((useconds_t)(i * 700));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        OK(optc_load(&b.b, 1, &c));
    }
    pid_t rival[2] = {save_in_child(&a, c.path, 30), save_in_child(&a, c.path, 30)};
    for (int i = 0; i < 2; i++) {
        int status = 1;
        ck_assert(waitpid(rival[i], &status, 0) == rival[i] && status == 0);
    }
    OK(optc_load(&b.b, 1, &c));
    ck_assert(run_hash(&a) == run_hash(&b));
    run_close(&a);
    run_close(&b);
}
END_TEST

/* ---- functions of the caller ---- */
typedef struct Pipe { char *data; int64_t size, fails; int reads; } Pipe;
static int pipe_write(void *context, const void *data, size_t bytes)
{
    Pipe *p = context;
    if (p->fails >= 0 && p->size + (int64_t)bytes > p->fails)
        return 7;
    p->data = realloc(p->data, (size_t)p->size + bytes);
    memcpy(p->data + p->size, data, bytes);
    p->size += (int64_t)bytes;
    return 0;
}
static int pipe_read(void *context, int64_t at, void *data, size_t bytes)
{
    Pipe *p = context;
    ck_assert(at >= 0 && at + (int64_t)bytes <= p->size);
    memcpy(data, p->data + at, bytes);
    return p->fails >= 0 && p->reads++ == p->fails ? 9 : 0;
}

START_TEST(callbacks)
{
    Run a, b;
    Pipe p = {.fails = -1};
    run_open(&a, "adamw", NULL, 1);
    run_open(&b, "adamw", NULL, 1);
    run_steps(&a, 1, 2);
    run_copy_params(&b, &a);
    uint64_t before = run_hash(&b);
    optc_checkpoint c = {.write = pipe_write, .context = &p};
    OK(optc_save(&a.b, 1, &c));
    c = (optc_checkpoint){.read = pipe_read, .context = &p, .size = p.size};
    bool partly = false;
    for (p.fails = 0; ; p.fails++) {                       /* every read fails once */
        p.reads = 0;
        optc_status s = optc_load(&b.b, 1, &c);
        if (s == OPTC_OK)
            break;
        ck_assert(s == OPTC_ERROR_IO &&
                  strstr(optc_message(), "the caller's function `read` returned 9"));
        partly = partly || strstr(optc_message(), "some states have their new values: load again");
        ck_assert_msg(partly || run_hash(&b) == before, "states changed: %s", optc_message());
    }
    ck_assert(partly && p.fails > 6 && run_hash(&a) == run_hash(&b));
    Pipe none = {.fails = 1000};
    c = (optc_checkpoint){.write = pipe_write, .context = &none};
    FAILS(optc_save(&a.b, 1, &c), OPTC_ERROR_IO,
          "the caller's function `write` returned 7 after 0 bytes");
    free(p.data);
    run_close(&a);
    run_close(&b);
}
END_TEST

/* ---- large tensors ---- */
/* Tensors above 4 GiB in memory that is never touched: the first write contains the header, and
 * then the save ends. */
static int header_only(void *context, const void *data, size_t bytes)
{
    memcpy(context, data, bytes < 100000 ? bytes : 100000);
    return 5;
}

START_TEST(above_4_gib)
{
    const int64_t n = ((int64_t)5 << 30) + 3;
    size_t room = (size_t)n * 4 + 8192;
    static char header[100000];
    char *p[2];
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    for (int i = 0; i < 2; i++) {
        p[i] = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
        ck_assert(p[i] != MAP_FAILED);
    }
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = ""}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "lion"}, &r));
    float small[4];
    optc_tensor t[2] = {
        {.name = "large", .param = p[0], .rank = 1, .shape = &n, .states = (void *[]){p[1], NULL}},
        {.name = "small", .param = small, .rank = 1, .shape = (int64_t[]){4}}};
    OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = 2}, 1, &b));
    optc_checkpoint c = {.write = header_only, .context = header};
    FAILS(optc_save(&b, 1, &c), OPTC_ERROR_IO, "returned 5 after 0 bytes");
    int64_t bytes = 0, length = 0;
    OK(optc_save_bytes(&b, 1, &c, &bytes));
    memcpy(&length, header, 8);
    ck_assert(length < 90000 && bytes > n * 4);
    SafeFile f;
    char why[200], *text = malloc((size_t)length + 1);
    memcpy(text, header + 8, (size_t)length);
    ck_assert_msg(safe_parse(&f, text, length, bytes, why, sizeof why), "%s", why);
    const SafeTensor *large = safe_find(&f, "large/m"), *after = safe_find(&f, "small/m");
    ck_assert(large && after && large->end - large->begin == n * 4 && f.dim[large->dim] == n);
    ck_assert(after->begin == large->end && after->begin > (int64_t)20 << 30 &&
              after->end + 8 == f.bytes);
    safe_free(&f);
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* Rewrites a header: `pad` bytes of a parameter, which is not loaded, come first, the others
 * follow, and the hash is removed. */
static void shifted_header(const SafeFile *f, int64_t pad, SafeBuf *out)
{
    safe_print(out, "{\"__metadata__\":{");
    for (int64_t i = 0; i < f->nmeta; i++) {
        safe_print(out, i ? "," : "");
        safe_quote(out, f->meta[i].key);
        safe_print(out, ":");
        safe_quote(out, f->meta[i].text);
    }
    safe_print(out,
               "},\"large/param\":{\"dtype\":\"U8\",\"shape\":[%lld],\"data_offsets\":[0,%lld]}",
               (long long)pad, (long long)pad);
    for (int64_t i = 0; i < f->n; i++) {
        const SafeTensor *t = &f->tensor[i];
        if (!strcmp(t->name, CHECKPOINT_HASH))
            continue;
        safe_print(out, ",");
        safe_quote(out, t->name);
        safe_print(out, ":{\"dtype\":\"%s\",\"shape\":[", t->type->name);
        for (int k = 0; k < t->rank; k++)
            safe_print(out, k ? ",%lld" : "%lld", (long long)f->dim[t->dim + k]);
        safe_print(out, "],\"data_offsets\":[%lld,%lld]}", (long long)(pad + t->begin),
                   (long long)(pad + t->end));
    }
    safe_print(out, "}");
}

/* A sparse file whose tensors begin behind 5 GiB: the load reads them there. */
START_TEST(reads_above_4_gib)
{
    const int64_t pad = ((int64_t)5 << 30) + 4;
    Run a, b;
    open_pair(&a, &b, 3);
    optc_checkpoint c = run_saved(&a.b, 1, NULL);
    int64_t length = 0;
    memcpy(&length, c.memory, 8);
    char why[200], *text = malloc((size_t)length + 1);
    memcpy(text, (char *)c.memory + 8, (size_t)length);
    SafeFile f;
    SafeBuf header = {0};
    ck_assert(safe_parse(&f, text, length, c.size, why, sizeof why));
    shifted_header(&f, pad, &header);
    int64_t n = (int64_t)header.n, bytes = f.bytes - 8;
    int fd = open(in_folder("large"), O_WRONLY | O_CREAT, 0600);
    ck_assert(fd >= 0 && pwrite(fd, &n, 8, 0) == 8 && pwrite(fd, header.s, header.n, 8) == n);
    ck_assert(pwrite(fd, (char *)c.memory + f.data, (size_t)bytes, 8 + n + pad) == bytes &&
              !close(fd));
    char warnings[400] = "";
    optc_checkpoint from = {
        .path = in_folder("large"), .warnings = warnings, .warnings_size = sizeof warnings};
    OK(optc_load(&b.b, 1, &from));
    ck_assert(run_hash(&b) == run_hash(&a));
    safe_free(&f);
    free(header.s), free(c.memory);
    run_close(&a);
    run_close(&b);
}
END_TEST

/* ---- sharded bindings: each rank saves its own pieces ---- */
typedef struct Ranks {
    optc_rule *rule;
    optc_comm comm[2];
    optc_checkpoint file[2];
    float p[2][2][8 * 6], g[2][8 * 6];                     /* p: by rank, then run */
    int step;                                              /* which step failed, for messages */
    char wrong[2][400];
} Ranks;

static void rank_run(int rank, void *arg)
{
    Ranks *x = arg;
    optc_binding *b[2] = {NULL, NULL};
    const int64_t shape[2] = {4, 6}, whole[2] = {8, 6}, offset[2] = {4 * rank, 0};
    optc_status s = OPTC_OK;
    for (int i = 0; i < 2 && s == OPTC_OK; i++) {
        optc_tensor t = {.name = "w",
                         .param = x->p[rank][i],
                         .grad = x->g[rank],
                         .rank = 2,
                         .shape = shape,
                         .global_shape = whole,
                         .offset = offset};
        s = optc_bind_sharded(x->rule, &(optc_group){.tensors = &t, .ntensors = 1}, 1,
                              &x->comm[rank], &b[i]);
    }
    for (int i = 0; i < 3 && s == OPTC_OK; i++)
        s = optc_step(b[0]);
    optc_checkpoint *c = &x->file[rank];
    if (s == OPTC_OK)
        s = optc_save_bytes(b, 1, c, &c->size);
    c->memory = malloc((size_t)c->size);
    if (s == OPTC_OK)
        s = optc_save(b, 1, c);
    memcpy(x->p[rank][1], x->p[rank][0], sizeof x->p[rank][0]);
    if (s == OPTC_OK)
        s = optc_load(&b[1], 1, c);
    for (int i = 0; i < 4 && s == OPTC_OK; i++)
        s = optc_step(b[i / 2]);
    if (s != OPTC_OK)
        snprintf(x->wrong[rank], sizeof x->wrong[rank], "%.390s", optc_message());
    else if (memcmp(x->p[rank][0], x->p[rank][1], 4 * 4 * 6))
        snprintf(x->wrong[rank], sizeof x->wrong[rank], "the resumed run differs");
    for (int i = 0; i < 2; i++)
        (void)optc_unbind(b[i]);
}

START_TEST(sharded)
{
    static Ranks x;
    static const char *const specs[] = {"adamw+clip(1)", "muon"};
    optc_engine *e;
    optc_loopback *l;
    optc_binding *plain;
    OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = specs[_i]}, &x.rule));
    OK(optc_loopback_open(2, e, &l));
    for (int i = 0; i < 2; i++)
        OK(optc_loopback_comm(l, i, &x.comm[i]));
    for (int i = 0; i < 48; i++)
        x.g[0][i] = x.g[1][i] = (float)ref_value(1, 0, i);
    run_ranks(2, rank_run, &x);
    ck_assert_msg(!*x.wrong[0] && !*x.wrong[1], "%s: %s %s", specs[_i], x.wrong[0], x.wrong[1]);
    optc_tensor t = {
        .name = "w", .param = x.p[0][0], .grad = x.g[0], .rank = 2, .shape = (int64_t[]){8, 6}};
    OK(optc_bind(x.rule, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &plain));
    FAILS(optc_load(&plain, 1, &x.file[1]), OPTC_ERROR_ARGUMENT,
          "it is of rank '1/2', and the binding of '': load each rank's own file, with the same "
          "number of ranks");
    OK(optc_unbind(plain));
    /* a piece that is bound alone, and another one */
    if (!_i) {
        t.shape = (int64_t[]){4, 6};
        t.global_shape = (int64_t[]){8, 6};
        t.offset = (int64_t[]){4, 0};
        optc_rule *r;
        OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &plain));
        optc_checkpoint c = run_saved(&plain, 1, NULL);
        OK(optc_unbind(plain));
        t.offset = (int64_t[]){0, 0};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &plain));
        FAILS(optc_load(&plain, 1, &c), OPTC_ERROR_ARGUMENT,
              "its tensors are other pieces of larger ones");
        OK(optc_unbind(plain));
        free(c.memory);
        OK(optc_release(r));
    }
    for (int i = 0; i < 2; i++)
        free(x.file[i].memory);
    optc_loopback_close(l);
    OK(optc_release(x.rule));
    OK(optc_close(e));
}
END_TEST

Suite *checkpoint_files_suite(void)
{
    Suite *s = suite_create("checkpoint_files");
    TCase *t = tcase_create("checkpoint_files");
    tcase_add_checked_fixture(t, make_folder, drop_folder);
    tcase_add_test(t, writes_files);
    tcase_add_test(t, synced_folders);
    tcase_add_test(t, bad_paths);
    tcase_add_test(t, full_disk);
    tcase_add_test(t, killed_and_rivals);
    tcase_add_test(t, callbacks);
    tcase_add_test(t, above_4_gib);
    tcase_add_test(t, reads_above_4_gib);
    tcase_add_loop_test(t, sharded, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
