/* Shared by several suites: an engine, rules, test data, and the evaluator as the oracle for a
 * binding. */
#ifndef OPTC_TEST_HELP_H
#define OPTC_TEST_HELP_H
#include "runtime/library/internal.h"
#include "optc.h"

#include <check.h>
#include <stdint.h>

#define OK(call) \
    do { \
        optc_status s_ = (call); \
        ck_assert_msg(s_ == OPTC_OK, "%s: %s: %s", #call, optc_status_name(s_), optc_message()); \
    } while (0)
#define FAILS(call, status, part) \
    do { \
        optc_status s_ = (call); \
        ck_assert_msg(s_ == (status), "%s gave %s, wanted %s", #call, optc_status_name(s_), \
                      optc_status_name(status)); \
        ck_assert_msg(strstr(optc_message(), (part)), "%s: message '%s' lacks '%s'", #call, \
                      optc_message(), (part)); \
    } while (0)

/* OPTC_THIN=N skips all but every N-th case. Used where the plain build has run all cases: under
 * the sanitizers, with clang, on the emulated GPU. */
bool thinned(int i);
/* Tells whether the sanitizers check this run (OPTC_THIN=32 or more), where everything takes ten
 * times as long. */
bool sanitized(void);
/* Chooses one of n cases by a hash of a name, for checks whose cost grows with the library. The
 * choice does not depend on the other rules. Returns -1 with OPTC_ALL: run all. */
int sample(const char *name, int n);
/* Tells whether to run a case that compiles a rule: rules that the build compiles, and one in n of
 * the others, chosen by name. With OPTC_ALL: each. */
bool sampled_rule(const char *rule, int n);
/* the caller frees it */
char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t splitmix(uint64_t x);
/* the same numbers as in tests/specs/make_refs.py */
double ref_value(int tensor, int step, int64_t i);

/* A rule bound to its own tensors. */
typedef struct Fixture {
    optc_engine *engine;
    optc_rule *rule;
    optc_binding *binding;
    int n;
    int64_t count[16];
    void *p[16], *g[16];
    Type type;
} Fixture;

typedef struct { int rank; int64_t dim[4]; } TestShape;
extern const TestShape odd_shapes[];                     /* scalar, 1, 7, 33x65, 3x5x7 */
enum { NODD = 5 };

void fix_open(Fixture *f, const optc_engine_options *eo, const optc_rule_options *ro,
              const TestShape *shape, int n, const optc_setting *set, int nset);
/* tag: of all tensors. Tensors from `second` on (0: none) form a second group with further settings
 * of its own. */
typedef struct { const char *tag; int second; const optc_setting *set; int nset; } FixtureGroups;
void fix_open_groups(Fixture *f, const optc_engine_options *eo, const optc_rule_options *ro,
                     const TestShape *shape, int n, const optc_setting *set, int nset,
                     const FixtureGroups *groups);
void fix_close(Fixture *f);
/* for rules that refuse convolution kernels: such tensors take `step` */
void without_kernels(const optc_rule *r, optc_tensor *t, int n);
bool rule_has_calls(const optc_rule *r);                 /* has products or factors */
bool rule_has_callee(const optc_rule *r, Callee c);

/* Runs an entry on the binding and on the evaluator from the same state. Every p and state must lie
 * in the evaluator's bounds. Returns a message about the first that does not (the caller frees it),
 * or NULL. */
char *step_in_bounds(Fixture *f, const char *entry);
/* Lets this thread's n-th allocation fail (0: none); counts its allocations since then, and those
 * it has not freed (test_emit.c). */
void memory_fails(int n);
int memory_asked(void);
int memory_held(void);
/* Checks that a rule's text, as `dump` prints it, reads back identically; and that the text with
 * each damage applied is refused with the given message. */
typedef struct { const char *was, *now, *says; } Damage;
void reads_back(const char *spec, const Damage *bad, int n);
/* hash of all parameters and states, bit for bit; all NaNs are equal */
uint64_t fix_hash(const Fixture *f);
#endif
