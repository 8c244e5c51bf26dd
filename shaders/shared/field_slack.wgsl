// Sums of ${F} for transforms: few are brought back, none exactly. A "settled" value is below
// 2^${32 * WORDS} and 2.2p, so it packs. A product is settled where one factor is below p and the other
// below 14p. Limbs are below 2^${W}, but for those of loose sums, which are not carried.

// a + b, its limbs loose.
fn ${F}_add_loose(a: ${T}, b: ${T}) -> ${T} { return ${T}(#{i in 0..N;, ;a.l${i} + b.l${i}}); }

// a + b.
fn ${F}_add_slack(a: ${T}, b: ${T}) -> ${T} {
#for i in 0..N
#if i == 0
  let s0 = a.l0 + b.l0;
#else
  let s${i} = a.l${i} + b.l${i} + (s${i - 1} >> ${W}u);
#end
#end
  return ${T}(#{i in 0..N;, ;s${i} & ${F}_MASK});
}

#import field_sub_slack TIMES=4 multiple=four_p
#import field_sub_slack TIMES=8 multiple=eight_p

// a − 2k·p, for limbs of a from −2^${W} to 3·2^${W}, and k from −2 to 4.
fn ${F}_less_multiple(a: ${T}, k: i32) -> ${T} {
#for i in 0..N
#if i == 0
  let d0 = i32(a.l0) - k * ${two_p[0]};
#else
  let d${i} = i32(a.l${i}) - k * ${two_p[i]} + (d${i - 1} >> ${W}u);
#end
#end
  return ${T}(#{i in 0..N;, ;u32(d${i}) & ${F}_MASK});
}

// The bits from 2^${TOP} on, of which 2p has 17; one or two off where limbs are loose.
fn ${F}_top(a: ${T}) -> i32 {
#if TOP >= W * (N - 1)
  return i32(a.l${N - 1}) >> ${TOP - W * (N - 1)}u;
#else
  return (i32(a.l${N - 1}) << ${W * (N - 1) - TOP}u) + (i32(a.l${N - 2}) >> ${TOP - W * (N - 2)}u);
#end
}
// How often 2p goes into a value below 10p with such a top, or one less where it almost does.
fn ${F}_quotient(top: i32) -> i32 { return i32((u32(max(top, 0)) * ${QUOTIENT}u) >> 28u); }

// a, settled, for a below 10p.
fn ${F}_settle_slack(a: ${T}) -> ${T} {
  return ${F}_less_multiple(a, ${F}_quotient(${F}_top(a)));
}
// a − b, settled, for a below 6p and b below 4p.
fn ${F}_sub_settled(a: ${T}, b: ${T}) -> ${T} {
  let d = ${T}(#{i in 0..N;, ;a.l${i} - b.l${i}});
  // The quotient is that of a − b + 4p.
  return ${F}_less_multiple(d, ${F}_quotient(${F}_top(d) + ${FOUR_TOP}) - 2);
}
