/* exact_cuda.h: quotients and square roots of a vector, rounded to nearest, with one branch for all of them. The
 * instructions are those of the compiler's own division and root. It branches for each value to a function for operands
 * that are far from 1, zero or not finite; here the loop over the vector notes such operands and is then done again.
 * Pasted after cuda_helpers.h. */

/* The operands of the loop that are farthest from 1, counted from the smallest that the short form takes. */
struct optc_odd {
    unsigned root, quotient;
    OPTC_FN_MEMBER bool any() const { return root > 0x727fffffu || quotient > 0x78000000u; }
};

OPTC_FN void optc_note(unsigned &most, unsigned far) { most = far > most ? far : most; }

/* From 2^-101 on. */
OPTC_FN float optc_root(float x, optc_odd &odd, optc_no)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    optc_note(odd.root, optc_bitsf(x) - 0x0d000000u);
    const float root = x * r;
    return fmaf(fmaf(-root, root, x), r * 0.5f, root);
#else
    (void)odd;
    return optc_sqrtf(x);
#endif
}

//@ if optc_root
OPTC_FN float optc_root(float x, optc_odd &, optc_yes) { return optc_sqrtf(x); }

/* Between 2^-60 and 2^60. */
OPTC_FN float optc_quotient(float a, float b, optc_odd &odd, optc_no)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    optc_note(odd.quotient, optc_bitsf(a) * 2u - 0x43000000u);
    optc_note(odd.quotient, optc_bitsf(b) * 2u - 0x43000000u);
    r = fmaf(r, fmaf(-b, r, 1.0f), r);
    const float q = a * r;
    return fmaf(fmaf(-b, q, a), r, q);
#else
    (void)odd;
    return a / b;
#endif
}

//@ if optc_quotient
OPTC_FN float optc_quotient(float a, float b, optc_odd &, optc_yes) { return a / b; }
