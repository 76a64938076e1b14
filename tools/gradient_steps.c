/* Steps at which the entries under `gradients` run, found through optc_rule_gradient. */
#include "tools/gradient_steps.h"

#include <string.h>

static bool step_runs(const optc_rule *r, int64_t step, const char *entry)
{
    const char *e;
    for (int i = 0; (e = optc_rule_gradient(r, step, i)); i++)
        if (!strcmp(e, entry))
            return true;
    return false;
}

bool gradient_listed(const optc_rule *r, const char *entry) { return step_runs(r, 0, entry); }

int gradient_period(const optc_rule *r, const char *entry, int most)
{
    int first = 0;
    most = gradient_listed(r, entry) ? most : 0;
    for (int step = 1; step <= most; step++)
        if (step_runs(r, step, entry)) {
            if (first)
                return step - first;
            first = step;
        }
    return 0;
}
