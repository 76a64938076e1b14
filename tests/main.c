/* All suites in one program. CK_RUN_SUITE=name runs one, CK_VERBOSITY=verbose shows each test. */
#include "suites.h"

#include <stdlib.h>

int main(void)
{
    SRunner *r = NULL;
#define ADD(name) \
    if (r) \
        srunner_add_suite(r, name##_suite()); \
    else \
        r = srunner_create(name##_suite());
    SUITES(ADD)
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
