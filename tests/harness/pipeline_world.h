/* Two stages of a pipeline, each cut over two ranks, as threads: values of all tensors are over
 * both stages (optc_connect_ranks). */
#ifndef OPTC_PIPELINE_WORLD_H
#define OPTC_PIPELINE_WORLD_H
#include "tests/harness/help.h"

/* Steps a rule on the stages, and on two bindings of one process that are connected: parameters and
 * norms must have the same bits. Returns a message about the first difference, which the caller
 * frees, or NULL. */
char *pipeline_run(optc_engine *e, const char *spec, const char *with);
#endif
