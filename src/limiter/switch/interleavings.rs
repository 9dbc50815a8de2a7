//! All interleavings of callers that read a switch while it is set.

use super::*;
use crate::core::sync::interleavings::{each, thread};

/// A caller that has seen a switch off never sees it on again, even without other
/// synchronisation.
#[test]
fn a_switch_goes_one_way() {
    each("switch", || {
        let switch = Switch::new();
        let readers = [(); 2].map(|()| {
            let switch = switch.clone();
            thread::spawn(move || {
                let (first, second) = (switch.mode(), switch.mode());
                assert!(first == SwitchMode::On || second != SwitchMode::On);
                switch.shared.counters.add(Ok(Outcome::Allow));
            })
        });
        switch.set(SwitchMode::Shadow);
        switch.set(SwitchMode::Off);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(switch.mode(), SwitchMode::Off);
        assert_eq!(switch.shadow_counts().admitted, 2);
    });
}
