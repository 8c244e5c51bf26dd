  // Rows of a product (DOT=0) or of two (DOT=1), and the carries at the end.
#if ROWS == N
#for i in 0..N
#import field_mul_row AI=a.l${i} CI=c.l${i}
#if (i % EVERY == EVERY - 1) & (i < N - 1)
#import field_carry
#end
#end
#else
  // ${ROWS} rows a turn; the bound is opaque, so that the loop stays a loop.
#for j in 0..N
  var a${j} = a.l${j};
#if DOT
  var c${j} = c.l${j};
#end
#end
  for (var i = 0u; i < ${N / ROWS}u + params.launch.zero; i++) {
#for k in 0..ROWS
#import field_mul_row AI=a${k} CI=c${k}
#end
#for j in 0..N - ROWS
    a${j} = a${j + ROWS};
#if DOT
    c${j} = c${j + ROWS};
#end
#end
#if EVERY < N
#if EVERY / ROWS > 1
    if (i % ${EVERY / ROWS}u == ${EVERY / ROWS - 1}u) {
#import field_carry
    }
#else
#import field_carry
#end
#end
  }
#end
#for j in 1..N
  t${j} += t${j - 1} >> ${W}u;
#end
  return ${T}(#{j in 0..N;, ;u32(t${j}) & ${F}_MASK});
