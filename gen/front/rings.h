/* Rings of past values, between the files of the front end that declare and read states. */
#ifndef OPTC_RINGS_H
#define OPTC_RINGS_H
#include "gen/front/trace.h"

enum { MAX_RING = 128 };                               /* values of one ring */

void rings_open(lua_State *L);
/* at the end of an entry: warns of rings that it reads only */
void ring_end(Trace *t);
void ring_start(Trace *t);                             /* a new entry: nothing is pushed */
/* its first state; -1: no such ring */
int ring_find(const Trace *t, const SpecFile *s, const char *name);
/* pushes the Lua value that stands for the ring */
void ring_push_value(lua_State *L, int first);
bool ring_is(lua_State *L, int i);                     /* the Lua value at index i is a ring */
#endif
