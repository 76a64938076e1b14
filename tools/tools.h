/* Shared by the subcommands of `optc`.
 *
 *   main.c    the one table of subcommands, help, exit codes
 *   cli_args.c    options from a table          cli_print.c  colours, numbers and columns
 *   spec_open.c    SPEC arguments become rules   spec_fields.c what a spec says about itself, read without running it
 *   stream.c  big buffers and how fast memory streams
 *
 * Shared names start with their part (cli_, spec_, fields_, stream_, bench_, device_, work_, peer_, tune_, cmd_): the
 * library is linked statically and has short names of its own. */
#ifndef OPTC_TOOLS_H
#define OPTC_TOOLS_H
#include "runtime/library/internal.h"

#include <stdio.h>

enum { CLI_OK, CLI_FAILED, CLI_USAGE, CLI_GO = -1 };       /* exit codes; CLI_GO: carry on */

typedef struct Command Command;
struct Command {
    const char *name, *args, *summary, *about, *examples;
    int (*run)(const Command *self, int argc, char **argv);  /* argv[0] is the first argument; returns an exit code */
};
extern const Command cli_commands[];                         /* NULL-terminated */

int cmd_list(const Command *self, int argc, char **argv);
int cmd_check(const Command *self, int argc, char **argv);
int cmd_explain(const Command *self, int argc, char **argv);
int cmd_emit(const Command *self, int argc, char **argv);
int cmd_compile(const Command *self, int argc, char **argv);
int cmd_dump(const Command *self, int argc, char **argv);
int cmd_bench(const Command *self, int argc, char **argv);
int cmd_tune(const Command *self, int argc, char **argv);
int cmd_cache(const Command *self, int argc, char **argv);
int cmd_ship(const Command *self, int argc, char **argv);
int cmd_doctor(const Command *self, int argc, char **argv);
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
    OPT_TYPE,      /* int: a Type, or -1 as it was */
    OPT_PRODUCT,   /* int: 1 + a Product, or 0 as it was */
    OPT_SHAPES     /* DimsList: one more each time */
} OptKind;
/* a table ends with name NULL */
typedef struct Opt { const char *name; char letter; OptKind kind; void *to; const char *value, *help; } Opt;

/* Reads options wherever they stand and leaves the other arguments, in order, in argv[0 … *n). Answers --help. Returns
 * CLI_GO, or the exit code to leave with. */
int cli_parse(const Command *self, const Opt *opts, int argc, char **argv, int *n);
/* says so and returns CLI_USAGE */
int cli_misuse(const Command *self, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* its text; where memory has ended, the end of the command */
const char *cli_text(const Buf *b);
/* "optc: …" on stderr */
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void cli_warning(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* cli_error, returns CLI_FAILED */
int cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* 65536, 64K, 2^26; at most 2^46 */
bool cli_parse_size(const char *s, int64_t *out);
/* "unknown what 'got'; did you mean …" */
void cli_near(const char *what, const char *got, const char *const *names, Buf *b);

/* ---- cmd_compile.c ---- */
struct Nvrtc;
typedef struct Archs { int v[64]; int n; } Archs;
/* "sm_80,sm_90" or "all"; CLI_GO, or the exit code */
int cli_archs(const Command *self, const char *text, const struct Nvrtc *nvrtc, Archs *out);

/* ---- cli_print.c ---- */
typedef enum { PAINT_NONE, PAINT_HEAD, PAINT_GOOD, PAINT_BAD, PAINT_WARN, PAINT_DIM } Paint;
/* the escape sequence, or "" where stdout is no terminal */
const char *cli_paint(Paint p);
void cli_heading(const char *text);
int cli_width(const char *s);                                /* characters, not bytes */
void cli_cell(const char *s, int width);                     /* s, padded to the right */
void cli_put_clean(FILE *f, const char *s, bool lines);
/* printf with words that are not ours: paths, labels */
void cli_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void cli_json(const char *s);                                /* a string of JSON */
void cli_line(const char *key, const char *text);            /* one of the lines of `list` and `explain` */
enum { CLI_WIDTH = 100 };                                    /* columns of `list` and of the short `explain` */
/* text from column `indent` on, where the cursor is; lines that follow are indented likewise; ends the line */
void cli_wrapped(const char *text, int indent);
const char *cli_bytes(char buf[32], double bytes);           /* "1.88 GB", powers of ten as bandwidths have */
const char *cli_flops(char buf[32], double flops);
const char *cli_time(char buf[32], double seconds);
const char *cli_size(char buf[32], int64_t n);               /* "64M" where it is exact, else the number */
const char *cli_dims(char buf[160], const Dims *d);          /* "4096x4096" */
void cli_hyper(Buf *b, const Hyper *h);                      /* "beta1 = 0.9 in [0, 1)" */
char *cli_read_all(FILE *f, size_t most, size_t *len);       /* NULL: unreadable or out of memory */
bool cli_write_file(const char *path, const char *text);     /* "-": stdout; says what failed */

/* ---- spec_open.c ---- */
/* product: 1 + what products are computed in, 0: as the rule says; gpu: planned for one */
typedef struct CompileOpts { const char *with, *options, *path; int p, g, state, product; const Target *target;
    const char *types; } CompileOpts;
const char *spec_products(const CompileOpts *c);             /* as optc_rule_options has it */
#define COMPILE_OPTS_INIT {.p = -1, .g = -1, .state = -1}
#define COMPILE_OPTS(c) \
    {"with", 0, OPT_TEXT, &(c).with, "LIST", "wrappers, the last outermost: 'clip(1),ema(0.999)'"}, \
        {"options", 0, OPT_TEXT, &(c).options, "LIST", "compile-time choices: 'amsgrad=true'"}, \
        {"path", 0, OPT_TEXT, &(c).path, "DIRS", \
         "folders with specs of your own, divided by :, ahead of the library's (default: $OPTC_PATH)"}, \
        {"type", 0, OPT_TYPE, &(c).p, "TYPE", "storage of the parameters: f32 (default), f64, bf16, f16"}, \
        {"grad-type", 0, OPT_TYPE, &(c).g, "TYPE", "storage of the gradients (default: as the parameters)"}, \
        {"state-type", 0, OPT_TYPE, &(c).state, "TYPE", \
         "storage of the states (default: as the parameters; f32 for 16-bit ones)"}, \
        {"types", 0, OPT_TEXT, &(c).types, "LIST", \
         "all of these and single states: 'param=bf16,state=q8,ema.avg=bf16'; ahead of the three above"}, \
    { \
        "products", 0, OPT_PRODUCT, &(c).product, "WHAT", \
            "products of matrices in f64, f32, tf32, bf16 or f16 (default: as the rule says)" \
    }

typedef struct Spec {
    Gen gen;
    Source src;
    Types types;
    bool is_ir;
    const char *wrapper;       /* the spec is a wrapper of this name, compiled around sgd; NULL: a rule */
    CompileOpts asked;         /* what it was compiled with, its wrappers all in `with` */
} Spec;
/* Loads and compiles one SPEC argument: a name of the library, a path, "-" for stdin, with wrappers
 * ("adamw+clip(1)"); specs or IR text. false: gen.diag
 * says why. Free it either way. A wrapper is refused unless `wrappers`. */
typedef struct SpecDump { const char *pass; Buf *to; bool time; } SpecDump;
bool spec_open(Spec *s, const char *arg, const CompileOpts *c, bool wrappers, const SpecDump *dump);
/* The same rule planned for a GPU, whose plan differs where it has products. `of` must outlive it. */
bool spec_for_gpu(Spec *s, const Spec *of);
void spec_close(Spec *s);
int spec_fail(const Spec *s);                                /* prints the diagnosis, returns CLI_FAILED */
void spec_warnings(const Spec *s);                 /* what is well formed and surely not meant */
/* Bytes per element that one run of an entry moves, least and most over its phases. */
void spec_bytes(const Plan *p, int entry, int variant, int *least, int *most);
/* "28", "16/20" (vectors/matrices), "20-28" (over phases) */
void spec_bytes_text(Buf *b, const Plan *p, int entry);
int spec_entry(const Plan *p, const char *name);             /* -1: none */

/* ---- spec_fields.c ---- */
enum { MAX_FIELD_ARGS = 8 };
/* "" where absent */
typedef struct Fields { const char *kind, *name, *doc, *cite; const char *arg[MAX_FIELD_ARGS]; int narg; } Fields;
void fields_read(Arena *a, const char *text, size_t len, Fields *out);

/* ---- stream.c ---- */
double cli_cpu_seconds(void);                                /* of all threads of this process */
double cli_now(void);                                        /* seconds, monotonic */
double cli_median(const double *v, int n);
double cli_spread(const double *v, int n);                   /* half of what the middle half spans, of the median */
/* 2 MiB aligned, huge pages asked for, not yet touched; free() it */
void *stream_alloc(size_t bytes);
/* writes it in parallel, so that pages lie near their threads */
void stream_touch(float *x, int64_t n, int threads);
void stream_copy(float *to, const float *from, int64_t n, int threads);
void stream_scale(float *x, int64_t n, int threads);
/* a sum: reads and writes nothing; ahead: asks for what comes next */
float stream_read(const float *x, int64_t n, int threads, bool ahead);
#endif
