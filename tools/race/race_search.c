/* The search for rate and decay: a pattern search over log2 of the rate, with the same number of
 * trials for every rule. It starts at the rule's own rate and moves by a factor of 8 as long as
 * that helps, then by smaller factors. The last two of six or more trials change the decay, once
 * rates below and above the best one were tried; otherwise they are spent on the rate, as those of
 * a rule without decay. */
#include "tools/race/race.h"

#include <math.h>

enum { DECAY_TRIALS = 2 };
static const double first_stride = 3, least_stride = 0.1;      /* log2 of the factors */

void race_trial_summary(RaceTrial *x, const RaceRun *run, int n)
{
    int ended = 0;
    x->seeds = x->reached = x->diverged = 0;
    x->steps = x->loss = 0;
    for (int i = 0; i < n; i++) {
        x->seeds += run[i].done;
        x->diverged += run[i].diverged;
        if (run[i].reached) {
            x->reached++;
            x->steps += run[i].reached;
        }
        if (run[i].done && !run[i].diverged) {
            ended++;
            x->loss += run[i].loss[run[i].npoint - 1];
        }
    }
    x->steps = x->reached ? x->steps / x->reached : INFINITY;
    x->loss = ended ? x->loss / ended : INFINITY;
}

/* More runs that reach the target, then fewer steps to it, then fewer diverged runs, then a lower
 * final loss. */
static bool better(const RaceTrial *a, const RaceTrial *b)
{
    if (a->reached != b->reached)
        return a->reached > b->reached;
    if (a->reached && a->steps != b->steps)
        return a->steps < b->steps;
    if (a->diverged != b->diverged)
        return a->diverged < b->diverged;
    return a->loss < b->loss;
}

void race_choose(RaceEntry *e)
{
    e->best = e->ntrial ? 0 : -1;
    for (int i = 1; i < e->ntrial; i++)
        if (better(&e->trial[i], &e->trial[e->best]))
            e->best = i;
}

static bool tried(const RaceEntry *e, double shift)
{
    for (int i = 0; i < e->ntrial; i++)
        if (fabs(e->trial[i].shift - shift) < 1e-9)
            return true;
    return false;
}

/* The next neighbour of the best rate. The stride only shrinks, so the search ends. */
static bool next_rate(RaceEntry *e, double *shift)
{
    double best = e->trial[e->best].shift;
    for (; e->stride >= least_stride; e->stride /= 2)
        for (int side = 0; side < 2; side++) {
            *shift = best + (side ? -e->stride : e->stride);
            if (!tried(e, *shift))
                return true;
        }
    return false;
}

/* Decays that are compared with the rule's default, at the best rate. */
static double other_decay(const RaceRule *r, int i)
{
    if (r->decay_default > 0)
        return i ? r->decay_default * 10 : 0;
    return i ? 0.1 : 0.01;
}

bool race_bracketed(const RaceEntry *e)
{
    bool below = false, above = false;
    for (int i = 0; i < e->ntrial && e->best >= 0; i++) {
        double share = e->trial[i].factor / e->trial[e->best].factor;
        below = below || share < 1 - 1e-9;
        above = above || share > 1 + 1e-9;
    }
    return below && above;
}

bool race_search(const RaceRule *r, RaceEntry *e, int most)
{
    int decays = r->ndecay && most >= RACE_DECAY_TRIALS ? DECAY_TRIALS : 0, n = e->ntrial;
    RaceTrial *next = &e->trial[n];
    double shift = 0, decay = r->ndecay ? r->decay_default : NAN;
    if (n >= most)
        return false;
    if (n == 0) {
        e->stride = first_stride;
    } else if (r->nrate && !e->decays && (n < most - decays || !race_bracketed(e))) {
        if (!next_rate(e, &shift))
            return false;
    } else if (decays && e->decays < decays) {
        shift = e->trial[e->best].shift;
        decay = other_decay(r, e->decays++);
    } else {
        return false;
    }
    *next = (RaceTrial){.shift = shift, .factor = exp2(shift), .decay = decay,
                        .rate = r->nrate ? r->rate_default[0] * exp2(shift) : NAN};
    return true;
}
