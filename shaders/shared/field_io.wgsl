// Packing of ${F} into 32-bit words, four to a vec4.

// ${F} from its packed words, as they are.
fn ${F}_unpack(#{k in 0..WORDS / 4;, ;w${k}: vec4<u32>}) -> ${T} {
#import field_unpack UP=0
}

// As ${F}_unpack, times 2^${UP_SHIFT}: the working form of a form at rest. Below 2^${UP_SHIFT}·p, so
// usable only as a factor of one product whose other factor is below 2p.
fn ${F}_unpack_up(#{k in 0..WORDS / 4;, ;w${k}: vec4<u32>}) -> ${T} {
#import field_unpack UP=UP_SHIFT
}

#for k in 0..WORDS / 4
// Words ${4 * k} to ${4 * k + 3} of a packed value.
fn ${F}_pack${k}(a: ${T}) -> vec4<u32> {
#for c in 0..4
#let first = 32 * (4 * k + c)
  let w${c} = 0u
#for j in 0..N
#if (j * W < first + 32) & ((j + 1) * W > first)
#if j * W >= first
    | (a.l${j} << ${j * W - first}u)
#else
    | (a.l${j} >> ${first - j * W}u)
#end
#end
#end
    ;
#end
  return vec4<u32>(w0, w1, w2, w3);
}
#end
