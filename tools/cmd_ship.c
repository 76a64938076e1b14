/* optc ship: options, rules and architectures of a package. ship/ compiles and writes it. */
#include "tools/ship/ship.h"
#include "optc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RULES = 1000 };
volatile sig_atomic_t ship_stopped;

static void on_signal(int number) { ship_stopped = number; }

typedef struct Asked {
    const char *arch, *name, *out, *check, *functions;
    bool ptx, all, code;
    CompileOpts compile;
} Asked;

/* ---- rules ---- */
/* `with` is outside the wrappers in the argument, and --with is outside both. */
static bool open_rule(Ship *s, const char *arg, const char *with, const Asked *a)
{
    const char *outer = a->compile.with ? a->compile.with : "";
    CompileOpts c = a->compile;
    Spec *to = &s->spec[s->nspec++];
    Buf around = {0};
    buf_printf(&around, "%s%s%s", with, *with && *outer ? "," : "", outer);
    c.with = cli_text(&around);
    bool ok = spec_open(to, arg, &c, false, NULL);
    if (!ok)
        spec_fail(to);
    buf_free(&around);
    return ok;
}

static bool open_library(Ship *s, const Asked *a)
{
    bool ok = true;
    for (int i = 0; i < optc_library_size() && ok; i++)
        if (!strchr(optc_library_name(i), '/'))
            ok = open_rule(s, optc_library_name(i), "", a);
    for (const Composition *c = library_compositions; c->rule && ok; c++)
        ok = open_rule(s, c->rule, c->with, a);
    /* the library finds a rule by its code; in a program's package a second sgd would only be
     * sgd_2 */
    for (const Configuration *v = library_variants; v->rule && ok && a->code && !a->compile.options;
         v++) {
        Asked with = *a;
        with.compile.options = v->options;
        ok = open_rule(s, v->rule, "", &with);
    }
    return ok;
}

static bool same_text(const char *a, const char *b) { return !strcmp(a ? a : "", b ? b : ""); }

static bool same_rule(const Spec *a, const Spec *b)
{
    const Rule *x = a->gen.rule, *y = b->gen.rule;
    return !strcmp(x->name, y->name) && !strcmp(x->with, y->with) &&
           same_text(a->asked.options, b->asked.options) && a->src.len == b->src.len &&
           !memcmp(a->src.text, b->src.text, a->src.len);
}

/* The ID of adamw with clip(1) is adamw_clip; a second one with other arguments is adamw_clip_2. */
static const char *rule_id(Ship *s, int rule)
{
    const Rule *r = s->spec[rule].gen.rule;
    Buf b = {.arena = &s->pack.arena};
    bool function = rule >= s->nspec - s->pack.nfunction;
    buf_printf(&b, function ? "function_%s_%s" : "%s", r->name,
               type_info[s->spec[rule].gen.plan->p].name);
    int depth = 0;
    bool word = true;
    for (const char *c = r->with; *c; c++) {
        if (depth == 0 && *c == ',') {
            word = true;
        } else if (depth == 0 && *c != '(' && *c != ' ') {
            if (word)
                buf_puts(&b, "_");
            word = false;
            buf_add(&b, c, 1);
        }
        depth += *c == '(' ? 1 : *c == ')' ? -1 : 0;
    }
    char *id = b.s;
    for (char *c = id; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              *c == '_'))
            *c = '_';
    for (int n = 1; ; n++) {
        bool taken = false;
        const char *name = n == 1 ? id : arena_printf(&s->pack.arena, "%s_%d", id, n);
        for (int i = 0; i < rule; i++)
            taken = taken || !strcmp(s->pack.rule[i].id, name);
        if (!taken)
            return name;
    }
}

/* Plans a rule with products for a GPU: that plan may differ from the CPU's. */
static bool plan_for_gpu(Ship *s, int rule)
{
    Spec *cpu = &s->spec[rule], *gpu = &s->gpu[rule];
    Buf a = {.arena = &s->pack.arena}, b = {.arena = &s->pack.arena};
    s->pack.rule[rule].gpu = &cpu->gen;
    if (!s->nvrtc || !plan_calls(cpu->gen.plan))
        return true;
    if (!spec_for_gpu(gpu, cpu))
        return spec_fail(gpu), false;
    plan_print(&a, cpu->gen.plan, false);
    plan_print(&b, gpu->gen.plan, false);
    if (strcmp(buf_text(&a), buf_text(&b)))
        s->pack.rule[rule].gpu = &gpu->gen;
    return true;
}

static int name_rules(Ship *s)
{
    Pack *p = &s->pack;
    const char *clash;
    int named = s->nspec - s->pack.nfunction;
    p->rule = NEWS(&p->arena, PackRule, s->nspec + 1);
    for (int i = 0; i < s->nspec; i++) {
        Gen *g = &s->spec[i].gen;
        for (int k = 0; k < i && i < named; k++)
            if (same_rule(&s->spec[k], &s->spec[i]))
                return cli_fail("ship: the rule '%s%s%s' is given twice", g->rule->name,
                                *g->rule->with ? " with " : "", g->rule->with);
        p->rule[i] = (PackRule){
            .gen = g, .id = rule_id(s, i), .text = i < named ? NULL : s->spec[i].src.text};
        p->nrule = i + 1;
        digest_hex(s->spec[i].src.text, s->spec[i].src.len, p->rule[i].spec);
        if (!plan_for_gpu(s, i))
            return CLI_FAILED;
        char *source = gen_emit(p->rule[i].gpu,
                                &(EmitOptions){.target = &target_cuda, .command = ""}, &g->diag);
        bool known = source && emit_key(source, p->rule[i].key);
        free(source);
        if (!known)
            return spec_fail(&s->spec[i]);
    }
    if (pack_clash(p, &clash))
        return cli_fail("ship: two rules would both have a stage '%s': give one of them another "
                        "name, or a package of its own",
                        clash);
    return CLI_GO;
}

/* ---- functions of matrices ---- */
/* An earlier function has the same GPU code: exponents and steps are arguments of its kernels. */
static bool same_code(Ship *s, Spec *x)
{
    char *source =
        gen_emit(&x->gen, &(EmitOptions){.target = &target_cuda, .command = ""}, &x->gen.diag);
    char key[DIGEST_HEX];
    bool same = false;
    if (source && emit_key(source, key)) {
        for (int i = 0; i < s->pack.nfunction; i++)
            same = same || !strcmp(s->function_key[i], key);
        memcpy(s->function_key[s->pack.nfunction], key, sizeof key);
    }
    free(source);
    return same;
}

/* Opens their specs after the rules. GPU kernels of exponents other than the specs' come from more
 * plans. code: the library's own specs, whose exponents are not those of a package. */
static int open_functions(Ship *s, const char *list, bool code)
{
    Pack *p = &s->pack;
    char why[400];
    PackedForm *form = calloc(MOST_PACKED_FORMS, sizeof *form);
    int n = form ? packed_forms(list, code, form, MOST_PACKED_FORMS, why, sizeof why) : 0,
        rc = CLI_GO;
    if (!form || n < 0)
        rc = cli_fail("ship: --functions: %s", form ? why : "out of memory");
    s->donor = calloc((size_t)(n > 0 ? n : 1), sizeof *s->donor);
    p->donor = NEWS(&p->arena, const Gen *, n > 0 ? n : 1);
    s->function_key = calloc((size_t)(n > 0 ? n : 1), sizeof *s->function_key);
    if (rc == CLI_GO && !s->function_key)
        rc = cli_fail("ship: out of memory");
    p->functions = list;
    for (int i = 0; i < n && rc == CLI_GO; i++) {
        CompileOpts c = COMPILE_OPTS_INIT;
        Spec *to =
            form[i].kernels_only ? s->donor ? &s->donor[s->ndonor] : NULL : &s->spec[s->nspec];
        c.p = (int)form[i].type;
        c.target = code || form[i].kernels_only ? &target_cuda : NULL;
        if (!to)
            rc = cli_fail("ship: out of memory");
        else if (!spec_open_text(to, form[i].id, form[i].spec, &c))
            rc = spec_fail(to);
        if (rc == CLI_GO && code && same_code(s, to))
            spec_close(to);
        else if (rc == CLI_GO && form[i].kernels_only)
            p->donor[s->ndonor++] = &to->gen;
        else if (rc == CLI_GO)
            s->nspec++, p->nfunction++;
    }
    p->ndonor = s->ndonor;
    free(form);
    return rc;
}

/* ---- architectures ---- */
static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void add_archs(Ship *s, Archs *want, bool ptx)
{
    Pack *p = &s->pack;
    qsort(want->v, (size_t)want->n, sizeof *want->v, by_number);
    p->arch = NEWS(&p->arena, PackArch, want->n + 2);
    for (int i = 0; i < want->n; i++)
        if (!i || want->v[i] != want->v[i - 1])
            p->arch[p->narch++] = (PackArch){.arch = want->v[i]};
    /* of the lowest architecture: every later GPU can compile it */
    if (ptx)
        p->arch[p->narch++] = (PackArch){.arch = want->v[0], .ptx = true};
    ship_key_stages(s);
    for (int i = 0; i < p->narch; i++) {
        ship_choose_launches(s, &p->arch[i]);
        ship_choose_methods(s, &p->arch[i]);
    }
}

/* ---- the command ---- */
/* The command that makes the package again. Rules are named without their files' folders, and -o
 * without the folders above the package; --path is as given. */
static void make_command(Ship *s, const Asked *a)
{
    Pack *p = &s->pack;
    Buf b = {0};
    buf_puts(&b, "optc ship");
    for (int i = 0; i < p->nrule - p->nfunction && !a->all; i++) {
        const Rule *r = p->rule[i].gen->rule;
        buf_printf(&b, *r->with ? " " : " %s", r->name);
        if (*r->with)
            buf_quoted(&b, arena_printf(&p->arena, "%s+%s", r->name, r->with));
    }
    if (a->all)
        buf_printf(&b, " --all-specs%s", a->compile.with ? " --with " : "");
    if (a->all && a->compile.with)
        buf_quoted(&b, a->compile.with);
    if (a->compile.options && *a->compile.options) {
        buf_puts(&b, " --options ");
        buf_quoted(&b, a->compile.options);
    }
    if (a->compile.path && *a->compile.path) {
        buf_puts(&b, " --path ");
        buf_quoted(&b, a->compile.path);
    }
    const int type[] = {a->compile.p, a->compile.g, a->compile.state};
    static const char *const option[] = {"type", "grad-type", "state-type"};
    for (int i = 0; i < 3; i++)
        if (type[i] >= 0)
            buf_printf(&b, " --%s %s", option[i], type_info[type[i]].name);
    if (a->compile.types && *a->compile.types) {
        buf_puts(&b, " --types ");
        buf_quoted(&b, a->compile.types);
    }
    if (a->compile.product)
        buf_printf(&b, " --products %s", spec_rule_options(&a->compile, NULL, NULL).products);
    if (a->functions) {
        buf_puts(&b, " --functions ");
        buf_quoted(&b, a->functions);
    }
    if (a->code)
        buf_puts(&b, " --code-only");
    for (int i = 0; i < p->narch && !p->arch[i].ptx; i++)
        buf_printf(&b, "%ssm_%d", i ? "," : " --arch ", p->arch[i].arch);
    buf_printf(&b, "%s -o %s", a->ptx ? " --ptx" : "", p->name);
    char *text = arena_strdup(&p->arena, cli_text(&b));
    text_clean(text, "");                      /* it becomes one line of the manifest */
    p->command = text;
    buf_free(&b);
}

/* Names that are refused: their files or functions would replace others that a package or its users
 * need. */
static const struct { const char *names, *why;
} taken[] = {
    {"optc", "its functions would be those of the library"},
    {"example", "its example is"},
    {"Makefile makefile GNUmakefile CMakeLists", "a file of the package is"},
    {"assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal "
     "stdalign stdarg stdatomic "
     "stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string "
     "tgmath threads time uchar wchar wctype alloca dlfcn endian features omp pthread sched "
     "strings unistd cuda nvrtc",
     "its header would take the place of another of that name"},
    {"fts iconv mq sem shm svc pidfd pkey atomic obstack aligned res va",
     "its functions would be those of the C library"},
    {"alignas alignof and and_eq asm auto bitand bitor bool break case catch char class co_await "
     "co_return co_yield compl concept const const_cast consteval constexpr constinit continue "
     "decltype default delete do double dynamic_cast else enum explicit export extern false "
     "float for friend goto if import inline int long module mutable namespace new noexcept not "
     "not_eq nullptr operator or or_eq private protected public register reinterpret_cast "
     "requires restrict return short signed sizeof static static_assert static_cast std struct "
     "switch template this thread_local throw true try typedef typeid typename typeof "
     "typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq",
     "it is a word of C or C++"},
    {"f r w x rtld", "its constants would be those of the C library"},
    {"all clean help install test package edit_cache rebuild_cache m dl",
     "CMake has that name for something else"},
};

static const char *why_taken(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        for (const char *c = taken[i].names; *c; c += strcspn(c, " "), c += *c == ' ')
            if (!strncmp(c, name, n) && (c[n] == ' ' || !c[n]))
                return taken[i].why;
    return NULL;
}

/* The package's name: --name, or the name of the folder. */
static int pick_name(const Command *self, const Asked *a, Ship *s)
{
    size_t n = strlen(a->out);
    while (n > 1 && a->out[n - 1] == '/')
        n--;
    s->out = arena_strndup(&s->pack.arena, a->out, n);
    const char *base = strrchr(s->out, '/') ? strrchr(s->out, '/') + 1 : s->out,
               *name = a->name ? a->name : base;
    if (!*base || !strcmp(base, ".") || !strcmp(base, ".."))
        return cli_misuse(self, "-o '%s': name the folder that is to be made", a->out);
    if (n + 40 >= PATH_MAX)
        return cli_misuse(self, "-o: the path is too long");
    if (!is_ident(name) || *name == '_')
        return cli_misuse(
            self,
            "'%s' is not a name for a package: letters, digits and _, a letter first, at most 40%s",
            name, a->name ? "" : "; give one with --name");
    const char *why = why_taken(name);
    if (why)
        return cli_misuse(
            self, "a package cannot be called '%s': %s; give another name with --name", name, why);
    s->pack.name = arena_strdup(&s->pack.arena, name);
    s->pack.version = optc_version();
    return CLI_GO;
}

static int find_tools(Ship *s)
{
    const char *why;
    char buf[1200], missing[600];
    s->nvrtc = nvrtc_get(&why);
    if (!s->nvrtc)
        return cli_fail("ship: %s", why);
    const char *packer = fatbin_packer(buf, missing, sizeof missing);
    if (!packer)
        return cli_fail("ship: %s", missing);
    unsigned major, minor;
    if (sscanf(packer, "nvFatbin %u.%u", &major, &minor) == 2)
        snprintf(s->packer, sizeof s->packer, "nvFatbin %u.%u", major, minor);
    else
        snprintf(s->packer, sizeof s->packer, "fatbinary");
    s->pack.cuda = s->nvrtc->version;
    return CLI_GO;
}

static int ship(const Command *self, const Asked *a, Ship *s, int n, char **argv)
{
    Archs want = {{0}, 0};
    int rc = pick_name(self, a, s);
    if (rc == CLI_GO && a->arch)
        rc = find_tools(s);
    if (rc == CLI_GO && a->arch)
        rc = cli_archs(self, a->arch, s->nvrtc, &want);
    if (rc != CLI_GO)
        return rc;
    s->spec = calloc(MOST_RULES, sizeof *s->spec);
    s->gpu = calloc(MOST_RULES, sizeof *s->gpu);
    if (!s->spec || !s->gpu)
        return cli_fail("ship: out of memory");
    bool ok = true;
    for (int i = 0; i < n && ok; i++)
        ok = open_rule(s, argv[i], "", a);
    if (!ok || (a->all && !open_library(s, a)))
        return CLI_FAILED;
    if (a->functions && (rc = open_functions(s, a->functions, a->code)) != CLI_GO)
        return rc;
    if ((rc = name_rules(s)) != CLI_GO)
        return rc;
    add_archs(s, &want, a->ptx);
    make_command(s, a);
    rc = ship_begin(s);
    if (rc == CLI_GO && a->arch)
        rc = ship_build(s);
    if (rc == CLI_GO && (rc = ship_finish(s)) == CLI_OK && a->arch)
        ship_say_measured(s);
    return rc;
}

static void free_all(Ship *s)
{
    for (int i = 0; i < s->pack.narch; i++)
        free(s->pack.arch[i].code);
    for (int i = 0; i < s->nspec && s->gpu; i++) {
        spec_close(&s->gpu[i]);                /* before s->spec[i], whose memory it uses */
        spec_close(&s->spec[i]);
    }
    for (int i = 0; i < s->ndonor; i++)
        spec_close(&s->donor[i]);
    free(s->donor);
    free(s->function_key);
    free(s->gpu);
    free(s->spec);
    free(s->pack.fatbin);
    tuned_close(&s->tuned);
    arena_free(&s->pack.arena);
}

/* Makes a package, and handles memory running out meanwhile. */
static int ship_or_fail(const Command *self, const Asked *a, Ship *s, int n, char **argv)
{
    jmp_buf out;
    s->pack.arena.out = &out;
    return setjmp(out) ? cli_fail("ship: out of memory") : ship(self, a, s, n, argv);
}

/* CLI_GO: n specs can be shipped so. */
static int check_request(const Command *self, const Asked *a, int n)
{
    if (a->code && !a->arch)
        return cli_misuse(self, "--code-only needs --arch: without it there is no GPU code");
    if (!a->all && !n && !(a->code && a->functions))
        return cli_misuse(self, "no spec is given: name rules or files");
    if (a->all && n)
        return cli_misuse(self, "--all-specs ships the whole library: name no specs with it");
    if (a->ptx && !a->arch)
        return cli_misuse(self, "--ptx needs --arch: it is made for the lowest architecture");
    if (!a->out)
        return cli_misuse(self, "-o DIR is missing: name the folder to make");
    if (n > MOST_RULES / 2)
        return cli_misuse(self, "at most %d specs", MOST_RULES / 2);
    return CLI_GO;
}

/* Signals end the work, and what is half done is removed. */
static int ship_until_signal(const Command *self, const Asked *a, int n, char **argv)
{
    Ship s = {.out = NULL, .code_only = a->code};
    /* no SA_RESTART: a signal ends waiting calls */
    struct sigaction act = {.sa_handler = on_signal}, was[3];
    static const int number[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++)
        if (sigaction(number[i], &act, &was[i]) == 0 && was[i].sa_handler == SIG_IGN)
            /* the parent process wants it ignored */
            sigaction(number[i], &was[i], NULL);
    tuned_open(&s.tuned);
    int rc = *s.tuned.why ? cli_fail("ship: tuning results that cannot be read: %s", s.tuned.why)
                          : ship_or_fail(self, a, &s, n, argv);
    ship_drop(&s);
    free_all(&s);
    for (int i = 0; i < 3; i++)
        sigaction(number[i], &was[i], NULL);
    if (ship_stopped)
        raise(ship_stopped);
    return rc;
}

int cmd_ship(const Command *self, int argc, char **argv)
{
    Asked a = {.compile = COMPILE_OPTS_INIT};
    const Opt opts[] = {
        {"arch", 'a', OPT_TEXT, &a.arch, "LIST",
         "sm_90, sm_80,sm_90 or all (what the NVRTC at hand knows); "
         "without it the package is for the CPU alone"},
        {"ptx", 0, OPT_FLAG, &a.ptx, NULL,
         "also PTX of the lowest of them, which drivers compile for GPUs that are not in the list"},
        {"output", 'o', OPT_TEXT, &a.out, "DIR",
         "the folder to make; a package that is there is replaced, anything else refused"},
        {"name", 0, OPT_TEXT, &a.name, "NAME",
         "what its files and functions are called (default: as the folder)"},
        {"all-specs", 0, OPT_FLAG, &a.all, NULL,
         "every rule of the library, and the compositions that are built into it"},
        {"functions", 0, OPT_TEXT, &a.functions, "LIST",
         "also functions of matrices without a rule: all, or some of products, matrix_power, eigh, "
         "cholesky, solve, "
         "polar, polar(5,jordan), qr, linear"},
        {"code-only", 0, OPT_FLAG, &a.code, NULL,
         "only the GPU code and its manifest, for the library ($OPTC_CACHE_BASE), without C "
         "sources; --functions then "
         "needs no rule"},
        {"check", 0, OPT_TEXT, &a.check, "DIR",
         "hold a package against its manifest, and say which GPUs it would run on"},
        COMPILE_OPTS(a.compile),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (a.check)
        return n || a.arch || a.out || a.all ? cli_misuse(self, "--check takes no other options")
                                             : ship_check(a.check);
    rc = check_request(self, &a, n);
    return rc == CLI_GO ? ship_until_signal(self, &a, n, argv) : rc;
}
