/* The median curve of each rule as one line of JSON, small enough to keep: `optc list --html` draws
 * them. */
#include "tools/race/race.h"

enum { MOST_POINTS = 40 };

void race_curves(const RaceReport *p, Buf *b)
{
    for (int t = 0; t < p->ntask; t++) {
        const RaceTaskInfo *task = &p->task[t];
        int total = race_points(task), each = (total + MOST_POINTS - 1) / MOST_POINTS;
        double *loss = NEWS(b->arena, double, total);
        for (int r = 0; r < p->nrule; r++) {
            JsonText x = {.b = b};
            int n = race_median_curve(p, t, r, loss);
            json_object(&x, NULL, false);
            json_string(&x, "rule", p->rule[r].name);
            json_string(&x, "task", task->name);
            json_int(&x, "steps", task->steps);
            json_int(&x, "every", each * task->every);
            json_real(&x, "target", task->target);
            json_list(&x, "loss", false);
            for (int k = 0; k < n; k += each)
                json_digits(&x, loss[k], 3);
            json_end(&x);
            json_string(&x, "command", p->command);
            json_end(&x);
        }
    }
}
