/* optc new: writes a starter spec that compiles as it is, with comments on what to change. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* @ is replaced by the name. */
static const char rule_text[] =
    "-- The update rule @. `optc check` says whether it is well formed, `optc explain` what a step "
    "costs.\n"
    "return optimizer {\n"
    "  name  = \"@\",\n"
    "  cite  = \"\",              -- where it was published\n"
    "  doc   = \"\",              -- one sentence, for `optc list`\n"
    "\n"
    "  -- Numbers that may change at every step without recompiling. A range is checked when one "
    "is set;\n"
    "  -- min and max include their ends, above and below do not.\n"
    "  hyper = {\n"
    "    lr = { 1e-3, min = 0 },\n"
    "    beta = { 0.9, min = 0, below = 1 },\n"
    "    weight_decay = { 0, min = 0 },\n"
    "  },\n"
    "\n"
    "  -- Choices fixed at compile time (--options 'nesterov=true'): plain Lua values in the "
    "functions below.\n"
    "  options = { nesterov = false },\n"
    "\n"
    "  -- What is kept between steps: zeros, fill(c) or copy(p); zeros \"row\", fill(1, "
    "\"tensor\") for fewer values.\n"
    "  state = { m = zeros },\n"
    "\n"
    "  -- p is the parameter, g its gradient, t the step from 1. Assigning p or a state is the "
    "update; use local for\n"
    "  -- everything else. shrink(p, a) is p - a * p, its weight decay; descend(p, u, lr) is\n"
    "  -- p - lr * u, its step: so written, every wrapper fits around the rule. sqrt, abs, sign, "
    "max,\n"
    "  -- where(lt(a, b), x, y), norm(g), mean(p), … work on all elements at once.\n"
    "  step = function()\n"
    "    p = shrink(p, lr * weight_decay)\n"
    "    m = beta * m + g\n"
    "    local update = m\n"
    "    if nesterov then update = g + beta * m end\n"
    "    p = descend(p, update, lr)\n"
    "  end,\n"
    "\n"
    "  -- matrix = function() … end, where present, steps tensors of two and more dimensions in "
    "place of `step`,\n"
    "  -- with rowmean(x), colmean(x) and states per \"row\" and \"col\".\n"
    "}\n";

static const char wrapper_text[] =
    "-- The wrapper @: put around a rule with --with './@.lua(0.1)'. What stands before "
    "inner() sees and may assign the gradient g;\n"
    "-- what stands after sees the new p.\n"
    "return wrapper {\n"
    "  name  = \"@\",\n"
    "  cite  = \"\",              -- where it was published\n"
    "  doc   = \"\",              -- one sentence, for `optc list`\n"
    "\n"
    "  args  = { \"limit\" },     -- what @(…) sets, in order\n"
    "\n"
    "  -- Known outside as @.limit; states likewise.\n"
    "  hyper = { limit = { 1, above = 0 } },\n"
    "\n"
    "  step  = function()\n"
    "    g = clamp(g, -limit, limit)\n"
    "    inner()                  -- the rule inside, once\n"
    "  end,\n"
    "}\n";

static bool good_name(const char *s)
{
    bool lower = is_ident(s);
    for (const char *c = s; *c; c++)
        lower = lower && !(*c >= 'A' && *c <= 'Z');
    return lower;
}

static void put_named(Buf *b, const char *text, const char *name)
{
    while (*text) {
        size_t n = strcspn(text, "@");
        buf_add(b, text, n);
        buf_puts(b, text[n] ? name : "");
        text += n + (text[n] != 0);
    }
}

int cmd_new(const Command *self, int argc, char **argv)
{
    const char *out = NULL;
    bool force = false, wrapper = false;
    const Opt opts[] = {
        {"output", 'o', OPT_TEXT, &out, "FILE",
         "where to write it (default: NAME.lua; - for standard output)"},
        {"wrapper", 0, OPT_FLAG, &wrapper, NULL, "a wrapper in place of a rule"},
        {"force", 'f', OPT_FLAG, &force, NULL, "overwrite the file if there is one"},
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n != 1)
        return cli_misuse(self, n ? "one name at a time" : "it needs a name");
    if (!good_name(argv[0]))
        return cli_misuse(self,
                          "'%s' is not a lower-case identifier of at most 40 letters, digits and _",
                          argv[0]);
    char path[64];
    snprintf(path, sizeof path, "%s.lua", argv[0]);
    out = out ? out : path;
    Buf b = {0};
    put_named(&b, wrapper ? wrapper_text : rule_text, argv[0]);
    const char *text = cli_text(&b);
    bool made = strcmp(out, "-") && !force;
    if (made) {
        /* checks and creates in one call */
        int fd = open(out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0) {
            int err = errno;
            buf_free(&b);
            return err == EEXIST ? cli_fail("%s exists; --force overwrites it", out)
                                 : cli_fail("cannot write %s: %s", out, strerror(err));
        }
        close(fd);
    }
    rc = cli_write_file(out, text) ? CLI_OK : CLI_FAILED;
    buf_free(&b);
    if (made && rc != CLI_OK)
        unlink(out);                           /* the empty file was created above */
    if (rc == CLI_OK && strcmp(out, "-"))
        cli_print("wrote %s; next: optc check %s%s\n", out, strchr(out, '/') ? "" : "./", out);
    return rc;
}
