  {
    // t = (t + a_i·b [+ c_i·d] + m·p) / 2^W, m chosen so that the division is exact.
    let ai = ${ACC}(${AI});
#if DOT
    let ci = ${ACC}(${CI});
#end
    let x = t0 + ai * b0#{k in 0..DOT;; + ci * d0};
    let m = ${ACC}((u32(x) * ${inv}u) & ${F}_MASK);
    let carry = (x + m * ${p[0]}${LIT}) >> ${W}u;
    t0 = t1 + ai * b1#{k in 0..DOT;; + ci * d1} + m * ${p[1]}${LIT} + carry;
#for j in 2..N
    t${j - 1} = t${j} + ai * b${j}#{k in 0..DOT;; + ci * d${j}} + m * ${p[j]}${LIT};
#end
    t${N - 1} = ${ACC}(0);
#if EVERY < N
#if ROW % EVERY == EVERY - 1
#for j in 1..N
    t${j} += t${j - 1} >> ${W}u;
    t${j - 1} &= ${MASK}${LIT};
#end
#end
#end
  }
