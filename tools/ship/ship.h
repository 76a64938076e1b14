/* optc ship: writes rules as a package, a folder that a program builds with a C compiler alone. */
#ifndef OPTC_SHIP_H
#define OPTC_SHIP_H
#include "tools/tools.h"

#include <limits.h>
#include <signal.h>

typedef struct Ship {
    const char *out;               /* the package's folder */
    const Nvrtc *nvrtc;
    char packer[40];               /* "nvFatbin 13.0", "fatbinary" */
    bool code_only;                /* the GPU code and the manifest, without sources */
    bool replaces;                 /* out is an older package, which is replaced */
    char dir[PATH_MAX];            /* the temporary folder until the package is complete; "":
                                    * none */
    Spec *spec; int nspec;
    Spec *gpu;                     /* by rule: the plan for a GPU if it differs; otherwise empty */
    Spec *donor; int ndonor;       /* plans whose GPU kernels the functions of matrices need too */
    char (*function_key)[DIGEST_HEX];              /* of the functions, if code_only */
    Pack pack;
    TunedSet tuned;
    struct StageKey **key;         /* by rule and Stage.fn: the key of the stage's tuned results */
} Ship;

/* a signal arrived: temporary files must be removed */
extern volatile sig_atomic_t ship_stopped;

/* returns CLI_GO, or prints the reason and returns an exit code */
int ship_build(Ship *s);
int ship_begin(Ship *s);
int ship_finish(Ship *s);
/* removes the temporary folder; does nothing after ship_finish */
void ship_drop(Ship *s);
int ship_check(const char *dir);
void ship_key_stages(Ship *s);                 /* fills Ship.key; call it when all rules are open */
void ship_choose_launches(Ship *s, PackArch *a);
void ship_choose_methods(Ship *s, PackArch *a);
void ship_say_measured(Ship *s);
#endif
