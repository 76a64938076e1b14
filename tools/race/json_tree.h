/* JSON text as a tree in an arena. */
#ifndef OPTC_JSON_TREE_H
#define OPTC_JSON_TREE_H
#include "tools/tools.h"

typedef enum {
    JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_LIST, JSON_OBJECT
} JsonKind;
typedef struct Json Json;
struct Json {
    JsonKind kind;
    const char *key, *text;    /* key: of a member of an object; text: of a string */
    double number;             /* NAN for null */
    Json *first, *next;        /* of a list or an object */
    int count, line;           /* line: where the value begins, from 1 */
};
/* NULL: not JSON; *line is then the line of the mistake. */
const Json *json_parse(Arena *a, const char *text, int *line);
/* NULL: none, or x is no object */
const Json *json_member(const Json *x, const char *key);
/* NULL: none, or x is no list */
const Json *json_item(const Json *x, int i);
#endif
