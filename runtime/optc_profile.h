/* Profiles: records the stages of real runs. optc.h includes this file: programs include optc.h
 * only. runtime/PROFILE.md describes the table and the trace. */
#ifndef OPTC_PUBLIC_PROFILE_H
#define OPTC_PUBLIC_PROFILE_H

/* Starts to record all runs, compilations and cache lookups of this process, and drops what an
 * earlier profile recorded. Runs of all engines are recorded, except those that have already begun.
 * OPTC_ERROR_BUSY: a profile is recording already; $OPTC_PROFILE starts one when the first engine
 * opens. */
optc_status optc_profile_start(void);
/* Ends the recording, and waits for the recorded work of GPUs. What was recorded stays until the
 * next start.
 * OPTC_ERROR_ARGUMENT: nothing is recording. */
optc_status optc_profile_stop(void);
/* 1: a profile is recording. */
int optc_profile_active(void);
/* Returns what was recorded, up to now or up to the stop: the trace as JSON (trace 1), or the table
 * (trace 0). GPU work that has not finished is left out while the profile records. The caller frees
 * the text. NULL: out of memory. */
char *optc_profile_text(int trace);
/* Writes the trace into a file, which it replaces. OPTC_ERROR_IO: the file cannot be written. */
optc_status optc_profile_save(const char *path);
#endif
