/* exact_cuda.h: quotients and square roots of a vector, rounded to nearest, with one branch for all of them. The
 * instructions are those of the compiler's own division and root. It branches for each value to a function for operands
 * that are far from 1, zero or not finite; here the loop over the vector notes such operands and is then done again.
 * Pasted after cuda_helpers.h. */

/* Bounds of the operands, and 0 * quotients: NaN if one of these is not finite. */
struct optc_odd {
    float root, above, below, finite;
    OPTC_FN_MEMBER bool any() const
    {
        return !(root >= 0x1p-100f && above >= 0x1p-60f && below <= 0x1p60f && finite == 0.0f);
    }
};

/* Short for numbers from 2^-101 on. What is no such number gives a NaN, which `finite` or a later step finds. */
OPTC_FN float optc_root(float x, optc_odd &odd, optc_no)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    const float root = x * r, y = fmaf(fmaf(-root, root, x), r * 0.5f, root);
    odd.root = fminf(odd.root, x);
    odd.finite = fmaf(y, 0.0f, odd.finite);
    return y;
#else
    (void)odd;
    return optc_sqrtf(x);
#endif
}

//@ if optc_root
OPTC_FN float optc_root(float x, optc_odd &, optc_yes) { return optc_sqrtf(x); }

/* Short for a of at least 2^-60 and b of at most 2^60 in magnitude, where the quotient is finite; the remainders are
 * then exact. A b that is too small gives a quotient that is not finite, or a finite one that is right. */
OPTC_FN float optc_quotient(float a, float b, optc_odd &odd, optc_no)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    r = fmaf(r, fmaf(-b, r, 1.0f), r);
    const float q = a * r, y = fmaf(fmaf(-b, q, a), r, q);
    odd.above = fminf(odd.above, fabsf(a));
    odd.below = fmaxf(odd.below, fabsf(b));
    odd.finite = fmaf(y, 0.0f, odd.finite);
    return y;
#else
    (void)odd;
    return a / b;
#endif
}

//@ if optc_quotient
OPTC_FN float optc_quotient(float a, float b, optc_odd &, optc_yes) { return a / b; }
