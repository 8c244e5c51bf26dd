// Sums of ${F} that are not brought back below 2p, for the operands of products: a product of
// values below α·p and β·p is below (1 + αβ·p/R)·p, and R > ${LAX_RATIO}·p. A difference costs half of
// one that is brought back. "Lax" is: below ${LAX + 2}p.

// a − b + ${LAX}p, for b below ${LAX}p.
fn ${F}_sub_lax(a: ${T}, b: ${T}) -> ${T} {
#for i in 0..N
#if i == 0
  let d0 = i32(a.l0) - i32(b.l0) + ${lax_p[0]};
#else
  let d${i} = i32(a.l${i}) - i32(b.l${i}) + ${lax_p[i]} + (d${i - 1} >> ${W}u);
#end
#end
  return ${T}(#{i in 0..N;, ;u32(d${i}) & ${F}_MASK});
}

// −a below 2p, for a below 2p; all zeros stay so.
fn ${F}_negate(a: ${T}) -> ${T} {
#for i in 0..N
#if i == 0
  let d0 = ${two_p[0]} - i32(a.l0);
#else
  let d${i} = ${two_p[i]} - i32(a.l${i}) + (d${i - 1} >> ${W}u);
#end
#end
  let blank = ${F}_is_blank(a);
  return ${T}(#{i in 0..N;, ;select(u32(d${i}) & ${F}_MASK, 0u, blank)});
}

// Whether every bit is 0, which p and 2p are not.
fn ${F}_is_blank(a: ${T}) -> bool { return (#{i in 0..N; | ;a.l${i}}) == 0u; }

// −a, lax, for a lax.
fn ${F}_negate_lax(a: ${T}) -> ${T} {
#for i in 0..N
#if i == 0
  let d0 = ${negate_p[0]} - i32(a.l0);
#else
  let d${i} = ${negate_p[i]} - i32(a.l${i}) + (d${i - 1} >> ${W}u);
#end
#end
  return ${T}(#{i in 0..N;, ;u32(d${i}) & ${F}_MASK});
}

// a − b − c + 4p, lax, for b and c below 2p and a product a.
fn ${F}_sub_both_lax(a: ${T}, b: ${T}, c: ${T}) -> ${T} {
#for i in 0..N
#if i == 0
  let d0 = i32(a.l0) - i32(b.l0 + c.l0) + ${four_p[0]};
#else
  let d${i} = i32(a.l${i}) - i32(b.l${i} + c.l${i}) + ${four_p[i]} + (d${i - 1} >> ${W}u);
#end
#end
  return ${T}(#{i in 0..N;, ;u32(d${i}) & ${F}_MASK});
}

// a − 2b − c + 4p, below ${LAX}p, for products a, b and c of lax values (2b + c is below 4p).
fn ${F}_sub_twice_lax(a: ${T}, b: ${T}, c: ${T}) -> ${T} {
  // In two passes: 2b + c exceeds a word.
  let e = ${F}_sub_both_lax(a, b, c);
#for i in 0..N
#if i == 0
  let d0 = i32(e.l0) - i32(b.l0);
#else
  let d${i} = i32(e.l${i}) - i32(b.l${i}) + (d${i - 1} >> ${W}u);
#end
#end
  let d = ${T}(#{i in 0..N;, ;u32(d${i}) & ${F}_MASK});
#if LAX < 6
  return ${F}_less_4p(d);
#else
  return d;
#end
}

#import field_less TIMES=2 amount=two_p
#import field_less TIMES=4 amount=four_p

// A lax value brought below 2p.
fn ${F}_settle(a: ${T}) -> ${T} { return ${F}_less_2p(${F}_less_4p(a)); }

// a·b + c·d with one reduction.
fn ${F}_dot(a: ${T}, b: ${T}, c: ${T}, d: ${T}) -> ${T} {
#for j in 0..N
  let b${j} = ${ACC}(b.l${j});
  let d${j} = ${ACC}(d.l${j});
  var t${j} = ${ACC}(0);
#end
#if ROWS == N
#for i in 0..N
#import field_mul_row AI=a.l${i} CI=c.l${i} ROW=i DOT=1 EVERY=DOT_EVERY
#end
#else
#for j in 0..N
  var a${j} = a.l${j};
  var c${j} = c.l${j};
#end
  for (var i = 0u; i < ${N / ROWS}u + params.launch.zero; i++) {
#for k in 0..ROWS
#import field_mul_row AI=a${k} CI=c${k} ROW=k DOT=1 EVERY=DOT_EVERY
#end
#for j in 0..N - ROWS
    a${j} = a${j + ROWS};
    c${j} = c${j + ROWS};
#end
  }
#end
#for j in 1..N
  t${j} += t${j - 1} >> ${W}u;
#end
  return ${T}(#{j in 0..N;, ;u32(t${j}) & ${F}_MASK});
}
