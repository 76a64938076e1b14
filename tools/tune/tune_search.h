/* One search of `optc tune`: from a key to a stored result, with its progress line and its row in
 * the table. */
#ifndef OPTC_TUNE_SEARCH_H
#define OPTC_TUNE_SEARCH_H
#include "tools/tune/tune.h"

enum { MOST_SIZES = 16 };

typedef struct TuneRun {
    CompileOpts compile;
    const char *device, *into, *stage;
    double budget; int most;       /* seconds for a rule; most trials of a search, 0: as many as
                                    * there is time for */
    bool exhaustive, again, dry, crowd;
    int64_t size[MOST_SIZES]; int nsize;
    char path[TUNE_PATH];
    const char *log_path; FILE *log;       /* every launch that was tried; NULL: no log */
    TunedList known;               /* results in the user's file at the start */
    optc_engine *engine;
    Workers *workers;              /* compile candidates for a GPU */
    bool shows;                    /* a progress line on a terminal */
    /* of the current rule: its start, and the searches still to come; these share the time that is
     * left */
    double begun; int left;
    /* the current search */
    const char *label; int64_t elements; int nth, of;
    /* counts. late: no time was left; small: not enough memory; without: rules that have no such
     * stage; busy: the machine was too busy */
    int found, skipped, late, small, better, without, busy; double gain, busiest;
    volatile const int *stop;      /* not 0: interrupted */
} TuneRun;

/* The key has a result whose search was complete. */
bool tune_known(const TuneRun *r, const TunedKey *k, const Space *space);
bool tune_search(TuneRun *r, const TunedKey *k, const Space *space, const Meter *m, double bytes,
                 double budget, const char *label);
void tune_clear_progress(const TuneRun *r);
#endif
