//! This crate beside its peers, in one run of interleaved rounds. `benches/peers/run.sh` builds
//! this program and starts the server that it measures.

mod cost;
mod in_process;
mod options;
mod page;
mod peers;
mod rounds;
mod site;

use crate::options::Options;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["measure", ..] => {
            let options = Options::read(&arguments[1..]);
            in_process::run(&options);
            rounds::run(&options);
        }
        ["draw", lines, page, picture] => page::draw(lines, page, picture),
        _ => {
            eprintln!("usage: peers measure NAME=VALUE.. | draw LINES PAGE PICTURE; see run.sh");
            std::process::exit(2);
        }
    }
}
