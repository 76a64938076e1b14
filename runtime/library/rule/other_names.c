/* Names that other packages and papers use, and what to write here instead. Only messages use them:
 * most are a rule with an option, a wrapper or a storage type, which the user should choose
 * knowingly. */
#include "runtime/library/rule/other_names.h"

#include "gen/abi/embedded.h"

#include <ctype.h>
#include <string.h>

enum { LONGEST = 40 };

typedef struct OtherName { const char *name, *here; } OtherName;

/* Lower case, without _ and -. here: what to write; NULL: specs/README.md says why the library has
 * no such rule. */
static const OtherName others[] = {
    {"a2grad", NULL},
    {"accsgd", NULL},
    {"adamc", "'adamw+corrected_decay'"},
    {"adamwatan2", "'adam_atan2'"},
    {"adanorm", NULL},
    {"adaptivemuon", "'adamuon', 'normuon' or 'namo'"},
    {"alice", NULL},
    {"alig", NULL},
    {"amsgrad", "'adam' or 'adamw' with amsgrad=true"},
    {"asam",
     "a rule with the wrapper sam and its option adaptive=true: 'sgd+sam(0.5, adaptive=true)'"},
    {"bsam", NULL},
    {"dadaptadamw", "'dadapt_adam' with decouple=true"},
    {"dadaptation", "'dadapt_adam', 'dadapt_sgd' or another name that begins with dadapt_"},
    {"demo", NULL},
    {"dpadam", "a wrapper of yours: specs/COOKBOOK.md"},
    {"dpsgd", "a wrapper of yours: specs/COOKBOOK.md"},
    {"fadam", NULL},
    {"gravity", NULL},
    {"heavyball", "'sgd' with momentum"},
    {"kate", NULL},
    {"kron", "'psgd_kron'"},
    {"kronwhiten", "'psgd' or 'psgd_kron'"},
    {"lambc", "'lamb' with trust_clip=true"},
    {"larc", "'lars' with rate=outside and trust_clip=true"},
    {"lbfgs", NULL},
    {"ldog", "'dog' with layerwise=true"},
    {"momentum", "'sgd' with momentum"},
    {"momo", NULL},
    {"muloco", "'muon+snoo(offset=0)'"},
    {"muonbp", NULL},
    {"muonclip", "'muon'; the limit on attention logits is left out (specs/README.md)"},
    {"nadamw", "'nadam' with decoupled=true (Python: decoupled_weight_decay=True)"},
    {"nag", "'sgd' with nesterov=true"},
    {"nesterov", "'sgd' with nesterov=true"},
    {"newtonmuon", NULL},
    {"nordion2", "'dion3'"},
    {"nvlamb", "'lamb'"},
    {"nvnovograd", "'novograd'"},
    {"polyaksgd", NULL},
    {"prodigyopt", "'prodigy'"},
    {"psgdpro", "'psgd' or 'psgd_kron'"},
    {"racs", NULL},
    {"radamw", "'radam' with decoupled=true (Python: decoupled_weight_decay=True)"},
    {"ranger", "'radam+centralize+lookahead(6, 0.5)'"},
    {"ranger21", NULL},
    {"schedulefree", "'schedulefree_adamw', 'schedulefree_sgd' or 'schedulefree_radam'"},
    {"sgdmomentum", "'sgd' with momentum"},
    {"sgdnesterov", "'sgd' with nesterov=true"},
    {"signsgd", "'signum' with momentum 0"},
    {"simademamix", "'simplified_ademamix'"},
    {"solp", NULL},
    {"sophiag", "'sophia'"},
    {"sophiah", "'sophia'"},
    {"spam", "'stable_spam'"},
    {"sparseadam", NULL},
    {"spectralsphere", NULL},
    {"sso", NULL},
    {"swats", NULL},
    {"teon", NULL},
    {NULL, NULL},
};

/* Parts before and after the name of a rule. wrapper: what is written after that name; types: what
 * follows the name. */
typedef struct NamePart { const char *part, *wrapper, *types; } NamePart;

#define IN_PYTHON " (Python: types={\"state\": \"q8\"})"
#define Q8 " with the storage types state=q8" IN_PYTHON
#define Q8_SMALLEST " with the storage types state=q8, the smallest" IN_PYTHON
static const NamePart befores[] = {{"", "", ""},
                                   {"lookahead", "+lookahead", ""},
                                   {"galore", "+galore", ""},
                                   {"fused", "", ""},
                                   {"paged", "", ""},
                                   {"distributed", "", ""},
                                   {"dist", "", ""},
                                   {"singledevice", "", ""},
                                   {"cautious", "+cautious", ""},
                                   {"c", "+cautious", ""}};
static const NamePart afters[] = {{"", "", ""},
                                  {"8bit", "", Q8},
                                  {"bnb8bit", "", Q8},
                                  {"4bit", "", Q8_SMALLEST},
                                  {"32bit", "", ""},
                                  {"torch", "", ""},
                                  {"torchfused", "", ""},
                                  {"h", "+hyperball", ""},
                                  {"cautious", "+cautious", ""},
                                  {"withauxadam", "", ""}};

/* Writes a name in lower case, without _ and -. False: it is too long. */
static bool squeezed(const char *name, char out[LONGEST])
{
    size_t n = 0;
    for (; *name && n < LONGEST - 1; name++)
        if (*name != '_' && *name != '-')
            out[n++] = (char)tolower((unsigned char)*name);
    out[n] = 0;
    return !*name && n;
}

/* The rule, or with a folder the wrapper, of that name however it is written; NULL: none. */
static const char *library_name(const char *squeezed_name, const char *folder)
{
    size_t skip = strlen(folder);
    for (const Embedded *e = embedded_specs; e->name; e++) {
        char own[LONGEST];
        bool kind = skip ? !strncmp(e->name, folder, skip) : !strchr(e->name, '/');
        if (kind && squeezed(e->name + skip, own) && !strcmp(own, squeezed_name))
            return e->name + skip;
    }
    return NULL;
}

/* The rule between two parts of a name; NULL: the name has not these parts, or the library no such
 * rule. */
static const char *rule_between(const char *name, const char *before, const char *after)
{
    size_t n = strlen(name), b = strlen(before), a = strlen(after);
    char part[LONGEST];
    if (n <= b + a || strncmp(name, before, b) || strcmp(name + n - a, after))
        return NULL;
    memcpy(part, name + b, n - b - a);
    part[n - b - a] = 0;
    return library_name(part, "");
}

/* Finds a rule inside a name, as in 'fused' + adam or 'paged' + adamw + '8bit', and returns what
 * the user should write.
 * NULL: the name contains no rule. */
static const char *around_rule(const char *name, Arena *arena)
{
    for (size_t b = 0; b < sizeof befores / sizeof *befores; b++)
        for (size_t a = 0; a < sizeof afters / sizeof *afters; a++) {
            const char *rule = rule_between(name, befores[b].part, afters[a].part);
            if (rule)
                return arena_printf(arena, "'%s%s%s'%s", rule, befores[b].wrapper,
                                    afters[a].wrapper, afters[a].types);
        }
    return NULL;
}

const char *other_name(const char *name, Arena *arena)
{
    char own[LONGEST];
    if (!squeezed(name, own))
        return NULL;
    for (const OtherName *o = others; o->name; o++)
        if (!strcmp(o->name, own))
            return o->here ? arena_printf(arena, "write %s", o->here)
                           : "the library leaves it out: specs/README.md says why";
    const char *wrapper = library_name(own, "wrappers/");
    const char *rule = wrapper
                           ? arena_printf(arena, "a rule with this wrapper: 'adamw+%s'", wrapper)
                           : around_rule(own, arena);
    return rule ? arena_printf(arena, "write %s", rule) : NULL;
}
