/* optc ship: rules become a folder that a C compiler alone turns into a program. */
#ifndef OPTC_SHIP_H
#define OPTC_SHIP_H
#include "tools/tools.h"

#include <limits.h>
#include <signal.h>

typedef struct Ship {
    const char *out;               /* the folder */
    const Nvrtc *nvrtc;
    char packer[40];               /* "nvFatbin 13.0", "fatbinary" */
    bool replaces;                 /* a package is there already */
    char dir[PATH_MAX];            /* where it is written until it is whole; "": nothing is there */
    Spec *spec; int nspec;
    Spec *gpu;                     /* by rule: planned for a GPU, where that is another plan; else empty */
    Pack pack;
    TunedSet tuned;
    struct StageKey **key;         /* by rule, by Stage.fn: which results are its */
} Ship;

extern volatile sig_atomic_t ship_stopped;     /* a signal came: nothing may be left behind */

int ship_build(Ship *s);                       /* all return CLI_GO, or the exit code after they said why */
int ship_begin(Ship *s);
int ship_finish(Ship *s);
void ship_drop(Ship *s);                       /* what was written so far; does nothing after ship_finish */
int ship_check(const char *dir);
void ship_key_stages(Ship *s);                 /* once the rules are there */
void ship_choose_launches(Ship *s, PackArch *a);
void ship_choose_methods(Ship *s, PackArch *a);
void ship_say_measured(Ship *s);
#endif
