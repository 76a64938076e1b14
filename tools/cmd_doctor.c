/* optc doctor: prints the page of optc_doctor. */
#include "tools/page/json.h"

#include "optc.h"

#include <stdlib.h>
#include <string.h>

/* A key has a list of lines: lines that begin with blanks continue the one before. */
static void doctor_json(const char *text)
{
    Buf b = {0};
    JsonText t = {.b = &b};
    json_object(&t, NULL, true);
    for (const char *s = text, *end; *s; s = *end ? end + 1 : end) {
        char key[32], line[2048];
        size_t n = strcspn(s, " ");
        end = s + strcspn(s, "\n");
        snprintf(key, sizeof key, "%.*s", (int)n, s);
        s += n + strspn(s + n, " ");
        snprintf(line, sizeof line, "%.*s", (int)(end - s), s);
        if (n && t.depth == 2)
            json_end(&t);
        if (n)
            json_list(&t, key, false);
        json_string(&t, NULL, line);
    }
    json_end(&t);
    json_end(&t);
    json_print(&t);
}

int cmd_doctor(const Command *self, int argc, char **argv)
{
    bool json = false;
    const Opt opts[] = {{"json", 0, OPT_FLAG, &json, NULL, "print one JSON object"},
                        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n)
        return cli_misuse(self, "it takes no arguments");
    char *text = optc_doctor(NULL);
    if (!text)
        return cli_fail("out of memory");
    if (json)
        doctor_json(text);
    else
        fputs(text, stdout);
    free(text);
    return CLI_OK;
}
