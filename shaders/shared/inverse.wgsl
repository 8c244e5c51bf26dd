// Inverses in Fq by division steps: a fixed number of steps without a branch on the value
// (Bernstein, Yang 2019, "Fast constant-time gcd computation and modular inversion", with half a
// step's offset as bounded by Wuille 2021: (45907·bits + 30179) / 19929 steps).
//
// ${W} steps work on the lowest limbs alone and give a matrix of small integers, which is then
// applied to the whole numbers. Limbs are signed at the top: f and g in (−p, p), d and e in
// (−2p, p), with f ≡ d·a and g ≡ e·a (mod p) up to powers of two that d and e are freed of at once.

struct Steps { zeta: i32, u: i32, v: i32, q: i32, r: i32 }

// ${W} division steps from the lowest limbs of f and g. 2^${W}·(f, g) after them is
// (u·f + v·g, q·f + r·g).
fn fq_steps(zeta_before: i32, f_low: u32, g_low: u32) -> Steps {
  var zeta = zeta_before;
  var f = i32(f_low);
  var g = i32(g_low);
  var u = 1;
  var v = 0;
  var q = 0;
  var r = 1;
  for (var k = 0u; k < ${W}u + params.launch.zero; k++) {
    var swap = zeta >> 31u;
    let odd = -(g & 1);
    g += ((f ^ swap) - swap) & odd;
    q += ((u ^ swap) - swap) & odd;
    r += ((v ^ swap) - swap) & odd;
    swap &= odd;
    zeta = (zeta ^ swap) - 1;
    f += g & swap;
    u += q & swap;
    v += r & swap;
    g >>= 1u;
    u <<= 1u;
    v <<= 1u;
  }
  return Steps(zeta, u, v, q, r);
}

// 1/a in working form, for a in working form; 0 for 0.
fn fq_invert(a: Fq) -> Fq {
  let start = fq_canon(a);
#for i in 0..N
  var f${i} = ${p[i]};
  var g${i} = i32(start.l${i});
  var d${i} = 0;
  var e${i} = ${i == 0};
#end
  var zeta = -1;
  for (var batch = 0u; batch < ${BATCHES}u + params.launch.zero; batch++) {
    let s = fq_steps(zeta, u32(f0), u32(g0));
    zeta = s.zeta;
    let u = ${SIGNED}(s.u);
    let v = ${SIGNED}(s.v);
    let q = ${SIGNED}(s.q);
    let r = ${SIGNED}(s.r);
    // d and e: multiples of p make the lowest limbs 0, and the results no larger than before.
    {
      let negative_d = d${N - 1} >> 31u;
      let negative_e = e${N - 1} >> 31u;
      var md = (s.u & negative_d) + (s.v & negative_e);
      var me = (s.q & negative_d) + (s.r & negative_e);
      var cd = u * ${SIGNED}(d0) + v * ${SIGNED}(e0);
      var ce = q * ${SIGNED}(d0) + r * ${SIGNED}(e0);
      md -= i32((u32(md) - ${inv}u * u32(cd)) & ${MASK}u);
      me -= i32((u32(me) - ${inv}u * u32(ce)) & ${MASK}u);
      let wd = ${SIGNED}(md);
      let we = ${SIGNED}(me);
      cd = (cd + wd * ${p[0]}${SIGNED_LIT}) >> ${W}u;
      ce = (ce + we * ${p[0]}${SIGNED_LIT}) >> ${W}u;
#for i in 1..N
      cd += u * ${SIGNED}(d${i}) + v * ${SIGNED}(e${i}) + wd * ${p[i]}${SIGNED_LIT};
      ce += q * ${SIGNED}(d${i}) + r * ${SIGNED}(e${i}) + we * ${p[i]}${SIGNED_LIT};
      d${i - 1} = i32(cd) & ${MASK};
      e${i - 1} = i32(ce) & ${MASK};
      cd >>= ${W}u;
      ce >>= ${W}u;
#end
      d${N - 1} = i32(cd);
      e${N - 1} = i32(ce);
    }
    {
      var cf = (u * ${SIGNED}(f0) + v * ${SIGNED}(g0)) >> ${W}u;
      var cg = (q * ${SIGNED}(f0) + r * ${SIGNED}(g0)) >> ${W}u;
#for i in 1..N
      cf += u * ${SIGNED}(f${i}) + v * ${SIGNED}(g${i});
      cg += q * ${SIGNED}(f${i}) + r * ${SIGNED}(g${i});
      f${i - 1} = i32(cf) & ${MASK};
      g${i - 1} = i32(cg) & ${MASK};
      cf >>= ${W}u;
      cg >>= ${W}u;
#end
      f${N - 1} = i32(cf);
      g${N - 1} = i32(cg);
    }
  }
  // f is 1 or −1, and f·d the inverse of the working form: 2p + f·d is positive.
  let sign = f${N - 1} >> 31u;
#for i in 0..N
#if i == 0
  let c0 = ${two_p[0]} + ((d0 ^ sign) - sign);
#else
  let c${i} = ${two_p[i]} + ((d${i} ^ sign) - sign) + (c${i - 1} >> ${W}u);
#end
#end
  // 1/(x·R), times R³, divided by R in the product.
  return fq_mul(${T}(#{i in 0..N;, ;u32(c${i}) & ${MASK}u}), ${T}(#{i in 0..N;, ;${cube[i]}u}));
}
#if GROUP == g2

// (c0 − c1·u) / (c0² + c1²), for lax parts.
fn fq2_invert(a: Fq2) -> Fq2 {
  let n = fq_invert(fq_dot(a.c0, a.c0, a.c1, a.c1));
  var parts = Fq2(a.c0, fq_negate_lax(a.c1));
  for (var k = 0u; k < 2u + params.launch.zero; k++) {
    parts = Fq2(parts.c1, fq_mul(parts.c0, n));
  }
  return parts;
}
#end
