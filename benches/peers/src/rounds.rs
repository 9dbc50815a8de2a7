//! Interleaved rounds: in each, every peer asks for one slot.

use crate::cost::{Cost, median, median_of};
use crate::options::Options;
use crate::peers::{self, YARDSTICK};
use crate::site::{Site, Slot};

/// Prints a line for each peer and number of tasks.
pub(crate) fn run(options: &Options) {
    let site = Site::new(options.port, options.server);
    let peers = peers::all(&site, options);
    for &tasks in &options.tasks {
        let slot = Slot { tasks, length: options.slot };
        let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); peers.len()];
        for round in 0..options.rounds {
            // Each round begins with another peer, so that none always follows the same one.
            for place in 0..peers.len() {
                let at = (place + round) % peers.len();
                costs[at].push((peers[at].ask)(&site, slot));
            }
        }
        let yardstick = peers.iter().position(|peer| peer.name == YARDSTICK);
        let bare = costs[yardstick.expect("it is always measured")].clone();
        for (peer, rounds) in peers.iter().zip(&costs) {
            print(peer.name, tasks, rounds, &bare);
        }
    }
}

/// The ratio is the median of the rounds' ratios.
fn print(name: &str, tasks: usize, rounds: &[Cost], bare: &[Cost]) {
    let ratios = rounds.iter().zip(bare).map(|(one, bare)| one.per_second / bare.per_second);
    let ratio = median_of(ratios.clone());
    let (least, most) = ratios
        .fold((f64::MAX, 0.0_f64), |(least, most), ratio| (least.min(ratio), most.max(ratio)));
    let Cost { per_second, p50_us, client_us, server_us, allocs, failed } = median(rounds);
    let or_dash = |number: Option<f64>| match number {
        Some(number) => format!("{number:.2}"),
        None => String::from("-"),
    };
    println!(
        "peer name={name} tasks={tasks} ratio={ratio:.2} per_second={per_second:.0} p50_us={p50_us:.1} \
         client_us={} server_us={server_us:.2} allocs={} ratio_from={least:.2} ratio_to={most:.2} failed={failed}",
        or_dash(client_us),
        or_dash(allocs),
    );
}
