//! Power cuts at every operation, also of a recovery; no request works without power.

use std::collections::BTreeSet;

use siltstone_faults::FaultyVfs;
use siltstone_vfs::{Mode, Vfs};

use crate::support::{Random, WHY, contents, current, durable_file, every_way, outcomes, replace};

#[test]
fn atomic_replacement_survives_a_cut_at_every_operation_and_during_recovery() {
    let whole = FaultyVfs::new(1);
    replace(&whole, &[1; 2000]).unwrap();
    let after_first = whole.operations();
    replace(&whole, &[2; 2000]).unwrap();
    assert_eq!(whole.operations(), 2 * after_first);

    let mut recovered = BTreeSet::new();
    for cut in 0..whole.operations() {
        let vfs = FaultyVfs::new(1);
        vfs.cut_power_at(cut);
        let first = replace(&vfs, &[1; 2000]);
        let second = first.clone().and_then(|()| replace(&vfs, &[2; 2000]));
        assert!(second.is_err() && vfs.power_is_off(), "operation {cut}");
        assert_eq!(vfs.operations(), cut + 1, "nothing is counted once power is off");
        for (seed, survivor) in every_way(&vfs).take(12) {
            let now = current(&survivor);
            let allowed = if first.is_err() { [None, Some(1)] } else { [Some(1), Some(2)] };
            assert!(allowed.contains(&now), "operation {cut}, seed {seed}: {now:?}");
            assert!(!survivor.power_is_off());
            assert_eq!(survivor.operations(), 0);

            survivor.cut_power_at(seed % 7);
            replace(&survivor, &[3; 2000]).unwrap_err();
            for (_, again) in every_way(&survivor).take(5) {
                let found = current(&again);
                assert!(found == now || found == Some(3), "{now:?} became {found:?}");
                recovered.insert(found);
            }
        }
    }
    assert_eq!(recovered, [None, Some(1), Some(2), Some(3)].into());
}

#[test]
fn replacement_without_a_sync_is_detected() {
    let vfs = FaultyVfs::new(1);
    durable_file(&vfs, "CURRENT", &[1; 2000]);
    // There is no sync before the rename.
    vfs.create("tmp").unwrap().write_at(0, &[2; 2000], WHY).unwrap();
    vfs.rename("tmp", "CURRENT").unwrap();
    let torn = |survivor: &FaultyVfs| {
        let bytes = survivor.read_raw("CURRENT").unwrap();
        bytes != [1; 2000] && bytes != [2; 2000]
    };
    assert_eq!(outcomes(&vfs, torn), [false, true].into());
}

#[test]
fn every_request_fails_while_power_is_off() {
    let vfs = FaultyVfs::new(1);
    let file = durable_file(&vfs, "a", b"abc");
    vfs.cut_power();
    let errors = [
        file.read_at(0, &mut [0], WHY).err(),
        file.write_at(0, b"x", WHY).err(),
        file.sync(WHY).err(),
        file.len().err(),
        file.set_len(1).err(),
        file.reserve(1).err(),
        file.punch_hole(0, 1).err(),
        vfs.create("b").err(),
        vfs.open("a", Mode::Read).err(),
        vfs.exists("a").err(),
        vfs.list().err(),
        vfs.remove("a").err(),
        vfs.rename("a", "b").err(),
        vfs.sync_dir(WHY).err(),
        vfs.subdirectory("s").err(),
        vfs.subdirectories().err(),
        vfs.lock("L").err(),
        vfs.link("a", &vfs, "b").err(),
    ];
    for (i, error) in errors.into_iter().enumerate() {
        let text = error.unwrap_or_else(|| panic!("number {i} worked without power")).to_string();
        assert!(text.ends_with("power is off") && text.contains("faulty:"), "{text}");
    }
    assert_eq!(outcomes(&vfs, contents), [vec![("a".into(), b"abc".to_vec())]].into());
}

#[test]
fn same_seed_gives_the_same_survivor() {
    let busy = || {
        let vfs = FaultyVfs::new(9);
        vfs.set_error_rate(0.1);
        let mut random = Random(4);
        let mut errors = Vec::new();
        for i in 0..40 {
            let Ok(file) = vfs.create(&format!("{i}")) else { continue };
            let bytes = vec![i; random.below(3000) as usize];
            errors.push(file.write_at(0, &bytes, WHY).is_err());
            errors.push(file.sync(WHY).is_err());
        }
        (vfs, errors)
    };
    let ((first, first_errors), (second, second_errors)) = (busy(), busy());
    assert_eq!(first_errors, second_errors);
    assert!(first_errors.contains(&true) && first_errors.contains(&false));
    let mut different = BTreeSet::new();
    for seed in 0..30 {
        let survivor = contents(&first.survivors(seed));
        assert_eq!(survivor, contents(&second.survivors(seed)), "seed {seed}");
        different.insert(survivor);
    }
    assert!(different.len() > 15, "only {} different survivors", different.len());
}
