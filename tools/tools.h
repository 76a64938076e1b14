/* Shared by the subcommands of `optc`.
 *
 * Shared names start with a prefix (cli_, spec_, fields_, stream_, bench_, work_, peer_, tune_,
 * cmd_), because the library is linked statically and has short names too. */
#ifndef OPTC_TOOLS_H
#define OPTC_TOOLS_H
#include "runtime/library/library.h"

#include <signal.h>
#include <stdio.h>

/* exit codes; CLI_GO: no exit, continue */
enum { CLI_OK, CLI_FAILED, CLI_USAGE, CLI_GO = -1 };

typedef struct Command Command;
struct Command {
    const char *name, *args, *summary, *about, *examples;
    /* argv[0] is the first argument; returns an exit code */
    int (*run)(const Command *self, int argc, char **argv);
};
extern const Command cli_commands[];                         /* NULL-terminated */
/* ---- cmd_help.c ---- */
const Command *cli_find_command(const char *name);           /* or NULL */
void cli_overview(FILE *f);
int cli_unknown_command(const char *name);                   /* prints the error; CLI_USAGE */
int cmd_help(const Command *self, int argc, char **argv);

int cmd_show(const Command *self, int argc, char **argv);
int cmd_list(const Command *self, int argc, char **argv);
int cmd_check(const Command *self, int argc, char **argv);
int cmd_try(const Command *self, int argc, char **argv);
int cmd_explain(const Command *self, int argc, char **argv);
int cmd_emit(const Command *self, int argc, char **argv);
int cmd_compile(const Command *self, int argc, char **argv);
int cmd_dump(const Command *self, int argc, char **argv);
int cmd_bench(const Command *self, int argc, char **argv);
int cmd_race(const Command *self, int argc, char **argv);
int cmd_tune(const Command *self, int argc, char **argv);
int cmd_cache(const Command *self, int argc, char **argv);
int cmd_ship(const Command *self, int argc, char **argv);
int cmd_checkpoint(const Command *self, int argc, char **argv);
int cmd_doctor(const Command *self, int argc, char **argv);
int cmd_verify(const Command *self, int argc, char **argv);
int cmd_new(const Command *self, int argc, char **argv);

/* ---- cli_args.c ---- */
enum { MAX_RANK = 8, MAX_SHAPES = 256 };
typedef struct Dims { int rank; int64_t dim[MAX_RANK]; } Dims;
typedef struct DimsList { Dims v[MAX_SHAPES]; int n; } DimsList;

typedef enum {
    OPT_FLAG,      /* bool */
    OPT_TEXT,      /* const char * */
    OPT_COUNT,     /* int, from 1 */
    OPT_SIZE,      /* int64_t, from 1; K M G T are powers of 1024 */
    OPT_REAL,      /* double, above 0 */
    OPT_TYPE,      /* int: a Type; -1 if the option is absent */
    OPT_PRODUCT,   /* int: 1 + a Product; 0 if the option is absent */
    OPT_SHAPES     /* DimsList: each use adds a shape */
} OptKind;
/* One option. A table ends with a NULL name. */
typedef struct Opt {
    const char *name; char letter; OptKind kind; void *to; const char *value, *help;
} Opt;

/* The tensors and the device of `explain` and `dump`. ranks 0: the option is absent. */
typedef struct TensorOpts {
    DimsList shapes; const char *work, *device; int64_t workspace; int ranks;
} TensorOpts;
#define TENSOR_OPTS(t) \
    {"shape", 0, OPT_SHAPES, &(t).shapes, "RxC", \
     "a tensor of this shape, such as 1024x256; may be repeated"}, \
        {"work", 0, OPT_TEXT, &(t).work, "NAME", \
         "the tensors of a model: see 'optc bench --work list'"}, \
        {"device", 0, OPT_TEXT, &(t).device, "DEVICE", "cpu, cuda or cuda:N"}, \
        {"workspace", 0, OPT_SIZE, &(t).workspace, "BYTES", \
         "memory for the products of a batch of tensors (default: 1G)"}, \
    { \
        "ranks", 0, OPT_COUNT, &(t).ranks, "N", \
            "of a model that is sharded over N ranks, cut along dimension 0" \
    }

/* Prints the page of --help: for a terminal, unless `optc help` writes a manual or completion. */
extern void (*cli_page)(const Command *self, const Opt *opts);
/* Reads options at any position and leaves the other arguments, in order, in argv[0 … *n). Prints
 * the page of --help. Returns CLI_GO, or the exit code. */
int cli_parse(const Command *self, const Opt *opts, int argc, char **argv, int *n);
/* Prints the error and returns CLI_USAGE. */
int cli_misuse(const Command *self, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The text of a buffer. Ends the program if the buffer ran out of memory. */
const char *cli_text(const Buf *b);
/* Prints "optc: …" to stderr. */
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void cli_warning(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* cli_error, then returns CLI_FAILED. */
int cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A size: 65536, 64K, 2^26; at most 2^46. */
bool cli_parse_size(const char *s, int64_t *out);
/* Writes "unknown WHAT 'GOT'; did you mean …" */
void cli_near(const char *what, const char *got, const char *const *names, Buf *b);
/* The same with all names, as an error; and the error of n specs where one is needed. Both return
 * CLI_USAGE. */
int cli_unknown(const Command *self, const char *what, const char *got, const char *const *names);
int cli_one_spec(const Command *self, int n);

/* ---- cmd_compile.c ---- */
struct Nvrtc;
typedef struct Archs { int v[64]; int n; } Archs;
/* Parses "sm_80,sm_90" or "all". Returns CLI_GO, or the exit code. */
int cli_archs(const Command *self, const char *text, const struct Nvrtc *nvrtc, Archs *out);

/* ---- cli_print.c ---- */
typedef enum { PAINT_NONE, PAINT_HEAD, PAINT_GOOD, PAINT_BAD, PAINT_WARN, PAINT_DIM } Paint;
/* The escape sequence, or "" if stdout is not a terminal. */
const char *cli_paint(Paint p);
void cli_heading(const char *text);
int cli_width(const char *s);                                /* characters, not bytes */
void cli_cell(const char *s, int width);                     /* s, padded to the right */
void cli_put_clean(FILE *f, const char *s, bool lines);
/* printf for texts from outside, such as paths and labels: control characters become blanks. */
void cli_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* one of the lines of `list` and `explain` */
void cli_line(const char *key, const char *text);
/* columns of `list` and of the short `explain` */
enum { CLI_WIDTH = 100 };
/* Prints text from the cursor, which is in column `indent`. Further lines are indented by as much.
 * Ends the line. */
void cli_wrapped(const char *text, int indent);
/* "1.88 GB", powers of ten as in bandwidths */
const char *cli_bytes(char buf[32], double bytes);
const char *cli_flops(char buf[32], double flops);
const char *cli_time(char buf[32], double seconds);
/* "64M" if that is exact, otherwise the number */
const char *cli_size(char buf[32], int64_t n);
const char *cli_dims(char buf[160], const Dims *d);          /* "4096x4096" */
void cli_hyper(Buf *b, const Hyper *h);                      /* "beta1 = 0.9 in [0, 1)" */
char *cli_read_all(FILE *f, size_t most, size_t *len);       /* NULL: unreadable or out of memory */
/* "-": stdout. Prints the reason of a failure */
bool cli_write_file(const char *path, const char *text);

/* ---- cli_report.c: commands that run long and write a report ---- */
/* The command as it was typed, quoted for a shell. */
const char *cli_command_text(Arena *a, const Command *self, int argc, char **argv);
/* Tests before the work whether a file can be written. An existing file stays as it is. Prints the
 * reason. */
bool cli_writable(const Command *self, const char *path);
/* The first Ctrl-C (or SIGTERM) sets *stop: the command writes what is done. A second one ends the
 * program at once. */
void cli_catch_interrupt(volatile sig_atomic_t *stop);

/* ---- spec_open.c ---- */
/* Options of a compilation. p, g, state: a Type, or -1: the default; product: 1 + a Product, or 0:
 * as the rule says. */
typedef struct CompileOpts {
    const char *with, *options, *path;
    int p, g, state, product;
    const Target *target;
    const char *types;
} CompileOpts;
/* The options of optc_compile for a spec and its wrappers. */
optc_rule_options spec_rule_options(const CompileOpts *c, const char *spec, const char *with);
#define COMPILE_OPTS_INIT {.p = -1, .g = -1, .state = -1}
#define COMPILE_OPTS(c) \
    { \
        "with",    0,      OPT_TEXT, \
        &(c).with, "LIST", "wrappers, the last outermost: 'clip(1),ema(0.999)'"}, \
        {"options", 0, OPT_TEXT, &(c).options, "LIST", "compile-time choices: 'amsgrad=true'"}, \
        {"path", \
         0, \
         OPT_TEXT, \
         &(c).path, \
         "DIRS", \
         "folders with your own specs, separated by ':', searched before the library's (default: " \
         "$OPTC_PATH)"}, \
        {"type", 0,      OPT_TYPE, \
         &(c).p, "TYPE", "storage of the parameters: f32 (default), f64, bf16, f16"}, \
        {"grad-type", 0,      OPT_TYPE, \
         &(c).g,      "TYPE", "storage of the gradients (default: as the parameters)"}, \
        {"state-type", 0, \
         OPT_TYPE,     &(c).state, \
         "TYPE",       "storage of the states (default: as the parameters; f32 for 16-bit ones)"}, \
        {"types", \
         0, \
         OPT_TEXT, \
         &(c).types, \
         "LIST", \
         "all of these and single states: 'param=bf16,state=q8,ema.avg=bf16'; ahead of the three " \
         "above"}, \
    { \
        "products", 0, OPT_PRODUCT, &(c).product, "TYPE", \
            "products of matrices in f64, f32, tf32, bf16 or f16 (default: as the rule says)" \
    }

typedef struct Spec {
    Gen gen;
    Source src;
    Types types;
    bool is_ir;
    const char *wrapper;       /* not NULL: the spec is a wrapper of this name, and was compiled
                                * around sgd */
    CompileOpts asked;         /* the options it was compiled with; `with` has all its wrappers */
} Spec;
/* Loads and compiles one SPEC argument: a name of the library, a path or "-" for stdin, with
 * wrappers ("adamw+clip(1)"). It may be a spec or IR text. false: gen.diag has the reason. Call
 * spec_close in both cases. A spec that is a wrapper is refused unless `wrappers` is set. */
typedef struct SpecDump { const char *pass; Buf *to; bool time; } SpecDump;
bool spec_open(Spec *s, const char *arg, const CompileOpts *c, bool wrappers, const SpecDump *dump);
/* Plans the same rule for a GPU; plans of rules with products differ. `of` must outlive it. */
bool spec_open_text(Spec *s, const char *name, const char *text, const CompileOpts *c);
bool spec_for_gpu(Spec *s, const Spec *of);
void spec_close(Spec *s);
/* prints the diagnosis, returns CLI_FAILED */
int spec_fail(const Spec *s);
/* prints warnings: valid specs that are probably mistakes */
void spec_warnings(const Spec *s);
/* prints what a user of the composition should know */
void spec_note(const Spec *s);
/* Bytes per element that one run of an entry moves, least and most over its phases. */
void spec_bytes(const Plan *p, int entry, int variant, int *least, int *most);
/* "28", "16/20" (vectors/matrices), "20-28" (over phases) */
void spec_bytes_text(Buf *b, const Plan *p, int entry);
int spec_entry(const Plan *p, const char *name);             /* -1: none */

/* ---- spec_fields.c ---- */
enum { MAX_FIELD_ARGS = 8, NFIELD_TEXT = 6 };
/* Fields of a spec's head; "" if absent. text_at, text_end: where each text stands, with its name;
 * NULL if absent. */
typedef struct Fields {
    const char *kind, *name, *doc, *cite, *use, *family, *follows;
    const char *text_at[NFIELD_TEXT], *text_end[NFIELD_TEXT];
    const char *arg[MAX_FIELD_ARGS];
    int narg;
} Fields;
void fields_read(Arena *a, const char *text, size_t len, Fields *out);
/* The name without the wrapper's prefix; NULL if it belongs to the rule inside, whose names have no
 * prefix. */
const char *fields_own(const char *name, const char *wrapper);
/* "lookahead(k, alpha)", as --with takes it */
const char *fields_call(Arena *a, const Fields *f);

/* ---- stream.c ---- */
/* CPU time of all threads of this process */
double cli_cpu_seconds(void);
double cli_now(void);                                        /* seconds, monotonic */
double cli_median(const double *v, int n);
/* half the interquartile range, divided by the median */
double cli_spread(const double *v, int n);
/* Memory aligned to 2 MiB, with huge pages if possible, not yet touched; for free(). */
void *stream_alloc(size_t bytes);
/* Writes the memory in parallel, so that each page is near the thread that uses it. */
void stream_touch(float *x, int64_t n, int threads);
void stream_copy(float *to, const float *from, int64_t n, int threads);
void stream_scale(float *x, int64_t n, int threads);
/* The sum of x: reads memory and writes none. ahead: with prefetches. */
float stream_read(const float *x, int64_t n, int threads, bool ahead);
#endif
