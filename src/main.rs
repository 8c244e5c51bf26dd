//! The `groth16-gpu` command line; see `groth16-gpu help`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
