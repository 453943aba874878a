//! Comparison of rank indexes: bits, build time, lookup time.
//!
//! Prints a table: `cargo bench -p siltstone-structures --bench rank -- 16777216`; the number of
//! keys is optional. All rows use the same hashes in the same run, on one thread.

#![allow(clippy::print_stdout)]

use siltstone_structures::ect::{Ect, EctOptions, HashKey};
use siltstone_structures::hash::hash64_seeded;
use siltstone_structures::rank::{RankIndex, RankIndexBuilder};
use siltstone_structures::recsplit::{RecSplit, RecSplitOptions};
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

/// Size of an entry in a merge, in bytes.
const ENTRY: usize = 100;

/// A merge without its reads: takes entries in hash order, and writes them in the order of the
/// index. Returns millions of entries per second.
fn merge<I: RankIndex>(hashes: &[HashKey], options: &I::Options) -> Result<f64, I::Error> {
    // A sample of all, as the first hashes would not be uniform.
    let step = (hashes.len() >> 20).max(1);
    let hashes: Vec<HashKey> = hashes.iter().step_by(step).copied().collect();
    let mut out: Vec<u8> = Vec::with_capacity(hashes.len() * ENTRY);
    let begin = Instant::now();
    let mut builder = I::builder(options, hashes.len() as u64)?;
    let mut waiting: Vec<[u8; ENTRY]> = Vec::new();
    let mut write = |order: &[u32], waiting: &mut Vec<[u8; ENTRY]>| {
        order.iter().for_each(|&at| out.extend(waiting[at as usize]));
        waiting.drain(..order.len());
    };
    for hash in &hashes {
        let mut entry = [0; ENTRY];
        entry[..20].copy_from_slice(hash);
        waiting.push(entry);
        write(builder.push(hash)?, &mut waiting);
    }
    write(&builder.finish()?.1, &mut waiting);
    black_box(out);
    Ok(hashes.len() as f64 / begin.elapsed().as_secs_f64() / 1e6)
}

/// Prints a row.
fn measure<I: RankIndex>(
    name: &str,
    hashes: &[HashKey],
    queries: &[HashKey],
    options: I::Options,
) -> Result<(), I::Error> {
    let begin = Instant::now();
    let mut builder = I::builder(&options, hashes.len() as u64)?;
    let mut sum = 0u64;
    for hash in hashes {
        sum += builder.push(hash)?.iter().map(|&at| u64::from(at)).sum::<u64>();
    }
    let (index, order) = builder.finish()?;
    black_box((sum, order));
    let built = hashes.len() as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let begin = Instant::now();
    let sum = queries.iter().fold(0u64, |sum, hash| sum.wrapping_add(index.lookup(hash)));
    let lookup = begin.elapsed().as_secs_f64() * 1e9 / queries.len() as f64;
    // Sequentially dependent: each query uses the result of the previous one.
    let begin = Instant::now();
    let mut last = 0u64;
    for hash in queries {
        let mut hash = *hash;
        hash[19] ^= u8::from(last == u64::MAX);
        last = index.lookup(&hash);
    }
    let alone = begin.elapsed().as_secs_f64() * 1e9 / queries.len() as f64;
    black_box((sum, last));
    let bytes = index.to_bytes();
    let begin = Instant::now();
    black_box(I::from_bytes(&bytes)?);
    let read = begin.elapsed().as_secs_f64() * 1e9 / hashes.len() as f64;
    let merged = merge::<I>(hashes, &options)?;
    let bits = bytes.len() as f64 * 8.0 / hashes.len() as f64;
    println!(
        "{name:<32} {bits:>8.4} {built:>10.2} {merged:>10.2} {lookup:>10.0} {alone:>10.0} {read:>9.2}"
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(1 << 20);
    let hashes = sorted_hashes(count);
    let queries: Vec<HashKey> = (0..count.min(1 << 20))
        .map(|query| {
            let at = hash64_seeded(&query.to_le_bytes(), 9) % count.max(1);
            hashes[at as usize]
        })
        .collect();
    println!("{count} keys\n");
    println!(
        "index                            bits/key  build M/s  merge M/s  lookup ns in turn ns  check ns"
    );
    measure::<Ect>("trie, 256 a bucket", &hashes, &queries, EctOptions::default())?;
    for (keys_per_bucket, leaf) in
        [(256, 5), (256, 3), (256, 4), (256, 6), (64, 5), (128, 5), (512, 5), (1_024, 5)]
    {
        let name = format!("RecSplit, {keys_per_bucket} a bucket, leaf {leaf}");
        let options = RecSplitOptions { keys_per_bucket, leaf };
        measure::<RecSplit>(&name, &hashes, &queries, options)?;
    }
    for entries_per_block in [2, 4, 8, 16, 32, 64] {
        let name = format!("trie, {entries_per_block} entries a block");
        let options = EctOptions { entries_per_block, ..EctOptions::default() };
        measure::<Ect>(&name, &hashes, &queries, options)?;
    }
    Ok(())
}
