/* optc: the command. One table of subcommands with their help; each subcommand is implemented in
 * its own file. */
#include "tools/tools.h"

#include "optc.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static int cmd_version(const Command *self, int argc, char **argv);

const Command cli_commands[] = {
    {"list", "[NAME]", "the optimizers and wrappers of the library",
     "Without NAME: every rule with the bytes per element that a step moves (vectors/matrices if "
     "they differ) and its\n"
     "states, then every wrapper. With NAME (or a path): everything that this spec declares. With "
     "a pattern\n"
     "such as '*muon*': the rules and wrappers whose names fit.",
     "optc list\noptc list adamw\noptc list '*muon*'\n"
     "optc list ema\noptc list --names | wc -l\noptc list --markdown -o catalogue.md",
     cmd_list},
    {"show", "NAME", "one rule or wrapper: code, paper, states, cost, when to use it",
     "Prints on two screens what the spec's fields and its plan say: what it does, when to use it, "
     "which\n"
     "implementation its results are compared with, its code without comments, the memory of its "
     "states, the cost\n"
     "of a step, and which wrappers accept it. A wrapper is shown around sgd, with the rules that "
     "accept it.",
     "optc show adamw\noptc show soap\noptc show ema\noptc show ./mine.lua", cmd_show},
    {"check", "SPEC…", "compile specs and say whether they are well formed",
     "Prints 'ok' and the cost of a step, or the error with its line. Checks all specs, even after "
     "one failed. Warns\n"
     "about hyperparameters that nothing reads with the chosen options, and about valid lines that "
     "are probably\n"
     "mistakes: values that an entry returns, solve(A, B) with a symmetric A, roots of singular "
     "matrices.\n"
     "A wrapper is checked around sgd.",
     "optc check mine.lua\noptc check adamw --with 'clip(1),ema(0.999)'\noptc check specs/*.lua",
     cmd_check},
    {"try", "SPEC", "step a rule a few times on small tensors and say what looks wrong",
     "Steps tensors of every rank with ordinary gradients, and with gradients that are zero, of "
     "rank one, huge, tiny\n"
     "or not a number. Reports parameters that never move, NaN, refused factors of matrices, "
     "results in f32 that are\n"
     "far from f64, and states that stop changing. A wrapper is tried around sgd. Exit code 1: "
     "there is a problem;\n"
     "notes are no problems.",
     "optc try mine.lua\noptc try adamw --with 'clip(1),skip'\noptc try soap", cmd_try},
    {"explain", "SPEC", "what a rule costs: passes over memory, bytes, launches, state, least time",
     "Prints on two screens what the rule declares, which tensors take which variant, and for each "
     "variant\n"
     "the passes over memory, bytes, launches, products, state memory and the least time of a "
     "step. The time\n"
     "is predicted from the bandwidth of the device, and for products from its arithmetic rate; "
     "both are\n"
     "measured once and kept in the cache folder. It is a lower bound: a step takes longer.\n"
     "--full prints every stage with its lines of the spec, and why each pass is needed.\n"
     "--ranks prints the collectives, bytes, work and memory of each process of a sharded model.",
     "optc explain adamw\noptc explain muon --full\noptc explain adafactor --shape 4096x4096 "
     "--shape 4096\n"
     "optc explain lamb --size 1G --bandwidth 3350\noptc explain lamb --device cpu --measure\n"
     "optc explain muon --ranks 8 --work llama-1b",
     cmd_explain},
    {"emit", "SPEC", "the source that is compiled for a rule",
     "Writes the generated source for a target. Its head says how to make it again.",
     "optc emit adamw --target c\noptc emit adamw --target cuda\noptc emit ./mine.lua --with "
     "'clip(1)' -o mine.c",
     cmd_emit},
    {"compile", "SPEC", "GPU machine code for an architecture, by NVRTC",
     "Compiles the rule's CUDA source; no GPU is needed, only NVRTC ('optc doctor' says whether it "
     "was found).",
     "optc compile adamw --arch sm_90 -o adamw.cubin\noptc compile adamw --arch all", cmd_compile},
    {"ship", "SPEC…", "a package: one C file, its header, GPU code, nothing else needed",
     "Writes a folder that a C or C++ program builds with its compiler alone and that runs without "
     "Lua, NVRTC and\n"
     "liboptc: the rules as C for the CPU, machine code for the GPUs of --arch (without --arch: "
     "none, and NVRTC is\n"
     "not needed), and a small runtime. The bits are those of the library. If $OPTC_CACHE_BASE "
     "names the folder, the\n"
     "library runs its rules without a compiler.\n"
     "NAME+WRAPPERS is a rule with its own wrappers.\n"
     "--check compares a package with its manifest and prints the GPUs that it runs on; exit code "
     "1: it is damaged.",
     "optc ship adamw -o myopt\noptc ship adamw --with 'clip(1)' --arch sm_80,sm_90 --ptx -o "
     "myopt\n"
     "optc ship 'adamw+clip(1)' adafactor ./mine.lua --arch all -o build/rules --name rules\n"
     "optc ship --all-specs --arch all -o optc-rules\noptc ship --check myopt",
     cmd_ship},
    {"dump", "SPEC", "the rule as text after a pass, its plan or its schedule",
     "Prints the rule's IR after a pass (default: the last one), or the plan. --pass schedule "
     "prints what each rank\n"
     "does in a step, in order: stages, products, copies and exchanges; --shape, --work, "
     "--device,\n"
     "--workspace, --ranks and --rank are for it. check, explain, emit, compile, ship, show and "
     "dump\n"
     "read IR text in place of a SPEC.",
     "optc dump adamw\noptc dump adamw --pass all --time\noptc dump adamw > a.ir && optc dump a.ir "
     "--pass plan\noptc "
     "dump lion | optc explain -\noptc dump muon --pass schedule --work gpt2-124m --ranks 4 "
     "--device cuda",
     cmd_dump},
    {"verify", "SPEC…", "prove that GPU code stores the bits of its plan, for all floats",
     "Compiles each stage by NVRTC (no GPU is needed) and executes its PTX with unknown floats, "
     "over a\n"
     "list of sizes, alignments and steps. What every store writes must be what the plan says. "
     "This\n"
     "proves all values of the floats for these shapes; it prints the first difference of a "
     "stage.\n"
     "Exit code 1: a stage differs. Stages that cannot be checked yet are named, with the reason.",
     "optc verify adamw\noptc verify adamw lion --arch sm_80\noptc verify lamb --with 'clip(1)' -q",
     cmd_verify},
    {"bench", "[SPEC…]", "time steps on this machine's best device against its memory's rate",
     "Steps real tensors and compares the time with the plan's bytes and with copying memory (on a "
     "CPU also with\n"
     "scaling it in place), measured in the same rounds. On a GPU also: host time of a step, and "
     "the first step with\n"
     "an empty and a full cache.\n"
     "-o FILE also profiles the stages and writes a page that draws each below the roofs of memory "
     "and of products,\n"
     "beside whole steps and peers. Ctrl-C then ends the measurement and writes what is done.\n"
     "NAME+WRAPPERS is a rule with its own wrappers. Without SPEC: adamw, lamb, adafactor and "
     "adamw+clip(1).",
     "optc bench\noptc bench adamw muon -o report.html\n"
     "optc bench adamw sgd --device cpu --size 16M --threads 2\noptc bench "
     "'adamw+clip(1),ema(0.999)' "
     "--tensors 100\n"
     "optc bench adafactor --shape 4096x4096 --shape 4096\noptc bench --device cuda --work "
     "gpt2-1.5b adamw lion\n"
     "OPTC_PYTHON=venv/bin/python optc bench --device cuda --work 2^28 adamw --against torch\n"
     "optc bench --device cuda --work gpt2-124m adamw lamb --against untuned",
     cmd_bench},
    {"race", "SPEC…", "train small tasks with several rules and report which one wins",
     "Trains each task with each rule on the CPU, from the same data, weights and batches. Rate "
     "and decay of every\n"
     "rule are tuned first, with the same number of trials on other seeds. Prints a table and "
     "writes an HTML page\n"
     "with the curves, the sweep, the verdicts and the specs. Verdicts come from an exact "
     "Mann-Whitney test over the\n"
     "seeds, with Holm's correction over the pairs of a task. A race repeats bit for bit; only its "
     "times differ.\n"
     "NAME(HYPER=VALUE,OPTION=VALUE)+WRAPPERS is a rule with its own settings and wrappers. Ctrl-C "
     "ends the race and\n"
     "writes what is done.",
     "optc race adamw muon ./mine.lua\noptc race 'adamw(beta2=0.95)' adamw\n"
     "optc race adamw 'adamw+clip(1)' --tasks spirals,embedding --seeds 12\n"
     "optc race sgd lion --full -o full.html --json full.json\noptc race --from full.json -o "
     "again.html",
     cmd_race},
    {"tune", "[SPEC…] | export|merge|show …",
     "measure which launches are fastest here, and keep the results",
     "export  writes results as text\n"
     "merge   adds the results of such files, entry by entry\n"
     "show    lists results\n"
     "'optc help tune export' and so on describe them. Results are read from $OPTC_TUNE or "
     "~/.config/optc/tune,\n"
     "then from the built-in list. Other stages use the model's launches.",
     "optc tune show\noptc tune show --stage adamw\noptc tune export -o results.txt\noptc tune "
     "merge results.txt",
     cmd_tune},
    {"cache", "ls|verify|prune|clear", "the compiled code that is kept on disk",
     "ls      lists the entries: rule, target, size, last use\n"
     "verify  reads every entry and names damaged ones, which would be compiled again; exit code 1 "
     "if there are any\n"
     "prune   removes entries that were not used for a time, or those unused longest until the "
     "rest is small enough\n"
     "clear   removes all entries. Other files stay, and programs that use an entry continue",
     "optc cache ls\noptc cache ls --json\noptc cache verify --delete\noptc cache prune --older "
     "30d --max 256M\noptc "
     "cache clear --dir /tmp/mine",
     cmd_cache},
    {"checkpoint", "show FILE", "what a file of optc_save contains",
     "show    prints the rule, step count, hyperparameters and tensors of a checkpoint, and checks "
     "its hash. Other\n"
     "        safetensors files are shown too. Exit code 1: the file is damaged, or is no "
     "safetensors file.",
     "optc checkpoint show run.safetensors\noptc checkpoint show run.safetensors --json",
     cmd_checkpoint},
    {"doctor", "", "what this machine has and what optc will use",
     "Looks for compilers, vector levels, GPUs, libraries for products (a BLAS, cuBLAS) and "
     "eigenvectors (cuSOLVER),\n"
     "and the cache, and prints what works.",
     "optc doctor", cmd_doctor},
    {"new", "NAME", "write a commented starter spec",
     "Writes NAME.lua, a working rule with comments, to begin from.",
     "optc new mine\noptc new mine --wrapper -o wrappers/mine.lua", cmd_new},
    {"version", "", "the version", "Prints the version.", "optc version", cmd_version},
    {"help", "[COMMAND [ACTION]]", "this page, or the page of a command",
     "Prints the list of commands, or the help of one.",
     "optc help bench\noptc help cache ls\noptc help --man > optc.1\n"
     "optc help --completion bash > ~/.local/share/bash-completion/completions/optc",
     cmd_help},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

static int cmd_version(const Command *self, int argc, char **argv)
{
    bool json = false;
    const Opt opts[] = {{"json", 0, OPT_FLAG, &json, NULL, "print one JSON object"},
                        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n)
        return cli_misuse(self, "it takes no arguments");
    printf(json ? "{\"optc\": \"%s\"}\n" : "optc %s\n", optc_version());
    return CLI_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        cli_overview(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "-h") || !strcmp(name, "--help"))
        name = "help";
    else if (!strcmp(name, "-V") || !strcmp(name, "--version"))
        name = "version";
    const Command *c = cli_find_command(name);
    if (!c && name[0] == '-')
        return cli_error("unknown option '%s': a command comes first; 'optc help' lists them",
                         name),
               CLI_USAGE;
    return c ? c->run(c, argc - 2, argv + 2) : cli_unknown_command(name);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);        /* writes to a peer or a reader that has ended fail, and are
                                      * handled there */
    int rc = dispatch(argc, argv);
    errno = 0;
    bool failed = ferror(stdout);
    if (fclose(stdout) != 0 || failed) {
        if (errno == EPIPE)          /* `optc list | head` has read all that it wanted */
            return rc;
        cli_error("the output could not be written%s%s", errno ? ": " : "",
                  errno ? strerror(errno) : "");
        return CLI_FAILED;
    }
    return rc;
}
