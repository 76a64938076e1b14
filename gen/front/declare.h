/* Shared by the files that read the fields of a spec: declare.c (fields), state_init.c (states),
 * options.c (options and arguments). */
#ifndef OPTC_DECLARE_H
#define OPTC_DECLARE_H
#include "gen/front/trace.h"

/* NULL-terminated: all fields; names that no spec may declare. */
extern const char *const spec_fields[], *const spec_names[];

/* declares one name; its value is on top */
typedef void (*Declare)(Trace *t, SpecFile *s, const char *key);

/* Raises an error at the line of `key =` (NULL: line 1); does not return. */
void declare_fail(Trace *t, const SpecFile *s, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int field_line(const char *text, const char *key);
/* Raises an error unless the name may be declared: an identifier, not a builtin, not declared
 * yet. */
void check_name(Trace *t, const SpecFile *s, const char *name, const char *what);
/* pushes a table field; false: it is absent */
bool open_field(Trace *t, const SpecFile *s, const char *field);

/* error unless the rule has these axes */
void need_axes(Trace *t, const SpecFile *s, const char *key, Dom d);

void state_init_open(lua_State *L);
void declare_state(Trace *t, SpecFile *s, const char *key);
void declare_value(Trace *t, SpecFile *s, const char *key);

/* gradient_list.c: the field `gradients`; the spec's table is on top */
void declare_gradients(Trace *t, SpecFile *s);

void declare_option(Trace *t, SpecFile *s, const char *key);
void name_args(Trace *t, const SpecFile *s, Arg *arg, int narg);
void apply_args(Trace *t, SpecFile *s, const Arg *arg, int narg);
#endif
