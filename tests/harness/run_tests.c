/* Runs all suites in one program. CK_RUN_SUITE=name runs one suite, CK_VERBOSITY=verbose shows each
 * test. */
#include "tests/harness/suites.h"

#include <stdbool.h>
#include <stdlib.h>

int main(void)
{
    /* timeouts only end tests that hang: no test may fail because the machine is busy */
    setenv("CK_DEFAULT_TIMEOUT", "120", 0);
    setenv("CK_TIMEOUT_MULTIPLIER", "5", 0);
    SRunner *r = NULL;
#define ADD(name) \
    if (r) \
        srunner_add_suite(r, name##_suite()); \
    else \
        r = srunner_create(name##_suite());
    SUITES(ADD)
    srunner_run_all(r, CK_ENV);
    /* 0 tests: CK_RUN_SUITE or CK_RUN_CASE names nothing */
    bool ok = srunner_ntests_failed(r) == 0 && srunner_ntests_run(r) > 0;
    srunner_free(r);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
