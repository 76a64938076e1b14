/* optc compile: compiles a rule to GPU machine code with NVRTC. Needs no GPU. */
#include "tools/tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool supported(const Archs *all, int arch)
{
    for (int i = 0; i < all->n; i++)
        if (all->v[i] == arch)
            return true;
    return false;
}

static int read_archs(const Command *self, const char *text, const Archs *all, Archs *out)
{
    if (!strcmp(text, "all")) {
        *out = *all;
        return CLI_GO;
    }
    for (const char *s = text; *s && out->n < 64;) {
        int arch = 0, end = 0;
        if (sscanf(s, "sm_%4d%n", &arch, &end) != 1 || (s[end] && s[end] != ','))
            return cli_misuse(self, "--arch '%s': expected sm_90, sm_80,sm_90 or all", text);
        if (!supported(all, arch)) {
            Buf b = {0};
            for (int i = 0; i < all->n; i++)
                buf_printf(&b, " sm_%d", all->v[i]);
            int rc = cli_misuse(self, "this NVRTC does not compile for sm_%d (it knows:%s)", arch,
                                cli_text(&b));
            buf_free(&b);
            return rc;
        }
        out->v[out->n++] = arch;
        s += end + (s[end] == ',');
    }
    return out->n ? CLI_GO : cli_misuse(self, "--arch names no architecture");
}

/* Parses "sm_90,sm_80" or "all"; only architectures that this NVRTC compiles for. */
int cli_archs(const Command *self, const char *text, const Nvrtc *nvrtc, Archs *out)
{
    Archs all = {{0}, 0};
    all.n = nvrtc_archs(nvrtc, all.v, 64);
    if (!all.n)
        return cli_fail("NVRTC does not report its architectures");
    return read_archs(self, text, &all, out);
}

static bool compile_one(const Nvrtc *n, const char *source, const char *name, int arch, bool ptx,
                        const char *out)
{
    size_t size = 0;
    char *log = NULL, *code = nvrtc_build(n, source, name, arch, ptx, &size, &log);
    bool ok = code != NULL;
    if (!ok)
        cli_error("NVRTC refused %s for sm_%d:\n%s", name, arch, log ? log : "out of memory");
    else if (out && !file_write(out, code, size))
        ok = (cli_error("cannot write %s: %s", out, strerror(errno)), false);
    if (ok)
        cli_print("%s sm_%d: %zu bytes of %s%s%s\n", name, arch, size, ptx ? "PTX" : "machine code",
                  out ? " in " : "", out ? out : "");
    free(code);
    free(log);
    return ok;
}

int cmd_compile(const Command *self, int argc, char **argv)
{
    const char *arch = NULL, *out = NULL, *why;
    bool ptx = false;
    CompileOpts c = COMPILE_OPTS_INIT;
    const Opt opts[] = {{"arch", 'a', OPT_TEXT, &arch, "LIST",
                         "sm_90, sm_80,sm_90 or all (all that the NVRTC found here supports)"},
                        {"ptx", 0, OPT_FLAG, &ptx, NULL, "PTX instead of machine code"},
                        {"output", 'o', OPT_TEXT, &out, "FILE",
                         "the file to write, for one architecture (default: write nothing, only "
                         "report that it compiles)"},
                        COMPILE_OPTS(c),
                        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n != 1)
        return cli_one_spec(self, n);
    if (!arch)
        return cli_misuse(self, "--arch is missing: name an architecture, such as --arch sm_90");
    const Nvrtc *nvrtc = nvrtc_get(&why);
    if (!nvrtc)
        return cli_fail("compile: %s", why);
    Archs want = {{0}, 0};
    if ((rc = cli_archs(self, arch, nvrtc, &want)) != CLI_GO)
        return rc;
    if (out && want.n > 1)
        return cli_misuse(self, "-o takes one architecture");
    Spec s;
    char *text = NULL;
    c.target = &target_cuda;
    if (spec_open(&s, argv[0], &c, false, NULL))
        text = gen_emit(&s.gen, &(EmitOptions){.cite = true}, &s.gen.diag);
    rc = text ? CLI_OK : spec_fail(&s);
    for (int i = 0; text && i < want.n; i++)
        if (!compile_one(nvrtc, text, s.gen.rule->name, want.v[i], ptx, out))
            rc = CLI_FAILED;
    free(text);
    spec_close(&s);
    return rc;
}
