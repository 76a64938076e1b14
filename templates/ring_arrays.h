/* ring_arrays.h: which array of a ring of past values a stage uses at step t
 * (gen/front/rings.c). */

/* The offset from array number `age` of a ring of `size` arrays to the one that holds the value of
 * `age` pushes ago. Push n is in array n mod size; age 0 is the array that step t writes. t is
 * below 2^32 - size. */
OPTC_FN int optc_ring(double t, int age, int size)
{
    return (int)(((unsigned)(long long)t + (unsigned)(size - age)) % (unsigned)size) - age;
}
