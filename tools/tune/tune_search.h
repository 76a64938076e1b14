/* One search of `optc tune`: from a key to a result that is kept, with its progress and its row in the table. */
#ifndef OPTC_TUNE_SEARCH_H
#define OPTC_TUNE_SEARCH_H
#include "tools/tune/tune.h"

enum { MOST_SIZES = 16 };

typedef struct TuneRun {
    CompileOpts compile;
    const char *device, *into, *stage;
    double budget; int most;       /* for a rule; for a search, 0: as many as there is time for */
    bool exhaustive, again, dry, json, crowd;
    int64_t size[MOST_SIZES]; int nsize;
    char path[TUNE_PATH], trials[TUNE_PATH];
    TunedList known;               /* the user's file as it was */
    TrialList tried;
    optc_engine *engine;
    Workers *workers;              /* compile candidates for a GPU */
    bool shows;                    /* a progress line on a terminal */
    /* of the rule at hand: when, and searches still to come; what one does not spend the others have */
    double begun; int left;
    /* what is searched now */
    const char *label; int64_t elements; int nth, of;
    /* small: no memory for them; without: rules that have no such stage */
    int found, skipped, late, small, better, without, busy; double gain, busiest;
    volatile const int *stop;      /* not 0: interrupted */
} TuneRun;

/* it was found before, and its search came to its end */
bool tune_known(const TuneRun *r, const TunedKey *k, const Space *space);
bool tune_search(TuneRun *r, const TunedKey *k, const Space *space, const Meter *m, double bytes, double budget,
                 const char *label);
void tune_clear_progress(const TuneRun *r);
#endif
