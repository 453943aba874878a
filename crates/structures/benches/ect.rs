//! Bits and time per key of entropy-coded tries.
//!
//! Prints a table: `cargo bench -p siltstone-structures --bench ect -- 16777216`; the number of
//! keys is optional.

#![allow(clippy::print_stdout)]

use siltstone_structures::cuckoo::{CuckooFilter, CuckooTable};
use siltstone_structures::ect::{Ect, EctBuilder, EctError, EctOptions, HashKey};
use siltstone_structures::hash::hash64_seeded;
use std::hint::black_box;
use std::time::Instant;

/// Distinct uniform hashes, in order.
fn sorted_hashes(count: u64) -> Vec<HashKey> {
    let mut hashes: Vec<HashKey> = (0..count)
        .map(|key| {
            let mut hash = [0; 20];
            for (part, bytes) in hash.chunks_mut(8).enumerate() {
                let word = hash64_seeded(&key.to_le_bytes(), part as u64);
                bytes.copy_from_slice(&word.to_be_bytes()[..bytes.len()]);
            }
            hash
        })
        .collect();
    hashes.sort_unstable();
    hashes
}

fn build(hashes: &[HashKey], options: EctOptions) -> Result<Ect, EctError> {
    let mut builder = EctBuilder::new(options, hashes.len() as u64)?;
    hashes.iter().try_for_each(|hash| builder.push(hash))?;
    builder.finish()
}

/// Prints size, build time and lookup time for one set of options.
fn measure(hashes: &[HashKey], queries: &[HashKey], options: EctOptions) -> Result<(), EctError> {
    let begin = Instant::now();
    let ect = build(hashes, options)?;
    let built = hashes.len() as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let begin = Instant::now();
    let sum = queries.iter().fold(0u64, |sum, hash| sum.wrapping_add(ect.lookup(hash)));
    let looked_up = begin.elapsed().as_secs_f64() * 1e9 / queries.len() as f64;
    black_box(sum);
    let bytes = ect.to_bytes();
    let begin = Instant::now();
    black_box(Ect::from_bytes(&bytes)?);
    let read = begin.elapsed().as_secs_f64() * 1e9 / hashes.len() as f64;
    let EctOptions { keys_per_bucket, hmax, entries_per_block } = options;
    let bits = bytes.len() as f64 * 8.0 / hashes.len() as f64;
    println!(
        "{keys_per_bucket:>6} {hmax:>5} {entries_per_block:>6} {bits:>10.4} {built:>12.2} \
         {looked_up:>9.0} {read:>12.1}"
    );
    Ok(())
}

/// Prints the cost per entry of a table of the usual LogStore's size, and of a large one.
fn measure_cuckoo(hashes: &[HashKey], slots: u32) {
    let words: Vec<u64> = hashes
        .iter()
        .map(|hash| hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first)))
        .map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .take((f64::from(slots) * 0.93) as usize)
        .collect();
    let mut table = CuckooTable::<15>::with_slots(slots);
    let begin = Instant::now();
    let inserted = words.iter().zip(0..).filter(|&(&word, at)| table.insert(word, at).is_ok());
    let inserted = inserted.count();
    let insert = inserted as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let begin = Instant::now();
    let found: usize = words.iter().map(|&word| table.candidates(word).count()).sum();
    let lookup = words.len() as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let filter = CuckooFilter::from_table(&table);
    let begin = Instant::now();
    let contained = words.iter().filter(|&&word| filter.contains(word)).count();
    let contains = words.len() as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let bits = filter.memory() as f64 * 8.0 / f64::from(filter.len());
    black_box((found, contained));
    println!(
        "{slots:>9} slots: insert {insert:.1} M/s, lookup {lookup:.1} M/s, filter {contains:.1} \
         M/s and {bits:.2} bits per key, load {:.3}",
        table.load()
    );
}

fn main() -> Result<(), EctError> {
    let count = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(1 << 20);
    let hashes = sorted_hashes(count);
    let queries: Vec<HashKey> = (0..count.min(1 << 20))
        .map(|query| {
            let at = hash64_seeded(&query.to_le_bytes(), 9) % count.max(1);
            hashes[at as usize]
        })
        .collect();
    println!("{count} keys\n");
    println!("     g  hmax  block  bits/key   build M/s  lookup ns   check ns/key");
    let default = EctOptions::default();
    for keys_per_bucket in [256, 16, 32, 64, 128, 512, 1_024] {
        measure(&hashes, &queries, EctOptions { keys_per_bucket, ..default })?;
    }
    for hmax in [1, 2, 4, 8, 16, 32] {
        measure(&hashes, &queries, EctOptions { hmax, ..default })?;
    }
    for entries_per_block in [2, 4, 8, 16, 32, 64] {
        measure(&hashes, &queries, EctOptions { entries_per_block, ..default })?;
    }
    println!();
    [1 << 17, 1 << 23].into_iter().for_each(|slots| measure_cuckoo(&hashes, slots));
    Ok(())
}
