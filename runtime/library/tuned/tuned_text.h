/* Shared by the files that implement tuned.h. */
#ifndef OPTC_TUNED_TEXT_H
#define OPTC_TUNED_TEXT_H
#include "runtime/library/tuned/tuned.h"

#define TUNED_HEAD "optc-tune 1"
#define TRIALS_HEAD "optc-trials 1"
/* the trial's line, malloc'ed; NULL: out of memory */
char *trial_text(const Trial *t);
void tuned_clean_label(char label[80]);
#endif
