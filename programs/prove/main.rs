//! The program, whose `lib.rs` says what it is.

fn main() -> std::process::ExitCode {
    prove::main()
}
