/* optc help: the list of commands, the page of one, and what installs beside the command: a manual
 * page, and completion for bash and zsh. All come from the commands' tables of options, which a
 * command hands to cli_parse; so each command is asked for its page, and a printer takes it. */
#include "tools/tools.h"

#include "optc.h"

#include <string.h>

const Command *cli_find_command(const char *name)
{
    for (const Command *c = cli_commands; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

void cli_overview(FILE *f)
{
    fprintf(f, "optc compiles optimizers: a spec of twenty lines becomes one fused program.\n\n"
               "usage: optc COMMAND [ARGUMENTS]\n\n");
    for (const Command *c = cli_commands; c->name; c++)
        fprintf(f, "  %-10s %s\n", c->name, c->summary);
    fprintf(f, "\nA SPEC is a name of the library (adamw), a path (./mine.lua) or - for standard "
               "input.\nSpecs in folders of your own are found by name too: --path DIR:DIR, or "
               "$OPTC_PATH.\nOPTC_PROFILE=out.json records the stages of the steps of any program "
               "with the library.\n'optc help COMMAND' has the options and examples of one.\n");
}

int cli_unknown_command(const char *name)
{
    const char *names[32];
    int n = 0;
    for (const Command *c = cli_commands; c->name && n < 31; c++)
        names[n++] = c->name;
    names[n] = NULL;
    Buf b = {0};
    cli_near("command", name, names, &b);
    cli_error("%s ('optc help' lists them)", cli_text(&b));
    buf_free(&b);
    return CLI_USAGE;
}

/* The next word of a list such as "ls|verify" or "[SPEC…] | export|merge …" that is an action: in
 * lower case. Returns the text behind it, or NULL at the end. */
static const char *next_action(const char *s, char word[32])
{
    for (size_t n; *s; s += n) {
        n = strcspn(s, "| ");
        if (n && n < 32 && strspn(s, "abcdefghijklmnopqrstuvwxyz") == n) {
            memcpy(word, s, n);
            word[n] = 0;
            return s + n;
        }
        n += !n;
    }
    return NULL;
}

static bool has_action(const Command *c, const char *name)
{
    char word[32];
    for (const char *s = c->args; (s = next_action(s, word));)
        if (!strcmp(word, name))
            return true;
    return false;
}

/* The page of a command or of its action: the command has the options, so it prints the page. */
static int print_page(const Command *c, const char *action)
{
    char ask[] = "--help", word[32] = "";
    if (action && c->run == cmd_tune)                /* the actions of tune have their own pages */
        snprintf(word, sizeof word, "%s", action);
    char *args[] = {*word ? word : ask, *word ? ask : NULL, NULL};
    return c->run(c, *word ? 2 : 1, args);
}

static void each_page(void (*print)(const Command *, const Opt *))
{
    cli_page = print;
    for (const Command *c = cli_commands; c->name; c++) {
        print_page(c, NULL);
        char word[32];
        if (c->run == cmd_tune)
            for (const char *s = c->args; (s = next_action(s, word));)
                print_page(c, word);
    }
}

/* ---- the manual page ---- */
static void roff(const char *s)
{
    for (bool first = true; *s; first = *s++ == '\n') {
        if (first && (*s == '.' || *s == '\''))
            fputs("\\&", stdout);
        if (*s == '\\')
            fputs("\\e", stdout);
        else if (*s == '-')
            fputs("\\-", stdout);
        else
            putchar(*s);
    }
}

static void man_command(const Command *c, const Opt *opts)
{
    printf(".SS optc %s ", c->name);
    roff(c->args);
    putchar('\n');
    roff(c->about);
    putchar('\n');
    for (const Opt *o = opts; o->name; o++) {
        printf(".TP\n\\fB");
        if (o->letter)
            printf("\\-%c\\fR, \\fB", o->letter);
        printf("\\-\\-");
        roff(o->name);
        printf("\\fR");
        if (o->value)
            printf(" \\fI%s\\fR", o->value);
        putchar('\n');
        roff(o->help);
        putchar('\n');
    }
    printf(".PP\n.nf\n");
    roff(c->examples);
    printf("\n.fi\n");
}

static void man_page(void)
{
    printf(".TH OPTC 1 \"\" \"optc %s\"\n.SH NAME\noptc \\- a compiler for optimizers\n"
           ".SH SYNOPSIS\n.B optc\n.I COMMAND\n[\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\n",
           optc_version());
    for (const Command *c = cli_commands; c->name; c++) {
        printf(".TP\n.B %s\n", c->name);
        roff(c->summary);
        putchar('\n');
    }
    printf(".SH COMMANDS\n");
    each_page(man_command);
}

/* ---- completion ---- */
static void bash_command(const Command *c, const Opt *opts)
{
    printf("    '%s '*) words='--help", c->name);
    for (const Opt *o = opts; o->name; o++)
        printf(" --%s", o->name);
    char word[32];
    for (const char *s = c->args; (s = next_action(s, word));)
        printf(" %s", word);
    printf("'%s ;;\n", strstr(c->args, "SPEC") || strstr(c->args, "NAME") ? " names=1" : "");
}

static void bash_completion(void)
{
    printf("_optc() {\n    local cur=${COMP_WORDS[COMP_CWORD]} words names=\n"
           "    case \"${COMP_WORDS[*]:1:COMP_CWORD}\" in\n");
    /* the pages of actions come after their command's, and the first pattern that fits is taken */
    cli_page = bash_command;
    for (const Command *c = cli_commands; c->name; c++) {
        char word[32];
        if (c->run == cmd_tune)
            for (const char *s = c->args; (s = next_action(s, word));)
                print_page(c, word);
        print_page(c, NULL);
    }
    printf("    esac\n    if [ \"$COMP_CWORD\" = 1 ]; then\n        words='");
    for (const Command *c = cli_commands; c->name; c++)
        printf("%s ", c->name);
    printf("'\n    elif [ \"$names${cur#-}\" = \"1$cur\" ]; then\n"
           "        words=\"$words $(optc list --names 2> /dev/null)\"\n    fi\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n"
           "complete -o default -F _optc optc\n");
}

/* In a text between '…[' and ']'. */
static void zsh_text(const char *s)
{
    for (; *s; s++)
        printf(*s == '\'' ? "'\\''" : strchr("[]:\\", *s) ? "\\%c" : "%c", *s);
}

static void zsh_command(const Command *c, const Opt *opts)
{
    if (strchr(c->name, ' '))
        return;
    printf("    %s) _arguments", c->name);
    for (const Opt *o = opts; o->name; o++) {
        printf(" \\\n        '--%s%s[", o->name, o->value ? "=" : "");
        zsh_text(o->help);
        printf("]%s'", o->value ? ":value:_files" : "");
    }
    printf(" \\\n        '*:argument:_optc_arguments' ;;\n");
}

static void zsh_completion(void)
{
    printf("#compdef optc\n_optc_arguments() {\n"
           "    _alternative 'specs:spec:(${(f)\"$(optc list --names 2> /dev/null)\"})' "
           "'files:file:_files'\n}\n"
           "if (( CURRENT == 2 )); then\n    local -a commands=(");
    for (const Command *c = cli_commands; c->name; c++) {
        printf("\n        '%s:", c->name);
        zsh_text(c->summary);
        putchar('\'');
    }
    printf(")\n    _describe command commands\nelse\n    shift words\n    (( CURRENT-- ))\n"
           "    case $words[1] in\n");
    each_page(zsh_command);
    printf("    esac\nfi\n");
}

int cmd_help(const Command *self, int argc, char **argv)
{
    bool man = false;
    const char *shell = NULL;
    const Opt opts[] = {{"man", 0, OPT_FLAG, &man, NULL, "print the manual page, for man -l"},
                        {"completion", 0, OPT_TEXT, &shell, "SHELL",
                         "print completion of commands and options for bash or zsh"},
                        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (shell && strcmp(shell, "bash") && strcmp(shell, "zsh"))
        return cli_misuse(self, "--completion '%s' is not a shell that it knows: bash or zsh",
                          shell);
    if (man + !!shell + !!n > 1)
        return cli_misuse(self, "a command, --man or --completion: one of them");
    if (man || shell)
        return man ? man_page() : *shell == 'b' ? bash_completion() : zsh_completion(), CLI_OK;
    if (n == 0)
        return cli_overview(stdout), CLI_OK;
    const Command *c = cli_find_command(argv[0]);
    if (!c)
        return cli_unknown_command(argv[0]);
    bool action = n == 2 && has_action(c, argv[1]);
    if (n > 2 || (n == 2 && !action && cli_find_command(argv[1])))
        return cli_misuse(self, "one command at a time");
    if (n == 2 && !action)
        return cli_misuse(self, "'%s' has no action '%s': optc %s %s", c->name, argv[1], c->name,
                          c->args);
    return print_page(c, n == 2 ? argv[1] : NULL);
}
