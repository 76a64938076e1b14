/* What several suites share: an engine, rules, data made from numbers, and the evaluator as an oracle for a binding. */
#ifndef OPTC_TEST_HELP_H
#define OPTC_TEST_HELP_H
#include "runtime/library/library.h"
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
        ck_assert_msg(s_ == (status), "%s gave %s, wanted %s", #call, optc_status_name(s_), optc_status_name(status)); \
        ck_assert_msg(strstr(optc_message(), (part)), "%s: message '%s' lacks '%s'", #call, optc_message(), (part)); \
    } while (0)

/* OPTC_THIN=N leaves out all but every N-th case, where the plain build has run each: under the sanitizers, by clang,
 * on the emulated GPU. */
bool thinned(int i);
char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));       /* to be freed */
uint64_t splitmix(uint64_t x);
double ref_value(int tensor, int step, int64_t i);       /* the numbers of tests/specs/make_refs.py */

/* A rule bound to tensors of its own. */
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

void fix_open(Fixture *f, const optc_engine_options *eo, const optc_rule_options *ro, const TestShape *shape, int n,
              const optc_setting *set, int nset);
void fix_close(Fixture *f);
void without_kernels(const optc_rule *r, optc_tensor *t, int n);      /* for rules that refuse them: they take `step` */
bool rule_has_calls(const optc_rule *r);                 /* it has products */
bool rule_has_callee(const optc_rule *r, Callee c);

/* Runs an entry on the binding and on the evaluator from the same state; every p and state must lie in the evaluator's
 * bounds. Returns a message (to be freed) about the first that does not, or NULL. */
char *step_in_bounds(Fixture *f, const char *entry);
/* This thread's allocation of that number fails (0: none does); how many it has asked for since, and holds
 * (test_emit.c). */
void memory_fails(int n);
int memory_asked(void);
int memory_held(void);
/* A rule's text as `dump` prints it reads back as it is; and with one place of it changed it does not, and says why. */
typedef struct { const char *was, *now, *says; } Damage;
void reads_back(const char *spec, const Damage *bad, int n);
uint64_t fix_hash(const Fixture *f);                     /* of all parameters and states, bit for bit (NaNs alike) */
#endif
