/* Queries about a tensor in a plain Lua `if`: sizes, names, tags. Each answer is traced as a
 * separate variant (variants_trace.c). */
#include "gen/front/trace.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* One side of a comparison of sizes: a number, or numel, nrows, ncols, perhaps times a number. */
static bool size_side(lua_State *L, int i, Test *q, int side)
{
    const Graph *g = &trace_of(L)->rule->g;
    const Ref *r = value_at(L, i);
    q->size[side] = SIZE_ONE;
    q->factor[side] = lua_tonumber(L, i);
    if (!r)
        return lua_type(L, i) == LUA_TNUMBER && isfinite(q->factor[side]);
    const Node *n = &g->n[*r], *k = NULL;
    for (int a = 0; n->op == OP_MUL && a < 2 && !k; a++)
        if (g->n[n->arg[a]].op == OP_CONST && isfinite(g->n[n->arg[a]].imm)) {
            k = &g->n[n->arg[a]];
            n = &g->n[n->arg[!a]];
        }
    q->factor[side] = k ? k->imm : 1;
    q->size[side] = n->op != OP_COUNT || n->dom == GROUP  ? SIZE_ONE
                    : n->from == ELEM && n->dom == TENSOR ? SIZE_NUMEL
                    : n->from == ROW && n->dom == SLICE   ? SIZE_ROWS
                    : n->from == COL && n->dom == SLICE   ? SIZE_COLS
                                                          : SIZE_ONE;
    return q->size[side] != SIZE_ONE;
}

static bool is_count(lua_State *L, int i)
{
    const Ref *r = value_at(L, i);
    return r && trace_of(L)->rule->g.n[*r].op == OP_COUNT;
}

/* A sum, a product … of two sizes, such as nrows * ncols. */
static bool made_of_sizes(lua_State *L, int i)
{
    const Graph *g = &trace_of(L)->rule->g;
    const Ref *r = value_at(L, i);
    const Node *n = r && *r >= 0 ? &g->n[*r] : NULL;
    return n && n->nargs == 2 && g->n[n->arg[0]].op == OP_COUNT && g->n[n->arg[1]].op == OP_COUNT;
}

static int projection_sizes(lua_State *L)
{
    const Trace *t = trace_of(L);
    return spec_error(
        L,
        "a rule that asks for sizes cannot step a projection, which does not have the sizes of a "
        "tensor ('%s' inside of '%s'): leave out the wrapper",
        t->spec[t->at].name, t->projects);
}

/* Lua's comparison operators. A comparison of sizes is a query; any other is an error, because
 * values are not known yet. */
int l_query_sizes(lua_State *L)
{
    Trace *t = trace_of(L);
    Test q = {.kind = TEST_SIZES, .relation = (Relation)lua_tointeger(L, lua_upvalueindex(2))};
    if (t->at >= 0 && t->elem != ELEM && (is_count(L, 1) || is_count(L, 2)))
        return projection_sizes(L);
    if (t->at < 0 || !size_side(L, 1, &q, 0) || !size_side(L, 2, &q, 1))
        return spec_error(L, "%s%s", lua_tostring(L, lua_upvalueindex(1)),
                          made_of_sizes(L, 1) || made_of_sizes(L, 2)
                              ? ". A question about a tensor compares one size, perhaps times a "
                                "number, with a number "
                                "or another size: nrows * ncols of a matrix is numel"
                              : "");
    q.view = t->spec[t->at].view;
    lua_pushboolean(L, trace_query(t, q));
    return 1;
}

/* A whole number from 1 to `most` at index i. */
static double whole_number(lua_State *L, int i, double most, const char *says)
{
    double k = lua_type(L, i) == LUA_TNUMBER ? lua_tonumber(L, i) : 0;
    if (!(k >= 1 && k <= most && k == floor(k)))
        spec_error(L, "%s", says);
    return k;
}

/* divisible(nrows, 64) */
int l_query_divisible(lua_State *L)
{
    static const char says[] =
        "divisible takes a size and a whole number from 1: divisible(nrows, 64), of nrows, "
        "ncols or numel";
    Trace *t = trace_of(L);
    Test q = {.kind = TEST_SIZES, .relation = IS_MULTIPLE};
    inside_entry(L, "divisible");
    if (t->elem != ELEM)
        return projection_sizes(L);
    if (lua_gettop(L) != 2 || !size_side(L, 1, &q, 0) || q.size[0] == SIZE_ONE || q.factor[0] != 1)
        return spec_error(L, "%s", says);
    q.factor[1] = whole_number(L, 2, MOST_DIVISOR, says);
    q.view = t->spec[t->at].view;
    lua_pushboolean(L, trace_query(t, q));
    return 1;
}

/* dims(4): the tensor has four dimensions */
int l_query_dims(lua_State *L)
{
    static const char says[] =
        "dims takes a number of dimensions from 1: dims(4) holds for kernels of convolutions";
    Test q = {
        .kind = TEST_SIZES, .relation = IS_EQUAL, .size = {SIZE_DIMS, SIZE_ONE}, .factor = {1, 1}};
    inside_entry(L, "dims");
    if (lua_gettop(L) != 1)
        return spec_error(L, "%s", says);
    q.factor[1] = whole_number(L, 1, 64, says);
    q.view = trace_of(L)->spec[trace_of(L)->at].view;
    lua_pushboolean(L, trace_query(trace_of(L), q));
    return 1;
}

/* named "*.bias", tagged "head": the name and tags that the caller gives a tensor. */
int l_query_word(lua_State *L)
{
    TestKind kind = (TestKind)lua_tointeger(L, lua_upvalueindex(1));
    const char *what = kind == TEST_NAMED ? "named" : "tagged";
    inside_entry(L, what);
    if (lua_gettop(L) != 1 || lua_type(L, 1) != LUA_TSTRING)
        return spec_error(L, "%s takes a text: %s", what,
                          kind == TEST_NAMED ? "named \"*.bias\"" : "tagged \"head\"");
    const char *word = lua_tostring(L, 1);
    for (const char *c = word; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(kind == TEST_NAMED ? "_.-/*?:[]" : "_.-", *c))
            return spec_error(L, "%s \"%.80s\": the character '%c' is not allowed in it", what,
                              word, isprint((unsigned char)*c) ? *c : '?');
    if (!*word || strlen(word) > 200)
        return spec_error(L, "%s: the text is %s", what, *word ? "over 200 bytes long" : "empty");
    lua_pushboolean(
        L, trace_query(trace_of(L),
                       (Test){.kind = kind, .word = arena_strdup(trace_of(L)->arena, word)}));
    return 1;
}
