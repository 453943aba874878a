//! Encrypted files over a disk that fails.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::Purpose;
use siltstone_faults::{FaultKind, FaultyVfs, Survival};
use siltstone_structures::SplitMix64;
use siltstone_vfs::encrypted::{EncryptedVfs, KeyRing, MasterKey};
use siltstone_vfs::{Mode, Vfs};

const BLOCK_BYTES: usize = 4096;

/// The frames of an encrypted file, as they are drawn in the module `frame`.
fn frames(bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    for block in bytes.chunks(BLOCK_BYTES).skip(1) {
        let mut rest = block;
        while rest.len() > 30 && rest[12..14] != [0, 0] {
            let len = 30 + usize::from(u16::from_le_bytes([rest[12], rest[13]]));
            let Some((frame, behind)) = rest.split_at_checked(len) else { break };
            found.push(frame);
            rest = behind;
        }
    }
    found
}

#[test]
fn nonce_is_used_once_also_after_failed_writes_and_truncations() {
    let faulty = FaultyVfs::new(3);
    let keys = Arc::new(KeyRing::new(MasterKey::new(&[1; 32]), Vec::new()));
    let vfs = EncryptedVfs::new(Arc::new(faulty.clone()), keys);
    let file = vfs.create("f").unwrap();
    let mut random = SplitMix64::new(9);
    let (mut seen, mut len, mut ends) = (BTreeSet::new(), 0, vec![0]);
    for round in 0..400_u32 {
        let piece = vec![round as u8; 1 + random.below(6000) as usize];
        if random.below(4) == 0 {
            faulty.fail_next(FaultKind::Write, 1);
        }
        let written = file.write_at(len, &piece, Purpose::Log);
        // Each frame that is in the file at any time, also those of failed writes.
        let inner = faulty.open("f", Mode::Read).unwrap();
        let mut bytes = vec![0; inner.len().unwrap() as usize];
        inner.read_at(0, &mut bytes, Purpose::Get).unwrap();
        seen.extend(frames(&bytes).into_iter().map(<[u8]>::to_vec));
        match written {
            Ok(()) => {
                len += piece.len() as u64;
                ends.push(len);
            }
            Err(_) => file.set_len(len).unwrap(),
        }
        if random.below(10) == 0 {
            let keep = 1 + random.below(ends.len() as u64) as usize;
            ends.truncate(keep);
            len = ends[keep - 1];
            file.set_len(len).unwrap();
        }
    }
    // A torn frame has the nonce of its whole frame, which was then never written.
    let whole: BTreeSet<_> = seen.iter().map(|frame| (&frame[..12], &frame[12..])).collect();
    let nonces: BTreeSet<_> = whole.iter().map(|(nonce, _)| *nonce).collect();
    assert!(nonces.len() > 500, "{}", nonces.len());
    assert_eq!(nonces.len(), whole.len());
}

/// Regression: both copies of the header were for the new name before that was durable.
#[test]
fn renamed_file_opens_after_power_cuts_during_its_renames() {
    let keys = Arc::new(KeyRing::new(MasterKey::new(&[1; 32]), Vec::new()));
    let over = |faulty: &FaultyVfs| EncryptedVfs::new(Arc::new(faulty.clone()), keys.clone());
    let check = |faulty: &FaultyVfs, what: &str| {
        let vfs = over(faulty);
        let name = vfs.list().unwrap().remove(0);
        let mut bytes = [0; 7];
        let read =
            vfs.open(&name, Mode::Read).and_then(|it| it.read_at(0, &mut bytes, Purpose::Get));
        read.unwrap_or_else(|error| panic!("{what}, {name}: {error}"));
        assert_eq!(&bytes, b"content");
        name
    };
    let survivals = [Survival::LoseAll, Survival::KeepAll, Survival::Random, Survival::KeepPrefix];
    let mut cuts = 0;
    loop {
        let first = FaultyVfs::new(cuts);
        let vfs = over(&first);
        let file = vfs.create("log").unwrap();
        file.write_at(0, b"content", Purpose::Log).unwrap();
        file.sync(Purpose::Log).unwrap();
        vfs.sync_dir(Purpose::Log).unwrap();
        first.cut_power_at(first.operations() + cuts);
        let renamed = vfs.rename("log", "kept").and_then(|()| vfs.sync_dir(Purpose::Log));
        for survival in survivals {
            check(&first.survivors_as(survival, cuts), &format!("cut {cuts}"));
            // The file of an interrupted rename is renamed again.
            for cut in 0..8 {
                let second = first.survivors_as(survival, cuts);
                let name = check(&second, "before the second rename");
                second.cut_power_at(second.operations() + cut);
                let vfs = over(&second);
                let _ = vfs.rename(&name, "third").and_then(|()| vfs.rename("third", "fourth"));
                for survival in survivals {
                    let left = second.survivors_as(survival, cut);
                    check(&left, &format!("cuts {cuts} and {cut}"));
                }
            }
        }
        if renamed.is_ok() {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 3, "{cuts}");
}
