/* Between the files that read the fields of a spec: declare.c the fields, state_init.c states, options.c options and
 * arguments. */
#ifndef OPTC_DECLARE_H
#define OPTC_DECLARE_H
#include "gen/front/trace.h"

extern const char *const spec_fields[], *const spec_names[];    /* NULL-terminated: fields; names that no spec may declare */

typedef void (*Declare)(Trace *t, SpecFile *s, const char *key);       /* one name of a field; its value is on top */

/* At the line on which `key =` stands (NULL: the first); does not return. */
void declare_fail(Trace *t, const SpecFile *s, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int field_line(const char *text, const char *key);
/* free to be declared, or an error */
void check_name(Trace *t, const SpecFile *s, const char *name, const char *what);
bool open_field(Trace *t, const SpecFile *s, const char *field);       /* pushes a table field; false: it is absent */

void need_axes(Trace *t, const SpecFile *s, const char *key, Dom d);   /* that axis has a length, or an error */

void state_init_open(lua_State *L);
void declare_state(Trace *t, SpecFile *s, const char *key);
void declare_value(Trace *t, SpecFile *s, const char *key);

void declare_option(Trace *t, SpecFile *s, const char *key);
void name_args(Trace *t, const SpecFile *s, Arg *arg, int narg);
void apply_args(Trace *t, SpecFile *s, const Arg *arg, int narg);
#endif
