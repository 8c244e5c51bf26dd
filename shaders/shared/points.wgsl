// Points of ${GROUP} in XYZZ coordinates: x = X/ZZ, y = Y/ZZZ, ZZ³ = ZZZ², infinity where ZZ = 0
// (Sutherland's coordinates; formulas add-2008-s, madd-2008-s and dbl-2008-s-1 of the
// Explicit-Formulas Database, all for a = 0).
//
// An addition is a short program with one multiplication site: unrolled code of ten to fourteen
// sites compiles many times slower and spills on several vendors.
//
// Doubling shares the addition's tail. With P = 2·Y, R = 3·X² and (X, Y, ZZ, ZZZ) the point to
// double, the addition's last seven products give 2P, except that X' = R² − 2Q lacks the PPP term.
struct Point { x: ${ET}, y: ${ET}, zz: ${ET}, zzz: ${ET} }

fn point_infinity() -> Point { return Point(${E}_zero(), ${E}_zero(), ${E}_zero(), ${E}_zero()); }
fn point_is_infinity(p: Point) -> bool { return ${E}_is_zero(p.zz); }

#if MIXED == 1
// p + (qx, qy) for an affine point that is not infinity. (qx, qy) may be loaded "up": below
// 2^shift·p.
fn point_add_affine(p: Point, qx_up: ${ET}, qy_up: ${ET}) -> Point {
#else
// p + q, complete.
fn point_add(p: Point, q: Point) -> Point {
  if (point_is_infinity(p)) { return q; }
  if (point_is_infinity(q)) { return p; }
#end
  var x = p.x;
  var y = p.y;
  var zz = p.zz;
  var zzz = p.zzz;
#if MIXED == 1
  let one = ${E}_one();
  // An infinite accumulator is replaced by q: products with 1 bring q below 2p.
  let empty = point_is_infinity(p);
  if (empty) {
    zz = one;
    zzz = one;
  }
  let qx = qx_up;
  let qy = qy_up;
#else
  let qx = q.x;
  let qy = q.y;
#end
  var pp = x;  // P, then Q
  var r = x;  // R
  var t = x;  // U2, then PP
  var u = x;  // S2, then PPP
  var doubling = false;
  var step = 0u;
  let steps = 15u + params.launch.zero;
  while (step < steps) {
    var a = qx;
    var b = zz;
    switch step {
      case 0u: {}
      case 1u: {
        a = qy;
        b = zzz;
      }
#if MIXED == 0
      case 2u: {
        a = x;
        b = q.zz;
      }
      case 3u: {
        a = y;
        b = q.zzz;
      }
      case 4u: {
        a = q.zz;
      }
      case 5u: {
        a = q.zzz;
        b = zzz;
      }
#end
      case 6u: {
        a = x;
        b = x;
      }
      case 7u: {
        a = pp;
        b = pp;
      }
      case 8u: {
        a = pp;
        b = t;
      }
      case 9u: {
        a = x;
        b = t;
      }
      case 10u: {
        a = r;
        b = r;
      }
      case 11u: {
        a = y;
        b = u;
      }
      case 12u: {
        a = r;
        b = pp;
      }
      case 13u: {
        a = zz;
        b = t;
      }
      default: {
        a = zzz;
        b = u;
      }
    }
    let m = ${E}_mul(a, b);
    switch step {
      case 0u: {
        t = m;
      }
      case 1u: {
        u = m;
#if MIXED == 1
        if (empty) { return Point(t, u, one, one); }
#import points_difference
#end
      }
#if MIXED == 0
      case 2u: {
        x = m;
      }
      case 3u: {
        y = m;
#import points_difference
      }
      case 4u: {
        zz = m;
      }
      case 5u: {
        zzz = m;
        step = 6u;  // only a doubling needs 3·X²
      }
#end
      case 6u: {
        r = ${E}_add(${E}_double(m), m);
      }
      case 7u: {
        t = m;
      }
      case 8u: {
        u = m;
      }
      case 9u: {
        pp = m;
      }
      case 10u: {
        x = ${E}_sub(m, ${E}_double(pp));
        if (!doubling) { x = ${E}_sub(x, u); }
        pp = ${E}_sub(pp, x);
      }
      case 11u: {
        y = m;
      }
      case 12u: {
        y = ${E}_sub(m, y);
      }
      case 13u: {
        zz = m;
      }
      default: {
        zzz = m;
      }
    }
    step += 1u;
  }
  return Point(x, y, zz, zzz);
}
