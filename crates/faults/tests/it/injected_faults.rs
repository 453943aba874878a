//! Injected errors, full disks and damage: each at the request or byte that a test names.

use siltstone_engine::Error;
use siltstone_faults::{FaultKind, FaultyVfs, Survival};
use siltstone_vfs::{Mode, Vfs};

use crate::support::{WHY, contents, current, durable_file, outcomes, replace};

#[test]
fn each_request_can_be_failed_alone() {
    let whole = FaultyVfs::new(1);
    replace(&whole, &[1; 2000]).unwrap();
    for request in 0..whole.requests() {
        let vfs = FaultyVfs::new(1);
        vfs.fail_at(request, FaultKind::Any);
        let error = replace(&vfs, &[1; 2000]).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "request {request}: {error}");
        assert_eq!(vfs.requests(), request + 1, "it stopped at the failed one");
        replace(&vfs, &[2; 2000]).unwrap();
        assert_eq!(current(&vfs), Some(2));
    }
    let spared = FaultyVfs::new(1);
    spared.fail_at(0, FaultKind::Sync);
    replace(&spared, &[1; 2000]).unwrap();
}

#[test]
fn full_disk_rejects_growth_until_there_is_space() {
    let vfs = FaultyVfs::new(1);
    let file = durable_file(&vfs, "a", &[1; 1000]);
    assert_eq!(vfs.space_used(), 1024);
    vfs.set_capacity(2048);
    let error = file.write_at(500, &[2; 2000], WHY).unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    assert_eq!(vfs.read_raw("a").unwrap(), [1; 1000], "nothing was written");
    assert!(file.reserve(3000).unwrap_err().is_disk_full());
    file.reserve(2048).unwrap();
    file.write_at(0, &[3; 1024], WHY).unwrap();

    vfs.set_torn_on_full(true);
    file.write_at(500, &[2; 2000], WHY).unwrap_err();
    let mut expected = vec![3; 500];
    expected.resize(2048, 2);
    assert_eq!(vfs.read_raw("a").unwrap(), expected, "the sectors that fit");
    assert!(vfs.create("b").unwrap().write_at(0, b"x", WHY).unwrap_err().is_disk_full());

    file.punch_hole(0, 512).unwrap();
    vfs.open("b", Mode::ReadWrite).unwrap().write_at(0, b"x", WHY).unwrap();
    vfs.set_capacity(u64::MAX);
    file.write_at(500, &[2; 2000], WHY).unwrap();
    vfs.set_capacity(0);
    let survivor = vfs.survivors_as(Survival::KeepAll, 0);
    let more = survivor.create("c").unwrap();
    assert!(more.write_at(0, b"x", WHY).unwrap_err().is_disk_full(), "survivors are as small");
}

#[test]
fn damage_changes_the_given_byte_durably() {
    let vfs = FaultyVfs::new(1);
    let sub = vfs.subdirectory("sub").unwrap();
    durable_file(&*sub, "a", &[7; 1500]);
    let before = vfs.operations();
    vfs.flip_bit("sub/a", 3, 0).unwrap();
    vfs.zero_sector("sub/a", 1).unwrap();
    vfs.write_raw("sub/a", 1024, b"raw").unwrap();
    vfs.truncate("sub/a", 1100).unwrap();
    assert_eq!(vfs.operations(), before, "damage is no operation");
    let mut expected = vec![7; 1100];
    expected[3] = 6;
    expected[512..1024].fill(0);
    expected[1024..1027].copy_from_slice(b"raw");
    assert_eq!(outcomes(&vfs, contents), [vec![("sub/a".into(), expected)]].into());

    let past_the_end = [
        vfs.flip_bit("sub/a", 1100, 0).unwrap_err(),
        vfs.zero_sector("sub/a", 3).unwrap_err(),
        vfs.truncate("sub/a", 1101).unwrap_err(),
    ];
    assert!(past_the_end.iter().all(|error| error.to_string().contains("sub/a")));
    assert!(vfs.flip_bit("sub/b", 0, 0).unwrap_err().is_not_found());
    assert!(vfs.flip_bit("no/b", 0, 0).unwrap_err().is_not_found());
}
