/* Text of JSON: written into a buffer, or read as a tree in an arena. */
#ifndef OPTC_JSON_H
#define OPTC_JSON_H
#include "tools/tools.h"

/* ---- json_text.c ---- */
/* Commas and blanks follow from the nesting. A value has a name inside of an object, and NULL
 * inside of a list. lines: each item of the object or list begins a line. */
enum { JSON_DEEPEST = 12 };
typedef struct JsonText {
    Buf *b;
    int depth;
    struct { char close; bool lines, any; } level[JSON_DEEPEST];
} JsonText;
void json_object(JsonText *t, const char *name, bool lines);
void json_list(JsonText *t, const char *name, bool lines);
void json_end(JsonText *t);                                  /* of the innermost object or list */
void json_string(JsonText *t, const char *name, const char *s);
void json_int(JsonText *t, const char *name, int64_t x);
/* the shortest text that reads back as x; null if x is not finite */
void json_real(JsonText *t, const char *name, double x);
void json_digits(JsonText *t, double x, int digits);           /* in a list; x is finite */
void json_bool(JsonText *t, const char *name, bool x);
/* Members of a struct, in order: one table for writing and reading. A table ends with a NULL name.
 * least, most: of whole numbers that are read; unit: a real member times unit is written. */
typedef enum {
    FIELD_INT, FIELD_INT64, FIELD_BOOL, FIELD_TEXT, FIELD_REAL,
    FIELD_REACHED      /* real: INFINITY is null, and read back */
} FieldKind;
typedef struct JsonField {
    const char *name; FieldKind kind; size_t at; int least, most; double unit;
} JsonField;
void json_fields(JsonText *t, const JsonField *f, const void *of);
/* Prints the text, and frees the buffer. */
void json_print(JsonText *t);

/* ---- json_tree.c ---- */
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
