// Fq2 = Fq[u]/(u² + 1), which both curves use.
struct Fq2 { c0: Fq, c1: Fq }

fn fq2_zero() -> Fq2 { return Fq2(fq_zero(), fq_zero()); }
fn fq2_one() -> Fq2 { return Fq2(fq_one(), fq_zero()); }
fn fq2_add(a: Fq2, b: Fq2) -> Fq2 { return Fq2(fq_add(a.c0, b.c0), fq_add(a.c1, b.c1)); }
fn fq2_sub(a: Fq2, b: Fq2) -> Fq2 { return Fq2(fq_sub(a.c0, b.c0), fq_sub(a.c1, b.c1)); }
fn fq2_double(a: Fq2) -> Fq2 { return fq2_add(a, a); }
fn fq2_is_zero(a: Fq2) -> bool { return fq_is_zero(a.c0) && fq_is_zero(a.c1); }
fn fq2_negate(a: Fq2) -> Fq2 { return Fq2(fq_negate(a.c0), fq_negate(a.c1)); }
fn fq2_is_blank(a: Fq2) -> bool { return fq_is_blank(a.c0) && fq_is_blank(a.c1); }
fn fq2_sub_lax(a: Fq2, b: Fq2) -> Fq2 { return Fq2(fq_sub_lax(a.c0, b.c0), fq_sub_lax(a.c1, b.c1)); }
fn fq2_sub_twice_lax(a: Fq2, b: Fq2, c: Fq2) -> Fq2 {
  return Fq2(fq_sub_twice_lax(a.c0, b.c0, c.c0), fq_sub_twice_lax(a.c1, b.c1, c.c1));
}
fn fq2_sub_both_lax(a: Fq2, b: Fq2, c: Fq2) -> Fq2 {
  return Fq2(fq_sub_both_lax(a.c0, b.c0, c.c0), fq_sub_both_lax(a.c1, b.c1, c.c1));
}
fn fq2_settle(a: Fq2) -> Fq2 { return Fq2(fq_settle(a.c0), fq_settle(a.c1)); }

// The product of lax values. Four products with two reductions cost what Karatsuba's three with
// three do, without his sums; one multiplication body, for compile time and registers.
fn fq2_mul(a: Fq2, b: Fq2) -> Fq2 {
  var right = Fq2(b.c0, b.c1);
  var low = fq_negate_lax(a.c1);
  var result = right;
  for (var k = 0u; k < 2u + params.launch.zero; k++) {
    result = Fq2(result.c1, fq_dot(a.c0, right.c0, low, right.c1));
    right = Fq2(b.c1, b.c0);
    low = a.c1;
  }
  return result;
}
