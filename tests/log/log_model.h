/* Models on the emulated GPU for launch_log.c: tensors, gradients, bindings, streams. It needs
 * optc.h only, so it compiles against other versions of the library. */
#ifndef LOG_MODEL_H
#define LOG_MODEL_H
#include "optc.h"

#include <stdbool.h>
#include <stdio.h>

/* the emulated driver: its functions, and those of its log (tests/emu/emu_log.h) */
typedef struct EmuDriver {
    int (*alloc)(unsigned long long *at, size_t bytes), (*release)(unsigned long long at);
    int (*put)(unsigned long long to, const void *from, size_t bytes);
    int (*stream_create)(void **stream, unsigned flags), (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream);
    int (*begin_capture)(void *stream, int mode), (*end_capture)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*launch)(void *exec, void *stream), (*graph_destroy)(void *graph);
    int (*exec_destroy)(void *exec);
    double (*clock)(void);
    int (*log_begin)(void), (*log_rank)(int rank, const char *label), (*log_mark)(const char *what);
    int (*log_note)(const char *what);
    int (*log_name)(const void *at, size_t bytes, const char *name);
    int (*log_finish)(FILE *to, const char *title);
} EmuDriver;
extern EmuDriver emu;
/* true: threads that the library starts run within the call that starts them */
extern bool threads_at_once;
void emu_open(void);

/* A rule of the library. */
typedef struct LogRule {
    const char *name, *spec, *with, *options; optc_type param; int bindings;
} LogRule;
typedef struct LogTensor { int rank; int64_t dim[3]; int group; } LogTensor;
enum { MOST_TENSORS = 12 };
typedef struct TensorSet { int n; LogTensor tensor[MOST_TENSORS]; } TensorSet;

/* A rule on tensors: all of them, or the pieces of one rank. label: of its memory in the log */
typedef struct Model {
    optc_engine *engine;
    optc_rule *rule;
    optc_binding *binding;
    const TensorSet *set;
    int rank, ranks;
    optc_type type;                            /* of parameters: f32, f64 or bf16 */
    char label[16];
    int64_t count[MOST_TENSORS], dim[MOST_TENSORS][3], offset[MOST_TENSORS][3];
    void *p[2][MOST_TENSORS], *g[2][MOST_TENSORS];
    unsigned out;                              /* tensors without a gradient */
    int moved_p, moved;                                 /* which of the two the binding has */
    int64_t steps;
} Model;

/* A failure ends the process, after the log so far and a line with the message. */
extern const char *log_title;
void must(optc_status s, const char *what);
void check(bool ok, const char *what);
void log_end(void);
optc_engine *model_engine(int64_t workspace);
/* compiles the rule if m->rule is NULL, fills and binds the tensors; comm NULL: not sharded */
void model_open(Model *m, const LogRule *r, const optc_comm *comm);
/* The same without ranks; a refused binding is no failure. */
optc_status model_try(Model *m, const LogRule *r);
void model_bind(Model *m, const optc_comm *comm);
void model_close(Model *m);
void model_gradients(Model *m);
/* new gradients, then all entries of a training step; the mark "step N" */
optc_status model_step(Model *m);
void model_steps(Model *m, int n);
/* The following steps: tensors of this mask have no gradient, others have the current one. */
void model_leave_out(Model *m, unsigned mask);
void model_move_params(Model *m);
/* Steps of connected bindings, as one optimizer. */
void models_steps(Model *m, optc_binding *const *b, int n, int steps);
/* Two steps, one in a capture with four replays, two steps, in a stream of the caller. A capture
 * that is refused is noted in the log. */
void model_capture(Model *m, optc_binding *const *b, int n);
/* memory of the device with one number in f32 */
void *number_make(const char *name, float value);
void number_set(void *at, float value);
#endif
