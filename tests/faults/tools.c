/* Scenes of the command: what it prints, or the files it makes, are its result. */
#include "faults.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void tool(const Scene *s, Outcome *out)
{
    char *argv[24] = {"optc"}, path[20][600];
    int n = 1;
    for (; s->argv[n - 1] && n < 20; n++) {                    /* @ stands for the scratch folder */
        snprintf(path[n], sizeof path[n], s->argv[n - 1][0] == '@' ? "%s%s" : "%s%s", s->argv[n - 1][0] == '@' ? scratch : s->argv[n - 1], s->argv[n - 1][0] == '@' ? s->argv[n - 1] + 1 : "");
        argv[n] = path[n];
    }
    (void)out;
    (void)argv;
}

const Scene tool_scenes[] = {
    {"none", tool, 0, NULL, NULL, NULL, NULL, 0, false},
    {NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, false},
};
