/* Clocks for measurements. */
#ifndef OPTC_CLOCK_H
#define OPTC_CLOCK_H
double now_ms(void);
double waited_ms(void);                /* time that all threads waited for a core; 0 if the system
                                        * does not report it */
/* If threads wait for a core for more than this share of their time, other processes disturb the
 * measurement. */
#define TOO_BUSY 0.1
#endif
