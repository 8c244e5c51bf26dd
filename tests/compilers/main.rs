//! Kernels compiled by a vendor's real compiler with no card of that vendor: Mesa's driver for AMD
//! makes pipelines for any family of cards (`RADV_FORCE_FAMILY`) and tells what became of them.
//! Nothing runs. `examples/compilers.rs` is the same as a program, for every driver.
//!
//! Test ids are `compilers/driver/family/tier`.

mod report;

use groth16_gpu::kernels::{KERNELS, Kernel};
use libtest_mimic::{Arguments, Failed, Trial};
use report::ceilings::{Ceiling, Ceilings, FAMILIES, SPILLING, against};
use report::{What, page, record};

type Test = fn() -> Result<(), Failed>;

fn main() {
    if report::is_measuring() {
        if let Err(error) = report::main() {
            eprintln!("{error}");
            std::process::exit(1);
        }
        return;
    }
    let found = record(&What::family("navi21", "scan_add"));
    let missing = matches!(found, Ok(None));
    let families = FAMILIES.map(|(family, part)| {
        let id = format!("compilers/radv/{family}/{}", part.trim_start_matches('.'));
        Trial::test(id, move || below_ceilings(family, part)).with_ignored_flag(missing)
    });
    let rest: [(&str, Test); 4] = [
        ("ceilings/both_ways", ceilings_catch_both_ways),
        ("ceilings/file", the_file_is_whole),
        ("page/current", the_page_is_what_the_records_say),
        ("page/kernels", the_page_has_every_kernel),
    ];
    let rest = rest.map(|(id, test)| Trial::test(format!("compilers/{id}"), test));
    // The longest first.
    let trials = families.into_iter().rev().chain(rest).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn below_ceilings(family: &str, part: &str) -> Result<(), Failed> {
    let record = record(&What::family(family, part)).map_err(|e| e.to_string())?;
    let record = record.ok_or("the driver is gone")?;
    let ceilings = Ceilings::read().map_err(|e| e.to_string())?;
    let wrong = ceilings.compare(family, part, &record);
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n").into()),
    }
}

fn ceilings_catch_both_ways() -> Result<(), Failed> {
    const RECORDED: Ceiling = Ceiling {
        registers: 128,
        spills: 100,
        instructions: 4000,
    };
    let with = |registers, spills, instructions| Ceiling {
        registers,
        spills,
        instructions,
    };
    // Messages, and messages if another version of the driver compiled.
    for (now, same, other) in [
        (RECORDED, 0, 0),
        (with(136, 100, 4000), 0, 0),
        (with(160, 100, 4000), 1, 0),
        (with(256, 100, 4000), 1, 1),
        (with(96, 100, 4000), 1, 0),
        (with(128, 140, 4000), 1, 0),
        (with(128, 0, 4000), 1, 0),
        (with(128, 100, 4500), 1, 0),
        (with(128, 900, 6000), 2, 2),
    ] {
        assert_eq!(against(&RECORDED, &now, true).len(), same, "{now:?}");
        assert_eq!(against(&RECORDED, &now, false).len(), other, "{now:?}");
    }
    Ok(())
}

fn the_file_is_whole() -> Result<(), Failed> {
    let ceilings = Ceilings::read().map_err(|e| e.to_string())?;
    let again = Ceilings::parse(&ceilings.to_text()).map_err(|e| e.to_string())?;
    assert_eq!(again, ceilings);
    let key = |family: &str, label: &str| (family.to_owned(), label.to_owned());
    for (family, part) in FAMILIES {
        for source in KERNELS.iter().filter(|k| k.label.contains(part)) {
            assert!(
                ceilings.values.contains_key(&key(family, source.label)),
                "{} has no ceiling for {family}",
                source.label
            );
        }
    }
    for label in SPILLING {
        let spills = |(family, part): &(&str, &str)| {
            label.ends_with(part) && ceilings.values[&key(family, label)].spills > 0
        };
        assert!(
            FAMILIES.iter().any(spills),
            "{label} spills no longer: it need not be on the list"
        );
    }
    Ok(())
}

fn the_page_is_what_the_records_say() -> Result<(), Failed> {
    let written = std::fs::read_to_string(page::path())?;
    let text = page::text().map_err(|e| e.to_string())?;
    assert!(
        written == text,
        "docs/compilers.md is not what its records say; write it with \
         `cargo run --release --example compilers -- page`"
    );
    Ok(())
}

fn the_page_has_every_kernel() -> Result<(), Failed> {
    let written = std::fs::read_to_string(page::path())?;
    for kernel in Kernel::ALL {
        let cell = format!("| {} |", kernel.name());
        assert!(written.contains(&cell), "{} is not in it", kernel.name());
    }
    Ok(())
}
