use super::*;

fn sizes(max_keys: usize) -> Vec<usize> {
    Shards::new(max_keys, |size| size).each().map(|size| *size).collect()
}

#[test]
fn no_shard_is_so_large_that_its_growth_takes_long() {
    for max_keys in [1, 255, 256, 4_095, 4_096, 100_000, 262_144, 262_145, 20_000_000] {
        let sizes = sizes(max_keys);
        assert_eq!(sizes.iter().sum::<usize>(), max_keys);
        assert!(sizes.iter().all(|size| *size <= MAX_SHARD_SIZE), "{max_keys}: {}", sizes[0]);
        assert!(sizes.len() == 1 || sizes.iter().all(|size| *size >= MIN_SHARD_SIZE));
    }
}

#[test]
fn hashes_are_spread_over_all_shards() {
    let shards = Shards::new(20_000_000, |_| 0);
    let mut dice = fastrand::Rng::with_seed(1);
    (0..200_000).for_each(|_| *lock(shards.of(dice.u64(..))) += 1);
    assert!(shards.each().all(|keys| (90..260).contains(&*keys)));
}
