/* One row a suite: tests/harness/run_tests.c runs them in this order. */
#ifndef OPTC_SUITES_H
#define OPTC_SUITES_H
#include <check.h>

#define SUITES(X) \
    X(math) X(ops) X(range) X(ir) X(domains) X(variants) X(lang) X(matrix) X(polar) X(plan) X(plan_verify) X(share) X(golden) X(emit) X(large) X(bad) X(warnings) X(hints) X(sandbox) \
    X(words) X(refs) X(authors) X(api) X(binding) X(steps) X(core) X(calls) X(batches) X(team) X(search) X(tune_cpu) X(tuned) X(tuned_files) \
    X(memory) X(cache) X(cache_many) X(bits) X(squares) X(blocks) X(dense) X(roots) X(factors) X(turns) X(sources) X(project) X(factor_rules) X(matrices) X(hostile) X(cuda) X(fuzz)
#define DECLARE(name) Suite *name##_suite(void);
SUITES(DECLARE)
#undef DECLARE
#endif
