// Points of ${GROUP} in XYZZ coordinates: x = X/ZZ, y = Y/ZZZ, ZZ³ = ZZZ², infinity where ZZ = 0
// (Sutherland's coordinates; formulas add-2008-s, madd-2008-s and dbl-2008-s-1 of the
// Explicit-Formulas Database, all for a = 0).
//
// An addition is a short program with one multiplication site: unrolled code of ten to fourteen
// sites compiles many times slower and spills on several vendors.
//
// Doubling shares the addition's tail. With P = 2·Y, R = 3·X² and (X, Y, ZZ, ZZZ) the point to
// double, the addition's last eight products give 2P, except that X' = R² − 2Q lacks the PPP term.
// In the full addition (U1, S1, ZZ1·ZZ2, ZZZ1·ZZZ2) is that point.
//
// The variables are as few as can be, for the registers: every one less is a thread more.
struct Point { x: ${ET}, y: ${ET}, zz: ${ET}, zzz: ${ET} }

fn point_infinity() -> Point { return Point(${E}_zero(), ${E}_zero(), ${E}_zero(), ${E}_zero()); }
fn point_is_infinity(p: Point) -> bool { return ${E}_is_zero(p.zz); }

// p + q, complete.
fn point_add(p: Point, q: Point) -> Point {
  if (point_is_infinity(p)) { return q; }
  if (point_is_infinity(q)) { return p; }
  var x = p.x;  // U1, then Q, then Q − X'
  var y = p.y;  // S1
  var zz = p.zz;
  var zzz = p.zzz;
  var t = q.x;  // U2, P, then the sum's X
  var u = q.y;  // S2, then R
  var v = x;  // PP
  var w = x;  // PPP
  var doubling = false;
  let steps = 15u + params.launch.zero;
  for (var step = 0u; step < steps; step++) {
    var a = t;
    var b = t;
    switch step {
      case 0u: {
        b = zz;
      }
      case 1u: {
        a = u;
        b = zzz;
      }
      case 2u: {
        a = x;
        b = q.zz;
      }
      case 3u: {
        a = y;
        b = q.zzz;
      }
      case 4u: {
        a = zz;
        b = q.zz;
      }
      case 5u: {
        a = zzz;
        b = q.zzz;
      }
      case 6u: {}
      case 7u: {
        a = x;
        b = x;
      }
      case 8u: {
        b = v;
      }
      case 9u: {
        a = x;
        b = v;
      }
      case 10u: {
        a = u;
        b = u;
      }
      case 11u: {
        a = zz;
        b = v;
      }
      case 13u: {
        a = y;
        b = w;
      }
      case 14u: {
        a = u;
        b = x;
      }
      default: {
        a = zzz;
        b = w;
      }
    }
    let m = ${E}_mul(a, b);
    switch step {
      case 0u: {
        t = m;
      }
      case 1u: {
        u = m;
      }
      case 2u: {
        x = m;
      }
      case 3u: {
        y = m;
      }
      case 4u: {
        zz = m;
      }
      case 5u: {
        zzz = m;
        t = ${E}_sub_lax(t, x);
        u = ${E}_sub_lax(u, y);
      }
      case 6u: {
        v = m;
        if (${E}_is_zero(m) && !doubling) {
          // P = 0: the points are equal or opposite.
          if (!${E}_is_zero(${E}_settle(u))) { return point_infinity(); }
          t = ${E}_double(y);
          doubling = true;
        } else {
          step = 7u;  // only a doubling needs 3·X²
        }
      }
      case 7u: {
        u = ${E}_add(${E}_double(m), m);
        step = 5u;
      }
      case 8u: {
        w = m;
      }
      case 9u: {
        x = m;
      }
      case 10u: {
        var ppp = w;
        if (doubling) { ppp = ${E}_zero(); }
        t = ${E}_sub_twice_lax(m, x, ppp);
        x = ${E}_sub_lax(x, t);
      }
      case 11u: {
        zz = m;
      }
      case 13u: {
        y = m;
      }
      case 14u: {
        y = ${E}_sub(m, y);
      }
      default: {
        zzz = m;
      }
    }
  }
  return Point(${E}_settle(t), y, zz, zzz);
}
