        // t = U2, u = S2; x = U1, y = S1 (the accumulator's own X, Y if q is affine).
        pp = ${E}_sub(t, x);
        r = ${E}_sub(u, y);
        doubling = ${E}_is_zero(pp);
        if (doubling) {
          if (!${E}_is_zero(r)) { return point_infinity(); }
          x = p.x;
          y = p.y;
          pp = ${E}_double(y);
          step = 5u;
        }
#if MIXED == 1
        else {
          step = 6u;
        }
#end
