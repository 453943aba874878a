//! How many requests of an object store each operation takes. The book has the same numbers.

use crate::fixture::Fixture;

/// Counts by their kinds, in the order of the alphabet.
fn counts(requests: &[String]) -> Vec<(String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for request in requests {
        let kind = request.split(' ').next().unwrap();
        *counts.entry(kind.to_owned()).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

#[test]
fn operations_take_the_requests_that_the_book_states() {
    let fixture = Fixture::in_objects();
    fixture.write(0, 1000);
    let store = fixture.objects();
    let assert_takes = |what: &str, expected: &[(&str, usize)]| {
        let requests = store.take_requests();
        let expected: Vec<_> = expected.iter().map(|&(kind, n)| (kind.to_owned(), n)).collect();
        assert_eq!(counts(&requests), expected, "{what}: {requests:#?}");
    };
    let repository = fixture.repository();
    assert_takes("create", &[("GET", 4), ("LIST", 2), ("PUT", 5)]);
    let first = repository.back_up(&fixture.db, &mut |_, _| {}).unwrap();
    let blobs = first.new_blobs as usize;
    assert_takes("first backup", &[("GET", 1), ("LIST", 4), ("PUT", 6 + blobs)]);
    drop(repository);
    fixture.write(1000, 10);
    let repository = fixture.repository();
    let second = repository.back_up(&fixture.db, &mut |_, _| {}).unwrap();
    let new = second.new_blobs as usize;
    assert!(new > 0 && new < blobs, "{second:?}");
    assert_takes("incremental backup", &[("GET", 3), ("LIST", 4), ("PUT", 6 + new)]);
    repository.backups().unwrap();
    assert_takes("list", &[("GET", 2), ("LIST", 1)]);
    let report = repository.check(&mut |_| {}).unwrap();
    let all = report.blobs as usize;
    assert_takes("check", &[("GET", 3 + all), ("LIST", 3), ("PUT", 3)]);
    repository.restore(&second.id, fixture.path("restored"), &mut |_, _| {}).unwrap();
    let backup = repository.backup(&second.id).unwrap();
    let pieces: usize = backup.manifest.files.iter().map(|file| file.blobs.len()).sum();
    assert_takes("restore", &[("DELETE", 1), ("GET", 3 + pieces), ("LIST", 1), ("PUT", 1)]);
    let removal = repository.keep_newest(1).unwrap();
    assert!(removal.blobs > 0);
    assert_takes("keep", &[("DELETE", 2), ("GET", 2), ("LIST", 4), ("PUT", 4)]);
}
