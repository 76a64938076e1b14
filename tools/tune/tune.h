/* Shared by the files of `optc tune`.
 *
 *   cmd_tune.c   which action            tune_run.c    what is searched    tune_search.c   one search
 *   tune_files.c export, merge           tune_show.c   results as a table, trials by parameter
 *   tune_live.c  a program's own steps
 */
#ifndef OPTC_TUNE_H
#define OPTC_TUNE_H
#include "tools/tools.h"

#include "runtime/library/tune/tuned.h"

enum { TUNE_PATH = 4200, TUNE_WAIT_MS = 10000 };

int tune_run(const Command *self, int argc, char **argv);
/* does not return unless it fails; argv: the program and its arguments */
int tune_live(const Command *self, const char *slowdown, const char *into, char **argv, int n);
int tune_export(const Command *self, int argc, char **argv);
int tune_merge(const Command *self, int argc, char **argv);
int tune_show(const Command *self, int argc, char **argv);

const char *tune_launch_text(char buf[120], LaunchForm f, const Launch *l);         /* knobs that have a choice */
bool tune_budget(const char *text, double *seconds);         /* "60s", "5m"; false: neither */
/* whether the device's name has that in it, in either case; NULL: any */
bool tune_device_is(const TunedKey *k, const char *part);
int tune_no_device(const char *part, const TunedList *l);    /* says which there are; CLI_FAILED */
int tune_user_path(char out[TUNE_PATH]);                     /* CLI_GO, or says that there is none */
#endif
