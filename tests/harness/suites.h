/* One line per theme. tests/harness/run_tests.c runs the suites in this order. */
#ifndef OPTC_SUITES_H
#define OPTC_SUITES_H
#include <check.h>

#define SUITES(X) \
    X(codes) \
    X(code_states) X(code_quality) X(math) X(ops) X(master) X(range) X(ir) X(domains) X(variants) \
        X(lang) X(lang_states) X(wrappers) X(pairs) X(matrix) X(product_precision) X( \
            product_diagonal) X(polar) X(lower_values) X(plan) X(plan_verify) X(schedule) \
    X(schedule_cuts) \
            X(merge_stages) X(golden) X(emit) X(large) X(bad) X(shared_text) X(warnings) X(hints) \
                X(sandbox) X(manual) X(spec_words) X(state_words) X(storage_types) X(type_grid) \
                    X(connect) X(lost_updates) X(refs) X(authors) X(descent) X(api) X(engines) \
                        X(rule_info) X(binding) X(cohorts) X(core) X(pieces) X(calls) X(batches) \
                            X(thread_barrier) X(rounding) X(launch_model) X(search) X(tune_cpu) X( \
                                tuned) X(tuned_files) X(memory) X(device_memory) X(checkpoint) \
                                X(checkpoint_files) X(safetensors) X(cache) X(cache_many) X(bits) \
                                    X(squares) X(blocks) X(lapack_fallback) X(inverse_root) \
                                        X(factors) X(methods) X(row_select) X(singular_values) \
        X(stagger) \
                                            X(device_scalars) X(inner_project) X(factor_rules) \
                                                X(blas_kernels) X(multiply) X(matrix_functions) \
                                                    X(linear_layer) X(loopback) X(shards) \
                                                        X(shard_errors) X(shard_traffic) \
                                                            X(profile) X(hostile) X(cuda) \
                                                                X(compile_workers) X(fuzz)
#define DECLARE(name) Suite *name##_suite(void);
SUITES(DECLARE)
#undef DECLARE
#endif
