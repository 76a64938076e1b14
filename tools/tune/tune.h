/* Shared by the files of `optc tune`. */
#ifndef OPTC_TUNE_H
#define OPTC_TUNE_H
#include "tools/tools.h"

enum { TUNE_PATH = 4200, TUNE_WAIT_MS = 10000 };

int tune_run(const Command *self, int argc, char **argv);
/* Replaces this process by the program argv, with live tuning. Returns only if that fails. */
int tune_live(const Command *self, const char *slowdown, const char *into, char **argv, int n);
int tune_export(const Command *self, int argc, char **argv);
int tune_merge(const Command *self, int argc, char **argv);
int tune_show(const Command *self, int argc, char **argv);

/* the knobs that have a choice */
const char *tune_launch_text(char buf[120], LaunchForm f, const Launch *l);
/* "60s", "5m"; false: not a duration */
bool tune_budget(const char *text, double *seconds);
/* The device's name contains `part`, ignoring case; NULL: any device. */
bool tune_device_is(const TunedKey *k, const char *part);
/* prints the devices that exist; CLI_FAILED */
int tune_no_device(const char *part, const TunedList *l);
/* CLI_GO, or prints that there is no path */
int tune_user_path(char out[TUNE_PATH]);
#endif
