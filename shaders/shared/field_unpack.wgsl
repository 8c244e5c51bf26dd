#for j in 0..N
#let first = j * W - UP
  let l${j} = (0u
#for k in 0..WORDS
#if (32 * k < first + W) & (32 * k + 32 > first)
#if 32 * k >= first
    | (w${k / 4}[${k % 4}] << ${32 * k - first}u)
#else
    | (w${k / 4}[${k % 4}] >> ${first - 32 * k}u)
#end
#end
#end
    ) & ${F}_MASK;
#end
  return ${T}(#{j in 0..N;, ;l${j}});
