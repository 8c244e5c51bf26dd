        // t = U2, u = S2; x = U1, y = S1 (the accumulator's own X, Y if q is affine).
        t = ${E}_sub(t, x);
        u = ${E}_sub(u, y);
        doubling = ${E}_is_zero(t);
        if (doubling) {
          if (!${E}_is_zero(u)) { return point_infinity(); }
          t = ${E}_double(y);
          step = 5u;
        } else {
          step = 6u;
        }
