/* The median curve of each rule as one line of JSON, small enough to keep: `optc list --html` draws
 * them. */
#include "tools/race/race.h"

#include <math.h>

enum { MOST_POINTS = 40 };

void race_curves(const RaceReport *p, Buf *b)
{
    LocaleMark was = locale_plain();
    for (int t = 0; t < p->ntask; t++) {
        const RaceTaskInfo *task = &p->task[t];
        int total = race_points(task), each = (total + MOST_POINTS - 1) / MOST_POINTS;
        double *loss = NEWS(b->arena, double, total);
        for (int r = 0; r < p->nrule; r++) {
            int n = race_median_curve(p, t, r, loss);
            buf_puts(b, "{");
            json_field(b, "rule", p->rule[r].name);
            buf_puts(b, ", ");
            json_field(b, "task", task->name);
            buf_printf(b, ", \"steps\": %d, \"every\": %d, \"target\": %g, \"loss\": [",
                       task->steps, each * task->every, task->target);
            for (int k = 0; k < n; k += each)
                buf_printf(b, "%s%.3g", k ? ", " : "", loss[k]);
            buf_puts(b, "], ");
            json_field(b, "command", p->command);
            buf_puts(b, "}\n");
        }
    }
    locale_back(was);
}
