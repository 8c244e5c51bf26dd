//! Composes every kernel of `shaders/kernels.txt` for each curve and word tier, validates it with
//! naga, reflects its interface, translates it for every back end, and writes one typed table.

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use num_bigint::BigUint;
use num_traits::{One, Zero};
use sha2::{Digest, Sha256};
use shader_compose::{Value, Vars, expand};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

#[path = "src/shader_compose.rs"]
mod shader_compose;

/// A curve: its name, the modulus of the coordinates' field and that of the scalars.
const CURVES: [(&str, &str, &str, &str); 2] = [
    (
        "bls12_381",
        "Bls12_381",
        "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab",
        "73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001",
    ),
    (
        "bn254",
        "Bn254",
        "30644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd47",
        "30644e72e131a029b85045b68181585d2833e84879b9709143e1f593f0000001",
    ),
];

/// log2 of the elements in an NTT tile: 512 × 32 B is the 16 KiB of workgroup memory that every
/// adapter has.
const NTT_TILE_LOG: i64 = 9;
const NTT_THREADS: i64 = 128;

/// Limb forms: bits of a limb, and rows of the product that are unrolled (0: all).
struct LimbForm {
    bits: u32,
    rows_divisor: u32,
}

/// The limb form of a field by tier. 13 × 30 bits is the fastest 64-bit form measured for 381-bit
/// primes, 13-bit limbs the fastest 32-bit one; 29 bits spare a 254-bit field all inner carries.
fn limb_form(tier: &str, modulus: &BigUint) -> LimbForm {
    match (tier, modulus.bits() > 256) {
        ("u64", true) => LimbForm {
            bits: 30,
            rows_divisor: 1,
        },
        ("u64", false) => LimbForm {
            bits: 29,
            rows_divisor: 1,
        },
        _ => LimbForm {
            bits: 13,
            rows_divisor: 5,
        },
    }
}

fn limbs(x: &BigUint, bits: u32, n: u32) -> Vec<i64> {
    let mask = (BigUint::one() << bits) - 1u32;
    let all: Vec<i64> = (0..n)
        .map(|i| i64::try_from((x >> (i * bits)) & &mask).expect("a limb"))
        .collect();
    assert!((x >> (n * bits)).is_zero(), "value exceeds its limbs");
    all
}

/// Template variables of one field, each name after `prefix` (`Q` or `R`).
fn field_vars(vars: &mut Vars, prefix: &str, p: &BigUint, tier: &str) {
    let form = limb_form(tier, p);
    let bits = form.bits;
    let words = u32::try_from(p.bits()).unwrap().div_ceil(32);
    // Enough limbs that R > 32·p: products of lazily reduced and of shifted factors stay below 2p.
    let n = (u32::try_from(p.bits()).unwrap() + 5).div_ceil(bits);
    let up = n * bits - 32 * words;
    let acc_bits = if tier == "u64" { 64 } else { 32 };
    // A row adds two products of `bits`-bit limbs to a column.
    let every = ((1u64 << (acc_bits - 2 * bits)) - 1) / 2;
    let radix = BigUint::one() << (n * bits);
    // (2^up·p)·2p + p·R < 2p·R keeps every product with a shifted factor below 2p, and the sum of
    // two shifted values (Karatsuba) still fits.
    let pairs = if p.bits() > 256 || prefix == "Q" {
        4u32
    } else {
        2
    };
    assert!((p * pairs) << up < radix, "limb form too tight");
    let word_modulus = BigUint::one() << bits;
    let inverse = p.modinv(&word_modulus).expect("p is odd");
    let inv = i64::try_from(&word_modulus - inverse).unwrap();
    let lower = prefix.to_lowercase();
    let mut set = |name: String, value: Value| {
        vars.insert(name, value);
    };
    set(format!("{prefix}N"), i64::from(n).into());
    set(format!("{prefix}W"), i64::from(bits).into());
    set(format!("{prefix}WORDS"), i64::from(words).into());
    set(format!("{prefix}MASK"), ((1i64 << bits) - 1).into());
    set(format!("{prefix}UP"), i64::from(up).into());
    let rows = if form.rows_divisor == 1 {
        n
    } else {
        assert!(n.is_multiple_of(form.rows_divisor));
        n / form.rows_divisor
    };
    set(format!("{prefix}ROWS"), i64::from(rows).into());
    // Carries come after whole turns of a loop.
    let whole_turns = |every: u64| {
        let every = i64::try_from(every.min(1000)).unwrap();
        if rows < n {
            every - every % i64::from(rows)
        } else {
            every
        }
    };
    set(format!("{prefix}EVERY"), whole_turns(every).into());
    set(format!("{lower}inv"), inv.into());
    set(format!("{lower}p"), limbs(p, bits, n).into());
    set(format!("{lower}two_p"), limbs(&(p * 2u32), bits, n).into());
    set(format!("{lower}up_p"), limbs(&(p << up), bits, n).into());
    set(format!("{lower}one"), limbs(&(&radix % p), bits, n).into());
    // Sums that are not brought back below 2p: how many times p a difference adds. The bounds that
    // `field_lax.wgsl` and the point formulas rely on hold with 6 from R > 160·p on, and with 4
    // from R > 80·p on.
    let ratio = u32::try_from(&radix / p).unwrap_or(u32::MAX);
    if prefix == "Q" {
        assert!(ratio >= 80, "no room for lax sums");
        let lax = if ratio >= 160 { 6u32 } else { 4 };
        set("QLAX".into(), i64::from(lax).into());
        set(
            "QLAX_RATIO".into(),
            i64::from(if lax == 6 { 160 } else { 80 }).into(),
        );
        set("qlax_p".into(), limbs(&(p * lax), bits, n).into());
        set("qnegate_p".into(), limbs(&(p * (lax + 2)), bits, n).into());
        set("qfour_p".into(), limbs(&(p * 4u32), bits, n).into());
        // Three products a row and column.
        let every = ((1u64 << (acc_bits - 2 * bits)) - 1) / 3;
        set("QDOT_EVERY".into(), whole_turns(every).into());
        set(
            "qcube".into(),
            limbs(&(&radix * &radix * &radix % p), bits, n).into(),
        );
        let steps = (45_907 * u32::try_from(p.bits()).unwrap() + 30_179).div_ceil(19_929);
        set("QBATCHES".into(), i64::from(steps.div_ceil(bits)).into());
    }
    if prefix == "R" {
        // Sums of transforms (`field_slack.wgsl`): a quotient by 2p from its 17 leading bits.
        assert!(ratio >= 35, "no room for slack sums");
        let two_p = p * 2u32;
        let top = u32::try_from(two_p.bits()).unwrap() - 17;
        let leading = i64::try_from(&two_p >> top).unwrap();
        set("RTOP".into(), i64::from(top).into());
        // A little less than the quotient: tops of loose sums may be two too large.
        set("RQUOTIENT".into(), ((1i64 << 28) / (leading + 3)).into());
        set(
            "RFOUR_TOP".into(),
            i64::try_from((&two_p * 2u32) >> top).unwrap().into(),
        );
        set("RSLACK".into(), i64::from(ratio).into());
        set("rfour_p".into(), limbs(&(p * 4u32), bits, n).into());
        set("reight_p".into(), limbs(&(p * 8u32), bits, n).into());
        let largest = limbs(&two_p, bits, n).into_iter().max().unwrap();
        assert!(4 * largest + 8 < 1 << 31, "multiples of 2p exceed a word");
    }
    let rest = (BigUint::one() << (32 * words)) % p;
    set(format!("{lower}rest"), limbs(&rest, bits, n).into());
}

/// One kernel of `kernels.txt`.
struct Kernel {
    name: String,
    source: String,
    defines: Vec<(String, String)>,
}

fn read_kernels(text: &str) -> Vec<Kernel> {
    text.lines()
        .filter(|l| !l.trim().is_empty() && !l.starts_with('#'))
        .map(|line| {
            let mut words = line.split_whitespace().map(str::to_string);
            Kernel {
                name: words.next().expect("a name"),
                source: words.next().expect("a source"),
                defines: words
                    .map(|w| {
                        let (k, v) = w.split_once('=').expect("NAME=VALUE");
                        (k.to_string(), v.to_string())
                    })
                    .collect(),
            }
        })
        .collect()
}

/// One permutation, composed and checked.
struct Built {
    label: String,
    wgsl: String,
    entry: String,
}

fn camel(name: &str) -> String {
    name.split('_')
        .map(|w| w[..1].to_uppercase() + &w[1..])
        .collect()
}

fn build(kernel: &Kernel, curve: usize, tier: &str, files: &BTreeMap<String, String>) -> Built {
    let (curve_name, curve_variant, fq, fr) = CURVES[curve];
    let label = format!("{}.{curve_name}.{tier}", kernel.name);
    let parse = |hex: &str| BigUint::parse_bytes(hex.as_bytes(), 16).expect("hexadecimal");
    let mut vars = Vars::new();
    vars.insert("TIER".into(), tier.into());
    vars.insert(
        "ACC".into(),
        if tier == "u64" { "u64" } else { "u32" }.into(),
    );
    vars.insert(
        "SIGNED".into(),
        if tier == "u64" { "i64" } else { "i32" }.into(),
    );
    vars.insert(
        "SIGNED_LIT".into(),
        if tier == "u64" { "li" } else { "i" }.into(),
    );
    vars.insert("LIT".into(), if tier == "u64" { "lu" } else { "u" }.into());
    field_vars(&mut vars, "Q", &parse(fq), tier);
    field_vars(&mut vars, "R", &parse(fr), tier);
    vars.insert("TILE_LOG".into(), NTT_TILE_LOG.into());
    vars.insert("NTT_THREADS".into(), NTT_THREADS.into());
    for (k, v) in &kernel.defines {
        vars.insert(k.clone(), v.as_str().into());
    }
    let g2 = vars.get("GROUP") == Some(&"g2".into());
    vars.insert("E".into(), if g2 { "fq2" } else { "fq" }.into());
    vars.insert("ET".into(), if g2 { "Fq2" } else { "Fq" }.into());
    let Some(Value::Int(words)) = vars.get("QWORDS").cloned() else {
        unreachable!()
    };
    vars.insert(
        "POINT_VEC4S".into(),
        (words / 4 * if g2 { 4 } else { 2 }).into(),
    );
    let text = &files[&kernel.source];
    let load = |name: &str| files.get(&format!("shared/{name}.wgsl")).cloned();
    let wgsl = expand(text, &vars, &load).unwrap_or_else(|e| panic!("{label}: {e}"));
    let module = naga::front::wgsl::parse_str(&wgsl).unwrap_or_else(|e| {
        dump(&label, &wgsl);
        panic!("{label}: {}", e.emit_to_string(&wgsl))
    });
    let capabilities = if tier == "u64" {
        Capabilities::SHADER_INT64
    } else {
        Capabilities::empty()
    };
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .unwrap_or_else(|e| {
            dump(&label, &wgsl);
            panic!("{label}: {}", e.emit_to_string(&wgsl))
        });
    translate(&label, &module, &info);
    let mut bindings = 0;
    let mut params_words = 0;
    let mut workgroup_bytes = 0;
    let mut layouter = naga::proc::Layouter::default();
    layouter.update(module.to_ctx()).expect("layout");
    for (_, var) in module.global_variables.iter() {
        let size = layouter[var.ty].size;
        match var.space {
            naga::AddressSpace::Storage { access } => {
                assert!(
                    access.contains(naga::StorageAccess::STORE),
                    "{label}: all storage is read_write"
                );
                bindings += 1;
                let binding = var.binding.expect("bound");
                assert_eq!(
                    (binding.group, binding.binding),
                    (0, bindings),
                    "{label}: bindings in order"
                );
            }
            naga::AddressSpace::Uniform => params_words = size / 4,
            naga::AddressSpace::WorkGroup => workgroup_bytes += size,
            _ => {}
        }
    }
    assert!(bindings <= 8, "{label}: {bindings} storage buffers");
    assert!(workgroup_bytes <= 16384, "{label}: {workgroup_bytes} bytes");
    let entry_point = &module.entry_points[0];
    assert_eq!(entry_point.name, "main");
    let tier_variant = if tier == "u64" { "U64" } else { "U32" };
    let entry = format!(
        "KernelSource {{ kernel: Kernel::{}, curve: CurveId::{curve_variant}, tier: WordTier::{tier_variant}, \
         label: \"{label}\", wgsl: include_str!(concat!(env!(\"OUT_DIR\"), \"/{label}.wgsl\")), \
         workgroup_size: {}, bindings: {bindings}, params_words: {params_words}, workgroup_bytes: {workgroup_bytes} }},\n",
        camel(&kernel.name),
        entry_point.workgroup_size[0],
    );
    Built { label, wgsl, entry }
}

fn dump(label: &str, wgsl: &str) {
    let path = Path::new(&env::var("OUT_DIR").unwrap()).join(format!("{label}.failed.wgsl"));
    let _ = fs::write(path, wgsl);
}

/// A shader that one back end cannot express fails the build.
fn translate(label: &str, module: &naga::Module, info: &ModuleInfo) {
    use naga::back::{hlsl, msl, spv};
    let options = spv::Options {
        lang_version: (1, 3),
        ..Default::default()
    };
    let words = spv::write_vec(module, info, &options, None)
        .unwrap_or_else(|e| panic!("{label}: SPIR-V: {e}"));
    // For vendors' compilers that run without wgpu.
    if let Some(dir) = env::var_os("GROTH16_GPU_SPIRV_DIR") {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        fs::write(Path::new(&dir).join(format!("{label}.spv")), bytes).expect("SPIR-V written");
    }
    let options = msl::Options {
        lang_version: (2, 4),
        fake_missing_bindings: true,
        ..Default::default()
    };
    msl::write_string(module, info, &options, &msl::PipelineOptions::default())
        .unwrap_or_else(|e| panic!("{label}: MSL: {e}"));
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_0,
        fake_missing_bindings: true,
        ..Default::default()
    };
    let mut text = String::new();
    hlsl::Writer::new(&mut text, &options, &hlsl::PipelineOptions::default())
        .write(module, info, None)
        .unwrap_or_else(|e| panic!("{label}: HLSL: {e}"));
}

fn read_files(dir: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    println!("cargo::rerun-if-changed={}", dir.display());
    for entry in fs::read_dir(dir).expect("shaders") {
        let path: PathBuf = entry.expect("shaders").path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        if name.ends_with(".wgsl") {
            files.insert(
                format!("{prefix}{name}"),
                fs::read_to_string(&path).unwrap(),
            );
        }
    }
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=GROTH16_GPU_SPIRV_DIR");
    println!("cargo::rerun-if-changed=src/shader_compose.rs");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap()).join("shaders");
    let out = PathBuf::from(env::var("OUT_DIR").unwrap());
    let mut files = BTreeMap::new();
    read_files(&root, "", &mut files);
    read_files(&root.join("shared"), "shared/", &mut files);
    let kernels = read_kernels(&fs::read_to_string(root.join("kernels.txt")).expect("kernels.txt"));
    let jobs: Vec<(&Kernel, usize, &str)> = kernels
        .iter()
        .flat_map(|k| (0..CURVES.len()).flat_map(move |c| ["u64", "u32"].map(|t| (k, c, t))))
        .collect();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let built: Vec<Built> = thread::scope(|scope| {
        let handles: Vec<_> = jobs
            .chunks(jobs.len().div_ceil(threads))
            .map(|part| {
                let files = &files;
                scope.spawn(move || {
                    part.iter()
                        .map(|(k, c, t)| build(k, *c, t, files))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        handles
            .into_iter()
            .flat_map(|h| h.join().unwrap_or_else(|_| std::process::exit(1)))
            .collect()
    });
    let mut table = String::from(
        "/// Names of the kernels, from `shaders/kernels.txt`.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\npub enum Kernel {\n",
    );
    for k in &kernels {
        writeln!(table, "    {},", camel(&k.name)).unwrap();
    }
    let names: Vec<String> = kernels.iter().map(|k| camel(&k.name)).collect();
    writeln!(
        table,
        "}}\n\nimpl Kernel {{\n/// All kernels.\npub const ALL: [Kernel; {}] = [{}];\n/// The name in `kernels.txt`.\npub fn name(self) -> &'static str {{ match self {{ {} }} }}\n}}",
        kernels.len(),
        names.iter().map(|n| format!("Kernel::{n}")).collect::<Vec<_>>().join(", "),
        kernels.iter().map(|k| format!("Kernel::{} => \"{}\"", camel(&k.name), k.name)).collect::<Vec<_>>().join(", "),
    )
    .unwrap();
    writeln!(
        table,
        "/// log2 of the elements in an NTT tile.\npub const NTT_TILE_LOG: u32 = {NTT_TILE_LOG};"
    )
    .unwrap();
    writeln!(
        table,
        "/// Every permutation of every kernel.\npub static KERNELS: [KernelSource; {}] = [",
        built.len()
    )
    .unwrap();
    for b in &built {
        fs::write(out.join(format!("{}.wgsl", b.label)), &b.wgsl).unwrap();
        table.push_str(&b.entry);
    }
    table.push_str("];\n");
    let mut digest = Sha256::new();
    for b in &built {
        digest.update(&b.label);
        digest.update(&b.wgsl);
    }
    let digest: String = digest.finalize()[..16]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    writeln!(
        table,
        "/// Digest of the text of all kernels.\npub const KERNELS_DIGEST: &str = \"{digest}\";"
    )
    .unwrap();
    fs::write(out.join("kernels.rs"), table).unwrap();
}
